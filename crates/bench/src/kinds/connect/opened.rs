//! The engine's devices and the memory to register, on all ranks. Both are created once per point, because only their
//! use by the workers is measured.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::capacity::{Capacity, Descriptors};
use super::worker::{ConnectWorker, FIRST_BYTES, WorkerRefusal, first_byte};
use crate::deadlines::DEADLINES;
use crate::failure::all_or_none;
use crate::failure::{StepFailure, agree};
use crate::json::Json;
use crate::kinds::kind::{Stage, group_equal};
use crate::opening::{CommunicatingPairs, Devices, Requirements, SizedBy, UnopenedWorker, reports};
use crate::settings::Settings;
use tonnage_engine::{Caps, Peer, Verb};
use tonnage_plan::connect::ConnectPoint;
use tonnage_record::{Effective, Placed};
use tonnage_units::{Error, Result};

/// Devices and memory of this rank that stay open between rounds.
pub struct OpenDevices {
    devices: Devices,
    /// Domain and memory of each worker, and the CPU that the worker is pinned to. Before
    /// [`OpenDevices::allocate_all_workers`], there is only the first worker.
    workers: Vec<(UnopenedWorker, Option<u32>)>,
    /// The ranks that each worker connects to, and the ranks that connect to it.
    ends: (Vec<Peer>, Vec<Peer>),
    /// True if the engine moves bytes, so that both ends can observe a connection.
    pub moves_bytes: bool,
    /// File descriptors that were open before any worker had its memory.
    unused: Option<Descriptors>,
}

impl OpenDevices {
    /// Opens the devices on all ranks, and allocates the memory of the first worker of each rank.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on every rank if any rank lacks a requirement. Otherwise the failure, with the rank where
    /// it happened.
    pub fn open(point: &ConnectPoint, stage: &mut Stage<'_>) -> Result<Self> {
        stage.rank.set_phase(&format!("opening {}", point.engine));
        let (id, roles) = (stage.rank.id(), point.roles());
        let ends = (roles.targets(id), roles.initiators_of(id));
        let requirements = requirements(point, &ends, stage.settings)?;
        let fits = requirements.check_host(stage.rank, stage.settings);
        stage
            .rank
            .agree("room on the hosts", fits, DEADLINES.step)?;
        let mine = Self::open_local(&requirements, ends, stage);
        all_or_none(stage.rank, "open the engine", mine)
    }

    fn open_local(
        requirements: &Requirements<'_>,
        ends: (Vec<Peer>, Vec<Peer>),
        stage: &Stage<'_>,
    ) -> Result<Self> {
        let (rank, settings, host) = (&*stage.rank, stage.settings, stage.host);
        let memories = requirements.own_device(rank, settings);
        let devices = requirements.open(rank, settings, host, &memories)?;
        for domain in &devices.domains {
            check_caps(domain.caps(), requirements.engine)?;
        }
        devices.check_used(rank, requirements.workers)?;
        let mut opened = Self {
            devices,
            workers: Vec::new(),
            ends,
            moves_bytes: requirements.entry.moves_bytes,
            unused: Descriptors::count(),
        };
        opened.allocate_next_worker(requirements, stage)?;
        Ok(opened)
    }

    /// Allocates the memory of the next worker.
    fn allocate_next_worker(
        &mut self,
        requirements: &Requirements<'_>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let (rank, settings, host) = (&*stage.rank, stage.settings, stage.host);
        let index = self.workers.len();
        let cpu = self.devices.placement.cpus.get(index).copied().flatten();
        let worker = requirements.prepare_worker(
            &self.devices,
            (index as u32, cpu),
            rank,
            settings,
            host,
        )?;
        self.workers.push((worker, cpu));
        Ok(())
    }

    /// Allocates the memory of all workers, if there are enough file descriptors for their connections. `descriptors`
    /// has this process's counts while the first worker was connected.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the number of workers that fit, or another failure.
    pub fn allocate_all_workers(
        &mut self,
        point: &ConnectPoint,
        descriptors: Option<Descriptors>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        if let Some((unused, of_one)) = self.unused.zip(descriptors) {
            unused.check(of_one.open.saturating_sub(unused.open), point.threads)?;
        }
        let requirements = requirements(point, &self.ends, stage.settings)?;
        let workers = point.threads as usize;
        while self.workers.len() < workers {
            let capacity = Capacity::new(workers, self.workers.len(), point.register_bytes);
            let seated = self.allocate_next_worker(&requirements, stage);
            let refusals = seated.err().map(WorkerRefusal::from).into_iter().collect();
            capacity.explain(refusals).map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Returns the effective configuration of all ranks (equal ones grouped), and the sockets of the connected pairs.
    ///
    /// # Errors
    /// If a rank does not answer, or its answer cannot be decoded. [`StepFailure::Point`] if the sockets are not those
    /// that the user requested.
    pub fn effective(
        &self,
        point: &ConnectPoint,
        stage: &mut Stage<'_>,
    ) -> Result<(Vec<Effective>, Option<Placed>), StepFailure> {
        let first_device = self.devices.domains.first();
        let verb = first_device.and_then(|domain| first_byte(domain.caps()));
        let mut engine = self.devices.report();
        engine.facts = std::mem::take(&mut engine.facts)
            .with_optional_fact("first_byte", verb.map(Verb::name));
        let memories = self.workers.iter().map(|(worker, _)| &worker.memory);
        let mine = Effective {
            engine,
            memory: reports(memories).into(),
            cpus: self.devices.placement.cpus.clone(),
            sockets: self.devices.sockets(&stage.host.topology),
            yielding: self.devices.placement.yielding,
            ..Effective::default()
        };
        let what = "descriptions of the engines";
        let all = stage.rank.collect(what, &Json(mine), DEADLINES.step)?;
        let (mut placed, mut fits) = (None, Ok(()));
        if stage.rank.id() == 0 {
            let sockets: Vec<_> = all.iter().map(|Json(one)| &*one.sockets).collect();
            placed = pairs(point).placed(stage.rank.hosts(), &sockets);
            fits = pairs(point).check(placed);
        }
        agree(stage.rank, "place of the pairs", fits, DEADLINES.step)?;
        Ok((group_equal(all.iter().map(|Json(one)| one.clone())), placed))
    }

    /// Returns the ranks that each worker is connected to.
    pub fn peers(&self) -> Vec<Peer> {
        let mut all = [&self.ends.0[..], &self.ends.1[..]].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the workers of this rank that have memory, each with its CPU. They have not set up anything yet.
    pub fn workers(&self, stopped: &Arc<AtomicBool>) -> Vec<(ConnectWorker, Option<u32>)> {
        let workers = self.workers.iter();
        let worker = |(worker, cpu): &(UnopenedWorker, Option<u32>)| {
            let worker = ConnectWorker::new(
                Arc::clone(&worker.domain),
                Arc::clone(&worker.memory),
                worker.config.clone(),
                self.ends.clone(),
                self.moves_bytes,
                Arc::clone(stopped),
            );
            (worker, *cpu)
        };
        workers.map(worker).collect()
    }
}

fn requirements<'a>(
    point: &'a ConnectPoint,
    ends: &(Vec<Peer>, Vec<Peer>),
    settings: &'a Settings,
) -> Result<Requirements<'a>> {
    let entry = settings.lists.engine(&point.engine)?;
    let engine = (entry, &*point.engine, &point.engine_options);
    let sized_by = SizedBy {
        option: "--register",
        bytes: point.register_bytes,
    };
    let memory = (point.register_bytes, sized_by);
    Ok(Requirements {
        verbs: FIRST_BYTES.to_vec(),
        workers: point.threads,
        measuring: point.threads,
        peers_max: (ends.0.len() + ends.1.len()) as u32,
        ..Requirements::same_for_all_ranks(engine, &point.memory, memory, pairs(point))
    })
}

fn pairs(point: &ConnectPoint) -> CommunicatingPairs {
    CommunicatingPairs {
        roles: point.roles(),
        asked: point.place,
    }
}

/// Rejects a device that offers none of the verbs for the first byte.
fn check_caps(caps: &Caps, name: &str) -> Result<()> {
    if first_byte(caps).is_some() {
        return Ok(());
    }
    let verbs = FIRST_BYTES.map(Verb::name).join(" or ");
    Err(Error::Unavailable {
        what: format!("{verbs} on {name}"),
        why: "the first byte moves by it, and a device that was opened does not offer it".into(),
        how: "Choose another --engine or another device".into(),
    })
}
