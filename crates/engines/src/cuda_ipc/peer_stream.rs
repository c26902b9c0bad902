//! A worker's stream to one peer: consecutive copies, the arrivals after them, and the operations in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use tonnage_engine::Completion;
use tonnage_sys::cuda::{
    CudaContext, CudaEvent, CudaFailure, CudaPart, CudaStream, FlagWords, PinnedArena, WordsBehind,
};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

use super::worker::IN_FLIGHT_MAX;
use crate::memory::cuda_region::gpu_failed;
use crate::memory::vendor::vendor_of;
use crate::rings::{ArrivalEntry, Outbox, ring_failure};

/// How arrivals are reported.
enum ArrivalsBy {
    /// The GPU writes them into the peer's rings.
    Gpu(FlagWords),
    /// The CPU writes them when it sees that a copy has completed. The text is the reason why the GPU does not.
    Cpu(String),
}

/// An operation with a copy in flight.
struct Flight {
    /// Index of the event that follows the copy.
    event: usize,
    done: Completion,
    /// The arrival that the CPU must report after the copy; `None` if there is none or the GPU reports it.
    entry: Option<ArrivalEntry>,
}

/// A stream to one peer.
pub(super) struct PeerStream {
    /// Name of the engine.
    name: &'static str,
    /// Index of the peer in the worker's list of peers.
    pub(super) peer: usize,
    stream: CudaStream,
    arrivals: ArrivalsBy,
    events: Vec<CudaEvent>,
    /// Index of the event for the next operation.
    next: usize,
    /// Operations in flight, oldest first.
    flights: VecDeque<Flight>,
}

impl PeerStream {
    /// Creates a stream for operations between memory of this context and a peer. `rings` is a mapping that only this
    /// stream uses.
    pub(super) fn new(
        context: &Arc<CudaContext>,
        peer: usize,
        rings: Arc<Arena>,
        depth: u32,
    ) -> Result<Self> {
        let name = vendor_of(context.driver()).ipc;
        let failed = |failure: CudaFailure| gpu_failed(name, context, &failure);
        // If the driver cannot write words into the rings, they are not pinned.
        let words = FlagWords::offered(context)
            .and_then(|()| PinnedArena::pin(context, rings).and_then(FlagWords::new));
        let arrivals = match words {
            Ok(words) => ArrivalsBy::Gpu(words),
            Err(failure) => ArrivalsBy::Cpu(failure.to_string()),
        };
        let depth = depth.clamp(1, IN_FLIGHT_MAX) as usize;
        let events: Result<Vec<_>, _> = (0..depth).map(|_| CudaEvent::untimed(context)).collect();
        Ok(Self {
            name,
            peer,
            stream: CudaStream::new(context).map_err(failed)?,
            arrivals,
            events: events.map_err(failed)?,
            next: 0,
            flights: VecDeque::with_capacity(depth),
        })
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// Describes how arrivals are reported.
    pub(super) fn arrivals(&self) -> String {
        match &self.arrivals {
            ArrivalsBy::Gpu(_) => "reported by the GPU, after the data".to_owned(),
            ArrivalsBy::Cpu(why) => {
                format!("reported by the CPU, when it sees the copy done: {why}")
            }
        }
    }

    /// Returns whether there is room for another operation.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.flights.len() < self.events.len()
    }

    /// Posts a copy, and an arrival to report when the copy has completed. The caller must first check
    /// [`Self::has_room`].
    #[inline]
    pub(super) fn hand_over(
        &mut self,
        way: (CudaPart<'_>, CudaPart<'_>),
        done: Completion,
        entry: Option<ArrivalEntry>,
    ) -> Result<(), CudaFailure> {
        let (behind, by_cpu) = match (entry, &self.arrivals) {
            (Some(entry), ArrivalsBy::Gpu(words)) => {
                let behind = WordsBehind {
                    words,
                    offset: entry.offset,
                    values: entry.words,
                };
                (Some(behind), None)
            }
            (entry, _) => (None, entry),
        };
        let event = self.next;
        self.stream
            .copy_and_signal(way, behind, &self.events[event])?;
        self.next = (event + 1) % self.events.len();
        self.flights.push_back(Flight {
            event,
            done,
            entry: by_cpu,
        });
        Ok(())
    }

    /// Returns the oldest operation, if it is done.
    #[inline]
    pub(super) fn take_done(&mut self, outbox: &Outbox) -> Result<Option<Completion>> {
        let Some(flight) = self.flights.front() else {
            return Ok(None);
        };
        let passed = self.events[flight.event].is_passed();
        if !passed.map_err(|failure| self.failed(&failure))? {
            return Ok(None);
        }
        if let Some(entry) = &flight.entry {
            outbox
                .write_entry(entry)
                .map_err(|error| ring_failure(self.name, error))?;
        }
        Ok(self.flights.pop_front().map(|flight| flight.done))
    }

    #[cold]
    pub(super) fn failed(&self, failure: &CudaFailure) -> Error {
        gpu_failed(self.name, self.context(), failure)
    }
}
