//! The engine's devices and the memory that is registered, on all ranks. Both are had once for a point: what is measured
//! is what a worker does with them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::worker::{FIRST_BYTE, Worker};
use crate::agreement::settle;
use crate::deadlines::DEADLINES;
use crate::json::Json;
use crate::kinds::kind::{Stage, together};
use crate::opening::{Requirements, Seat, reports};
use tonnage_engine::{Caps, EngineReport, Peer};
use tonnage_plan::connect::ConnectPoint;
use tonnage_ranks::Rank;
use tonnage_record::Effective;
use tonnage_units::{Error, Result};

/// Devices and memory that stay open between rounds on this rank.
pub struct Opened {
    /// One for each worker, and the CPU that it is pinned to.
    seats: Vec<(Seat, Option<u32>)>,
    /// The ranks that it connects to, and those that connect to it.
    ends: (Vec<Peer>, Vec<Peer>),
    yielding: bool,
    moves_bytes: bool,
    /// The report of the devices.
    engine: EngineReport,
}

impl Opened {
    /// Opens the devices and allocates the memory on all ranks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on every rank when some rank lacks what is needed; what failed and where otherwise.
    pub fn open(point: &ConnectPoint, stage: &mut Stage<'_>) -> Result<Self> {
        stage.rank.phase(&format!("opening {}", point.engine));
        let (id, ranks) = (stage.rank.id(), point.ranks);
        let ends = (
            point.traffic.targets(id, ranks),
            point.traffic.initiators(id, ranks),
        );
        let requirements = Requirements {
            entry: stage.settings.lists.engine(&point.engine)?,
            engine: &point.engine,
            options: &point.engine_options,
            verbs: &[FIRST_BYTE],
            memory: &point.memory,
            bytes: point.register_bytes,
            workers: point.workers,
            peers_max: (ends.0.len() + ends.1.len()) as u32,
            depth: 1,
        };
        let fits = requirements.check_memory(stage.rank, stage.settings);
        let bytes = requirements.host_bytes(stage.rank);
        let fits = fits.map_err(|error| too_much(error, bytes));
        stage
            .rank
            .agree("memory of the hosts", fits, DEADLINES.step)?;
        let mine = Self::open_local(&requirements, ends, stage);
        settle(stage.rank, "open the engine", mine)
    }

    fn open_local(
        requirements: &Requirements<'_>,
        ends: (Vec<Peer>, Vec<Peer>),
        stage: &Stage<'_>,
    ) -> Result<Self> {
        let (rank, settings, host) = (&*stage.rank, stage.settings, stage.host);
        let devices = requirements.open(rank, settings, host)?;
        for domain in &devices.domains {
            check_caps(domain.caps(), requirements.engine)?;
        }
        devices.check_used(rank, requirements.workers)?;
        let seat = |(index, &cpu): (u32, &Option<u32>)| {
            let seat = requirements.seat(&devices, (index, cpu), rank, settings, host)?;
            Ok((seat, cpu))
        };
        let seats = (0u32..).zip(&devices.placement.cpus).map(seat);
        Ok(Self {
            seats: seats.collect::<Result<_>>()?,
            ends,
            yielding: devices.placement.yielding,
            moves_bytes: requirements.entry.moves_bytes,
            engine: devices.report(),
        })
    }

    /// Descriptions of all ranks, ranks with the same answer together.
    ///
    /// # Errors
    /// When a rank does not answer, or unreadably.
    pub fn effective(&self, rank: &mut Rank) -> Result<Vec<Effective>> {
        let memories = self.seats.iter().map(|(seat, _)| &seat.memory);
        let mine = Effective {
            ranks: String::new(),
            engine: self.engine.clone(),
            memory: reports(memories).into(),
            cpus: self.seats.iter().map(|(_, cpu)| *cpu).collect(),
            yielding: self.yielding,
        };
        let all = rank.gather("what the engines are", &Json(mine), DEADLINES.step)?;
        Ok(together(all.into_iter().map(|Json(one)| one)))
    }

    /// The ranks that each worker is connected with.
    pub fn peers(&self) -> Vec<Peer> {
        let mut all = [&self.ends.0[..], &self.ends.1[..]].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The workers of this rank, before they have set up anything, with their CPUs.
    pub fn workers(&self, stopped: &Arc<AtomicBool>) -> Vec<(Worker, Option<u32>)> {
        let seats = self.seats.iter();
        let worker = |(seat, cpu): &(Seat, Option<u32>)| {
            let worker = Worker::new(
                Arc::clone(&seat.domain),
                Arc::clone(&seat.memory),
                seat.config.clone(),
                self.ends.clone(),
                self.moves_bytes,
                Arc::clone(stopped),
            );
            (worker, *cpu)
        };
        seats.map(worker).collect()
    }
}

/// Refuses a device that cannot move the first byte.
fn check_caps(caps: &Caps, name: &str) -> Result<()> {
    if caps.verbs.contains(&FIRST_BYTE) {
        return Ok(());
    }
    Err(Error::Unavailable {
        what: format!("{} on {name}", FIRST_BYTE.name()),
        why: "the first byte moves by it, and a device that was opened does not offer it".into(),
        how: "Choose another --engine or another device".into(),
    })
}

/// The refusal of memory that the workers of a host cannot have together, in the words of what is registered.
fn too_much(error: Error, bytes: u64) -> Error {
    match error {
        Error::Unavailable { why, .. } => Error::Unavailable {
            what: format!("{bytes} bytes of memory to register"),
            why,
            how: "Choose a smaller --register, fewer --workers or fewer ranks on this host".into(),
        },
        other => other,
    }
}
