//! All resources that a rank opens before its workers can move bytes between memories, for all kinds that move bytes.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the engine's devices, the placement of workers, their memories, and the GPUs that hold these memories |
//! | [`engine`] | an engine that is open on all ranks, with connected workers |
//! | [`description`] | descriptions of open engines, which ranks exchange |
//! | `credit_lanes` | memory and lanes for credits, with engines that complete sends before the receiver takes them |
//! | `introduction` | messages that workers send to their peers before they connect |
//! | [`openings`] | properties that follow from the engines of all ranks |
//! | `memory` | checks that the memories of all workers fit together |
//! | `pairs` | the CPUs of workers that exchange bytes, and the sockets on which these CPUs are |
//!
//! [`crate::kinds`] has further requirements of a kind for its devices.

pub(crate) mod credit_lanes;
pub mod description;
pub mod engine;
pub(crate) mod introduction;
mod memory;
pub mod openings;
mod pairs;

pub(crate) use memory::{SizedBy, check_equal_memory};
pub(crate) use pairs::CommunicatingPairs;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::deadlines::DEADLINES;
use crate::host::RankHost;
use crate::settings::{Numa, Settings};
use tonnage_engine::memory::{
    AvailableMemory, BusDevice, Memory, MemoryEntry, MemoryReport, Request,
};
use tonnage_engine::paths::{Division, Rails, divide};
use tonnage_engine::{
    DeviceRequest, Domain, EngineOptions, EngineReport, Entry, OpenRequest, PlannedMemory, Verb,
    WorkerConfig, fact_names, split_name,
};
use tonnage_machine::{Placement, Topology, Workers};
use tonnage_ranks::{Rank, pack, unpack};
use tonnage_units::{Error, Result};

/// Requirements of one or more points on this rank.
pub(crate) struct Requirements<'a> {
    /// The engine's entry in the list.
    pub(crate) entry: &'a Entry,
    /// Full name of the engine, including the variant.
    pub(crate) engine: &'a str,
    pub(crate) options: &'a EngineOptions,
    pub(crate) verbs: Vec<Verb>,
    /// Full name of the memory, including the variant.
    pub(crate) memory: &'a str,
    /// The option that chooses the memory.
    pub(crate) memory_option: &'static str,
    /// Full names of all ranks' memories.
    pub(crate) memories: Vec<&'a str>,
    /// Options of memories. Each memory takes the ones that it supports. `None` if all are default.
    pub(crate) memory_options: Option<&'a EngineOptions>,
    /// Returns the name of another rank's memory.
    pub(crate) memory_of: Box<dyn Fn(u32) -> &'a str + 'a>,
    /// Number of bytes of memory for each worker on this rank.
    pub(crate) bytes: u64,
    /// Returns the number of bytes of memory for each worker on another rank.
    pub(crate) bytes_of: Box<dyn Fn(u32) -> u64 + 'a>,
    pub(crate) sized_by: SizedBy,
    pub(crate) workers: u32,
    /// Number of workers that measure. These are the first workers, and they get CPUs of their own before the others.
    pub(crate) measuring: u32,
    /// How each worker's operations to a peer are divided over several paths.
    pub(crate) division: Division,
    /// Number of positions by which this rank's list of devices is rotated.
    pub(crate) rail_shift: u32,
    /// Ranks that exchange bytes with each other, and their requested placement.
    pub(crate) pairs: CommunicatingPairs,
    /// Maximum number of peers of any worker.
    pub(crate) peers_max: u32,
    /// Maximum number of operations in flight on any lane.
    pub(crate) depth: u32,
    /// Whether workers sleep until operations complete.
    pub(crate) sleeps: bool,
    /// Whether every operation is compared. Both ends then write messages about each operation.
    pub(crate) compares_each: bool,
}

/// Devices that are open on this rank, and the CPUs of the workers that will use them.
pub(crate) struct Devices {
    /// The open devices, at least one.
    pub(crate) devices: Vec<Arc<dyn Domain>>,
    /// Domains that workers open: one per device, or a single one that combines all devices as rails.
    pub(crate) domains: Vec<Arc<dyn Domain>>,
    /// Whether the user chose these devices for this rank alone.
    of_rank: bool,
    /// Whether some of these devices may stay unused.
    may_idle: bool,
    pub(crate) placement: Placement,
}

impl Devices {
    /// Returns the CPU socket of each worker.
    pub(crate) fn sockets(&self, topology: &Topology) -> Vec<Option<u32>> {
        let cpus = self.placement.cpus.iter();
        cpus.map(|cpu| topology.socket_of_cpu((*cpu)?)).collect()
    }

    /// Returns the report of the first device. If there are several, it includes the reports of all.
    pub(crate) fn report(&self) -> EngineReport {
        let mut report = self.domains[0].report();
        if self.domains.len() > 1 {
            report.devices = self.domains.iter().map(|domain| domain.report()).collect();
        }
        report
    }

    /// Rejects devices that no worker on this rank's host uses, because naming them would have no effect.
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
            "{option} names {devices} devices, but {who} has {workers} threads: use --threads {devices}, or fewer devices"
        )))
    }
}

/// A worker before its engine is opened.
pub(crate) struct UnopenedWorker {
    /// The worker's devices. There are several if it has several rails.
    pub(crate) devices: Vec<Arc<dyn Domain>>,
    pub(crate) domain: Arc<dyn Domain>,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) config: WorkerConfig,
}

impl<'a> Requirements<'a> {
    /// Returns requirements with equal memories on all ranks, and one worker per rank. They have no verbs and no peers.
    pub(crate) fn same_for_all_ranks(
        (entry, engine, options): (&'a Entry, &'a str, &'a EngineOptions),
        memory: &'a str,
        (bytes, sized_by): (u64, SizedBy),
        pairs: CommunicatingPairs,
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
    /// Rejects requirements that the workers of a machine or container cannot meet together. One rank per machine or
    /// container checks, before any rank allocates memory. Later, memory of other ranks would no longer count as
    /// available.
    pub(crate) fn check_host(&self, rank: &Rank, settings: &Settings) -> Result<()> {
        self.check_memory(rank, settings)?;
        let ranks = rank.hosts().ranks_of_container(rank.id());
        if ranks.first().is_some_and(|&first| first != rank.id()) {
            return Ok(());
        }
        let of_each_rank = u64::from(self.workers) * u64::from(self.division.queue_pairs);
        let memory = PlannedMemory {
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
        memory::check_available_memory(rank, available, self.sized_by, |ranks| {
            let takes = |rank: &u32| self.takes_from(*rank, available, settings);
            let ranks: Vec<u32> = ranks.into_iter().filter(takes).collect();
            let alike = |rank: &&u32| (self.memory_of)(**rank) == self.memory;
            let is_first = ranks.iter().find(alike) == Some(&rank.id());
            let bytes = ranks.iter().map(|&rank| (self.bytes_of)(rank));
            is_first.then(|| memory::MemorySum::for_ranks(bytes, self.workers.into()))
        })
    }

    /// Returns the device that holds this rank's memory; empty for host memory.
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
        MemoryDevices::own_device(rank.id(), entry, &request)
    }

    /// Returns the devices that hold the memories of this rank and its peers. If no rank's memory is on a device,
    /// nothing is exchanged.
    pub(crate) fn devices_of_memories(
        &self,
        rank: &mut Rank,
        settings: &Settings,
    ) -> Result<MemoryDevices> {
        if !self.takes_gpus(settings) {
            return Ok(MemoryDevices::default());
        }
        let own = self.own_device(rank, settings);
        own.exchange(rank, self.pairs.peers(rank.id()))
    }

    /// Returns whether any rank's memory is on a GPU or pinned for a GPU. It is the same on all ranks.
    pub(crate) fn takes_gpus(&self, settings: &Settings) -> bool {
        let entries = self.memories.iter();
        let mut entries = entries.filter_map(|name| settings.lists.memory_of_point(name).ok());
        entries.any(|entry| entry.takes_gpu)
    }

    /// Returns whether a rank's memory comes from the same source as this rank's memory. All kinds that the CPU can
    /// access have the same source. They are checked on ranks with the kind that has the most memory available.
    fn takes_from(&self, rank: u32, own: AvailableMemory, settings: &Settings) -> bool {
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

    /// Opens the engine's devices, and chooses a CPU for each worker.
    pub(crate) fn open(
        &self,
        rank: &Rank,
        settings: &Settings,
        host: &RankHost,
        memories: &MemoryDevices,
    ) -> Result<Devices> {
        let spans = !self.division.rails.is_single();
        let (named, of_rank) = settings.devices.request(rank.id(), spans);
        let of_rank_memory = |of: u32| PlannedMemory {
            name: (self.memory_of)(of),
            gpu: settings.gpu(local_rank(rank, of)),
            device: memories.memory_device_of(of),
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

    /// Rejects several rails if there is only one device. The results would be those of a single rail.
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
                "it needs several devices, and this is one{}",
                left_out.unwrap_or_default()
            ),
            how: format!(
                "Name several with --devices, as `tonnage devices` lists them; --devices {names},{names} takes one twice, \
                 to try it out"
            ),
        })
    }

    /// Returns device and memory for the worker with this index. The memory is on the NUMA node of the worker's CPU,
    /// unless the settings choose another node.
    pub(crate) fn prepare_worker(
        &self,
        devices: &Devices,
        (index, cpu): (u32, Option<u32>),
        rank: &Rank,
        settings: &Settings,
        host: &RankHost,
    ) -> Result<UnopenedWorker> {
        let (device, devices_of_worker) = if self.division.rails.is_single() {
            // Workers with the same index on their hosts get devices at the same position of the list, because rails
            // are wired this way.
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
        .map_err(|error| self.explain_memory_shortage(error, rank.id()))?;
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
        Ok(UnopenedWorker {
            devices: devices_of_worker,
            domain,
            memory,
            config,
        })
    }

    /// Adds to a memory error the option and the rank that requested the memory.
    fn explain_memory_shortage(&self, error: Error, rank: u32) -> Error {
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

/// Returns the index of a rank on its host.
fn local_rank(rank: &Rank, of: u32) -> u32 {
    let info = rank.rank_infos().get(of as usize);
    info.map_or(0, |info| info.local_rank)
}

/// Returns the memory reports of all workers; a single one if all are equal.
pub(crate) fn reports<'a>(
    memories: impl Iterator<Item = &'a Arc<dyn Memory>>,
) -> Vec<MemoryReport> {
    let mut all: Vec<_> = memories.map(|memory| memory.report()).collect();
    all.dedup();
    all
}

/// Devices, such as GPUs, that hold the memories of ranks, by rank. Host memory has no entry. Each rank sends its own
/// device to its peers before engines open, because a device's number is only valid in its own process.
#[derive(Debug, Default)]
pub(crate) struct MemoryDevices(BTreeMap<u32, BusDevice>);

impl MemoryDevices {
    /// Returns only this rank's device, which will hold the requested memory.
    pub(crate) fn own_device(rank: u32, entry: &MemoryEntry, request: &Request<'_>) -> Self {
        let device = (entry.device)(request);
        Self(device.map(|device| (rank, device)).into_iter().collect())
    }

    /// Adds the devices of the peers. All ranks call this, to exchange them.
    pub(crate) fn exchange(mut self, rank: &mut Rank, mut peers: Vec<u32>) -> Result<Self> {
        let mut messages = Vec::new();
        if let Some(own) = self.memory_device_of(rank.id()) {
            peers.sort_unstable();
            peers.dedup();
            peers.retain(|&peer| peer != rank.id());
            let own = pack(own)?;
            messages = peers.into_iter().map(|peer| (peer, own.clone())).collect();
        }
        for (peer, message) in rank.exchange("devices of memories", messages, DEADLINES.step)? {
            let device = unpack(&message).map_err(|error| {
                Error::Failed(format!(
                    "cannot decode rank {peer}'s device description: {error}"
                ))
            })?;
            self.0.insert(peer, device);
        }
        Ok(self)
    }

    /// Returns the device that holds a rank's memory; `None` for host memory.
    pub(crate) fn memory_device_of(&self, rank: u32) -> Option<&BusDevice> {
        self.0.get(&rank)
    }
}
