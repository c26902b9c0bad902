//! An engine that is open on all ranks: memory is allocated and registered, and workers are connected. `OpeningNeeds`
//! describes the requirements of a kind. Each kind decides which of its points share an engine.

use std::sync::Arc;

use tonnage_sys::clock::Clock;

use super::credit_lanes::{CreditLanes, needs_credits};
use super::description::{DeviceDescription, OpenMessage, WorkerCpus};
use super::introduction::{Introduction, Introductions, PeerMessages, introductions_of, locality};
use super::openings::Openings;
use super::{Devices, MemoryDevices, Requirements, UnopenedWorker, reports};
use crate::deadlines::DEADLINES;
use crate::failure::all_or_none;
use crate::host::RankHost;
use crate::settings::Settings;
use crate::wire_proof::{NamedDevices, RankRoutes};
use tonnage_engine::memory::{BusDevice, Memory};
use tonnage_engine::{ArmOutcome, Caps, Descriptor, Domain, Engine, Peer, RegionId, fact_names};
use tonnage_loops::each::{ComparisonFindings, Mailboxes};
use tonnage_ranks::Rank;
use tonnage_units::reduce::ReduceMax;
use tonnage_units::{Error, Result, WireDevice};

/// In the record: when sends complete, if the engine itself does not report this.
const SENDS_COUNTED: &str = "when taken, by counts that receivers write to their senders";

/// The state of one worker, which persists over points.
pub struct EngineWorker {
    /// The worker's engine; `None` while a point uses it.
    pub engine: Option<Box<dyn Engine + Send>>,
    /// The worker's memory.
    pub memory: Arc<dyn Memory>,
    /// Handle of this memory in the worker's engine.
    pub region: RegionId,
    /// Memories of the peers, in ascending order of the peers.
    pub remote: Vec<(Peer, Descriptor)>,
    /// Capabilities of the worker's device.
    pub caps: Caps,
    /// The worker's clock.
    pub clock: Clock,
    /// The CPU that the worker is pinned to.
    pub cpu: Option<u32>,
    /// The worker's devices, in the order of its rails.
    pub devices: Vec<DeviceDescription>,
    /// Credit counts of messages; `None` if completions already show that the receiver has taken them.
    pub(crate) credits: Option<CreditLanes>,
    /// Mailboxes for messages about single operations, if every operation is compared. `None` if not, or while a point
    /// uses the engine.
    pub(crate) mail: Option<Mailboxes>,
    /// Results of comparing every operation; `None` if the point does not request it.
    pub(crate) findings: Option<Arc<ComparisonFindings>>,
}

impl EngineWorker {
    /// Returns the descriptor of a peer's memory, for lanes.
    pub fn remote_of(&self, peer: Peer) -> Result<&Descriptor> {
        let place = self.remote.binary_search_by_key(&peer, |(rank, _)| *rank);
        let known = place.ok().and_then(|place| self.remote.get(place));
        let none = || Error::Failed(format!("this thread was not connected to rank {peer}"));
        known.map(|(_, descriptor)| descriptor).ok_or_else(none)
    }
}

/// An engine that is open on all ranks.
pub struct OpenEngine {
    /// This rank's workers.
    pub workers: Vec<EngineWorker>,
    /// Properties of the engines of all ranks.
    pub opened: Openings,
    /// Whether the engine moves bytes.
    pub moves_bytes: bool,
    /// Whether this rank's workers yield their CPU while they wait.
    pub yielding: bool,
    /// This rank's part in the proof of path.
    pub route: RankRoutes,
    /// Longest time that any rank needed to start a device driver; `None` if no driver was started.
    pub driver_start_ns: Option<u64>,
    // Declared last, so that workers close before their domains.
    _domains: Vec<Arc<dyn Domain>>,
}

impl OpenEngine {
    /// Opens the engine on all ranks. `check` is an additional requirement for the devices of each worker.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on every rank if any rank lacks a requirement. Otherwise the failure, with the rank where
    /// it happened.
    pub(crate) fn open(
        need: &OpeningNeeds<'_>,
        check: CapsCheck<'_>,
        rank: &mut Rank,
        settings: &Settings,
        host: &RankHost,
    ) -> Result<Self> {
        let name = need.requirements.engine;
        rank.set_phase(&format!("opening {name}"));
        let fits = need.requirements.check_host(rank, settings);
        rank.agree("room on the hosts", fits, DEADLINES.step)?;
        let memories = need.requirements.devices_of_memories(rank, settings)?;
        let mine = open_local(check, (need, &memories), rank, settings, host);
        let mut local = all_or_none(rank, "open the engine", mine)?;
        let driver_start_ns = match need.requirements.takes_gpus(settings) {
            true => slowest_start(rank, &local.workers)?,
            false => None,
        };
        let yielding = local.opened.0.yielding;
        let Requirements {
            pairs, measuring, ..
        } = &need.requirements;
        let (opened, mut route) = Openings::gather(rank, local.opened, pairs, *measuring)?;
        pairs.check(opened.common.placed)?;
        rank.set_phase(&format!("connecting {name}"));
        let messages = local.messages.encode(route.group())?;
        let replies = rank.exchange("exchange cards", messages, DEADLINES.step)?;
        let connected = connect(rank, &need.peers, &mut local.workers, &replies, &mut route);
        all_or_none(rank, "connect", connected)?;
        let met = meet(rank, &mut local.workers);
        all_or_none(rank, "first contact", met)?;
        let armed = match need.requirements.sleeps {
            true => check_sleep(&mut local.workers, name),
            false => Ok(()),
        };
        all_or_none(rank, "look for something to sleep on", armed)?;
        Ok(Self {
            workers: local.workers,
            opened,
            route,
            moves_bytes: need.requirements.entry.moves_bytes,
            yielding,
            driver_start_ns,
            _domains: local.domains,
        })
    }
}

/// Requirements of one rank.
pub(crate) struct OpeningNeeds<'a> {
    /// Requirements for engine, memory and workers.
    pub(crate) requirements: Requirements<'a>,
    /// Ranks with which this rank exchanges bytes, in ascending order.
    pub(crate) peers: Vec<Peer>,
}

/// An additional requirement for the devices of a worker. It gets their capabilities and their number.
pub(crate) type CapsCheck<'a> = &'a dyn Fn(&Caps, usize) -> Result<()>;

impl OpeningNeeds<'_> {
    /// Returns whether a rail leads to one of this rank's peers.
    fn uses(&self, rank: Peer, rail: usize, devices: usize) -> bool {
        let rails = self.requirements.division.rails;
        let leads = |&peer: &Peer| rails.for_peer(rank, peer, devices).contains(&rail);
        // The devices of a rank without peers count as used.
        self.peers.is_empty() || self.peers.iter().any(leads)
    }
}

/// All resources that a rank can open without the other ranks.
struct LocalOpening {
    workers: Vec<EngineWorker>,
    opened: (OpenMessage, WorkerCpus),
    /// Messages of the rank's workers to their peers.
    messages: PeerMessages,
    domains: Vec<Arc<dyn Domain>>,
}

/// Returns the longest time that any rank needed to start a driver for its workers' memories.
fn slowest_start(rank: &mut Rank, workers: &[EngineWorker]) -> Result<Option<u64>> {
    let own = workers
        .iter()
        .filter_map(|worker| worker.memory.driver_start_ns());
    let longest = rank.reduce("start of drivers", own.max().map(ReduceMax), DEADLINES.step)?;
    Ok(longest.map(|ReduceMax(ns)| ns))
}

fn open_local(
    check: CapsCheck<'_>,
    (need, memories): (&OpeningNeeds<'_>, &MemoryDevices),
    rank: &Rank,
    settings: &Settings,
    host: &RankHost,
) -> Result<LocalOpening> {
    let requirements = &need.requirements;
    let devices = requirements.open(rank, settings, host, memories)?;
    for domain in &devices.domains {
        check(domain.caps(), devices.devices.len())?;
    }
    if requirements.division.rails.is_single() {
        devices.check_used(rank, requirements.workers)?;
    }
    let (mut workers, mut messages, mut wire_devices) = (Vec::new(), Vec::new(), Vec::new());
    for (index, &cpu) in (0u32..).zip(&devices.placement.cpus) {
        if let Some(cpu) = cpu {
            // Pins the thread before memory is touched, so that pages come from the worker's NUMA node.
            tonnage_machine::pin_thread(cpu)?;
        }
        let unopened = requirements.prepare_worker(&devices, (index, cpu), rank, settings, host)?;
        let own_devices = unopened.devices.clone();
        let (mut worker, introductions) = open_worker(unopened, cpu, need, settings)?;
        // A device counts as used only if a worker opens it and it leads to a peer.
        let rails = (0u32..).zip(&own_devices).zip(&mut worker.devices);
        for ((rail, domain), device) in rails {
            device.used = need.uses(rank.id(), rail as usize, own_devices.len());
            if device.used {
                let named = domain.wire_devices().into_iter();
                wire_devices.extend(named.map(|device| (device, rail)));
            }
        }
        workers.push(worker);
        messages.push(introductions);
    }
    let memory_device = memories.memory_device_of(rank.id()).cloned();
    Ok(LocalOpening {
        opened: describe(
            &devices,
            (&workers, need.peers.is_empty()),
            wire_devices,
            (host, memory_device),
        ),
        workers,
        messages: PeerMessages::new(messages)?,
        domains: devices.domains,
    })
}

/// Opens one worker's engine and registers its memory. Returns the worker, and its messages to its peers.
fn open_worker(
    unopened: UnopenedWorker,
    cpu: Option<u32>,
    need: &OpeningNeeds<'_>,
    settings: &Settings,
) -> Result<(EngineWorker, Introductions)> {
    let UnopenedWorker {
        devices,
        domain,
        memory,
        config,
    } = unopened;
    let mut engine = domain.worker(&config)?;
    let region = engine.register(&memory)?;
    let (peers, caps) = (&need.peers, *domain.caps());
    let counting = need
        .requirements
        .verbs
        .iter()
        .any(|&verb| needs_credits(verb, &caps));
    let lists = &settings.lists;
    let mut credits = None;
    if counting {
        credits = Some(CreditLanes::new(
            engine.as_mut(),
            lists,
            &caps,
            peers.len(),
        )?);
    }
    let mut mail = None;
    if need.requirements.compares_each {
        mail = Some(Mailboxes::new(engine.as_mut(), lists, &caps, peers.len())?);
    }
    let introduce = |(index, (&peer, address))| {
        let introduction = Introduction {
            address,
            memory: region.descriptor.clone(),
            credits: credits.as_ref().map(|credits| credits.place(index)),
            messages: mail.as_ref().map(|mail| mail.place(index)),
        };
        (peer, introduction)
    };
    let addresses = engine.endpoint_addresses(peers)?;
    let introductions = peers.iter().zip(addresses).enumerate().map(introduce);
    let introductions = introductions.collect();
    let described = devices.iter().map(|device| {
        let has_devices = need.requirements.entry.has_devices;
        let link = settings.link_bytes_per_s.filter(|_| has_devices);
        DeviceDescription::new(device.as_ref(), &caps, credits.is_some(), link)
    });
    let worker = EngineWorker {
        devices: described.collect(),
        engine: Some(engine),
        memory,
        region: region.id,
        remote: Vec::new(),
        caps,
        clock: config.clock,
        cpu,
        credits,
        findings: mail.as_ref().map(Mailboxes::findings),
        mail,
    };
    Ok((worker, introductions))
}

fn describe(
    devices: &Devices,
    (workers, idle): (&[EngineWorker], bool),
    wire_devices: Vec<(WireDevice, u32)>,
    (host, memory_device): (&RankHost, Option<BusDevice>),
) -> (OpenMessage, WorkerCpus) {
    let mut engine = devices.report();
    let still = !devices.domains[0].caps().moves_bytes;
    let facts = std::mem::take(&mut engine.facts)
        .with_optional_fact(fact_names::MOVES_BYTES, still.then_some(false));
    let first = workers.first();
    let clock = first.map(|worker| worker.clock.source_name());
    let rails = first.map(|worker| worker.devices.len());
    let counted = first.and_then(|worker| worker.credits.as_ref());
    engine.facts = facts
        .with_optional_fact(fact_names::CLOCK, clock)
        .with_optional_fact("sends_counted", counted.map(|_| SENDS_COUNTED));
    let places = WorkerCpus {
        cpus: devices.placement.cpus.clone(),
        sockets: devices.sockets(&host.topology),
        memory: reports(workers.iter().map(|worker| &worker.memory)),
    };
    let opened = OpenMessage {
        yielding: devices.placement.yielding,
        idle,
        engine,
        memory_device,
        device_memory_by: devices.domains[0].device_memory_by(),
        devices: workers
            .iter()
            .map(|worker| worker.devices.clone())
            .collect(),
        wire_devices: NamedDevices::new(wire_devices, rails.unwrap_or(1) as u32),
    };
    (opened, places)
}

/// Connects each worker to the same workers of its peers, and stores the peers' memories for lanes.
fn connect(
    rank: &Rank,
    peers: &[Peer],
    workers: &mut [EngineWorker],
    replies: &[(Peer, Vec<u8>)],
    route: &mut RankRoutes,
) -> Result<()> {
    let locality = |peer| locality(rank, peer);
    let note_group = |peer, group| route.note_group(peer, group);
    let of_workers = introductions_of(workers.len(), (peers, replies), locality, note_group)?;
    for (worker, introduced_peers) in workers.iter_mut().zip(of_workers) {
        let mut neighbors = Vec::with_capacity(introduced_peers.len());
        for (index, introduced) in introduced_peers.into_iter().enumerate() {
            let peer = introduced.neighbor.peer;
            worker.remote.push((peer, introduced.memory));
            if let Some(lanes) = &mut worker.credits {
                lanes.connect(peer, index, introduced.credits)?;
            }
            if let Some(mail) = &mut worker.mail {
                mail.connect(peer, introduced.messages)?;
            }
            neighbors.push(introduced.neighbor);
        }
        engine_of(worker)?.connect(&neighbors)?;
    }
    Ok(())
}

/// Rejects sleeping if the engine has nothing to sleep on. Otherwise workers would poll, although the results claim
/// that they sleep.
fn check_sleep(workers: &mut [EngineWorker], name: &str) -> Result<()> {
    for worker in workers {
        // A worker without peers need not sleep.
        if !worker.remote.is_empty() && matches!(engine_of(worker)?.arm()?, ArmOutcome::Unsupported)
        {
            return Err(Error::Unavailable {
                what: format!("--cq event on {name}"),
                why: "the engine has no descriptor to sleep on".into(),
                how: "Use --cq busy, or an engine that has one, such as fabric:tcp".into(),
            });
        }
    }
    Ok(())
}

fn meet(rank: &Rank, workers: &mut [EngineWorker]) -> Result<()> {
    let stop = rank.stop_flag();
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    workers
        .iter_mut()
        .try_for_each(|worker| engine_of(worker)?.meet(&stopped))
}

fn engine_of(worker: &mut EngineWorker) -> Result<&mut Box<dyn Engine + Send>> {
    let driven = || Error::Failed("a point drives this thread's engine".into());
    worker.engine.as_mut().ok_or_else(driven)
}
