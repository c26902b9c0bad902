//! Runs operations through `tonnage_transfer`, the library for other programs. [`LibraryEngine`] sits between the loops
//! and the real engine, and each of its operations becomes a ticket or future of the library. It takes over a connected
//! engine with registered memory, and returns that engine afterwards.
//!
//! | file | content |
//! | --- | --- |
//! | `mod` | the engine for the loops, and its completions |
//! | `tickets` | operations, each with its own ticket |
//! | `tasks` | operations, each awaited by a task |
//! | `gathered` | batches in one call of the library |
//!
//! The callers of the loops decide which points use the library. The loops themselves see only an engine.

mod gathered;
mod tasks;
mod tickets;

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

pub use gathered::BatchCapacity;
use gathered::GatheredBatches;
use tasks::TaskCalls;
use tickets::TicketCalls;
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    ArmOutcome, Caps, Completion, Descriptor, Ending, EndpointAddress, Engine, Facts, Failure,
    Flush, Lane, LaneKind, LaneSpec, Op, Peer, PeerEndpoint, RailLoad, Region, RegionId, Verb,
};
use tonnage_transfer::{
    EndpointConfig, EngineParts, Extent, LaneSource, LocalMemory, Readiness, RemoteMemory,
    SessionOptions, TicketEnd, TransferEndpoint, TransferError,
};
use tonnage_units::{Error, Result};

/// Library calls that post operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posting {
    /// Operations of sessions, with one ticket each.
    Tickets,
    /// Operations with one ticket each. The lane is found from memory handles.
    Named(LaneSource),
    /// Operations of sessions, awaited by one task each.
    Tasks,
}

/// How the library is called.
#[derive(Debug, Clone, Copy)]
pub struct LibraryCalls {
    /// The calls that post operations.
    pub posting: Posting,
    /// Initial room for batches, if operations that are posted together become one library call. `None` if each
    /// operation is posted separately.
    pub gathers: Option<BatchCapacity>,
}

/// State of an engine that is taken over.
pub struct AdoptedEngine<'a> {
    /// The engine.
    pub engine: Box<dyn Engine + Send>,
    /// The capabilities of the engine's device.
    pub caps: Caps,
    /// The engine's name, including the variant.
    pub name: &'a str,
    /// This rank.
    pub rank: Peer,
    /// The memory that the engine's lanes access, and the memory's handle in the engine.
    pub memory: (&'a Arc<dyn Memory>, RegionId),
    /// The connected peers, and the sizes of their memories.
    pub peers: &'a [(Peer, u64)],
    /// Maximum number of operations in flight on a lane.
    pub depth: u32,
}

/// An engine that passes its operations through the library.
pub struct LibraryEngine {
    // Declared before `end`, and therefore dropped first: the endpoint closes when its last handle is dropped.
    calls: Calls,
    gathered: Option<GatheredBatches>,
    end: LocalEnd,
}

/// The endpoint, and the local memory of all lanes.
struct LocalEnd {
    local: LocalMemory,
    region: RegionId,
    /// The peers and the sizes of their memories.
    peers: Vec<(Peer, u64)>,
    /// True if the last poll had no room for some arrivals.
    arrivals_left: bool,
    /// File descriptor that a sleeping worker waits on, once requested.
    descriptor: Option<Rc<OwnedFd>>,
    endpoint: TransferEndpoint,
}

enum Calls {
    Tickets(TicketCalls),
    Tasks(TaskCalls),
}

impl LibraryEngine {
    /// Takes over an engine that has nothing in flight.
    pub fn adopt(taken: AdoptedEngine<'_>, calls: LibraryCalls) -> Self {
        let lanes = taken.peers.len().max(1) as u32;
        // One more than `depth` per lane, because a flush uses an entry too.
        let operations = lanes.saturating_mul(taken.depth.saturating_add(1));
        let config = EndpointConfig {
            peers_max: lanes,
            depth: taken.depth,
            operations_max: operations,
            ..EndpointConfig::new(taken.rank)
        };
        let parts = EngineParts {
            engine: taken.engine,
            domain: None,
            caps: taken.caps,
            name: taken.name.to_owned(),
            device: None,
            clean_up: |_| (),
        };
        let endpoint = TransferEndpoint::from_parts(parts, &config);
        endpoint.adopt_peers(taken.peers.iter().map(|(peer, _)| *peer));
        let (memory, region) = taken.memory;
        let registered = Region {
            id: region,
            // The peers already have this memory's description.
            descriptor: Descriptor::default(),
        };
        let local = endpoint.adopt_memory(Arc::clone(memory), registered);
        let gathered = calls.gathers.map(GatheredBatches::new);
        let calls = match calls.posting {
            Posting::Tasks => Calls::Tasks(TaskCalls::new(&endpoint, taken.depth, calls.gathers)),
            Posting::Tickets => Calls::Tickets(TicketCalls::new(None)),
            Posting::Named(source) => Calls::Tickets(TicketCalls::new(Some(source))),
        };
        Self {
            calls,
            gathered,
            end: LocalEnd {
                local,
                region,
                peers: taken.peers.to_vec(),
                arrivals_left: false,
                descriptor: None,
                endpoint,
            },
        }
    }

    /// Returns the engine; `None` while operations are in flight.
    pub fn into_engine(self) -> Option<Box<dyn Engine + Send>> {
        let Self { calls, end, .. } = self;
        drop(calls);
        drop(end.local);
        end.endpoint.into_parts().ok().map(|parts| parts.engine)
    }
}

impl LocalEnd {
    /// Posts waiting batches, and collects completions.
    fn poll_gathered(
        &self,
        calls: &mut Calls,
        gathered: &mut GatheredBatches,
        done: &mut [Completion],
    ) -> Result<(usize, bool)> {
        gathered.hand_over(&mut |lane, token, extents| {
            calls.post_batch(&self.endpoint, (lane, token), extents)
        })?;
        gathered.poll(done, |found| calls.poll(&self.endpoint, found))
    }

    /// Appends arrivals to the completions; returns the new number of entries.
    fn take_arrivals(&mut self, done: &mut [Completion], mut count: usize) -> usize {
        self.arrivals_left = false;
        while count < done.len() {
            let Some(arrived) = self.endpoint.take_arrival() else {
                return count;
            };
            done[count] = Completion {
                tag: 0,
                lane: arrived.peer.map_or(Lane::UNNAMED, Lane),
                len: arrived.len,
                imm: arrived.imm,
                ending: Ending::Arrived,
            };
            count += 1;
        }
        self.arrivals_left = true;
        count
    }
}

impl Engine for LibraryEngine {
    fn register(&mut self, _memory: &Arc<dyn Memory>) -> Result<Region> {
        Err(too_late_error("registers memory"))
    }

    fn deregister(&mut self, _region: RegionId) -> Result<()> {
        Err(too_late_error("registers memory"))
    }

    fn endpoint_addresses(&mut self, _peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        Err(too_late_error("makes endpoint addresses"))
    }

    fn connect(&mut self, _peers: &[PeerEndpoint]) -> Result<()> {
        Err(too_late_error("connects"))
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let LaneKind::Initiate(verb) = spec.kind else {
            return Err(lacks_error("receives"));
        };
        let known = self.end.peers.iter().find(|(peer, _)| *peer == spec.peer);
        let Some(&(_, bytes)) = known else {
            return Err(Error::Failed(format!(
                "the library does not know rank {}",
                spec.peer
            )));
        };
        if spec.local != self.end.region {
            return Err(lacks_error("lanes of a second memory"));
        }
        if spec.in_order {
            return Err(lacks_error("lanes that keep their order"));
        }
        let number = self.calls.lanes();
        if let Some(gathered) = &mut self.gathered {
            gathered.add(Lane(number));
        }
        let wanted = WantedLane {
            verb,
            local: &self.end.local,
            remote: RemoteMemory::new(spec.peer, number, bytes, spec.remote.clone()),
            options: SessionOptions {
                delivered: spec.delivered,
                ordered: spec.ordered,
            },
        };
        match &mut self.calls {
            Calls::Tickets(calls) => calls.add(&self.end.endpoint, &wanted)?,
            Calls::Tasks(calls) => calls.add(&self.end.endpoint, &wanted)?,
        }
        Ok(Lane(number))
    }

    fn release_lane(&mut self, lane: Lane) {
        match &mut self.calls {
            Calls::Tickets(calls) => calls.release_lane(&self.end.endpoint, lane),
            Calls::Tasks(calls) => calls.release_lane(lane),
        }
    }

    fn expect(&mut self, peer: Peer, bytes: Option<u32>) -> Result<()> {
        Ok(self.end.endpoint.expect(peer, bytes)?)
    }

    #[inline]
    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        if let Some(gathered) = &mut self.gathered {
            let (calls, endpoint) = (&mut self.calls, &self.end.endpoint);
            return gathered.post(ops, &mut |lane, token, extents| {
                calls.post_batch(endpoint, (lane, token), extents)
            });
        }
        match &mut self.calls {
            Calls::Tickets(calls) => calls.post(&self.end.endpoint, ops),
            Calls::Tasks(calls) => calls.post(ops),
        }
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        match &mut self.calls {
            Calls::Tickets(calls) => calls.flush(&self.end.endpoint, lane, tag),
            Calls::Tasks(calls) => calls.flush(lane, tag),
        }
    }

    #[inline]
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        let (count, polled) = match &mut self.gathered {
            None => self.calls.poll(&self.end.endpoint, done)?,
            Some(gathered) => match gathered.take_found(done) {
                Some(count) => (count, false),
                None => self.end.poll_gathered(&mut self.calls, gathered, done)?,
            },
        };
        if polled || self.end.arrivals_left {
            return Ok(self.end.take_arrivals(done, count));
        }
        Ok(count)
    }

    fn failure(&self, done: &Completion) -> Failure {
        let known = self
            .gathered
            .as_ref()
            .map(|gathered| gathered.with_library_id(done));
        let known = known.as_ref().unwrap_or(done);
        match &self.calls {
            Calls::Tickets(calls) => calls.failures.failure(known),
            Calls::Tasks(calls) => calls.failures.failure(known),
        }
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.end.endpoint.settle(trying)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(self.end.endpoint.flush_incoming()?)
    }

    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        let has_work = match &self.calls {
            Calls::Tickets(_) => false,
            Calls::Tasks(calls) => calls.has_work(),
        };
        let gathers = self
            .gathered
            .as_ref()
            .is_some_and(GatheredBatches::has_work);
        if has_work || gathers || self.end.arrivals_left {
            return Ok(ArmOutcome::Ready);
        }
        Ok(match self.end.endpoint.arm()? {
            Readiness::Ready => ArmOutcome::Ready,
            Readiness::Unsupported => ArmOutcome::Unsupported,
            Readiness::Sleep(descriptor) => {
                let kept: &OwnedFd = self.end.descriptor.insert(descriptor);
                ArmOutcome::Sleep(kept.as_fd())
            }
        })
    }

    fn take_rail_loads(&mut self) -> Vec<RailLoad> {
        self.end.endpoint.take_rail_loads()
    }

    fn take_device_events(&mut self) -> Vec<String> {
        self.end.endpoint.take_device_events()
    }

    fn chosen(&self) -> Facts {
        self.end.endpoint.chosen()
    }
}

impl Calls {
    /// Posts a list of extents in one call; returns false if the queue is full.
    fn post_batch(
        &mut self,
        endpoint: &TransferEndpoint,
        (lane, token): (Lane, u64),
        extents: &[Extent],
    ) -> Result<bool> {
        match self {
            Self::Tickets(calls) => calls.post_batch(endpoint, (lane, token), extents),
            Self::Tasks(calls) => calls.post_batch((lane, token), extents),
        }
    }

    #[inline]
    fn poll(
        &mut self,
        endpoint: &TransferEndpoint,
        done: &mut [Completion],
    ) -> Result<(usize, bool)> {
        match self {
            Self::Tickets(calls) => calls.poll(endpoint, done),
            Self::Tasks(calls) => calls.poll(done),
        }
    }

    /// Number of lanes so far, which is the number of the next lane.
    fn lanes(&self) -> u32 {
        match self {
            Self::Tickets(calls) => calls.lanes.len() as u32,
            Self::Tasks(calls) => calls.lanes.len() as u32,
        }
    }
}

/// A lane to create: its verb, and both memories.
struct WantedLane<'a> {
    verb: Verb,
    local: &'a LocalMemory,
    remote: RemoteMemory,
    options: SessionOptions,
}

#[cold]
fn never_resolved(lane: Lane) -> Error {
    Error::Failed(format!("lane {} was never resolved", lane.0))
}

/// Token of an operation in the library's queue: its lane and its tag.
#[inline]
fn token(lane: Lane, tag: u32) -> u64 {
    u64::from(lane.0) << 32 | u64::from(tag)
}

/// Failures of the last poll.
#[derive(Default)]
struct PollFailures {
    failed: Vec<(u64, Failure)>,
}

impl PollFailures {
    /// Clears the failures of the previous poll.
    #[inline]
    fn begin(&mut self) {
        if !self.failed.is_empty() {
            self.failed.clear();
        }
    }

    /// Converts the end of a ticket to a completion.
    #[inline]
    fn completion(&mut self, end: &TicketEnd, len: u32) -> Completion {
        let ending = match &end.error {
            None => Ending::Done,
            Some(error) => Ending::Failed(self.fail(end.token, error)),
        };
        Completion {
            tag: end.token as u32,
            lane: lane_of(end.token),
            len,
            imm: 0,
            ending,
        }
    }

    /// Stores the reason for a failed operation; returns the engine's code for that reason.
    #[cold]
    fn fail(&mut self, token: u64, error: &TransferError) -> i32 {
        let failure = error.failure().cloned().unwrap_or_else(|| Failure {
            name: error.to_string(),
            ..Failure::default()
        });
        let code = failure.code;
        self.failed.push((token, failure));
        code
    }

    /// Returns the failure of an operation of the last poll.
    fn failure(&self, done: &Completion) -> Failure {
        let told = token(done.lane, done.tag);
        let known = self.failed.iter().find(|(token, _)| *token == told);
        known
            .map(|(_, failure)| failure.clone())
            .unwrap_or_default()
    }
}

/// Returns the lane of a token.
#[inline]
fn lane_of(token: u64) -> Lane {
    Lane((token >> 32) as u32)
}

fn lacks_error(what: &str) -> Error {
    Error::Failed(format!("the library has no {what}"))
}

/// Error for calls that must be made before an engine is taken over.
fn too_late_error(what: &str) -> Error {
    Error::Failed(format!(
        "an engine {what} before the library takes it over, not through the library"
    ))
}

#[cfg(test)]
mod tests;
