//! Flushes a NIC's writes into GPU memory, before the bytes count as arrived.
//!
//! A completion that the CPU has seen does not prove that the GPU sees the bytes, unless the platform orders these two
//! events. The driver reports whether it does, and has a call that waits for the bytes.

use std::cell::Cell;
use std::sync::Arc;

use tonnage_sys::cuda::{CudaContext, NicWriteFlush, WritesOrdering};
use tonnage_units::Result;

use crate::memory::cuda_region::gpu_failed;
use crate::memory::vendor::vendor_of;

/// Reason why a flush is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlushMoment {
    /// An arrival or a read is about to be reported.
    Told,
    /// The plain writes of peers have ended.
    WritesEnded,
}

/// Texts for these reasons. They have no counts, because counts would differ between ranks and runs.
const REPORTED: &str = "before arrivals and reads are reported";
const ENDED: &str = "when peers' plain writes have ended";

/// Whether a flush is needed before a GPU sees arrived bytes.
enum FlushNeed {
    /// A flush is required, and this driver call does it.
    Flushing(NicWriteFlush),
    /// A flush is required, but the driver does not support it.
    Lacking,
    /// A flush is not required, or not known to be required.
    Nothing,
}

/// Arrivals in the memory of one GPU.
pub(super) struct NicArrivals {
    context: Option<Arc<CudaContext>>,
    need: FlushNeed,
    /// Description of `need` for the record.
    words: String,
    /// Whether a flush was due during this point: before a report, and after plain writes.
    was_due: [Cell<bool>; 2],
}

impl NicArrivals {
    /// Creates the state for memory of this context, with the flush that its driver requires. `None` stands for memory
    /// of an unknown driver.
    pub(super) fn new(context: Option<&Arc<CudaContext>>) -> Self {
        let (need, words) = match context.map(|context| (context, context.writes_ordering())) {
            None => (
                FlushNeed::Nothing,
                "not done: left to the owner of the memory".to_owned(),
            ),
            Some((context, WritesOrdering::Flushed)) => match NicWriteFlush::for_memory_of(context)
            {
                Ok(writes) => (
                    FlushNeed::Flushing(writes),
                    "by cuFlushGPUDirectRDMAWrites".to_owned(),
                ),
                Err(failure) => (
                    FlushNeed::Lacking,
                    format!("needed and not done: {failure}"),
                ),
            },
            Some((_, WritesOrdering::Ordered)) => (
                FlushNeed::Nothing,
                "not needed: the driver orders a NIC's writes before the GPU's own work".to_owned(),
            ),
            Some((_, WritesOrdering::Unordered)) => (
                FlushNeed::Lacking,
                "needed and not done: the driver has no call for the host".to_owned(),
            ),
            Some((context, WritesOrdering::Unknown)) => {
                let unknown = vendor_of(context.driver()).cards.flush_unknown;
                (FlushNeed::Nothing, format!("not done: {unknown}"))
            }
        };
        Self {
            context: context.cloned(),
            need,
            words,
            was_due: [Cell::new(false), Cell::new(false)],
        }
    }

    /// Whether these are the arrivals in memory of this context.
    pub(super) fn are_in(&self, context: Option<&Arc<CudaContext>>) -> bool {
        match (&self.context, context) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Describes the flushes for the record.
    pub(super) fn words(&self) -> String {
        let when = match (&self.need, self.was_due.each_ref().map(Cell::get)) {
            (FlushNeed::Flushing(_), [false, false]) => {
                return "needed, and never done: this thread saw no arrival, no read, and no end of peers' writes"
                    .to_owned();
            }
            (FlushNeed::Flushing(_), [true, false]) => REPORTED.to_owned(),
            (FlushNeed::Flushing(_), [false, true]) => ENDED.to_owned(),
            (FlushNeed::Flushing(_), [true, true]) => format!("{REPORTED}, and {ENDED}"),
            _ => return self.words.clone(),
        };
        format!("{} {when}", self.words)
    }

    /// Begins a point. From then on, the description and the remark are only about arrivals of this point.
    pub(super) fn begin_point(&self) {
        self.was_due.iter().for_each(|due| due.set(false));
    }

    /// Returns a remark if the GPU may not have seen bytes that were counted as arrived.
    pub(super) fn doubt(&self) -> Option<String> {
        let was_due = self.was_due.iter().any(Cell::get);
        let is_lacking = matches!(self.need, FlushNeed::Lacking) && was_due;
        is_lacking.then(|| {
            format!(
                "NIC writes into GPU memory were counted before the GPU was guaranteed to see them: a flush was {}",
                self.words
            )
        })
    }

    /// Waits until the GPU sees the arrived bytes, if that is required and supported. Returns whether it waited.
    ///
    /// # Errors
    /// The driver's reason.
    pub(super) fn flush(&self, engine: &str, moment: FlushMoment) -> Result<bool> {
        if let FlushNeed::Flushing(writes) = &self.need {
            let flushed = writes.flush();
            flushed.map_err(|failure| gpu_failed(engine, writes.context(), &failure))?;
        }
        self.was_due[usize::from(moment == FlushMoment::WritesEnded)].set(true);
        Ok(matches!(self.need, FlushNeed::Flushing(_)))
    }
}
