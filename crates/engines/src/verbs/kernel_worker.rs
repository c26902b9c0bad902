//! A worker that posts operations in the kernel. Each lane of the kernel module's session is connected to a user-space
//! queue pair of a peer. These queue pairs are the same as in `verbs:rc`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tonnage_engine::carried::TrialCarrier;
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Completion, Descriptor, EndpointAddress, Engine, Facts, Failure, Flush, Lane, LaneKind,
    LaneSpec, LaneTable, Op, PeerEndpoint, Region, RegionId, Verb, WorkerConfig, never_connected,
};
use tonnage_sys::kread::{
    KreadFlow, KreadOrder, KreadOutcome, KreadPath, KreadPosting, KreadSession, KreadSlotOrder,
    KreadVerb,
};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

use super::causes::{state_name, usual_cause};
use super::choose::unavailable;
use super::kernel_session::{Landing, open_session};
use super::peers::{FarBytes, PairAddress, least};
use super::port::OpenPort;
use super::worker::Worker;

/// Hop limit of packets, the same as for user-space queue pairs.
const HOPS: u8 = 64;

/// A worker. It has a session of the kernel module if its rank initiates.
pub(super) struct KernelWorker {
    pub(super) port: Arc<OpenPort>,
    /// User-space queue pairs, which are the targets of peers' lanes. They post nothing.
    targets: Worker,
    config: WorkerConfig,
    initiates: bool,
    pub(super) session: Option<Arc<KreadSession>>,
    landing: Option<Landing>,
    /// The registered memory. Operations of the kernel use landing memory of the module instead.
    pub(super) memory: Option<(RegionId, Arc<Arena>)>,
    pub(super) peers: Vec<KernelPeer>,
    /// Number of peers that completed first contact.
    met: usize,
    pub(super) lanes: LaneTable<KernelLane>,
    mtu: Option<u32>,
    reads: Option<u8>,
    /// Lanes of the current order, each with the number of operations that it had completed before the order.
    pub(super) driven: Vec<(u32, u64)>,
}

/// A peer, and the session's lanes to it.
pub(super) struct KernelPeer {
    pub(super) rank: u32,
    pub(super) device: String,
    /// Number of the first lane.
    pub(super) first: u32,
    /// The bytes that first contact reads; `None` until connected.
    mailbox: Option<FarBytes>,
    mtu: u32,
}

/// A lane of the engine's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelLane {
    pub(super) verb: Verb,
    /// Index of the peer in the worker's list.
    pub(super) peer: usize,
    local: RegionId,
    pub(super) base: u64,
    pub(super) len: u64,
    pub(super) key: u32,
}

impl KernelWorker {
    pub(super) fn new(targets: Worker, config: &WorkerConfig, initiates: bool) -> Self {
        Self {
            port: Arc::clone(&targets.port),
            targets,
            config: config.clone(),
            initiates,
            session: None,
            landing: None,
            memory: None,
            peers: Vec::new(),
            met: 0,
            lanes: LaneTable::default(),
            mtu: None,
            reads: None,
            driven: Vec::new(),
        }
    }

    /// Number of queue pairs per peer.
    pub(super) fn pairs_per_peer(&self) -> u32 {
        self.config.queue_pairs.max(1)
    }

    /// Returns the session. Only workers of initiating ranks have one.
    pub(super) fn session(&self) -> Result<&Arc<KreadSession>> {
        let none = || {
            self.port
                .about("this thread has no session: it is a target only")
        };
        self.session.as_ref().ok_or_else(none)
    }

    /// Creates the queue pairs for a peer. Returns an endpoint address with these queue pairs and the lanes to the
    /// peer.
    fn address_for(&mut self, rank: u32) -> Result<EndpointAddress> {
        let (each, first) = (
            self.pairs_per_peer(),
            self.peers.len() as u32 * self.pairs_per_peer(),
        );
        let pairs = (0..each).map(|_| {
            let address = self.targets.address_for(rank)?;
            serde_json::from_slice(&address.0).map_err(|error| Error::Failed(error.to_string()))
        });
        let pairs = pairs.collect::<Result<Vec<PairAddress>>>()?;
        let lanes = match &self.session {
            None => Vec::new(),
            Some(session) => {
                let address = |lane| session.address(lane).map_err(|why| self.port.about(why));
                (first..first + each).map(address).collect::<Result<_>>()?
            }
        };
        self.peers.push(KernelPeer {
            rank,
            device: String::new(),
            first,
            mailbox: None,
            mtu: 0,
        });
        Ok(EndpointAddress::encode(&KernelAddress { pairs, lanes }))
    }

    /// Connects the lanes to a peer's queue pairs, and this side's queue pairs to the peer's lanes.
    fn connect_one(&mut self, neighbor: &PeerEndpoint) -> Result<()> {
        let (rank, own, each) = (neighbor.peer, self.config.rank, self.pairs_per_peer());
        let failed = |why: String| {
            Error::Failed(format!(
                "verbs:kernel between ranks {own} and {rank}: {why}"
            ))
        };
        let address = KernelAddress::parse(&neighbor.address, own, each).map_err(failed)?;
        for pair in address.as_pairs() {
            self.targets.connect(&[PeerEndpoint {
                address: EndpointAddress::encode(&pair),
                ..neighbor.clone()
            }])?;
        }
        let is_it = |peer: &KernelPeer| peer.rank == rank && peer.mailbox.is_none();
        let at = self.peers.iter().position(is_it);
        let at = at.ok_or_else(|| failed("this side made no endpoint address for it".into()))?;
        let first = &address.pairs[0];
        if let Some(session) = &self.session {
            for (lane, pair) in (self.peers[at].first..).zip(&address.pairs) {
                let path = self.path(session, lane, pair).map_err(failed)?;
                let connected = session.connect(lane, &path);
                connected.map_err(|why| {
                    failed(format!("{why}; {}", self.port.both_ends(&pair.device)))
                })?;
                let mtu = path.mtu_bytes;
                self.mtu = least(self.mtu, mtu);
                self.reads = least(self.reads, path.reads);
            }
        }
        let peer = &mut self.peers[at];
        peer.device.clone_from(&first.device);
        peer.mailbox = Some(first.mailbox.clone());
        peer.mtu = self.port.mtu().min(first.mtu);
        Ok(())
    }

    fn path(
        &self,
        session: &KreadSession,
        lane: u32,
        to: &PairAddress,
    ) -> Result<KreadPath, String> {
        let (port, asked) = (&self.port, &self.port.asked);
        let gids = port.gids_with(to.over_ethernet, to.gid, &to.device)?;
        let (own, _) = session.address(lane).map_err(|why| why.to_string())?;
        Ok(KreadPath {
            number: to.numbers[0],
            first_packet: to.first_packet,
            lid: to.lid,
            gid: gids.map(|(_, gid)| gid),
            mtu_bytes: port.mtu().min(to.mtu),
            flow_label: asked.flow_label.between(own, to.numbers[0]),
            pkey_index: asked.pkey_index,
            timeout: asked.patience.timeout,
            retry: asked.patience.retry,
            rnr_retry: asked.patience.rnr_retry,
            reads: port.reads().min(to.reads_as_target).max(1),
            hop_limit: HOPS,
            traffic_class: asked.traffic_class,
            service_level: asked.service_level,
        })
    }

    /// Returns the error if a run has failed.
    pub(super) fn check(
        &self,
        outcome: &KreadOutcome,
        verb: Verb,
        patience: Duration,
    ) -> Result<()> {
        if let Some(failed) = outcome.failed {
            return Err(self.failure_of(failed, verb).into());
        }
        let Some(error) = &outcome.ended else {
            return Ok(());
        };
        Err(match Errno::from_io_error(error) {
            Some(Errno::TIMEDOUT) => self.port.about(format!(
                "no {} completed for {} s",
                verb.name(),
                patience.as_secs()
            )),
            Some(Errno::NODEV) => self.port.about("the device was removed"),
            Some(Errno::NOTCONN) => self.port.about(
                "a queue pair is not connected any more, because an operation on it failed earlier",
            ),
            _ => self.port.about(format!("the module ended a run: {error}")),
        })
    }

    #[cold]
    fn failure_of(&self, (state, vendor, lane): (u32, u32, u32), verb: Verb) -> Failure {
        let name = state_name(state);
        let each = self.pairs_per_peer();
        let has_it = |peer: &&KernelPeer| (peer.first..peer.first + each).contains(&lane);
        let peer = self.peers.iter().find(has_it);
        let session = self.session.as_ref();
        let number = session.and_then(|session| session.address(lane).ok());
        let cause = usual_cause(name).unwrap_or("none is known");
        let at = peer.map_or_else(String::new, |peer| {
            format!("; rank {} is at {}", peer.rank, peer.device)
        });
        Failure {
            name: name.to_owned(),
            code: state as i32,
            engine: "verbs:kernel".to_owned(),
            operation: Some(LaneKind::Initiate(verb)),
            peer: peer.map(|peer| peer.rank),
            device: Some(self.port.in_words()),
            queue_pair: number.map(|(number, _)| number),
            vendor_code: Some(vendor),
            usual_cause: Some(format!("{cause}{at}{}", self.port.events())),
        }
    }

    /// Returns the address, length and key of a peer's memory, which must have a single key.
    fn far(&self, remote: &Descriptor, rank: u32) -> Result<(u64, u64, u32)> {
        let region = FarBytes::parse(remote, rank)?;
        match region.keys.parts() {
            (0, keys) if keys.len() == 1 => Ok((region.base, region.len, keys[0])),
            _ => Err(unavailable(
                format!("the memory of rank {rank} is registered in several pieces"),
                "Choose a smaller --footprint, or verbs:rc",
            )),
        }
    }
}

/// The error for a single operation, which this engine cannot post.
fn carries_trials_only() -> Error {
    unavailable(
        "the kernel module runs whole trials, and does not accept single operations",
        "Choose verbs:rc, or a transfer of reads or writes with --depth",
    )
}

/// The error for a second memory. A session has the same memory for its whole life, because peers know its lanes.
fn one_memory_only() -> Error {
    unavailable(
        "a thread can register one memory with the kernel module, and this thread already has one",
        "Choose verbs:rc for runs that register several memories, or one after the other",
    )
}

impl Engine for KernelWorker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        let arena = Arc::clone(memory.mapped("verbs:kernel")?);
        let region = self.targets.register(memory)?;
        if self.initiates {
            if self.session.is_some() {
                return Err(one_memory_only());
            }
            let lanes = self.config.peers_max.saturating_mul(self.pairs_per_peer());
            let window = self.config.depth;
            let (session, landing) = open_session(&self.port, lanes, window, arena.len() as u64)?;
            self.session = Some(Arc::new(session));
            self.landing = Some(landing);
        }
        self.memory = Some((region.id, arena));
        Ok(region)
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.lanes.check_unused(region, |lane| lane.local)?;
        self.memory = self.memory.take().filter(|(id, _)| *id != region);
        self.targets.deregister(region)
    }

    fn endpoint_addresses(&mut self, peers: &[u32]) -> Result<Vec<EndpointAddress>> {
        peers.iter().map(|&peer| self.address_for(peer)).collect()
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        peers.iter().try_for_each(|peer| self.connect_one(peer))
    }

    /// First contact: reads one byte and one packet from each peer, on each lane to the peer.
    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        for at in self.met..self.peers.len() {
            if self.session.is_none() {
                break;
            }
            let peer = &self.peers[at];
            let Some(mailbox) = peer.mailbox.clone() else {
                return Err(Error::Failed(format!(
                    "rank {} was not connected before first contact",
                    peer.rank
                )));
            };
            let (packet, rank) = (peer.mtu.clamp(1, 4096), peer.rank);
            let region = mailbox.keyed().map_err(|why| self.port.about(why))?;
            let key = region.keys.parts().1.first().copied().unwrap_or(0);
            for bytes in [1, packet] {
                self.touch_unless(stopped, at, (region.base, key), bytes)
                    .map_err(|error| {
                        Error::Failed(format!(
                            "first contact with rank {rank}, {bytes} B: {error}"
                        ))
                    })?;
            }
        }
        self.met = self.peers.len();
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let verb = match spec.kind {
            LaneKind::Initiate(verb @ (Verb::Read | Verb::Write)) => verb,
            _ => return Err(carries_trials_only()),
        };
        let peer = self.peers.iter().position(|peer| peer.rank == spec.peer);
        let peer = peer.ok_or_else(|| never_connected(self.config.rank, spec.peer))?;
        self.session()?;
        let (base, len, key) = self.far(spec.remote, spec.peer)?;
        let lane = KernelLane {
            verb,
            peer,
            local: spec.local,
            base,
            len,
            key,
        };
        let known = self.lanes.find(|known| *known == lane);
        Ok(known.unwrap_or_else(|| self.lanes.put(lane)))
    }

    fn release_lane(&mut self, lane: Lane) {
        self.lanes.release(lane);
    }

    fn post(&mut self, _ops: &[Op]) -> Result<usize> {
        Err(carries_trials_only())
    }

    /// Nothing needs flushing, because each order ends with its own flush.
    fn flush(&mut self, lane: Lane, _tag: u32) -> Result<Flush> {
        self.lanes.get(lane).map(|_| Flush::Delivered)
    }

    /// Returns nothing: the kernel polls the lanes, and targets are idle.
    fn poll(&mut self, _done: &mut [Completion]) -> Result<usize> {
        Ok(0)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, _done: &Completion) -> Failure {
        Failure {
            name: "unknown".to_owned(),
            engine: "verbs:kernel".to_owned(),
            ..Failure::default()
        }
    }

    fn carrier(&mut self) -> Option<&mut dyn TrialCarrier> {
        Some(self)
    }

    fn take_device_events(&mut self) -> Vec<String> {
        self.targets.take_device_events()
    }

    fn chosen(&self) -> Facts {
        let first = self.port.asked.signals_first;
        Facts::default()
            .with_optional_fact("mtu_bytes", self.mtu)
            .with_optional_fact("rd_atomic", self.reads.map(u32::from))
            .with_optional_fact(
                "signalling",
                self.landing.map(|_| if first { "first" } else { "each" }),
            )
            .with_optional_fact("landing_slots", self.landing.map(|it| it.slots))
            .with_optional_fact("landing_slot_bytes", self.landing.map(|it| it.slot_bytes))
    }
}

/// Time limit for answers in first contact and flushes. Queue pairs fail sooner, unless their retries are unlimited.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval between checks whether the run was stopped.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl KernelWorker {
    /// Reads `bytes` bytes from an address of a peer, on each lane to the peer. The bytes are stored in landing memory,
    /// after the part for the worker's memory.
    pub(super) fn touch(
        &self,
        peer: usize,
        from: (u64, u32),
        bytes: u32,
        stop: &AtomicBool,
    ) -> Result<()> {
        self.read_by_each(peer, from, bytes, stop, |session, order, flow| {
            Ok(one_read(session, order, flow))
        })
    }

    /// Like [`Self::touch`], but also checks whether the run was stopped.
    pub(super) fn touch_unless(
        &self,
        stopped: &dyn Fn() -> bool,
        peer: usize,
        from: (u64, u32),
        bytes: u32,
    ) -> Result<()> {
        let stop = AtomicBool::new(stopped());
        self.read_by_each(peer, from, bytes, &stop, |session, order, flow| {
            let asker = thread::current();
            thread::scope(|scope| {
                let read = || {
                    let outcome = one_read(session, order, flow);
                    asker.unpark();
                    outcome
                };
                let reader = thread::Builder::new().spawn_scoped(scope, read);
                let reader = reader.map_err(|error| Error::start_error("a thread", &error))?;
                while !reader.is_finished() {
                    thread::park_timeout(STOP_CHECK_INTERVAL);
                    if stopped() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                let outcome = reader.join();
                Ok(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })
    }

    fn read_by_each(
        &self,
        peer: usize,
        from: (u64, u32),
        bytes: u32,
        stop: &AtomicBool,
        read: impl Fn(&KreadSession, &KreadOrder<'_>, KreadFlow) -> Result<KreadOutcome>,
    ) -> Result<()> {
        let (each, peer) = (self.pairs_per_peer(), &self.peers[peer]);
        let session = self.session()?;
        let memory = self.memory.as_ref();
        let order = KreadOrder {
            verb: KreadVerb::Read,
            bytes,
            window: 1,
            posting: KreadPosting::Each,
            orders: (KreadSlotOrder::Fixed, KreadSlotOrder::Fixed),
            slots: (1, bytes.into()),
            operations_max: Some(1),
            duration: None,
            patience: PATIENCE,
            timed: false,
            stop,
        };
        for lane in peer.first..peer.first + each {
            let flow = KreadFlow {
                lane,
                lanes: 1,
                remote: (from.0, bytes.into()),
                key: from.1,
                local: memory.map_or(0, |(_, memory)| memory.len() as u64),
                seed: 0,
                begin: 0,
            };
            if stop.load(Ordering::Relaxed) {
                return Err(was_stopped());
            }
            let outcome = read(session, &order, flow)?;
            if stop.load(Ordering::Relaxed) {
                return Err(was_stopped());
            }
            self.check(&outcome, Verb::Read, PATIENCE)?;
        }
        Ok(())
    }
}

pub(super) fn was_stopped() -> Error {
    Error::Failed("the run was stopped".into())
}

/// Whether a signal interrupted a run without ending the program.
pub(super) fn was_interrupted(outcome: &KreadOutcome) -> bool {
    let signal = |error: &std::io::Error| Errno::from_io_error(error) == Some(Errno::INTR);
    outcome.failed.is_none() && outcome.ended.as_ref().is_some_and(signal)
}

/// Makes one read. Retries it if a signal came before the read was posted.
fn one_read(session: &KreadSession, order: &KreadOrder<'_>, flow: KreadFlow) -> KreadOutcome {
    loop {
        let outcome = session.run(order, &[flow]);
        let posted = outcome.issued.iter().any(|&issued| issued != 0);
        if posted || !was_interrupted(&outcome) || order.stop.load(Ordering::Relaxed) {
            return outcome;
        }
    }
}

/// Endpoint address of a worker for one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KernelAddress {
    /// User-space queue pairs, one for each of the peer's lanes.
    pub(super) pairs: Vec<PairAddress>,
    /// This worker's lanes to the peer, each with its queue pair number and first packet number. Empty if the rank is
    /// only a target.
    pub(super) lanes: Vec<(u32, u32)>,
}

impl KernelAddress {
    /// Parses a peer's endpoint address, which must be for rank `own` and have `pairs` queue pairs.
    pub(super) fn parse(address: &EndpointAddress, own: u32, pairs: u32) -> Result<Self, String> {
        let address: Self = serde_json::from_slice(&address.0)
            .map_err(|error| format!("cannot decode the peer's address ({error})"))?;
        if address.pairs.iter().any(|pair| pair.peer != own) {
            return Err("the peer does not expect this rank".into());
        }
        let lanes = address.lanes.len();
        if address.pairs.len() != pairs as usize || (lanes != 0 && lanes != pairs as usize) {
            return Err(format!(
                "the peer has {} queue pairs for this rank, but this side has {pairs}",
                address.pairs.len()
            ));
        }
        if address.pairs.iter().any(|pair| pair.numbers.len() != 1) {
            return Err("its queue pairs must have one number each".into());
        }
        Ok(address)
    }

    /// Returns the lanes as addresses of user-space queue pairs, to which the queue pairs of the other side can
    /// connect.
    pub(super) fn as_pairs(&self) -> impl Iterator<Item = PairAddress> {
        let lanes = self.lanes.iter().zip(&self.pairs);
        lanes.map(|(&(number, first_packet), pair)| PairAddress {
            numbers: vec![number],
            first_packet,
            ..pair.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use tonnage_sys::verbs::{KeyedRegion, RegionKeys};

    use super::super::peers::FarBytes;
    use super::*;

    fn address() -> KernelAddress {
        let pair = |number| PairAddress {
            device: "rxeA:1".into(),
            numbers: vec![number],
            first_packet: 7,
            mtu: 4096,
            gid: Some([3; 16]),
            lid: 0,
            over_ethernet: true,
            reads_as_target: 16,
            reads_as_initiator: 16,
            mailbox: FarBytes::from(&KeyedRegion {
                base: 1 << 40,
                keys: RegionKeys::one(5),
                len: 8192,
            }),
            peer: 3,
            cm: None,
        };
        KernelAddress {
            pairs: vec![pair(17), pair(18)],
            lanes: vec![(40, 1000), (41, 1001)],
        }
    }

    #[test]
    fn a_card_is_read_as_it_was_written_and_lanes_pass_for_queue_pairs() {
        let read = KernelAddress::parse(&EndpointAddress::encode(&address()), 3, 2).unwrap();
        assert_eq!(read, address());
        let seen: Vec<(u32, u32, u32)> = read
            .as_pairs()
            .map(|pair| (pair.numbers[0], pair.first_packet, pair.mtu))
            .collect();
        assert_eq!(seen, [(40, 1000, 4096), (41, 1001, 4096)]);
        let target = KernelAddress {
            lanes: Vec::new(),
            ..address()
        };
        let read = KernelAddress::parse(&EndpointAddress::encode(&target), 3, 2).unwrap();
        assert_eq!(read.as_pairs().count(), 0);
    }

    #[test]
    fn a_card_that_does_not_fit_is_refused() {
        let refused = |address: &KernelAddress, own, pairs| {
            KernelAddress::parse(&EndpointAddress::encode(address), own, pairs).unwrap_err()
        };
        assert!(refused(&address(), 4, 2).contains("does not expect"));
        assert!(refused(&address(), 3, 1).contains("2 queue pairs"));
        let mut few = address();
        few.lanes.pop();
        assert!(refused(&few, 3, 2).contains("queue pairs"));
        let mut nameless = address();
        nameless.pairs[1].numbers.clear();
        assert!(refused(&nameless, 3, 2).contains("one number each"));
        let garbage = KernelAddress::parse(&EndpointAddress(b"{}".to_vec()), 3, 2).unwrap_err();
        assert!(garbage.contains("cannot decode the peer's address"));
    }
}
