//! Endpoints: one engine of one thread, its memory, its peers, and the sessions between them.

use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::{Caps, Domain, Engine, Facts, Peer, RailLoad, Region, Verb, split_name};
use tonnage_engines::LISTS;

use crate::card::{EndpointCard, RemoteId, RemoteMemory};
use crate::cell::EndpointCell;
use crate::error::{Subject, TransferError, TransferErrorKind, TransferResult};
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
    /// Its number, by which peers name it. No two endpoints that are connected to one another have the same.
    pub id: Peer,
    /// The device, by its place among those that were opened.
    pub device: usize,
    /// The most peers that it will be connected to.
    pub peers_max: u32,
    /// The most operations that the engine is asked to keep in flight on one lane.
    pub depth: u32,
    /// The most operations and batches that have not ended, or whose tickets are still held.
    pub operations_max: u32,
    /// The most arrivals that wait to be taken.
    pub arrivals_max: u32,
    /// True when its user will sleep ([`TransferEndpoint::arm`]) and not only poll.
    pub sleeps: bool,
}

impl EndpointConfig {
    /// An endpoint with this number, for one peer and 64 operations in flight on a lane.
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

/// An engine that somebody opened, for [`TransferEndpoint::over`]. It is named before its domain, to be closed first.
pub struct EngineParts {
    /// The engine.
    pub engine: Box<dyn Engine + Send>,
    /// Its domain, to be kept until the engine is closed; `None` where somebody else keeps it.
    pub domain: Option<Arc<dyn Domain>>,
    /// The capabilities of its domain.
    pub caps: Caps,
    /// Its name, such as "fabric:tcp".
    pub name: String,
    /// Its device, where it has one.
    pub device: Option<String>,
    /// Removes what a killed process has left on this machine
    /// ([`Lifecycle::clean_up`](tonnage_engine::Lifecycle::clean_up)).
    pub clean_up: fn(u32),
}

/// One endpoint: an engine that one thread owns, with its registrations, peers, sessions and operations in flight.
///
/// A clone is another handle of the same endpoint. The engine is closed when the last handle, session, memory and
/// ticket is gone. What is in flight then may be lost: [`Self::wait_all`] comes first.
#[derive(Clone)]
pub struct TransferEndpoint {
    cell: EndpointCell,
}

impl TransferEndpoint {
    /// An endpoint over an engine that was opened otherwise. Nothing may be in flight on it, and none of its lanes may
    /// be used by anybody else.
    pub fn over(parts: EngineParts, config: &EndpointConfig) -> Self {
        let subject = Subject {
            engine: parts.name.into(),
            device: parts.device.map(Into::into),
            ..Subject::default()
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
            cell: EndpointCell::new(state),
        }
    }

    /// Gives the engine back, with its registrations, its connections and its domain, when this is the only handle,
    /// nothing else is left of the endpoint, and nothing is in flight.
    ///
    /// # Errors
    /// The endpoint, when something is left.
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

    /// Its number.
    pub fn id(&self) -> Peer {
        self.cell.borrow().id
    }

    /// Its engine's capabilities.
    pub fn caps(&self) -> Caps {
        self.cell.borrow().caps
    }

    /// Allocates memory of a kind ("host", "huge", "small"), such that the engine can take it, and registers it.
    ///
    /// # Errors
    /// `Usage` for an unknown kind, `Unavailable` for what this machine or the engine cannot give.
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
            let subject = self.cell.borrow().subject.with("allocate", None);
            TransferError::below(TransferErrorKind::Unavailable, subject, &error)
        })?;
        self.register(memory)
    }

    /// Registers memory that somebody else allocated: see [`caller_memory`](crate::caller_memory) and
    /// [`DmabufMemory`](crate::DmabufMemory). The engine may hold it until the endpoint is closed, as `fabric` does.
    ///
    /// # Errors
    /// `Unavailable` for memory that the engine cannot take, with the reason.
    pub fn register(&self, memory: Arc<dyn Memory>) -> TransferResult<LocalMemory> {
        let region = self.cell.borrow().register(Arc::clone(&memory))?;
        Ok(LocalMemory::new(self.cell.clone(), region, memory))
    }

    /// The card that this peer needs to connect to this endpoint. Each side makes its own for the other before either
    /// connects.
    ///
    /// # Errors
    /// When the engine has no room for so many peers.
    pub fn card_for(&self, peer: Peer) -> TransferResult<EndpointCard> {
        self.cell.borrow().card_for(peer)
    }

    /// Connects to the peers that made these cards, which have to connect to this endpoint at the same time, and waits
    /// for first contact. Called again for more peers, and with the same cards for those that were not there in time.
    /// A peer that was lost stays lost: a process that takes its place connects under another number.
    ///
    /// # Errors
    /// `Usage` for a card that is not for this endpoint, and then nothing was done for the others either; `Unavailable`
    /// for a peer that the engine cannot reach, `PeerLost` for one that has ended, `Deadline`.
    pub fn connect(&self, cards: &[EndpointCard], timeout: Duration) -> TransferResult<()> {
        self.cell.borrow().connect(cards, timeout)
    }

    /// Resolves a session between a memory of this endpoint and a peer's.
    ///
    /// # Errors
    /// `Usage` for a peer that was not connected; `PeerLost`; what the engine refuses.
    pub fn session(&self, local: &LocalMemory, remote: &RemoteMemory) -> TransferResult<Session> {
        self.session_with(local, remote, SessionOptions::default())
    }

    /// Like [`Self::session`], with promises for its writes.
    ///
    /// # Errors
    /// As [`Self::session`]; `Unavailable` for a promise that the engine cannot make.
    pub fn session_with(
        &self,
        local: &LocalMemory,
        remote: &RemoteMemory,
        options: SessionOptions,
    ) -> TransferResult<Session> {
        if !local.is_of(&self.cell) {
            let subject = self.cell.borrow().subject.with("session", remote.owner);
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

    /// Keeps a peer's memory under its name, for calls without a session.
    pub fn know(&self, remote: &RemoteMemory) -> RemoteId {
        self.know_with(remote, SessionOptions::default())
    }

    /// Like [`Self::know`], with promises for the writes of such calls. One that the engine cannot make is told by the
    /// first of them.
    pub fn know_with(&self, remote: &RemoteMemory, options: SessionOptions) -> RemoteId {
        let id = remote.id();
        self.forget(id);
        let known = KnownRemote {
            bytes: remote.bytes,
            options,
            descriptor: remote.descriptor.clone(),
        };
        self.cell.borrow().remotes.insert(id, known);
        id
    }

    /// Forgets a peer's memory, and what calls without a session have resolved for it.
    pub fn forget(&self, remote: RemoteId) {
        let mut state = self.cell.borrow();
        state.remotes.remove(&remote);
        let of_it = |(&(local, known), &session)| (known == remote).then_some((local, session));
        let sessions: Vec<_> = state.looked_up.iter().filter_map(of_it).collect();
        for (local, session) in sessions {
            state.looked_up.remove(&(local, remote));
            state.close_session(session);
        }
    }

    /// Posts operations of one verb without a session, for those who have none and to see what that costs: memory and
    /// peer are named, and the lane comes from `source`. Several extents are a batch.
    ///
    /// # Errors
    /// As [`Session::post`] and [`Session::batch`]; `Usage` for a name that is not known.
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

    /// [`Session::flush`] of everything that was posted between these memories by [`LaneSource::LookUp`]. Lanes that
    /// were released with their operations cannot be flushed any more; [`SessionOptions::delivered`] is for them.
    ///
    /// # Errors
    /// As [`Session::flush`]; `Usage` for a name that is not known.
    pub fn flush_between(
        &self,
        verb: Verb,
        (local, remote): (LocalId, RemoteId),
    ) -> TransferResult<Ticket> {
        let slot = self.cell.borrow().flush_by_name(verb, local, remote)?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Takes completions from the engine and moves what waits for it; returns how many there were. Whoever only serves
    /// calls it now and then, because some engines move bytes only while both sides poll.
    ///
    /// # Errors
    /// `EndpointFailed` when the engine is dead, `ArrivalsFull` when nobody takes arrivals.
    pub fn progress(&self) -> TransferResult<usize> {
        self.cell.progress()
    }

    /// The next arrived write-imm, where there is one: polls the engine if none was found before.
    ///
    /// # Errors
    /// `EndpointFailed` when the engine is dead.
    pub fn arrival(&self) -> TransferResult<Option<ArrivedWrite>> {
        let known = self.cell.borrow().arrivals.pop_front();
        if known.is_some() {
            return Ok(known);
        }
        self.cell.progress()?;
        Ok(self.cell.borrow().arrivals.pop_front())
    }

    /// The next arrived write-imm of those that were found before. Polls nothing.
    #[inline]
    pub fn take_arrival(&self) -> Option<ArrivedWrite> {
        self.cell.borrow().arrivals.pop_front()
    }

    /// Everything that has arrived: polls the engine once, and takes what it found.
    ///
    /// # Errors
    /// `EndpointFailed` when the engine is dead and nothing is left to be taken.
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
    /// `Deadline` when the time is over, `PeerLost` when the processes of all peers have ended, `EndpointFailed`.
    pub fn wait_arrival(&self, timeout: Duration) -> TransferResult<ArrivedWrite> {
        self.cell.wait(
            timeout,
            |state| state.subject.with("waiting for an arrival", None),
            |state| match state.arrivals.pop_front() {
                Some(arrived) => Ok(Some(arrived)),
                None if state.is_alone() => {
                    // What the engine still held back is not lost with its sender.
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

    /// Waits until everything that was posted has ended, well or badly.
    ///
    /// # Errors
    /// `Deadline` when the time is over, `EndpointFailed` when the engine is dead, `ArrivalsFull`. Once all has ended:
    /// the first failure of an operation whose ticket was dropped before anybody asked; those of others are told by
    /// their tickets.
    pub fn wait_all(&self, timeout: Duration) -> TransferResult<()> {
        let all = self.cell.wait(
            timeout,
            |state| state.subject.with("waiting for all", None),
            |state| Ok((state.flights.in_flight() == 0).then_some(())),
        );
        // While something goes on, the failure is kept for the call that finds the end of all.
        all?;
        let unclaimed = self.cell.borrow().unclaimed.take();
        unclaimed.map_or(Ok(()), Err)
    }

    /// Operations and batches that have not ended.
    pub fn in_flight(&self) -> usize {
        self.cell.borrow().flights.in_flight()
    }

    /// Slots that are free: as many as the configuration says when nothing is in flight and no ticket is held.
    pub fn room(&self) -> usize {
        self.cell.borrow().flights.free()
    }

    /// Tells the engine whether it may try ways of carrying out what is posted now; returns whether it has found what
    /// it was looking for ([`Engine::settle`]).
    pub fn settle(&self, trying: bool) -> bool {
        self.cell.borrow().engine.settle(trying)
    }

    /// Waits until the registered memories hold what peers' plain writes have brought: for a target of writes whose
    /// peer has told it by other means that they are complete ([`Engine::flush_incoming`]). Memory of a GPU may lack
    /// their last bytes without it. Returns whether this machine needs it, which may be said though nothing was under
    /// way; where it does not, the bytes were there without it.
    ///
    /// # Errors
    /// The device's reason; the engine is dead then.
    pub fn flush_incoming(&self) -> TransferResult<bool> {
        let state = &mut *self.cell.borrow();
        if let Some(dead) = &state.dead {
            return Err(dead.clone());
        }
        let flushed = state.engine.flush_incoming();
        flushed.map_err(|error| state.die(error.to_string()))
    }

    /// Load of each rail since this was asked last ([`Engine::take_rail_loads`]).
    pub fn take_rail_loads(&self) -> Vec<RailLoad> {
        self.cell.borrow().engine.take_rail_loads()
    }

    /// Trouble that the devices have reported since this was asked last ([`Engine::take_device_events`]).
    pub fn take_device_events(&self) -> Vec<String> {
        self.cell.borrow().engine.take_device_events()
    }

    /// Choices that the engine made by itself ([`Engine::chosen`]).
    pub fn chosen(&self) -> Facts {
        self.cell.borrow().engine.chosen()
    }

    /// The endpoint, for the executor.
    pub(crate) fn cell(&self) -> &EndpointCell {
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
    /// Takes over peers that the engine has connected to, and met, before it became an endpoint's. Their processes are
    /// not watched: whoever connected them may know how.
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

    /// Takes over memory that was registered with the engine before. It stays registered when this is dropped, and when
    /// [`Self::into_parts`] gives the engine back.
    pub fn adopt_memory(&self, memory: Arc<dyn Memory>, region: Region) -> LocalMemory {
        let index = self
            .cell()
            .borrow()
            .adopt_region(Arc::clone(&memory), region);
        LocalMemory::new(self.cell().clone(), index, memory)
    }

    /// Says how long the write-imms are that a peer sends from now on, for an engine that cuts them
    /// ([`Engine::expect`](tonnage_engine::Engine::expect)); `None` when it sends no more.
    ///
    /// # Errors
    /// When the engine could not tell whose parts arrive, or some have arrived only in part.
    pub fn expect(&self, peer: Peer, bytes: Option<u32>) -> TransferResult<()> {
        self.cell().borrow().expect(peer, bytes)
    }
}

/// Ways to wait for an endpoint.
#[derive(Debug, Clone)]
pub enum Readiness {
    /// There may be something already: poll or take it, and ask again before sleeping.
    Ready,
    /// Nothing can be taken until this descriptor is readable. It is the same one as long as the endpoint lives.
    Sleep(Rc<OwnedFd>),
    /// The engine can only be polled, or [`EndpointConfig::sleeps`](crate::EndpointConfig::sleeps) was not said.
    Unsupported,
}

impl TransferEndpoint {
    /// Makes ready for sleeping until the endpoint has something to do. Peers whose processes end in silence are found
    /// by polling only, so that nobody sleeps without an end.
    ///
    /// # Errors
    /// `EndpointFailed` when the engine is dead, `Unavailable` when this process may have no more descriptors.
    pub fn arm(&self) -> TransferResult<Readiness> {
        self.cell().borrow().arm()
    }
}

impl TransferEndpoint {
    /// Queues a ticket of this endpoint, whose end [`Self::poll_ended`] then tells by this number. The endpoint has one
    /// queue.
    ///
    /// # Errors
    /// The ticket, when it is of another endpoint, or has told that its operation ended well.
    pub fn queue(&self, ticket: Ticket, token: u64) -> Result<(), Ticket> {
        ticket.hand_over(self.cell(), |state, slot| {
            state.flights.queue(slot, token);
        })
    }

    /// [`Self::transfer`] of one operation whose end [`Self::poll_ended`] tells by this number, as if its ticket had
    /// been queued.
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
        state.flights.queue(slot, token);
        Ok(())
    }

    /// Takes ends of queued tickets in the order in which they ended, and returns how many. Polls the engine once,
    /// unless some have ended before.
    ///
    /// # Errors
    /// `EndpointFailed` when the engine is dead, `ArrivalsFull` when nobody takes arrivals; ends that were found before
    /// are taken first.
    #[inline]
    pub fn poll_ended(&self, ended: &mut [TicketEnd]) -> TransferResult<usize> {
        let mut state = self.cell().borrow();
        if state.flights.has_ended() {
            return Ok(state.take_ended(ended));
        }
        let mut told = 0;
        let progressed = state.progress_into(ended, &mut told);
        if !state.woken.is_empty() {
            drop(state);
            self.cell().wake();
            state = self.cell().borrow();
        }
        match told + state.take_ended(&mut ended[told..]) {
            0 => progressed.map(|_| 0),
            count => Ok(count),
        }
    }
}
