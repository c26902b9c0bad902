//! An endpoint: one thread's engine, its memory, its peers, and the sessions between them.

use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::{Caps, Domain, Engine, Facts, Peer, RailLoad, Region, Verb, split_name};
use tonnage_engines::LISTS;

use crate::address::{PeerAddress, RemoteId, RemoteMemory};
use crate::cell::SharedEndpoint;
use crate::error::{ErrorSubject, TransferError, TransferErrorKind, TransferResult};
use crate::extent::{Extent, TicketEnd};
use crate::memory::LocalMemory;
use crate::named::LaneSource;
use crate::session::Session;
use crate::state::{
    ArrivedWrite, EndpointState, KnownPeer, KnownRemote, LocalId, SessionOptions, TableSizes,
};
use crate::ticket::Ticket;

/// Configuration of an endpoint.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Number by which peers name this endpoint. Connected endpoints must have different numbers.
    pub id: Peer,
    /// Index of the device among the opened ones.
    pub device: usize,
    /// Maximum number of peers that it will be connected to.
    pub peers_max: u32,
    /// Number of operations that the engine should be able to keep in flight on one lane.
    pub depth: u32,
    /// Maximum number of operations and batches that have not ended, or whose tickets are still held.
    pub operations_max: u32,
    /// Maximum number of arrivals that wait to be taken.
    pub arrivals_max: u32,
    /// Whether its user will sleep ([`TransferEndpoint::arm`]) in addition to polling.
    pub sleeps: bool,
}

impl EndpointConfig {
    /// Returns the configuration of an endpoint with this number, for one peer and 64 operations in flight on a lane.
    pub fn new(id: Peer) -> Self {
        Self {
            id,
            device: 0,
            peers_max: 1,
            depth: 64,
            operations_max: 1024,
            arrivals_max: 4096,
            sleeps: false,
        }
    }
}

/// An engine that the caller opened, for [`TransferEndpoint::from_parts`]. The engine precedes its domain, so that it
/// closes first.
pub struct EngineParts {
    /// The engine.
    pub engine: Box<dyn Engine + Send>,
    /// The engine's domain, to be kept until the engine is closed; `None` if the caller keeps it.
    pub domain: Option<Arc<dyn Domain>>,
    /// The capabilities of its domain.
    pub caps: Caps,
    /// The engine's name, such as "fabric:tcp".
    pub name: String,
    /// The engine's device, if it has one.
    pub device: Option<String>,
    /// Removes what a killed process left behind on this machine
    /// ([`Lifecycle::clean_up`](tonnage_engine::Lifecycle::clean_up)).
    pub clean_up: fn(u32),
}

/// An engine that one thread owns, with its registrations, peers, sessions and operations in flight.
///
/// A clone is another handle of the same endpoint. The engine is closed when the last handle, session, memory and
/// ticket is dropped. Operations still in flight then may be lost; call [`Self::wait_all`] first.
#[derive(Clone)]
pub struct TransferEndpoint {
    cell: SharedEndpoint,
}

impl TransferEndpoint {
    /// Creates an endpoint over an engine that the caller opened. Nothing may be in flight on the engine, and its lanes
    /// may not be used elsewhere.
    pub fn from_parts(parts: EngineParts, config: &EndpointConfig) -> Self {
        let subject = ErrorSubject {
            engine: parts.name.into(),
            device: parts.device.map(Into::into),
            ..ErrorSubject::default()
        };
        let sizes = TableSizes {
            operations: config.operations_max,
            arrivals: config.arrivals_max,
        };
        let mut state = EndpointState::new(
            parts.engine,
            parts.caps,
            (config.id, subject),
            sizes,
            parts.clean_up,
        );
        state.domain = parts.domain;
        Self {
            cell: SharedEndpoint::new(state),
        }
    }

    /// Returns the engine with its registrations, its connections and its domain. This must be the only handle, with no
    /// session, memory or ticket left and nothing in flight.
    ///
    /// # Errors
    /// The endpoint itself, if anything is left.
    pub fn into_parts(self) -> Result<EngineParts, Self> {
        if !self.cell.borrow().is_idle() {
            return Err(self);
        }
        let state = self.cell.into_state().map_err(|cell| Self { cell })?;
        Ok(EngineParts {
            engine: state.engine,
            domain: state.domain,
            caps: state.caps,
            name: state.subject.engine.to_string(),
            device: state.subject.device.map(|device| device.to_string()),
            clean_up: state.clean_up,
        })
    }

    /// Returns the number of this endpoint.
    pub fn id(&self) -> Peer {
        self.cell.borrow().id
    }

    /// Returns the engine's capabilities.
    pub fn caps(&self) -> Caps {
        self.cell.borrow().caps
    }

    /// Allocates memory of a kind ("host", "huge", "small") that the engine can use, and registers it.
    ///
    /// # Errors
    /// `Usage` for an unknown kind, `Unavailable` if this machine or the engine cannot provide it.
    pub fn allocate(&self, kind: &str, bytes: u64) -> TransferResult<LocalMemory> {
        let allocate = || {
            (LISTS.memory(kind)?.allocate)(&Request {
                variant: split_name(kind).1,
                bytes,
                shared: self.caps().shared_memory,
                libraries: None,
                ..Request::default()
            })
        };
        let memory = allocate().map_err(|error| {
            let subject = self.cell.borrow().subject.with_operation("allocate", None);
            TransferError::from_error(TransferErrorKind::Unavailable, subject, &error)
        })?;
        self.register(memory)
    }

    /// Registers memory that the caller allocated: see [`caller_memory`](crate::caller_memory) and
    /// [`DmabufMemory`](crate::DmabufMemory). The engine may hold it until the endpoint is closed, as `fabric` does.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if the engine cannot use this memory.
    pub fn register(&self, memory: Arc<dyn Memory>) -> TransferResult<LocalMemory> {
        let region = self.cell.borrow().register(Arc::clone(&memory))?;
        Ok(LocalMemory::new(self.cell.clone(), region, memory))
    }

    /// Returns the address that this peer needs to connect to this endpoint. Each side makes its address for the other
    /// before either connects.
    ///
    /// # Errors
    /// If the engine has no room for another peer.
    pub fn address_for(&self, peer: Peer) -> TransferResult<PeerAddress> {
        self.cell.borrow().address_for(peer)
    }

    /// Connects to the peers that made these addresses, and waits for first contact. The peers have to connect to this
    /// endpoint at the same time. It can be called again for more peers, and again with the same addresses for peers
    /// that were not reached in time. A lost peer stays lost: a process that replaces it connects under another number.
    ///
    /// # Errors
    /// `Usage` for an address that is not for this endpoint; nothing has then been done for the others either.
    /// `Unavailable` for a peer that the engine cannot reach, `PeerLost` for one that has ended, and `Deadline`.
    pub fn connect(&self, addresses: &[PeerAddress], timeout: Duration) -> TransferResult<()> {
        self.cell.borrow().connect(addresses, timeout)
    }

    /// Resolves a session between a memory of this endpoint and a peer's.
    ///
    /// # Errors
    /// `Usage` for a peer that was not connected; `PeerLost`; any error with which the engine refuses.
    pub fn session(&self, local: &LocalMemory, remote: &RemoteMemory) -> TransferResult<Session> {
        self.session_with(local, remote, SessionOptions::default())
    }

    /// Like [`Self::session`], with guarantees for its writes.
    ///
    /// # Errors
    /// As [`Self::session`]; `Unavailable` for a guarantee that the engine cannot give.
    pub fn session_with(
        &self,
        local: &LocalMemory,
        remote: &RemoteMemory,
        options: SessionOptions,
    ) -> TransferResult<Session> {
        if !local.is_registered_with(&self.cell) {
            let subject = self
                .cell
                .borrow()
                .subject
                .with_operation("session", remote.owner);
            let reason = "the local memory is registered with another endpoint";
            return Err(TransferError::new(
                TransferErrorKind::Usage,
                subject,
                reason,
            ));
        }
        let far = (remote.owner, &remote.descriptor);
        let opened =
            self.cell
                .borrow()
                .open_session(local.id().place, far, options, &Verb::COPYING);
        Ok(Session::new(
            self.cell.clone(),
            opened?,
            [local.bytes(), remote.bytes],
        ))
    }

    /// Remembers a peer's memory under its name, for calls without a session.
    pub fn add_remote(&self, remote: &RemoteMemory) -> RemoteId {
        self.add_remote_with(remote, SessionOptions::default())
    }

    /// Like [`Self::add_remote`], with guarantees for the writes of such calls. If the engine cannot give one, the
    /// first of these calls fails.
    pub fn add_remote_with(&self, remote: &RemoteMemory, options: SessionOptions) -> RemoteId {
        let id = remote.id();
        self.remove_remote(id);
        let known = KnownRemote {
            bytes: remote.bytes,
            options,
            descriptor: remote.descriptor.clone(),
        };
        self.cell.borrow().remotes.insert(id, known);
        id
    }

    /// Forgets a peer's memory, and the sessions that named calls have resolved for it.
    pub fn remove_remote(&self, remote: RemoteId) {
        let mut state = self.cell.borrow();
        state.remotes.remove(&remote);
        let of_it = |(&(local, known), &session)| (known == remote).then_some((local, session));
        let sessions: Vec<_> = state.named_sessions.iter().filter_map(of_it).collect();
        for (local, session) in sessions {
            state.named_sessions.remove(&(local, remote));
            state.close_session(session);
        }
    }

    /// Posts operations of one verb without a session: the call names memory and peer, and gets its lane from `source`.
    /// It serves callers without a session, and shows the cost of going without one. Several extents are a batch.
    ///
    /// # Errors
    /// As [`Session::post`] and [`Session::batch`]; `Usage` for an unknown name.
    pub fn transfer(
        &self,
        source: LaneSource,
        verb: Verb,
        (local, remote): (LocalId, RemoteId),
        extents: &[Extent],
    ) -> TransferResult<Ticket> {
        let mut state = self.cell.borrow();
        let posted = state.transfer(source, verb, (local, remote), extents);
        drop(state);
        Ok(Ticket::new(self.cell.clone(), posted?))
    }

    /// Like [`Session::flush`], for all operations posted between these memories by [`LaneSource::LookUp`]. A lane that
    /// was released with its operations cannot be flushed any more; use [`SessionOptions::delivered`] for those.
    ///
    /// # Errors
    /// As [`Session::flush`]; `Usage` for an unknown name.
    pub fn flush_between(
        &self,
        verb: Verb,
        (local, remote): (LocalId, RemoteId),
    ) -> TransferResult<Ticket> {
        let slot = self.cell.borrow().flush_by_name(verb, local, remote)?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Takes completions from the engine, posts operations that waited for room, and returns the number of completions.
    /// A thread that only serves calls it now and then, because some engines move bytes only while both sides poll.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead, `ArrivalsFull` if the caller takes no arrivals.
    pub fn progress(&self) -> TransferResult<usize> {
        self.cell.progress()
    }

    /// Returns the next arrived write-imm, if any. Polls the engine if none was found before.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead.
    pub fn arrival(&self) -> TransferResult<Option<ArrivedWrite>> {
        let known = self.cell.borrow().arrivals.pop_front();
        if known.is_some() {
            return Ok(known);
        }
        self.cell.progress()?;
        Ok(self.cell.borrow().arrivals.pop_front())
    }

    /// Returns the next arrived write-imm among those found before. Polls nothing.
    #[inline]
    pub fn take_arrival(&self) -> Option<ArrivedWrite> {
        self.cell.borrow().arrivals.pop_front()
    }

    /// Polls the engine once, and returns everything that has arrived.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead and no arrival is left to take.
    pub fn arrivals(&self) -> TransferResult<impl Iterator<Item = ArrivedWrite>> {
        let progressed = self.cell.progress();
        let waiting = self.cell.borrow().arrivals.len();
        if waiting == 0 {
            progressed?;
        }
        let cell = self.cell.clone();
        Ok((0..waiting).map_while(move |_| cell.borrow().arrivals.pop_front()))
    }

    /// Waits for the next arrived write-imm.
    ///
    /// # Errors
    /// `Deadline` after `timeout`, `PeerLost` if the processes of all peers have ended, `EndpointFailed`.
    pub fn wait_arrival(&self, timeout: Duration) -> TransferResult<ArrivedWrite> {
        self.cell.wait_until(
            timeout,
            |state| state.subject.with_operation("waiting for an arrival", None),
            |state| match state.arrivals.pop_front() {
                Some(arrived) => Ok(Some(arrived)),
                None if state.has_no_peers() => {
                    // An arrival that the engine still held back is not lost with its sender.
                    if state.progress().is_ok_and(|count| count > 0) {
                        return Ok(state.arrivals.pop_front());
                    }
                    let lost = state.lost.keys().next().copied();
                    let refusal =
                        lost.and_then(|peer| state.refusal(peer, "waiting for an arrival"));
                    refusal.map_or(Ok(None), Err)
                }
                None => Ok(None),
            },
        )
    }

    /// Waits until everything that was posted has ended, successfully or not.
    ///
    /// # Errors
    /// `Deadline` after `timeout`, `EndpointFailed` if the engine is dead, `ArrivalsFull`. Once everything has ended:
    /// the first failure that no ticket reported, because the ticket was dropped. Other failures are reported
    /// by their tickets.
    pub fn wait_all(&self, timeout: Duration) -> TransferResult<()> {
        let all = self.cell.wait_until(
            timeout,
            |state| state.subject.with_operation("waiting for all", None),
            |state| Ok((state.flights.in_flight() == 0).then_some(())),
        );
        // While operations are in flight, the failure is kept for the call that finds all of them ended.
        all?;
        let unclaimed = self.cell.borrow().unclaimed.take();
        unclaimed.map_or(Ok(()), Err)
    }

    /// Returns the number of operations and batches that have not ended.
    pub fn in_flight(&self) -> usize {
        self.cell.borrow().flights.in_flight()
    }

    /// Returns the number of free slots: `operations_max` of the configuration when nothing is in flight and no ticket
    /// is held.
    pub fn free_slots(&self) -> usize {
        self.cell.borrow().flights.free_count()
    }

    /// Allows or forbids the engine to try out ways of carrying out the posted operations. Returns whether it has
    /// settled on one ([`Engine::settle`]).
    pub fn settle(&self, trying: bool) -> bool {
        self.cell.borrow().engine.settle(trying)
    }

    /// Waits until the registered memories hold the bytes of peers' plain writes ([`Engine::flush_incoming`]). It is
    /// for a target that knows by other means that its peer's writes are complete; without it, GPU memory may lack
    /// their last bytes. Returns whether this machine needs the flush. It may return true even if nothing was under
    /// way; if it returns false, the bytes were already there.
    ///
    /// # Errors
    /// The device's reason; the engine is dead then.
    pub fn flush_incoming(&self) -> TransferResult<bool> {
        let state = &mut *self.cell.borrow();
        if let Some(dead) = &state.dead {
            return Err(dead.clone());
        }
        let flushed = state.engine.flush_incoming();
        flushed.map_err(|error| state.fail_engine(error.to_string()))
    }

    /// Returns the load of each rail since the last call ([`Engine::take_rail_loads`]).
    pub fn take_rail_loads(&self) -> Vec<RailLoad> {
        self.cell.borrow().engine.take_rail_loads()
    }

    /// Returns the faults that the devices have reported since the last call ([`Engine::take_device_events`]).
    pub fn take_device_events(&self) -> Vec<String> {
        self.cell.borrow().engine.take_device_events()
    }

    /// Returns the choices that the engine made on its own ([`Engine::chosen`]).
    pub fn chosen(&self) -> Facts {
        self.cell.borrow().engine.chosen()
    }

    /// Returns the shared endpoint that the executor polls.
    pub(crate) fn cell(&self) -> &SharedEndpoint {
        &self.cell
    }
}

impl fmt::Debug for TransferEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.cell.borrow();
        f.debug_struct("TransferEndpoint")
            .field("id", &state.id)
            .field("engine", &state.subject.engine)
            .field("sessions", &state.sessions.len())
            .field("in_flight", &state.flights.in_flight())
            .finish()
    }
}

impl TransferEndpoint {
    /// Adds peers to which the engine was connected, including first contact, before this endpoint took it over. Their
    /// processes are not watched: that is up to the code that connected them.
    pub fn adopt_peers(&self, peers: impl IntoIterator<Item = Peer>) {
        let mut state = self.cell().borrow();
        for peer in peers {
            let known = KnownPeer {
                place: None,
                met: true,
            };
            state.peers.entry(peer).or_insert(known);
        }
    }

    /// Adds memory that was registered with the engine before. It stays registered when the returned memory is dropped,
    /// and when [`Self::into_parts`] returns the engine.
    pub fn adopt_memory(&self, memory: Arc<dyn Memory>, region: Region) -> LocalMemory {
        let index = self
            .cell()
            .borrow()
            .adopt_region(Arc::clone(&memory), region);
        LocalMemory::new(self.cell().clone(), index, memory)
    }

    /// Sets the length of the write-imms that a peer sends from now on, for an engine that splits them
    /// ([`Engine::expect`](tonnage_engine::Engine::expect)); `None` if it sends no more.
    ///
    /// # Errors
    /// If the engine could not tell the parts of different senders apart, or if some write-imms have arrived only in
    /// part.
    pub fn expect(&self, peer: Peer, bytes: Option<u32>) -> TransferResult<()> {
        self.cell().borrow().expect(peer, bytes)
    }
}

/// Ways to wait for an endpoint.
#[derive(Debug, Clone)]
pub enum Readiness {
    /// There may be something already: poll or take it, and call [`TransferEndpoint::arm`] again before sleeping.
    Ready,
    /// Nothing can be taken until this descriptor is readable. It stays the same as long as the endpoint lives.
    Sleep(Rc<OwnedFd>),
    /// The engine can only be polled, or [`EndpointConfig::sleeps`](crate::EndpointConfig::sleeps) was not set.
    Unsupported,
}

impl TransferEndpoint {
    /// Prepares for sleeping until the endpoint has something to do. Sleep with a timeout: the end of a peer's process
    /// that sends nothing is detected by polling only.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead, `Unavailable` if this process cannot open another descriptor.
    pub fn arm(&self) -> TransferResult<Readiness> {
        self.cell().borrow().arm()
    }
}

impl TransferEndpoint {
    /// Queues a ticket of this endpoint. [`Self::poll_ended`] then reports its end under this token. The endpoint has
    /// one queue.
    ///
    /// # Errors
    /// The ticket, if it belongs to another endpoint or has already reported that its operation succeeded.
    pub fn queue(&self, ticket: Ticket, token: u64) -> Result<(), Ticket> {
        ticket.hand_over(self.cell(), |state, slot| {
            state.flights.report_by_token(slot, token);
        })
    }

    /// Like [`Self::transfer`] for one operation. [`Self::poll_ended`] reports its end under this token, as if its
    /// ticket had been queued.
    ///
    /// # Errors
    /// As [`Self::transfer`].
    #[inline]
    pub fn transfer_queued(
        &self,
        source: LaneSource,
        verb: Verb,
        names: (LocalId, RemoteId),
        extent: &Extent,
        token: u64,
    ) -> TransferResult<()> {
        let mut state = self.cell().borrow();
        let slot = state.transfer(source, verb, names, std::slice::from_ref(extent))?;
        state.flights.report_by_token(slot, token);
        Ok(())
    }

    /// Takes ends of queued tickets in the order in which they ended, and returns their number. Polls the engine once,
    /// unless some have ended before.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead, `ArrivalsFull` if the caller takes no arrivals. Ends that were found
    /// before are returned first.
    #[inline]
    pub fn poll_ended(&self, ended: &mut [TicketEnd]) -> TransferResult<usize> {
        let mut state = self.cell().borrow();
        if state.flights.has_ended() {
            return Ok(state.take_ended(ended));
        }
        let mut reported = 0;
        let progressed = state.progress_into(ended, &mut reported);
        if !state.woken.is_empty() {
            drop(state);
            self.cell().wake();
            state = self.cell().borrow();
        }
        match reported + state.take_ended(&mut ended[reported..]) {
            0 => progressed.map(|_| 0),
            count => Ok(count),
        }
    }
}
