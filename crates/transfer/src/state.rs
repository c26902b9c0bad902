//! The state of an endpoint: its engine, registrations, sessions and operations.
//!
//! Posting and polling are in `progress`; sharing the state between handles is in `cell`.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Caps, Completion, Descriptor, Domain, Engine, Lane, LaneKind, LaneSpec, Op, Peer, PeerEndpoint,
    Region, RegionId, Verb,
};

use crate::address::{PeerAddress, RemoteId};
use crate::error::{ErrorSubject, TransferError, TransferErrorKind, TransferResult};
use crate::extent::Extent;
use crate::flights::{OperationSlots, SlotEnd};
use crate::place::{ProcessPlace, ProcessWatch};
use crate::slab::Slab;

/// Maximum number of completions taken from the engine in one poll.
pub(crate) const BURST: usize = 64;

/// Number of posts and idle polls between two checks of the peers' processes, because a check costs a system call.
const PEER_CHECK_TURNS: u32 = 1024;

/// When to stop waiting for completions from a process that has ended. Waiting is needed because the last bytes of an
/// orderly exit may still be in a socket. Both this number of polls and this time must pass without a completion. If
/// other peers' completions continue, `ENDING_MAX` applies.
const QUIET_POLLS: u32 = 64;
const QUIET: Duration = Duration::from_millis(50);
const ENDING_MAX: Duration = Duration::from_secs(1);

/// Reason for refusing an operation for lack of room.
pub(crate) const NO_ROOM: &str = "no room now: poll, and try again";

/// Number of verbs for which sessions have lanes.
pub(crate) const SESSION_VERBS: usize = 3;

/// An arrived write-imm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedWrite {
    /// The endpoint that wrote; `None` if the transport does not report it.
    pub peer: Option<Peer>,
    /// The immediate value.
    pub imm: u32,
    /// Payload bytes.
    pub len: u32,
}

/// Guarantees that a session requires from its engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// A write completes only when the peer can see its bytes. Without this guarantee, completion may not imply
    /// arrival, and [`Session::flush`](crate::Session::flush) is needed to prove it.
    pub delivered: bool,
    /// The last byte of a write becomes visible last, for a peer that waits for it by polling its memory.
    pub ordered: bool,
}

/// A session, which the endpoint keeps until none of its operations is in flight.
pub(crate) struct SessionState {
    pub(crate) peer: Peer,
    /// The session's local memory.
    pub(crate) region: u32,
    pub(crate) lanes: [Option<Lane>; SESSION_VERBS],
    /// `Some` after the session's handle was dropped: the number of operations and batches that the engine must still
    /// end.
    pub(crate) closing: Option<u32>,
    /// `Some` if no more operations may be posted: the reason.
    pub(crate) refused: Option<TransferError>,
    /// Whether an operation of the session has failed.
    pub(crate) failed: bool,
}

/// A registration, which the endpoint keeps while a handle or a session uses it.
pub(crate) struct RegionState {
    /// Counts registrations and is never reused, unlike indices.
    pub(crate) serial: u32,
    pub(crate) id: RegionId,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) descriptor: Descriptor,
    pub(crate) users: u32,
}

/// Identifies a local memory within its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalId {
    pub(crate) place: u32,
    pub(crate) serial: u32,
}

/// A peer's memory that calls without a session can use.
pub(crate) struct KnownRemote {
    pub(crate) bytes: u64,
    pub(crate) options: SessionOptions,
    pub(crate) descriptor: Descriptor,
}

/// A peer that the engine is connected to.
pub(crate) struct KnownPeer {
    /// `None` if the peer was connected before this endpoint took over the engine.
    pub(crate) place: Option<ProcessPlace>,
    /// Whether first contact was made.
    pub(crate) met: bool,
}

/// A peer that may still cause completions, although its process has ended.
pub(crate) struct EndingPeer {
    peer: Peer,
    seen: Instant,
    quiet_polls: u32,
}

/// A batch, with some operations not posted yet, because the engine had no room.
pub(crate) struct UnpostedBatch {
    pub(crate) slot: u32,
    pub(crate) ops: Vec<Op>,
    pub(crate) posted: usize,
}

/// Sizes of an endpoint's tables.
#[derive(Clone, Copy)]
pub(crate) struct TableSizes {
    pub(crate) operations: u32,
    pub(crate) arrivals: u32,
}

pub(crate) struct EndpointState {
    pub(crate) engine: Box<dyn Engine + Send>,
    pub(crate) caps: Caps,
    pub(crate) id: Peer,
    pub(crate) subject: ErrorSubject,
    pub(crate) flights: OperationSlots,
    pub(crate) sessions: Slab<SessionState>,
    pub(crate) regions: Slab<RegionState>,
    /// Number of users of each lane, because an engine returns the same lane for the same specification.
    pub(crate) lanes: HashMap<Lane, u32>,
    pub(crate) remotes: HashMap<RemoteId, KnownRemote>,
    /// Sessions opened by calls without a session, by local and remote memory.
    pub(crate) named_sessions: HashMap<(LocalId, RemoteId), u32>,
    pub(crate) backlog: VecDeque<UnpostedBatch>,
    /// Operation lists of earlier batches, kept for reuse.
    pub(crate) spare: Vec<Vec<Op>>,
    /// Scratch list of operations that are posted together.
    pub(crate) list: [Op; BURST],
    pub(crate) arrivals: VecDeque<ArrivedWrite>,
    pub(crate) arrivals_max: usize,
    pub(crate) done: [Completion; BURST],
    /// Tasks to wake when the state is no longer borrowed.
    pub(crate) woken: Vec<Waker>,
    /// Tasks that wait for room.
    pub(crate) waiting: Vec<Waker>,
    /// The error for a lack of room. It is created in advance, so that returning it does not allocate.
    pub(crate) busy: TransferError,
    pub(crate) dead: Option<TransferError>,
    /// The first failure of an operation with a dropped ticket.
    pub(crate) unclaimed: Option<TransferError>,
    pub(crate) place: ProcessPlace,
    pub(crate) watch: ProcessWatch,
    pub(crate) peers: HashMap<Peer, KnownPeer>,
    pub(crate) lost: HashMap<Peer, TransferError>,
    /// Lost peers with operations that have not been given up yet.
    pub(crate) ending: Vec<EndingPeer>,
    /// Removes resources that a killed process left on this machine.
    pub(crate) clean_up: fn(u32),
    turns: u32,
    /// Polls without a completion since the tasks that wait for room were last woken.
    pub(crate) idle_polls: u32,
    /// The descriptor to sleep on, after it was first requested.
    pub(crate) descriptor: Option<Rc<OwnedFd>>,
    /// Number of registrations so far.
    pub(crate) registrations: u32,
    // Declared last, so that the engine closes before its domain does.
    pub(crate) domain: Option<Arc<dyn Domain>>,
}

impl EndpointState {
    pub(crate) fn new(
        engine: Box<dyn Engine + Send>,
        caps: Caps,
        (id, subject): (Peer, ErrorSubject),
        sizes: TableSizes,
        clean_up: fn(u32),
    ) -> Self {
        let operations = sizes.operations.max(1);
        let arrivals_max = sizes.arrivals.max(1) as usize;
        let busy = TransferError::new(TransferErrorKind::Busy, subject.clone(), NO_ROOM);
        Self {
            engine,
            caps,
            id,
            subject,
            flights: OperationSlots::new(operations),
            sessions: Slab::new(),
            regions: Slab::new(),
            lanes: HashMap::new(),
            remotes: HashMap::new(),
            named_sessions: HashMap::new(),
            backlog: VecDeque::new(),
            spare: Vec::new(),
            list: [Extent::default().op(Lane(0), 0); BURST],
            arrivals: VecDeque::with_capacity(arrivals_max),
            arrivals_max,
            done: [Completion::EMPTY; BURST],
            woken: Vec::with_capacity(operations as usize),
            waiting: Vec::with_capacity(operations as usize),
            busy,
            dead: None,
            unclaimed: None,
            place: ProcessPlace::own(),
            watch: ProcessWatch::new(),
            peers: HashMap::new(),
            lost: HashMap::new(),
            ending: Vec::new(),
            clean_up,
            turns: 0,
            idle_polls: 0,
            descriptor: None,
            registrations: 0,
            domain: None,
        }
    }

    /// Returns whether the engine has no operation in flight and no ticket exists.
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.are_all_free() && self.backlog.is_empty()
    }

    /// Counts a post or an idle poll. Regularly checks the peers' processes.
    #[inline]
    pub(crate) fn count_poll(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(PEER_CHECK_TURNS) && !self.watch.is_empty() {
            self.check_peers();
        }
    }

    /// Returns the subject for errors of a session's operation.
    pub(crate) fn subject_of(&self, session: u32, name: &'static str) -> ErrorSubject {
        let session = self.sessions.get(session);
        self.subject
            .with_operation(name, session.map(|session| session.peer))
    }

    /// Returns the subject for errors of the operation in a slot.
    pub(crate) fn subject_of_slot(&self, slot: u32) -> ErrorSubject {
        match self.flights.get(slot) {
            Some(flight) => self.subject_of(flight.session, flight.name.text()),
            None => self.subject.clone(),
        }
    }

    /// Returns the error of a failed operation, and marks it as reported.
    #[cold]
    pub(crate) fn error_of(&mut self, slot: u32) -> TransferError {
        let known = self.flights.report_error(slot);
        known.unwrap_or_else(|| {
            let kind = TransferErrorKind::OperationFailed;
            TransferError::new(kind, self.subject_of_slot(slot), "it failed")
        })
    }

    /// Checks whether processes of peers have ended, and refuses further posts to those peers.
    #[cold]
    pub(crate) fn check_peers(&mut self) {
        for peer in self.watch.ended() {
            self.refuse_peer(peer);
            self.ending.push(EndingPeer {
                peer,
                seen: Instant::now(),
                quiet_polls: 0,
            });
        }
    }

    /// Gives up the operations of ended peers when the engine reports no more completions, or after `ENDING_MAX`.
    #[cold]
    pub(crate) fn end_peers(&mut self, completions: usize) {
        let mut over = Vec::new();
        self.ending.retain_mut(|ending| {
            ending.quiet_polls = match completions {
                0 => ending.quiet_polls.saturating_add(1),
                _ => 0,
            };
            let since = ending.seen.elapsed();
            let is_over =
                since >= ENDING_MAX || (ending.quiet_polls >= QUIET_POLLS && since >= QUIET);
            if is_over {
                over.push(ending.peer);
            }
            !is_over
        });
        for peer in over {
            self.lose_peer(peer);
        }
    }

    /// Returns whether all peers are lost and no more completions are expected from them. False if there never were
    /// peers.
    pub(crate) fn has_no_peers(&self) -> bool {
        let mut met = self.peers.iter().filter(|(_, state)| state.met).peekable();
        self.ending.is_empty()
            && met.peek().is_some()
            && met.all(|(peer, _)| self.lost.contains_key(peer))
    }

    /// Refuses further posts to a peer.
    fn refuse_peer(&mut self, peer: Peer) {
        let Some(KnownPeer { place, .. }) = self.peers.get(&peer) else {
            return;
        };
        let subject = ErrorSubject {
            peer: Some(peer),
            ..self.subject.clone()
        };
        let end = place.as_ref().map(ProcessPlace::describe_end);
        let error = TransferError::new(
            TransferErrorKind::PeerLost,
            subject,
            end.unwrap_or_default(),
        );
        self.lost.insert(peer, error.clone());
        self.refuse_later_calls(&error, Some(peer));
    }

    /// Refuses further posts to a peer, gives up its operations, and cleans up after its process.
    pub(crate) fn lose_peer(&mut self, peer: Peer) {
        self.refuse_peer(peer);
        if let Some(error) = self.lost.get(&peer).cloned() {
            self.give_up_all(&error, Some(peer));
        }
        if let Some(place) = self.peers.get(&peer).and_then(|known| known.place.as_ref()) {
            self.clean_up_after(place);
        }
    }

    /// Removes resources that a process left behind, unless its ID was reused.
    pub(crate) fn clean_up_after(&self, place: &ProcessPlace) {
        if place.is_gone(&self.place) {
            (self.clean_up)(place.pid());
        }
    }

    /// Marks the engine as dead, and gives up everything in flight.
    #[cold]
    pub(crate) fn fail_engine(&mut self, reason: impl Into<String>) -> TransferError {
        let subject = self.subject.with_operation("polling", None);
        let error = TransferError::new(TransferErrorKind::EndpointFailed, subject, reason);
        self.dead = Some(error.clone());
        self.refuse_later_calls(&error, None);
        self.give_up_all(&error, None);
        error
    }

    /// Refuses further posts to one peer, or to all peers.
    fn refuse_later_calls(&mut self, error: &TransferError, peer: Option<Peer>) {
        let is_meant = |session: &SessionState| peer.is_none_or(|peer| session.peer == peer);
        for session in self
            .sessions
            .values_mut()
            .filter(|session| is_meant(session))
        {
            session.refused = Some(error.clone());
        }
        self.woken.append(&mut self.waiting);
    }

    /// Gives up the operations with one peer, or with all peers.
    fn give_up_all(&mut self, error: &TransferError, peer: Option<Peer>) {
        let is_meant = |session: &SessionState| peer.is_none_or(|peer| session.peer == peer);
        for slot in self.flights.unended() {
            let session = self.flights.get(slot).map(|flight| flight.session);
            let session = session.and_then(|session| self.sessions.get(session));
            if session.is_some_and(is_meant) {
                let error = error.with_subject(self.subject_of_slot(slot));
                let ended = self.flights.end_with_error(slot, error);
                self.apply_end(ended);
                self.drop_unposted(slot);
            }
        }
    }

    /// Ends the parts of a batch that the engine never took.
    fn drop_unposted(&mut self, slot: u32) {
        let index = self.backlog.iter().position(|rest| rest.slot == slot);
        if let Some(rest) = index.and_then(|index| self.backlog.remove(index)) {
            let left = rest.ops.len() - rest.posted;
            if let Some(ended) = self.flights.end_parts(slot, left as u32) {
                self.apply_end(ended);
            }
        }
    }

    /// Updates sessions, waiting tasks and the unclaimed failure after an operation has ended.
    pub(crate) fn apply_end(&mut self, ended: SlotEnd) {
        if let Some(waker) = ended.waker {
            self.woken.push(waker);
        }
        if let Some(error) = ended.unclaimed {
            self.unclaimed.get_or_insert(error);
        }
        if let Some(session) = ended.session {
            self.count_down(session);
        }
    }

    /// Counts the end of an operation for a session that is closing.
    fn count_down(&mut self, index: u32) {
        if let Some(session) = self.sessions.get_mut(index) {
            let left = session.closing.map_or(0, |left| left.saturating_sub(1));
            self.close_after(index, left);
        }
    }

    /// Closes a session when the engine has ended this many of its operations.
    pub(crate) fn close_after(&mut self, index: u32, left: u32) {
        if left == 0 {
            self.release_session(index);
        } else if let Some(session) = self.sessions.get_mut(index) {
            session.closing = Some(left);
        }
    }

    /// Releases a session's lanes and memory. The session must have nothing in flight.
    #[cold]
    pub(crate) fn release_session(&mut self, index: u32) {
        if let Some(session) = self.sessions.remove(index) {
            for lane in session.lanes.into_iter().flatten() {
                self.release_lane(lane);
            }
            self.release_region(session.region);
        }
    }

    pub(crate) fn release_lane(&mut self, lane: Lane) {
        if let Some(users) = self.lanes.get_mut(&lane) {
            *users -= 1;
            if *users == 0 {
                self.lanes.remove(&lane);
                self.engine.release_lane(lane);
            }
        }
    }

    /// Removes one user of a registration, and deregisters the memory if it was the last user.
    pub(crate) fn release_region(&mut self, index: u32) {
        let Some(region) = self.regions.get_mut(index) else {
            return;
        };
        region.users -= 1;
        if region.users > 0 {
            return;
        }
        let id = region.id;
        if let Err(error) = self.engine.deregister(id) {
            let subject = self.subject.with_operation("deregister", None);
            let error =
                TransferError::from_error(TransferErrorKind::EndpointFailed, subject, &error);
            self.unclaimed.get_or_insert(error);
        }
        // The engine keeps the memory alive as long as it needs it.
        self.regions.remove(index);
    }
}

/// Returns the index of a verb among a session's lanes; `None` if sessions do not support this verb.
#[inline]
pub(crate) fn lane_index(verb: Verb) -> Option<usize> {
    match verb {
        Verb::Write => Some(0),
        Verb::WriteImm => Some(1),
        Verb::Read => Some(2),
        // Sends have no remote offset, and extents have no operands for atomics.
        Verb::Send | Verb::FetchAdd | Verb::CompareSwap => None,
    }
}

impl EndpointState {
    pub(crate) fn register(&mut self, memory: Arc<dyn Memory>) -> TransferResult<u32> {
        let region = self.engine.register(&memory).map_err(|error| {
            let subject = self.subject.with_operation("register", None);
            TransferError::from_error(TransferErrorKind::Unavailable, subject, &error)
        })?;
        let serial = self.next_serial();
        Ok(self.regions.insert(RegionState {
            serial,
            id: region.id,
            memory,
            descriptor: region.descriptor,
            users: 1,
        }))
    }

    fn next_serial(&mut self) -> u32 {
        self.registrations = self.registrations.wrapping_add(1);
        self.registrations
    }

    /// Returns the registration of a local memory; `None` if it was deregistered.
    #[inline]
    pub(crate) fn region_of(&self, local: LocalId) -> Option<&RegionState> {
        let region = self.regions.get(local.place)?;
        (region.serial == local.serial).then_some(region)
    }

    /// Adds a registration that other code created and will deregister.
    pub(crate) fn adopt_region(&mut self, memory: Arc<dyn Memory>, region: Region) -> u32 {
        let serial = self.next_serial();
        self.regions.insert(RegionState {
            serial,
            id: region.id,
            memory,
            descriptor: region.descriptor,
            // Counts one more user than there is, so that releasing the last one does not deregister the memory.
            users: 2,
        })
    }

    pub(crate) fn expect(&mut self, peer: Peer, bytes: Option<u32>) -> TransferResult<()> {
        self.engine.expect(peer, bytes).map_err(|error| {
            let subject = self.subject.with_operation("expect", peer);
            TransferError::from_error(TransferErrorKind::OperationFailed, subject, &error)
        })
    }

    pub(crate) fn address_for(&mut self, peer: Peer) -> TransferResult<PeerAddress> {
        let made = self.engine.endpoint_addresses(&[peer]).map_err(|error| {
            let subject = self.subject.with_operation("introduce", peer);
            TransferError::from_error(TransferErrorKind::EndpointFailed, subject, &error)
        })?;
        let endpoint_address = made.into_iter().next().ok_or_else(|| {
            let subject = self.subject.with_operation("introduce", peer);
            let kind = TransferErrorKind::EndpointFailed;
            TransferError::new(kind, subject, "the engine returned no endpoint address")
        })?;
        Ok(PeerAddress {
            engine: self.subject.engine.to_string(),
            from: self.id,
            to: peer,
            place: self.place.clone(),
            endpoint_address,
        })
    }

    /// Connects to the endpoints that made these addresses, and waits until they have connected to this endpoint.
    pub(crate) fn connect(
        &mut self,
        addresses: &[PeerAddress],
        timeout: Duration,
    ) -> TransferResult<()> {
        // All addresses are checked before the first is used.
        for (at, address) in addresses.iter().enumerate() {
            self.check_address(address, &addresses[..at])?;
        }
        for address in addresses {
            // A peer that was connected before but not reached needs only first contact.
            if !self.peers.contains_key(&address.from) {
                self.connect_one(address)?;
            }
        }
        self.meet(addresses, timeout)
    }

    fn check_address(&self, address: &PeerAddress, earlier: &[PeerAddress]) -> TransferResult<()> {
        let peer = address.from;
        if let Some(lost) = self.refusal(peer, "connect") {
            return Err(lost);
        }
        let known = self.peers.get(&peer);
        let reason = if address.to != self.id || peer == self.id {
            let (id, from, to) = (self.id, address.from, address.to);
            format!("endpoint {from}'s address is for endpoint {to}, but this is endpoint {id}")
        } else if *address.engine != *self.subject.engine {
            format!("the peer uses engine {}", address.engine)
        } else if known.is_some_and(|known| known.met) {
            "it is connected already".to_owned()
        } else if known.is_some_and(|known| known.place.as_ref() != Some(&address.place)) {
            "it was connected with the address of another process".to_owned()
        } else if earlier.iter().any(|earlier| earlier.from == peer) {
            "two of the addresses are from this peer".to_owned()
        } else {
            return Ok(());
        };
        let subject = self.subject.with_operation("connect", peer);
        Err(TransferError::new(
            TransferErrorKind::Usage,
            subject,
            reason,
        ))
    }

    fn connect_one(&mut self, address: &PeerAddress) -> TransferResult<()> {
        let peer = address.from;
        if !self.watch.add(peer, &self.place, &address.place) {
            self.clean_up_after(&address.place);
            let subject = self.subject.with_operation("connect", peer);
            return Err(TransferError::new(
                TransferErrorKind::PeerLost,
                subject,
                address.place.describe_end(),
            ));
        }
        let neighbor = PeerEndpoint {
            peer,
            address: address.endpoint_address.clone(),
            locality: self.place.locality(&address.place),
        };
        if let Err(error) = self.engine.connect(&[neighbor]) {
            self.watch.remove(peer);
            let subject = self.subject.with_operation("connect", peer);
            let kind = TransferErrorKind::EndpointFailed;
            return Err(TransferError::from_error(kind, subject, &error));
        }
        let place = Some(address.place.clone());
        self.peers.insert(peer, KnownPeer { place, met: false });
        Ok(())
    }

    /// Makes first contact with the peers of these addresses. Returns an error if one of their processes ends.
    fn meet(&mut self, addresses: &[PeerAddress], timeout: Duration) -> TransferResult<()> {
        let deadline = Instant::now().checked_add(timeout);
        let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let watch = RefCell::new((&mut self.watch, Vec::new()));
        let awaits = |ended: &Peer| addresses.iter().any(|address| address.from == *ended);
        let met = self.engine.meet(&|| {
            let (watch, ended) = &mut *watch.borrow_mut();
            ended.extend(watch.ended());
            ended.iter().any(awaits) || is_late()
        });
        let (_, ended) = watch.into_inner();
        for &peer in &ended {
            self.lose_peer(peer);
        }
        if let Some(lost) = ended.into_iter().find(awaits) {
            return self.refusal(lost, "connect").map_or(Ok(()), Err);
        }
        let one = match addresses {
            [address] => Some(address.from),
            _ => None,
        };
        let subject = self.subject.with_operation("connect", one);
        match met {
            Ok(()) => {
                self.peers.values_mut().for_each(|peer| peer.met = true);
                Ok(())
            }
            Err(_) if is_late() => Err(TransferError::deadline(subject, timeout)),
            Err(error) => {
                let kind = TransferErrorKind::EndpointFailed;
                Err(TransferError::from_error(kind, subject, &error))
            }
        }
    }

    /// Returns the error if this peer can no longer be used.
    pub(crate) fn refusal(&self, peer: Peer, operation: &'static str) -> Option<TransferError> {
        let known = self.dead.as_ref().or_else(|| self.lost.get(&peer));
        known.map(|error| error.with_subject(self.subject.with_operation(operation, peer)))
    }

    /// Opens a session between a registration and a peer's memory.
    pub(crate) fn open_session(
        &mut self,
        region: u32,
        (peer, remote): (Peer, &Descriptor),
        options: SessionOptions,
        verbs: &[Verb],
    ) -> TransferResult<u32> {
        if let Some(refused) = self.refusal(peer, "session") {
            return Err(refused);
        }
        self.check_session(peer, options)?;
        let mut lanes = [None; SESSION_VERBS];
        for &verb in verbs {
            let Some(index) = lane_index(verb).filter(|_| self.caps.verbs.contains(&verb)) else {
                continue;
            };
            match self.resolve(region, (peer, remote), options, verb) {
                Ok(lane) => lanes[index] = Some(lane),
                Err(error) => {
                    lanes
                        .into_iter()
                        .flatten()
                        .for_each(|lane| self.release_lane(lane));
                    return Err(error);
                }
            }
        }
        if let Some(region) = self.regions.get_mut(region) {
            region.users += 1;
        }
        Ok(self.sessions.insert(SessionState {
            peer,
            region,
            lanes,
            closing: None,
            refused: None,
            failed: false,
        }))
    }

    fn check_session(&self, peer: Peer, options: SessionOptions) -> TransferResult<()> {
        let caps = &self.caps;
        let delivers = caps.delivered || caps.delivery_on_request;
        let wrong = if !self.peers.get(&peer).is_some_and(|peer| peer.met) {
            (TransferErrorKind::Usage, "it was not connected")
        } else if options.delivered && !delivers {
            (
                TransferErrorKind::Unavailable,
                "the engine cannot complete writes only after their arrival",
            )
        } else if options.ordered && !caps.ordered_writes {
            (
                TransferErrorKind::Unavailable,
                "the engine cannot guarantee that the last byte becomes visible last",
            )
        } else {
            return Ok(());
        };
        let subject = self.subject.with_operation("session", peer);
        Err(TransferError::new(wrong.0, subject, wrong.1))
    }

    fn resolve(
        &mut self,
        region: u32,
        (peer, remote): (Peer, &Descriptor),
        options: SessionOptions,
        verb: Verb,
    ) -> TransferResult<Lane> {
        let subject = || self.subject.with_operation("session", peer);
        let local = self.regions.get(region).map(|region| region.id);
        let Some(local) = local else {
            let kind = TransferErrorKind::Usage;
            return Err(TransferError::new(
                kind,
                subject(),
                "its memory is not registered",
            ));
        };
        let writes = verb != Verb::Read;
        let spec = LaneSpec {
            kind: LaneKind::Initiate(verb),
            peer,
            local,
            remote,
            ordered: options.ordered && verb == Verb::Write,
            in_order: false,
            delivered: options.delivered && writes && !self.caps.delivered,
        };
        match self.engine.lane(&spec) {
            Ok(lane) => {
                *self.lanes.entry(lane).or_insert(0) += 1;
                Ok(lane)
            }
            Err(error) => {
                let kind = TransferErrorKind::OperationFailed;
                Err(TransferError::from_error(kind, subject(), &error))
            }
        }
    }

    /// Closes a session after its handle was dropped and the last of its operations has ended.
    pub(crate) fn close_session(&mut self, index: u32) {
        let left = self.flights.notify_ends_of(index);
        self.close_after(index, left);
    }

    /// Closes a session that was opened only for the operation in this slot; `None` if nothing was posted.
    pub(crate) fn close_after_slot(&mut self, index: u32, slot: Option<u32>) {
        let left = slot.is_some_and(|slot| self.flights.notify_end(slot));
        self.close_after(index, left.into());
    }

    /// Releases a memory after its handle was dropped. The last session that uses the memory deregisters it.
    pub(crate) fn close_memory(&mut self, region: u32) {
        let known = self
            .named_sessions
            .iter()
            .filter(|((local, _), _)| local.place == region);
        let keys: Vec<_> = known.map(|(&key, &session)| (key, session)).collect();
        for (key, session) in keys {
            self.named_sessions.remove(&key);
            self.close_session(session);
        }
        self.release_region(region);
    }
}
