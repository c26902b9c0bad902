//! The engine's devices and the memory that is registered, on all ranks. Both are had once for a point: what is measured
//! is what a worker does with them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::worker::Worker;
use crate::deadlines::DEADLINES;
use crate::kinds::kind::{Stage, together};
use crate::settings::Numa;
use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::{Domain, EngineReport, OpenRequest, Verb, WorkerConfig, split_name};
use tonnage_plan::connect::ConnectPoint;
use tonnage_ranks::Rank;
use tonnage_record::Effective;
use tonnage_record::environment::Memories;
use tonnage_units::{Error, Result};

/// The operation by which the first byte moves: the peer sees its completion, so that no side waits in vain.
pub const FIRST_BYTE: Verb = Verb::WriteImm;

/// Devices and memory that stay open between rounds on this rank.
pub struct Opened {
    domains: Vec<Arc<dyn Domain>>,
    /// Of each worker.
    memories: Vec<Arc<dyn Memory>>,
    /// Of each worker; `None` where it is not pinned.
    cpus: Vec<Option<u32>>,
    yielding: bool,
    moves_bytes: bool,
}

/// A description of one rank, for the others.
#[derive(Serialize, Deserialize)]
struct Said {
    engine: EngineReport,
    memory: Memories,
    cpus: Vec<Option<u32>>,
    yielding: bool,
}

impl Opened {
    /// Opens the devices and allocates the memory on all ranks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on every rank when some rank lacks what is needed; what failed and where otherwise.
    pub fn open(point: &ConnectPoint, stage: &mut Stage<'_>) -> Result<Self> {
        stage.rank.phase(&format!("opening {}", point.engine));
        // Once per host, before anybody allocates: later the others' memory would count as not available.
        let fits = match stage.rank.identity().local_rank {
            0 => check_fits(point, stage),
            _ => Ok(()),
        };
        stage
            .rank
            .agree("memory of the hosts", fits, DEADLINES.step)?;
        let (opened, mine) = match Self::open_local(point, stage) {
            Ok(opened) => (Some(opened), Ok(())),
            Err(error) => (None, Err(error)),
        };
        stage.rank.agree("open the engine", mine, DEADLINES.step)?;
        opened.ok_or_else(|| Error::Failed("the engine did not open".into()))
    }

    fn open_local(point: &ConnectPoint, stage: &Stage<'_>) -> Result<Self> {
        let Stage {
            rank,
            settings,
            host,
            ..
        } = stage;
        let entry = settings.lists.engine(&point.engine)?;
        let domains = (entry.open)(&OpenRequest {
            variant: split_name(&point.engine).1,
            options: &point.engine_options,
            devices: if entry.has_devices {
                &settings.devices
            } else {
                &[]
            },
            libraries: &settings.libraries,
            one_host: rank.hosts().is_one_network(),
            address: rank.local_ip(),
            verbs: &[FIRST_BYTE],
        })?;
        let Some(caps) = domains.first().map(|domain| domain.caps()) else {
            return Err(Error::Failed(format!(
                "engine {} opened no device",
                point.engine
            )));
        };
        if !caps.verbs.contains(&FIRST_BYTE) {
            return Err(Error::Unavailable {
                what: format!("{} on {}", FIRST_BYTE.name(), point.engine),
                why: "the first byte moves by it, and the device that was opened does not offer it"
                    .into(),
                how: "Choose another --engine or another device".into(),
            });
        }
        let (index, count) = host.neighbours;
        let topology = &host.topology;
        let placement =
            tonnage_machine::place_workers(topology, index, count, point.workers, &settings.cpus)?;
        let row = settings.lists.memory(&point.memory)?;
        let allocate = |&cpu: &Option<u32>| {
            (row.allocate)(&Request {
                variant: split_name(&point.memory).1,
                bytes: point.register_bytes,
                shared: caps.shared_memory,
                node: settings.numa.node(topology, cpu)?,
                node_required: matches!(settings.numa, Numa::Node(_)),
            })
        };
        let memories = placement.cpus.iter().map(allocate);
        Ok(Self {
            memories: memories.collect::<Result<_>>()?,
            cpus: placement.cpus,
            yielding: placement.yielding,
            moves_bytes: entry.moves_bytes,
            domains,
        })
    }

    /// Descriptions of all ranks, ranks with the same answer together.
    ///
    /// # Errors
    /// When a rank does not answer, or unreadably.
    pub fn effective(&self, rank: &mut Rank) -> Result<Vec<Effective>> {
        let engine = self.domains.first().map(|domain| domain.report());
        let mut memory: Vec<_> = self.memories.iter().map(|one| one.report()).collect();
        memory.dedup();
        let unsayable = |error| Error::Failed(format!("cannot describe this rank: {error}"));
        let said = Said {
            engine: engine.unwrap_or_default(),
            memory: memory.into(),
            cpus: self.cpus.clone(),
            yielding: self.yielding,
        };
        let mine = serde_json::to_vec(&said).map_err(unsayable)?;
        let all = rank.all_gather("what the engines are", mine, DEADLINES.step)?;
        let all = (0u32..).zip(&all).map(|(from, bytes)| {
            let said: Said = serde_json::from_slice(bytes).map_err(|error| {
                Error::Failed(format!("rank {from} described itself unreadably: {error}"))
            })?;
            Ok(Effective {
                ranks: String::new(),
                engine: said.engine,
                memory: said.memory,
                cpus: said.cpus,
                yielding: said.yielding,
            })
        });
        Ok(together(all.collect::<Result<Vec<_>>>()?.into_iter()))
    }

    /// The workers of this rank, before they have set up anything, with their CPUs.
    pub fn workers(
        &self,
        point: &ConnectPoint,
        stage: &Stage<'_>,
        stopped: &Arc<AtomicBool>,
    ) -> Vec<(Worker, Option<u32>)> {
        let (id, ranks) = (stage.rank.id(), point.ranks);
        let targets = point.traffic.targets(id, ranks);
        let initiators = point.traffic.initiators(id, ranks);
        let peers = (targets.len() + initiators.len()) as u32;
        let local_rank = stage.rank.identity().local_rank;
        let memories = (0u32..).zip(&self.memories).zip(&self.cpus);
        memories
            .map(|((index, memory), &cpu)| {
                // Workers of the same place on their hosts get devices of the same place in the list.
                let place = (local_rank * point.workers + index) as usize % self.domains.len();
                let config = WorkerConfig {
                    rank: id,
                    worker: index,
                    peers_max: peers,
                    depth: 1,
                    sleeps: false,
                    clock: stage.settings.clock,
                };
                let ends = (targets.clone(), initiators.clone());
                let domain = self.domains[place].clone();
                let worker = Worker::new(
                    domain,
                    memory.clone(),
                    config,
                    ends,
                    self.moves_bytes,
                    stopped.clone(),
                );
                (worker, cpu)
            })
            .collect()
    }
}

/// Refuses memory that the workers of this rank's host cannot have together, with what fits.
fn check_fits(point: &ConnectPoint, stage: &Stage<'_>) -> Result<()> {
    let local_size = u64::from(stage.rank.identity().local_size.unwrap_or(1));
    let request = Request {
        variant: split_name(&point.memory).1,
        bytes: point
            .register_bytes
            .saturating_mul(u64::from(point.workers))
            .saturating_mul(local_size),
        ..Request::default()
    };
    let row = stage.settings.lists.memory(&point.memory)?;
    (row.check_fits)(&request).map_err(|error| match error {
        Error::Unavailable { why, .. } => Error::Unavailable {
            what: format!("{} bytes of memory to register", request.bytes),
            why,
            how: "Choose a smaller --register, fewer --workers or fewer ranks on this host".into(),
        },
        other => other,
    })
}
