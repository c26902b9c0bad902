//! An endpoint: one thread's engine, its registered memory, its peers, and its sessions.

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
    /// The number by which peers identify this endpoint. Connected endpoints must have different numbers.
    pub id: Peer,
    /// Index of the device among the transport's open devices.
    pub device: usize,
    /// Maximum number of peers that the endpoint will be connected to.
    pub peers_max: u32,
    /// Number of operations that the engine should be able to keep in flight on one lane.
    pub depth: u32,
    /// Maximum number of operations and batches that are in flight or still have a ticket.
    pub operations_max: u32,
    /// Maximum number of arrivals that the caller has not taken yet.
    pub arrivals_max: u32,
    /// True if the caller will sleep ([`TransferEndpoint::arm`]); false if it only polls.
    pub sleeps: bool,
}

impl EndpointConfig {
    /// Returns a configuration with this number, for one peer and 64 operations in flight on a lane.
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

/// An engine that the caller opened, for [`TransferEndpoint::from_parts`]. The engine is declared before its domain, so
/// that it is dropped first.
pub struct EngineParts {
    /// The engine.
    pub engine: Box<dyn Engine + Send>,
    /// The engine's domain, kept until the engine is closed; `None` if the caller keeps it.
    pub domain: Option<Arc<dyn Domain>>,
    /// The capabilities of the engine's domain.
    pub caps: Caps,
    /// The engine's name, such as "fabric:tcp".
    pub name: String,
    /// The engine's device, if it has one.
    pub device: Option<String>,
    /// Removes resources that a killed process left on this machine
    /// ([`Lifecycle::clean_up`](tonnage_engine::Lifecycle::clean_up)).
    pub clean_up: fn(u32),
}

/// An engine that one thread owns, with its registrations, peers, sessions and operations in flight.
///
/// A clone is another handle to the same endpoint. The engine is closed when the last handle, session, memory and
/// ticket has been dropped. Operations in flight may then be lost, so call [`Self::wait_all`] first.
#[derive(Clone)]
pub struct TransferEndpoint {
    cell: SharedEndpoint,
}

impl TransferEndpoint {
    /// Creates an endpoint over an engine that the caller opened. The engine must have nothing in flight, and no other
    /// code may use its lanes.
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

    /// Returns the engine with its registrations, its connections and its domain. This must be the only handle. No
    /// session, memory or ticket may exist, and nothing may be in flight.
    ///
    /// # Errors
    /// The endpoint itself, if it has another handle, session, memory or ticket, or if something is in flight.
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

    /// Allocates memory of this kind ("host", "huge", "small") that the engine can use, and registers it.
    ///
    /// # Errors
    /// `Usage` for an unknown kind, `Unavailable` if the machine or the engine does not support it.
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
    /// [`DmabufMemory`](crate::DmabufMemory). Some engines, such as `fabric`, keep the memory alive until the endpoint
    /// is closed.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if the engine cannot use this memory.
    pub fn register(&self, memory: Arc<dyn Memory>) -> TransferResult<LocalMemory> {
        let region = self.cell.borrow().register(Arc::clone(&memory))?;
        Ok(LocalMemory::new(self.cell.clone(), region, memory))
    }

    /// Returns the address that this peer needs to connect to this endpoint. Both sides must make their addresses
    /// before either connects.
    ///
    /// # Errors
    /// If the engine has no room for another peer.
    pub fn address_for(&self, peer: Peer) -> TransferResult<PeerAddress> {
        self.cell.borrow().address_for(peer)
    }

    /// Connects to the peers that made these addresses, and waits for first contact. The peers must connect to this
    /// endpoint at the same time. Call it again for more peers, or with the same addresses after a timeout. A lost peer
    /// stays lost: a process that replaces it must connect under another number.
    ///
    /// # Errors
    /// `Usage` if an address is not for this endpoint; then no peer was connected. `Unavailable` for a peer that the
    /// engine cannot reach, `PeerLost` for a peer that has ended, and `Deadline`.
    pub fn connect(&self, addresses: &[PeerAddress], timeout: Duration) -> TransferResult<()> {
        self.cell.borrow().connect(addresses, timeout)
    }

    /// Opens a session between a memory of this endpoint and a peer's memory.
    ///
    /// # Errors
    /// `Usage` for a peer that was not connected; `PeerLost`; any error of the engine.
    pub fn session(&self, local: &LocalMemory, remote: &RemoteMemory) -> TransferResult<Session> {
        self.session_with(local, remote, SessionOptions::default())
    }

    /// Like [`Self::session`], with guarantees for its writes.
    ///
    /// # Errors
    /// As [`Self::session`]; `Unavailable` for a guarantee that the engine does not support.
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

    /// Stores a peer's memory, so that calls without a session can refer to it by its ID.
    pub fn add_remote(&self, remote: &RemoteMemory) -> RemoteId {
        self.add_remote_with(remote, SessionOptions::default())
    }

    /// Like [`Self::add_remote`], with guarantees for the writes of these calls. If the engine does not support a
    /// guarantee, the first of these calls fails.
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

    /// Removes a peer's memory, and closes the sessions that calls by ID opened for it.
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

    /// Posts operations of one verb without a session. The call identifies both memories, and gets its lane from
    /// `source`. Several extents form a batch. This is for programs that keep no sessions, and for measuring the time
    /// that a session saves.
    ///
    /// # Errors
    /// As [`Session::post`] and [`Session::batch`]; `Usage` for an unknown ID.
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

    /// Like [`Session::flush`], for all operations posted between these memories by [`LaneSource::LookUp`]. With other
    /// sources, a lane is released as soon as its operations have ended, so it cannot be flushed. Use
    /// [`SessionOptions::delivered`] with them instead.
    ///
    /// # Errors
    /// As [`Session::flush`]; `Usage` for an unknown ID.
    pub fn flush_between(
        &self,
        verb: Verb,
        (local, remote): (LocalId, RemoteId),
    ) -> TransferResult<Ticket> {
        let slot = self.cell.borrow().flush_by_name(verb, local, remote)?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Processes completions of the engine, posts operations that waited for room, and returns the number of
    /// completions. Some engines move bytes only while both sides poll, so a thread that is only a target must call
    /// this regularly.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead, `ArrivalsFull` if the queue of arrivals is full.
    pub fn progress(&self) -> TransferResult<usize> {
        self.cell.progress()
    }

    /// Returns the next arrived write-imm, if any. Polls the engine only if the queue of arrivals is empty.
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

    /// Returns the next arrived write-imm in the queue. Does not poll.
    #[inline]
    pub fn take_arrival(&self) -> Option<ArrivedWrite> {
        self.cell.borrow().arrivals.pop_front()
    }

    /// Polls the engine once, and returns everything that has arrived.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead and the queue of arrivals is empty.
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
                    // The last poll may find an arrival that the peer sent before it ended.
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
    /// `Deadline` after `timeout`, `EndpointFailed` if the engine is dead, `ArrivalsFull`. After everything has ended:
    /// the first failure of an operation with a dropped ticket. Tickets that still exist report their own failures.
    pub fn wait_all(&self, timeout: Duration) -> TransferResult<()> {
        let all = self.cell.wait_until(
            timeout,
            |state| state.subject.with_operation("waiting for all", None),
            |state| Ok((state.flights.in_flight() == 0).then_some(())),
        );
        // If a wait fails, the unclaimed failure is kept for the call that finds everything ended.
        all?;
        let unclaimed = self.cell.borrow().unclaimed.take();
        unclaimed.map_or(Ok(()), Err)
    }

    /// Returns the number of operations and batches in flight.
    pub fn in_flight(&self) -> usize {
        self.cell.borrow().flights.in_flight()
    }

    /// Returns the number of free slots. It equals the configured `operations_max` when nothing is in flight and no
    /// ticket exists.
    pub fn free_slots(&self) -> usize {
        self.cell.borrow().flights.free_count()
    }

    /// Allows or forbids the engine to try out alternatives for the posted operations. Returns whether it has settled
    /// on one ([`Engine::settle`]).
    pub fn settle(&self, trying: bool) -> bool {
        self.cell.borrow().engine.settle(trying)
    }

    /// Waits until the registered memories hold the bytes of peers' plain writes ([`Engine::flush_incoming`]). It is
    /// for a target that knows by other means that its peer's writes are complete. Without this call, GPU memory may
    /// lack the last bytes. Returns false if this machine does not need the flush, because the bytes were already
    /// there. It may return true even if nothing was pending.
    ///
    /// # Errors
    /// The device's reason; the engine is then dead.
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

    /// Returns the shared state, which the executor polls.
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
    /// Adds peers that the engine was already connected to and had made first contact with. The endpoint does not watch
    /// their processes: the code that connected them does.
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

    /// Adds memory that was already registered with the engine. It stays registered when the returned memory is
    /// dropped, and when [`Self::into_parts`] returns the engine.
    pub fn adopt_memory(&self, memory: Arc<dyn Memory>, region: Region) -> LocalMemory {
        let index = self
            .cell()
            .borrow()
            .adopt_region(Arc::clone(&memory), region);
        LocalMemory::new(self.cell().clone(), index, memory)
    }

    /// Sets the length of the write-imms that a peer sends from now on, for an engine that splits them
    /// ([`Engine::expect`](tonnage_engine::Engine::expect)). `None` if the peer sends no more.
    ///
    /// # Errors
    /// If the engine could not tell the parts of different senders apart, or if some write-imms have arrived only in
    /// part.
    pub fn expect(&self, peer: Peer, bytes: Option<u32>) -> TransferResult<()> {
        self.cell().borrow().expect(peer, bytes)
    }
}

/// Result of [`TransferEndpoint::arm`]: how to wait for the endpoint.
#[derive(Debug, Clone)]
pub enum Readiness {
    /// Something may be ready: poll or take it, and call [`TransferEndpoint::arm`] again before sleeping.
    Ready,
    /// Nothing will be ready before this descriptor is readable. The descriptor stays the same for the endpoint's life.
    Sleep(Rc<OwnedFd>),
    /// The engine can only be polled, or [`EndpointConfig::sleeps`](crate::EndpointConfig::sleeps) was not set.
    Unsupported,
}

impl TransferEndpoint {
    /// Prepares for sleeping until the endpoint has something to do. Sleep with a timeout, because only polling detects
    /// that a peer's process has ended without a message.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead, `Unavailable` if this process cannot open another descriptor.
    pub fn arm(&self) -> TransferResult<Readiness> {
        self.cell().borrow().arm()
    }
}

impl TransferEndpoint {
    /// Queues a ticket of this endpoint. [`Self::poll_ended`] then reports the end of its operation under this token.
    /// All queued tickets of the endpoint share one queue.
    ///
    /// # Errors
    /// The ticket, if it belongs to another endpoint or has already reported that its operation succeeded.
    pub fn queue(&self, ticket: Ticket, token: u64) -> Result<(), Ticket> {
        ticket.hand_over(self.cell(), |state, slot| {
            state.flights.report_by_token(slot, token);
        })
    }

    /// Like [`Self::transfer`] for one operation, with a queued ticket: [`Self::poll_ended`] reports its end under this
    /// token.
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

    /// Takes ends of queued tickets, in the order in which the operations ended, and returns their number. Polls the
    /// engine once unless some ends are already queued.
    ///
    /// # Errors
    /// `EndpointFailed` if the engine is dead, `ArrivalsFull` if the queue of arrivals is full. Ends that are already
    /// queued are returned first.
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
