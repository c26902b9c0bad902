//! The stream of a worker towards one peer: copies one after the other, the arrivals behind them, and what is in
//! flight.

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
use crate::rings::{ArrivalEntry, Outbox, torn};

/// The way in which arrivals are told.
enum ArrivalsBy {
    /// By the GPU, into the peer's rings.
    Gpu(FlagWords),
    /// By the CPU, when it sees that the copy is done, for a reason.
    Cpu(String),
}

/// An operation whose copy is on its way.
struct Flight {
    /// Index of the event behind it.
    event: usize,
    done: Completion,
    /// The arrival that the CPU has yet to tell.
    entry: Option<ArrivalEntry>,
}

/// A stream towards one peer.
pub(super) struct IpcOutlet {
    /// The engine's name.
    name: &'static str,
    /// Index in the list of peers.
    pub(super) peer: usize,
    stream: CudaStream,
    arrivals: ArrivalsBy,
    events: Vec<CudaEvent>,
    /// The event that the next operation takes.
    next: usize,
    /// The oldest first.
    flights: VecDeque<Flight>,
}

impl IpcOutlet {
    /// Makes a stream for operations between memory of this context and a peer, whose rings are mapped for it alone.
    pub(super) fn new(
        context: &Arc<CudaContext>,
        peer: usize,
        rings: Arc<Arena>,
        depth: u32,
    ) -> Result<Self> {
        let name = vendor_of(context.driver()).ipc;
        let failed = |failure: CudaFailure| gpu_failed(name, context, &failure);
        // Rings are not pinned for a driver that writes no words there.
        let words = FlagWords::offered(context)
            .and_then(|()| PinnedArena::pin(context, rings).and_then(FlagWords::of));
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

    /// The way in which arrivals are told, in words.
    pub(super) fn arrivals(&self) -> String {
        match &self.arrivals {
            ArrivalsBy::Gpu(_) => "told by the GPU, behind the data".to_owned(),
            ArrivalsBy::Cpu(why) => format!("told by the CPU, when it sees the copy done: {why}"),
        }
    }

    /// Returns whether one more operation can be handed over.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.flights.len() < self.events.len()
    }

    /// Hands over a copy and what is told behind it; only after [`Self::has_room`] said so.
    #[inline]
    pub(super) fn hand_over(
        &mut self,
        way: (CudaPart<'_>, CudaPart<'_>),
        done: Completion,
        entry: Option<ArrivalEntry>,
    ) -> Result<(), CudaFailure> {
        let (behind, untold) = match (entry, &self.arrivals) {
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
            .copy_and_tell(way, behind, &self.events[event])?;
        self.next = (event + 1) % self.events.len();
        self.flights.push_back(Flight {
            event,
            done,
            entry: untold,
        });
        Ok(())
    }

    /// The oldest operation, if it is done.
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
            outbox.put(entry).map_err(|error| torn(self.name, error))?;
        }
        Ok(self.flights.pop_front().map(|flight| flight.done))
    }

    #[cold]
    pub(super) fn failed(&self, failure: &CudaFailure) -> Error {
        gpu_failed(self.name, self.context(), failure)
    }
}
