//! An engine that is open on all ranks: memory allocated and registered, workers connected. It serves a stretch of
//! points that differ only in what does not need another connection.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_sys::clock::Clock;

use crate::deadlines::DEADLINES;
use crate::host::Host;
use crate::kinds::transfer::layout::Layout;
use crate::settings::{Numa, Settings};
use crate::wire_proof::{Named, Routes};
use tonnage_engine::memory::{Memory, MemoryReport, Request};
use tonnage_engine::{
    Caps, Card, Descriptor, Domain, Engine, EngineOptions, EngineReport, Entry, LimitKind,
    OpenRequest, Peer, RegionId, Verb, WorkerConfig, split_name,
};
use tonnage_machine::Placement;
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_ranks::Rank;
use tonnage_units::WireDevice;
use tonnage_units::{Error, Result};

/// State that a worker owns from point to point.
pub struct Worker {
    /// Its engine.
    pub engine: Box<dyn Engine>,
    /// Its memory.
    pub memory: Arc<dyn Memory>,
    /// The handle of that memory in its engine.
    pub region: RegionId,
    /// The memories of its peers.
    pub remote: Vec<(Peer, Descriptor)>,
    /// The capabilities of its device.
    pub caps: Caps,
    /// Its clock.
    pub clock: Clock,
    /// The CPU that it is pinned to.
    pub cpu: Option<u32>,
    /// Its device.
    pub device: Device,
}

/// A rank's message to the others once it is open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opened {
    /// CPUs of the workers; `None` where one is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// True with more workers than CPUs on the host.
    pub yielding: bool,
    /// Memory of its workers: said once where it is the same for all.
    pub memory: Vec<MemoryReport>,
    /// The engine's choices.
    pub engine: EngineReport,
    /// Devices of the workers.
    pub devices: Vec<Device>,
    /// The devices that its payload has to cross; absent where it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Named>,
}

impl Worker {
    /// A peer's memory, for lanes.
    ///
    /// # Errors
    /// For a rank that it was not connected to.
    pub fn remote_of(&self, peer: Peer) -> Result<&Descriptor> {
        let known = self.remote.iter().find(|(rank, _)| *rank == peer);
        let none = || Error::Failed(format!("this worker was not connected to rank {peer}"));
        known.map(|(_, descriptor)| descriptor).ok_or_else(none)
    }
}

/// The device that a worker was given, as far as limits depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its place among the devices of the host.
    pub place: u32,
    /// Upper bound of the engine's bandwidth on it.
    pub limit: LimitKind,
    /// True when completed writes are visible to the peer: always, and where it is asked for.
    pub delivers: [bool; 2],
    /// The engine's address for socket streams.
    pub address: Option<IpAddr>,
    /// The network interface that has that address.
    pub interface: Option<String>,
}

impl Device {
    fn new(place: usize, domain: &dyn Domain) -> Self {
        let address = domain.stream_address();
        Self {
            place: u32::try_from(place).unwrap_or(u32::MAX),
            limit: domain.caps().limit,
            delivers: [domain.caps().delivered, domain.caps().delivery_on_request],
            address,
            interface: address.and_then(interface_of),
        }
    }
}

/// An engine that is open on all ranks.
pub struct OpenEngine {
    /// This rank's workers.
    pub workers: Vec<Worker>,
    /// Messages of all ranks, in their order.
    pub opened: Vec<Opened>,
    /// True when bytes really move.
    pub moves_bytes: bool,
    /// True when this rank's workers yield.
    pub yielding: bool,
    /// Devices that each rank uses.
    pub routes: Routes,
    // Kept last, so that workers close before their domains do.
    _domains: Vec<Arc<dyn Domain>>,
}

/// Points that one session can serve have the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineKey {
    engine: String,
    engine_options: EngineOptions,
    /// An engine may open itself in another way for each, and what a point gets must not depend on its neighbours.
    op: Verb,
    memory: String,
    workers: u32,
    traffic: Traffic,
}

impl EngineKey {
    /// The key of a point.
    pub fn of(point: &TransferPoint) -> Self {
        Self {
            engine: point.engine.clone(),
            engine_options: point.engine_options.clone(),
            op: point.op,
            memory: point.memory.clone(),
            workers: point.workers,
            traffic: point.traffic,
        }
    }
}

impl OpenEngine {
    /// Opens the engine on all ranks for `points`, which share a key.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on every rank when some rank lacks what is needed; what failed and where otherwise.
    pub fn open(
        points: &[&TransferPoint],
        entry: &Entry,
        rank: &mut Rank,
        settings: &Settings,
        host: &Host,
    ) -> Result<Self> {
        let name = &points[0].engine;
        rank.phase(&format!("opening {name}"));
        // Once per host, before anybody allocates: later the others' memory would count as not available.
        let fits = match rank.identity().local_rank {
            0 => check_fits(points, rank, settings),
            _ => Ok(()),
        };
        rank.agree("memory of the hosts", fits, DEADLINES.step)?;
        let mine = open_local(points, entry, rank, settings, host);
        let (domains, mut workers, opened, told) = settle(rank, "open the engine", mine)?;
        let yielding = opened.yielding;
        let bytes = to_json(&opened)?;
        let all = rank.all_gather("describe the engines", bytes, DEADLINES.step)?;
        let opened: Vec<Opened> = all
            .iter()
            .enumerate()
            .map(|(from, bytes)| from_json(from, bytes))
            .collect::<Result<_>>()?;
        rank.phase(&format!("connecting {name}"));
        let heard = rank.exchange("exchange cards", told, DEADLINES.step)?;
        let connected = connect(&all_peers(points, rank.id()), &mut workers, &heard);
        settle(rank, "connect", connected)?;
        let met = meet(rank, &mut workers);
        settle(rank, "first contact", met)?;
        let named: Vec<_> = opened.iter().map(|opened| opened.path.as_ref()).collect();
        let routes = Routes::new(rank.infos(), rank.hosts(), &named);
        Ok(Self {
            workers,
            opened,
            routes,
            moves_bytes: entry.moves_bytes,
            yielding,
            _domains: domains,
        })
    }
}

/// Refuses what the workers of this rank's host cannot have together.
fn check_fits(points: &[&TransferPoint], rank: &Rank, settings: &Settings) -> Result<()> {
    let memory = &points[0].memory;
    let request = Request {
        variant: split_name(memory).1,
        bytes: host_bytes(points, rank),
        ..Request::default()
    };
    (settings.lists.memory(memory)?.check_fits)(&request)
}

/// Bytes that all workers of this rank's host allocate together, if the others need as much as this rank.
fn host_bytes(points: &[&TransferPoint], rank: &Rank) -> u64 {
    let local_size = u64::from(rank.identity().local_size.unwrap_or(1));
    let one =
        |point: &&TransferPoint| Layout::new(point, rank.id()).bytes() * u64::from(point.workers);
    points
        .iter()
        .map(one)
        .max()
        .unwrap_or(0)
        .saturating_mul(local_size)
}

type Local = (
    Vec<Arc<dyn Domain>>,
    Vec<Worker>,
    Opened,
    Vec<(Peer, Vec<u8>)>,
);

/// A worker's message to one of its peers: how to reach it, and its memory.
#[derive(Debug, Serialize, Deserialize)]
struct Introduction {
    card: Card,
    memory: Descriptor,
}

/// Everything that a rank can do before it needs the others.
fn open_local(
    points: &[&TransferPoint],
    entry: &Entry,
    rank: &Rank,
    settings: &Settings,
    host: &Host,
) -> Result<Local> {
    let first = points
        .first()
        .ok_or_else(|| Error::Failed("no points to open an engine for".into()))?;
    let place = (rank.hosts().is_one_network(), rank.local_ip());
    let domains = open_domains(points, entry, settings, place)?;
    for domain in &domains {
        check_caps(points, domain.caps(), &first.engine)?;
    }
    let local_size = rank.identity().local_size.unwrap_or(1);
    check_devices(domains.len(), local_size * first.workers)?;
    let (index, count) = host.neighbours;
    let placement = tonnage_machine::place_workers(
        &host.topology,
        index,
        count,
        first.workers,
        &settings.cpus,
    )?;
    let bytes = points
        .iter()
        .map(|point| Layout::new(point, rank.id()).bytes())
        .max()
        .unwrap_or(0);
    let peers = all_peers(points, rank.id());
    let depth = points.iter().map(|point| point.depth()).max().unwrap_or(1);
    let memories = settings.lists.memory(&first.memory)?;
    let mut workers = Vec::with_capacity(placement.cpus.len());
    let mut path = Vec::new();
    let mut told: Told = peers.iter().map(|&peer| (peer, Vec::new())).collect();
    for (index, &cpu) in (0u32..).zip(&placement.cpus) {
        // Workers of the same place on their hosts get devices of the same place in the list, as rails are wired.
        let place = rank.identity().local_rank * first.workers + index;
        let place = place as usize % domains.len();
        let domain = &domains[place];
        if let Some(cpu) = cpu {
            // Pinned before its memory is touched, so that pages come from the worker's own node.
            tonnage_machine::pin_thread(cpu)?;
        }
        let memory = (memories.allocate)(&Request {
            variant: split_name(&first.memory).1,
            bytes,
            shared: domain.caps().shared_memory,
            node: settings.numa.node(&host.topology, cpu)?,
            node_required: matches!(settings.numa, Numa::Node(_)),
        })?;
        let clock = settings.clock;
        let config = WorkerConfig {
            rank: rank.id(),
            worker: index,
            peers_max: peers.len() as u32,
            sleeps: false,
            depth,
            clock,
        };
        let mut engine = domain.worker(&config)?;
        let region = engine.register(&memory)?;
        introduce(engine.as_mut(), region.descriptor, &peers, &mut told)?;
        // Of several devices a rank uses only those that its workers open.
        path.extend(domain.path());
        workers.push(Worker {
            engine,
            memory,
            region: region.id,
            remote: Vec::new(),
            caps: *domain.caps(),
            clock,
            cpu,
            device: Device::new(place, domain.as_ref()),
        });
    }
    let opened = describe(&domains, &workers, &placement, path);
    let told = packed(told, &first.engine)?;
    Ok((domains, workers, opened, told))
}

/// The engine's domains on this host, at least one, for everything that the points need.
fn open_domains(
    points: &[&TransferPoint],
    entry: &Entry,
    settings: &Settings,
    (one_host, address): (bool, Option<IpAddr>),
) -> Result<Vec<Arc<dyn Domain>>> {
    let first = points[0];
    let mut verbs: Vec<Verb> = points.iter().map(|point| point.op).collect();
    verbs.sort_unstable();
    verbs.dedup();
    let domains = (entry.open)(&OpenRequest {
        variant: split_name(&first.engine).1,
        options: &first.engine_options,
        devices: if entry.has_devices {
            &settings.devices
        } else {
            &[]
        },
        libraries: &settings.libraries,
        one_host,
        address,
        verbs: &verbs,
    })?;
    if domains.is_empty() {
        return Err(Error::Failed(format!(
            "engine {} opened no device",
            first.engine
        )));
    }
    Ok(domains)
}

/// A device that no worker uses would be an option without effect.
fn check_devices(devices: usize, workers: u32) -> Result<()> {
    if devices <= workers as usize {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--devices names {devices} devices, but this host has {workers} workers: use --workers {devices}, or fewer devices"
    )))
}

/// The ranks that this one exchanges bytes with at any of the points, ascending.
fn all_peers(points: &[&TransferPoint], rank: u32) -> Vec<u32> {
    let mut peers: Vec<u32> = points
        .iter()
        .flat_map(|point| Layout::new(point, rank).peers())
        .collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

/// Messages of all workers for each peer.
type Told = Vec<(Peer, Vec<Introduction>)>;

/// One worker's words to each of its peers.
fn introduce(
    engine: &mut dyn Engine,
    memory: Descriptor,
    peers: &[Peer],
    told: &mut Told,
) -> Result<()> {
    let cards = engine.cards(peers)?;
    for ((_, introductions), card) in told.iter_mut().zip(cards) {
        let memory = memory.clone();
        introductions.push(Introduction { card, memory });
    }
    Ok(())
}

/// The messages to the peers.
fn packed(told: Told, engine: &str) -> Result<Vec<(Peer, Vec<u8>)>> {
    let cards = told.iter().flat_map(|(_, introductions)| introductions);
    let longest = cards.map(|introduction| introduction.card.0.len()).max();
    let longest = longest.unwrap_or(0);
    if longest > Card::BYTES_MAX {
        return Err(Error::Failed(format!(
            "engine {engine} makes a card of {longest} bytes, at most {} are allowed",
            Card::BYTES_MAX
        )));
    }
    let pack = |(peer, introductions): (Peer, Vec<Introduction>)| {
        let bytes = serde_json::to_vec(&introductions);
        let cannot = |error| Error::Failed(format!("cannot introduce this rank: {error}"));
        bytes.map(|bytes| (peer, bytes)).map_err(cannot)
    };
    told.into_iter().map(pack).collect()
}

fn describe(
    domains: &[Arc<dyn Domain>],
    workers: &[Worker],
    placement: &Placement,
    path: Vec<WireDevice>,
) -> Opened {
    let mut engine = domains[0].report();
    if domains.len() > 1 {
        engine.devices = domains.iter().map(|domain| domain.report()).collect();
    }
    let still = !domains[0].caps().moves_bytes;
    let facts = std::mem::take(&mut engine.facts).maybe("moves_bytes", still.then_some(false));
    let clock = workers.first().map(|worker| worker.clock.source_name());
    engine.facts = facts.maybe("clock", clock);
    Opened {
        cpus: placement.cpus.clone(),
        yielding: placement.yielding,
        memory: all_memory(workers),
        engine,
        devices: workers.iter().map(|worker| worker.device.clone()).collect(),
        path: Named::new(path),
    }
}

/// The network interface that has an address; `None` when none has, or the system does not list them.
fn interface_of(address: IpAddr) -> Option<String> {
    let all = tonnage_sys::interfaces::addresses().ok()?;
    let found = all.into_iter().find(|entry| entry.address == address);
    found.map(|entry| entry.name)
}

/// Memory of the workers: said once where it is the same for all.
fn all_memory(workers: &[Worker]) -> Vec<MemoryReport> {
    let all = workers.iter().map(|worker| worker.memory.report());
    let mut all: Vec<_> = all.collect();
    all.dedup();
    all
}

/// Refuses what a plan asks and the open domain cannot do; the list of engines could not know it before.
fn check_caps(points: &[&TransferPoint], caps: &Caps, name: &str) -> Result<()> {
    for point in points {
        if !caps.verbs.contains(&point.op) {
            return Err(Error::Unavailable {
                what: format!("{} on {name}", point.op.name()),
                why: "the device that was opened does not offer it".into(),
                how: "Choose another --op or another device".into(),
            });
        }
        if point.pacing == Pacing::PingPong && point.op == Verb::Write && !caps.ordered_writes {
            return Err(Error::Unavailable {
                what: format!("ping-pong with op write on {name}"),
                why: "it waits for the last byte to appear, and the device does not promise that it appears last".into(),
                how: "Choose --op write-imm or --op send".into(),
            });
        }
        let answers_several = point.pacing == Pacing::PingPong
            && point.op == Verb::WriteImm
            && point.traffic == Traffic::FanIn
            && point.ranks > 2;
        if answers_several && !caps.arrivals_named {
            return Err(Error::Unavailable {
                what: format!("ping-pong of several ranks with write-imm on {name}"),
                why:
                    "the immediate of the device is too narrow to say which rank is to be answered"
                        .into(),
                how: "Choose --op send, or --traffic pair".into(),
            });
        }
        if point.op == Verb::WriteImm && caps.immediate_bits < 32 {
            return Err(Error::Unavailable {
                what: format!("write-imm on {name}"),
                why: format!(
                    "it carries {} bits of immediate data, and 32 are needed",
                    caps.immediate_bits
                ),
                how: "Choose --op write or --op send".into(),
            });
        }
        if u64::from(point.size_bytes) > caps.message_bytes_max {
            return Err(Error::Unavailable {
                what: format!("{} bytes in one operation on {name}", point.size_bytes),
                why: format!("the device takes at most {}", caps.message_bytes_max),
                how: "Choose smaller --sizes".into(),
            });
        }
    }
    Ok(())
}

/// Connects the workers with those of their peers, and keeps what their lanes will need.
fn connect(peers: &[Peer], workers: &mut [Worker], heard: &[(Peer, Vec<u8>)]) -> Result<()> {
    let mut introductions = Vec::with_capacity(peers.len());
    for &peer in peers {
        let bytes = heard.iter().find(|(from, _)| *from == peer);
        let nothing = || Error::Failed(format!("rank {peer} did not introduce itself"));
        let (_, bytes) = bytes.ok_or_else(nothing)?;
        let heard: Vec<Introduction> = serde_json::from_slice(bytes).map_err(|error| {
            Error::Failed(format!("rank {peer} introduced itself unreadably: {error}"))
        })?;
        introductions.push((peer, heard));
    }
    for (index, worker) in workers.iter_mut().enumerate() {
        let mut cards = Vec::with_capacity(peers.len());
        for (peer, heard) in &introductions {
            let nothing =
                || Error::Failed(format!("rank {peer} has no worker {index} to connect to"));
            let Introduction { card, memory } = heard.get(index).ok_or_else(nothing)?;
            cards.push((*peer, card.clone()));
            worker.remote.push((*peer, memory.clone()));
        }
        worker.engine.connect(&cards)?;
    }
    Ok(())
}

fn meet(rank: &Rank, workers: &mut [Worker]) -> Result<()> {
    let stop = rank.stopped();
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    workers
        .iter_mut()
        .try_for_each(|worker| worker.engine.meet(&stopped))
}

/// All ranks go on, or all stop with the first failing rank's reason.
pub(crate) fn settle<T>(rank: &mut Rank, what: &str, mine: Result<T>) -> Result<T> {
    match mine {
        Ok(value) => rank.agree(what, Ok(()), DEADLINES.step).map(|()| value),
        Err(error) => match rank.agree(what, Err(error), DEADLINES.step) {
            Err(error) => Err(error),
            Ok(()) => Err(Error::Failed(format!(
                "{what}: this rank failed and the others did not hear of it"
            ))),
        },
    }
}

fn to_json(opened: &Opened) -> Result<Vec<u8>> {
    serde_json::to_vec(opened)
        .map_err(|error| Error::Failed(format!("cannot describe this rank: {error}")))
}

fn from_json(from: usize, bytes: &[u8]) -> Result<Opened> {
    serde_json::from_slice(bytes).map_err(|error| {
        Error::Failed(format!(
            "rank {from} described itself in a way that cannot be read: {error}"
        ))
    })
}
