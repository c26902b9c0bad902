//! Flushing what a card has written into memory of a GPU, before it counts as arrived.
//!
//! A completion that the CPU has seen says nothing about bytes on their way into a GPU, unless the platform orders
//! both. The driver tells whether it does, and has a call that waits for them.

use std::cell::Cell;
use std::sync::Arc;

use tonnage_sys::cuda::{CardWrites, CudaContext, WritesOrdering};
use tonnage_units::Result;

use crate::memory::cuda_region::gpu_failed;

/// Arrivals in memory of one GPU.
pub(super) struct CardArrivals {
    context: Option<Arc<CudaContext>>,
    /// The call, where it has to be made.
    writes: Option<CardWrites>,
    /// Words about that, for the record.
    words: String,
    /// Calls that were made.
    flushes: Cell<u64>,
}

impl CardArrivals {
    /// Arrivals in memory of a context, as its driver says that they are to be treated; `None` for memory whose driver
    /// is not known here.
    pub(super) fn of(context: Option<&Arc<CudaContext>>) -> Self {
        let (writes, words) = match context.map(|context| (context, context.writes_ordering())) {
            None => (None, "not done: whose memory it is has to do it".to_owned()),
            Some((context, WritesOrdering::Flushed)) => match CardWrites::into_memory_of(context) {
                Ok(writes) => (
                    Some(writes),
                    "by cuFlushGPUDirectRDMAWrites, before an arrival or a read is told".to_owned(),
                ),
                Err(failure) => (None, format!("needed and not done: {failure}")),
            },
            Some((_, WritesOrdering::Ordered)) => (
                None,
                "not needed: the driver orders what a card writes before the GPU's own work"
                    .to_owned(),
            ),
            Some((_, WritesOrdering::Unordered)) => (
                None,
                "needed and not done: the driver has no call for the host".to_owned(),
            ),
            Some((_, WritesOrdering::Untold)) => (
                None,
                "not done: the driver does not tell whether it is needed (that of CUDA 11.3 does)"
                    .to_owned(),
            ),
        };
        Self {
            context: context.cloned(),
            writes,
            words,
            flushes: Cell::new(0),
        }
    }

    /// True for what arrives in memory of this context.
    pub(super) fn are_in(&self, context: Option<&Arc<CudaContext>>) -> bool {
        match (&self.context, context) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Words about what is done, for the record.
    pub(super) fn words(&self) -> String {
        match (&self.writes, self.flushes.get()) {
            (None, _) => self.words.clone(),
            (Some(_), 0) => {
                "needed, and never done: this worker was told of no arrival and of no read"
                    .to_owned()
            }
            (Some(_), flushes) => format!("{}: {flushes} times", self.words),
        }
    }

    /// Waits until the GPU sees what has arrived, where that is needed and can be done.
    ///
    /// # Errors
    /// The driver's reason.
    pub(super) fn flush(&self, engine: &str) -> Result<()> {
        let Some(writes) = &self.writes else {
            return Ok(());
        };
        self.flushes.set(self.flushes.get() + 1);
        let flushed = writes.flush();
        flushed.map_err(|failure| gpu_failed(engine, writes.context(), &failure))
    }
}
