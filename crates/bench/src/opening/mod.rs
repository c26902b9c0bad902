//! Everything that a rank opens before its workers can move bytes between memories, for every kind that does so.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | devices of the engine, places of the workers, their memories, and the devices that those will be of |
//! | [`engine`] | an engine that is open on all ranks, its workers connected |
//! | [`description`] | what ranks tell each other of their engines |
//! | `credit_lanes` | memory and lanes of credits, for engines whose sends complete before they are taken |
//! | `introduction` | what workers tell their peers, and what they were told |
//! | [`openings`] | what follows from the engines of all ranks, for each of them |
//! | `memory` | the check that the workers' memories fit together |
//! | `pairs` | CPUs of workers that exchange bytes, and the sockets that they are really on |
//!
//! Demands of a kind on a device beyond its verbs are in [`crate::kinds`].

pub(crate) mod credit_lanes;
pub mod description;
pub mod engine;
pub(crate) mod introduction;
mod memory;
pub mod openings;
mod pairs;

pub(crate) use memory::{SizedBy, check_memory_alike};
pub(crate) use pairs::Pairs;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::deadlines::DEADLINES;
use crate::host::RankHost;
use crate::settings::{Numa, Settings};
use tonnage_engine::memory::{Available, BusDevice, Memory, MemoryEntry, MemoryReport, Request};
use tonnage_engine::paths::{Division, Rails, divide};
use tonnage_engine::{
    DeviceRequest, Domain, EngineOptions, EngineReport, Entry, OpenRequest, RankMemory, Verb,
    WorkerConfig, fact_names, split_name,
};
use tonnage_machine::{Placement, Topology, Workers};
use tonnage_ranks::{Rank, pack, unpack};
use tonnage_units::{Error, Result};

/// Requirements of a point, or of several, on this rank.
pub(crate) struct Requirements<'a> {
    /// The engine's row.
    pub(crate) entry: &'a Entry,
    /// Its name with the variant.
    pub(crate) engine: &'a str,
    pub(crate) options: &'a EngineOptions,
    pub(crate) verbs: Vec<Verb>,
    /// The memory's name with the variant.
    pub(crate) memory: &'a str,
    /// The option that names it.
    pub(crate) memory_option: &'static str,
    /// Names of the memories of all ranks.
    pub(crate) memories: Vec<&'a str>,
    /// Options of memories, of which each memory takes those that it knows; `None` for their defaults.
    pub(crate) memory_options: Option<&'a EngineOptions>,
    /// The name of another rank's memory.
    pub(crate) memory_of: Box<dyn Fn(u32) -> &'a str + 'a>,
    /// Bytes of each worker's memory on this rank.
    pub(crate) bytes: u64,
    /// Bytes of each worker's memory on another rank.
    pub(crate) bytes_of: Box<dyn Fn(u32) -> u64 + 'a>,
    pub(crate) sized_by: SizedBy,
    pub(crate) workers: u32,
    /// Those of them that measure, the first ones; they get CPUs of their own before the others.
    pub(crate) measuring: u32,
    /// Paths of each worker towards each peer.
    pub(crate) division: Division,
    /// Places by which this rank's devices are turned.
    pub(crate) rail_shift: u32,
    /// Ranks that exchange bytes, and where they are to be.
    pub(crate) pairs: Pairs,
    /// Peers of each worker, at most.
    pub(crate) peers_max: u32,
    /// Operations in flight on a lane, at most.
    pub(crate) depth: u32,
    /// Completions are slept for.
    pub(crate) sleeps: bool,
    /// Every operation is compared, so that both ends write messages about it.
    pub(crate) compares_each: bool,
}

/// Devices that are open on this rank, and the CPUs of the workers that will use them.
pub(crate) struct Devices {
    /// At least one.
    pub(crate) devices: Vec<Arc<dyn Domain>>,
    /// Devices with the paths of each worker: one for each device, or one for all of them together.
    pub(crate) domains: Vec<Arc<dyn Domain>>,
    /// True when they were named for this rank alone.
    of_rank: bool,
    /// True when some of them may be left unused.
    may_idle: bool,
    pub(crate) placement: Placement,
}

impl Devices {
    /// The socket of each worker's CPU.
    pub(crate) fn sockets(&self, topology: &Topology) -> Vec<Option<u32>> {
        let cpus = self.placement.cpus.iter();
        cpus.map(|cpu| topology.socket_of_cpu((*cpu)?)).collect()
    }

    /// The first device's report; of several, each one's is in it.
    pub(crate) fn report(&self) -> EngineReport {
        let mut report = self.domains[0].report();
        if self.domains.len() > 1 {
            report.devices = self.domains.iter().map(|domain| domain.report()).collect();
        }
        report
    }

    /// Refuses a device that no worker of this rank's host uses: it would be an option without effect.
    pub(crate) fn check_used(&self, rank: &Rank, workers: u32) -> Result<()> {
        let (devices, ranks) = (self.domains.len(), rank.identity().local_size.unwrap_or(1));
        let (option, who, workers) = match self.of_rank {
            true => ("--devices-of", format!("rank {}", rank.id()), workers),
            false => ("--devices", "this host".to_owned(), ranks * workers),
        };
        if self.may_idle || devices <= workers as usize {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{option} names {devices} devices, but {who} has {workers} workers: use --workers {devices}, or fewer devices"
        )))
    }
}

/// One worker before it opens its engine.
pub(crate) struct Seat {
    /// Its devices, which are several where it has several rails.
    pub(crate) devices: Vec<Arc<dyn Domain>>,
    pub(crate) domain: Arc<dyn Domain>,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) config: WorkerConfig,
}

impl<'a> Requirements<'a> {
    /// Those of ranks that all have memory of one kind and size and one worker, without verbs or peers.
    pub(crate) fn alike(
        (entry, engine, options): (&'a Entry, &'a str, &'a EngineOptions),
        memory: &'a str,
        (bytes, sized_by): (u64, SizedBy),
        pairs: Pairs,
    ) -> Self {
        Self {
            entry,
            engine,
            options,
            verbs: Vec::new(),
            memory,
            memory_option: "--memory",
            memories: vec![memory],
            memory_options: None,
            memory_of: Box::new(move |_| memory),
            bytes,
            bytes_of: Box::new(move |_| bytes),
            sized_by,
            workers: 1,
            measuring: 1,
            division: Division::NONE,
            rail_shift: 0,
            pairs,
            peers_max: 0,
            depth: 1,
            sleeps: false,
            compares_each: false,
        }
    }
}

impl Requirements<'_> {
    /// Refuses what the workers of a machine, or of a container, cannot have together. One rank of each looks, before any
    /// rank allocates: later the others' part would count as not available.
    pub(crate) fn check_host(&self, rank: &Rank, settings: &Settings) -> Result<()> {
        self.check_memory(rank, settings)?;
        let ranks = rank.hosts().ranks_of_container(rank.id());
        if ranks.first().is_some_and(|&first| first != rank.id()) {
            return Ok(());
        }
        let of_each_rank = u64::from(self.workers) * u64::from(self.division.queue_pairs);
        let memory = RankMemory {
            name: self.memory,
            gpu: settings.gpu(local_rank(rank, rank.id())),
            device: None,
        };
        let request = OpenRequest {
            variant: split_name(self.engine).1,
            options: self.options,
            libraries: &settings.libraries,
            verbs: &self.verbs,
            memories: (memory, &[]),
            ..OpenRequest::default()
        };
        (self.entry.lifecycle.before_open)(&request, of_each_rank * ranks.len().max(1) as u64)
    }

    fn check_memory(&self, rank: &Rank, settings: &Settings) -> Result<()> {
        let entry = settings.lists.memory_of_point(self.memory)?;
        let Some(available) = (entry.available)(split_name(self.memory).1) else {
            return Ok(());
        };
        memory::check_places(rank, available, self.sized_by, |ranks| {
            let takes = |rank: &u32| self.takes_from(*rank, available, settings);
            let ranks: Vec<u32> = ranks.into_iter().filter(takes).collect();
            let alike = |rank: &&u32| (self.memory_of)(**rank) == self.memory;
            let is_first = ranks.iter().find(alike) == Some(&rank.id());
            let bytes = ranks.iter().map(|&rank| (self.bytes_of)(rank));
            is_first.then(|| memory::MemorySum::of(bytes, self.workers.into()))
        })
    }

    /// The device that this rank's memory will be of.
    pub(crate) fn own_device(&self, rank: &Rank, settings: &Settings) -> MemoryDevices {
        let Ok(entry) = settings.lists.memory_of_point(self.memory) else {
            return MemoryDevices::default();
        };
        let request = Request {
            variant: split_name(self.memory).1,
            gpu: settings.gpu(local_rank(rank, rank.id())),
            options: self.memory_options,
            libraries: Some(&settings.libraries),
            ..Request::default()
        };
        MemoryDevices::of_own(rank.id(), entry, &request)
    }

    /// This rank's device, and those of its peers. Nobody is asked where no rank has memory of one.
    pub(crate) fn devices_of_memories(
        &self,
        rank: &mut Rank,
        settings: &Settings,
    ) -> Result<MemoryDevices> {
        if !self.takes_gpus(settings) {
            return Ok(MemoryDevices::default());
        }
        let own = self.own_device(rank, settings);
        own.exchanged(rank, self.pairs.peers(rank.id()))
    }

    /// Returns whether some rank's memory is a GPU's, or pinned for one: the same on all ranks.
    pub(crate) fn takes_gpus(&self, settings: &Settings) -> bool {
        let entries = self.memories.iter();
        let mut entries = entries.filter_map(|name| settings.lists.memory_of_point(name).ok());
        entries.any(|entry| entry.takes_gpu)
    }

    /// Returns whether a rank's memory is of this rank's kind, or of one that is had from the same: the kind of which
    /// there is most is looked at with all others that the CPU can address.
    fn takes_from(&self, rank: u32, own: Available, settings: &Settings) -> bool {
        let name = (self.memory_of)(rank);
        if name == self.memory {
            return true;
        }
        let entries = [name, self.memory].map(|name| settings.lists.memory_of_point(name));
        let [Ok(other), Ok(mine)] = entries else {
            return false;
        };
        let bytes = (other.available)(split_name(name).1).map(|known| known.machine_bytes);
        let together = other.host_addressable && mine.host_addressable;
        together && bytes.is_some_and(|bytes| bytes <= own.machine_bytes)
    }

    /// Opens the engine's devices and finds a CPU for each worker.
    pub(crate) fn open(
        &self,
        rank: &Rank,
        settings: &Settings,
        host: &RankHost,
        memories: &MemoryDevices,
    ) -> Result<Devices> {
        let spans = !self.division.rails.is_single();
        let (named, of_rank) = settings.devices.request(rank.id(), spans);
        let of_rank_memory = |of: u32| RankMemory {
            name: (self.memory_of)(of),
            gpu: settings.gpu(local_rank(rank, of)),
            device: memories.of(of),
        };
        let peers = self.pairs.peers(rank.id()).into_iter();
        let peers: Vec<_> = peers.map(of_rank_memory).collect();
        let mut processes = rank.pids_of_container();
        processes.push(std::process::id());
        let mut devices = (self.entry.open)(&OpenRequest {
            variant: split_name(self.engine).1,
            options: self.options,
            devices: if self.entry.has_devices {
                named
            } else {
                DeviceRequest::Own
            },
            libraries: &settings.libraries,
            one_network: rank.hosts().is_one_network(),
            near_node: host.topology.first_memory_node(),
            processes: &processes,
            address: rank.local_ip(),
            verbs: &self.verbs,
            initiates: self.compares_each || self.pairs.roles.initiates(rank.id()),
            memories: (of_rank_memory(rank.id()), &peers),
        })?;
        if devices.is_empty() {
            return Err(Error::Failed(format!(
                "engine {} opened no device",
                self.engine
            )));
        }
        self.check_rails(&devices)?;
        let turns = self.rail_shift as usize % devices.len();
        devices.rotate_left(turns);
        let domains = divide(devices.clone(), self.division);
        let workers = Workers {
            each: self.workers,
            first: self.measuring,
        };
        let placement = self.pairs.placement(rank, workers, settings, host)?;
        Ok(Devices {
            devices,
            domains,
            of_rank,
            may_idle: named == DeviceRequest::All || settings.devices.may_idle,
            placement,
        })
    }

    /// Refuses rails where there is one device: the figures would be those of single, under another name.
    fn check_rails(&self, devices: &[Arc<dyn Domain>]) -> Result<()> {
        let several = devices.len() > 1;
        let option = match self.division.rails {
            Rails::Single if self.rail_shift == 0 => return Ok(()),
            rails if several || rails.is_single() => format!("rail-shift {}", self.rail_shift),
            rails => format!("rails {}", rails.name()),
        };
        if several
            && (self.rail_shift == 0 || !self.rail_shift.is_multiple_of(devices.len() as u32))
        {
            return Ok(());
        }
        let names: Vec<String> = devices
            .iter()
            .filter_map(|device| device.report().device)
            .collect();
        let (count, names) = (devices.len(), names.join(","));
        if several {
            return Err(Error::Unavailable {
                what: format!("{option} over {names}"),
                why: format!("it turns a list of {count} devices all the way round"),
                how: format!("Choose a --rail-shift below {count}"),
            });
        }
        let facts = devices.first().map(|device| device.report().facts);
        let left_out = facts.as_ref().and_then(|facts| {
            let words = facts.get(fact_names::DEVICES_LEFT_OUT)?.text()?;
            Some(format!("; left out: {words}"))
        });
        Err(Error::Unavailable {
            what: format!("{option} over {names}"),
            why: format!(
                "it is about several devices, and this is one{}",
                left_out.unwrap_or_default()
            ),
            how: format!(
                "Name several with --devices, as `tonnage devices` lists them; --devices {names},{names} takes one twice, \
                 to try it out"
            ),
        })
    }

    /// The device and the memory of the worker with this index, on the NUMA node of its CPU where the settings leave it
    /// to that.
    pub(crate) fn seat(
        &self,
        devices: &Devices,
        (index, cpu): (u32, Option<u32>),
        rank: &Rank,
        settings: &Settings,
        host: &RankHost,
    ) -> Result<Seat> {
        let (device, seated) = if self.division.rails.is_single() {
            // Workers of the same place on their hosts get devices of the same place in the list, as rails are wired.
            let first = if devices.of_rank {
                0
            } else {
                rank.identity().local_rank * self.workers
            };
            let device = (first + index) as usize % devices.domains.len();
            (device, vec![Arc::clone(&devices.devices[device])])
        } else {
            (0, devices.devices.clone())
        };
        let domain = Arc::clone(&devices.domains[device]);
        let allocate = settings.lists.memory_of_point(self.memory)?.allocate;
        let memory = allocate(&Request {
            variant: split_name(self.memory).1,
            bytes: self.bytes,
            shared: domain.caps().shared_memory,
            node: settings.numa.node(&host.topology, cpu)?,
            node_required: matches!(settings.numa, Numa::Node(_)),
            gpu: settings.gpu(local_rank(rank, rank.id())),
            options: self.memory_options,
            libraries: Some(&settings.libraries),
        })
        .map_err(|error| self.lacks_memory(error, rank.id()))?;
        let config = WorkerConfig {
            rank: rank.id(),
            worker: index,
            peers_max: self.peers_max,
            queue_pairs: match domain.caps().carried {
                true => self.division.queue_pairs,
                false => 1,
            },
            sleeps: self.sleeps,
            depth: self.depth,
            clock: settings.clock,
        };
        Ok(Seat {
            devices: seated,
            domain,
            memory,
            config,
        })
    }

    /// An error about memory, by the option and the rank that ask for it.
    fn lacks_memory(&self, error: Error, rank: u32) -> Error {
        match error {
            Error::Unavailable { why, how, .. } => Error::Unavailable {
                what: format!("{} {} on rank {rank}", self.memory_option, self.memory),
                why,
                how,
            },
            other => other,
        }
    }
}

/// The place of a rank on its host.
fn local_rank(rank: &Rank, of: u32) -> u32 {
    let info = rank.infos().get(of as usize);
    info.map_or(0, |info| info.local_rank)
}

/// Memory of workers: said once where it is the same for all.
pub(crate) fn reports<'a>(
    memories: impl Iterator<Item = &'a Arc<dyn Memory>>,
) -> Vec<MemoryReport> {
    let mut all: Vec<_> = memories.map(|memory| memory.report()).collect();
    all.dedup();
    all
}

/// Devices by the ranks whose memory will be of them, such as GPUs; those of the host's memory are not named. Each rank
/// tells its peers of its own before engines are opened, because a number means another device in another process.
#[derive(Debug, Default)]
pub(crate) struct MemoryDevices(BTreeMap<u32, BusDevice>);

impl MemoryDevices {
    /// This rank's alone, by the memory that it will ask for.
    pub(crate) fn of_own(rank: u32, entry: &MemoryEntry, request: &Request<'_>) -> Self {
        let device = (entry.device)(request);
        Self(device.map(|device| (rank, device)).into_iter().collect())
    }

    /// Adds those of peers, which all ranks tell each other.
    pub(crate) fn exchanged(mut self, rank: &mut Rank, mut peers: Vec<u32>) -> Result<Self> {
        let mut told = Vec::new();
        if let Some(own) = self.of(rank.id()) {
            peers.sort_unstable();
            peers.dedup();
            peers.retain(|&peer| peer != rank.id());
            let own = pack(own)?;
            told = peers.into_iter().map(|peer| (peer, own.clone())).collect();
        }
        for (peer, message) in rank.exchange("devices of memories", told, DEADLINES.step)? {
            let device = unpack(&message).map_err(|error| {
                Error::Failed(format!(
                    "rank {peer} told unreadably of its device: {error}"
                ))
            })?;
            self.0.insert(peer, device);
        }
        Ok(self)
    }

    /// The device of a rank's memory.
    pub(crate) fn of(&self, rank: u32) -> Option<&BusDevice> {
        self.0.get(&rank)
    }
}
