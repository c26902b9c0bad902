//! Flushing what a card has written into memory of a GPU, before it counts as arrived.
//!
//! A completion that the CPU has seen says nothing about bytes on their way into a GPU, unless the platform orders
//! both. The driver tells whether it does, and has a call that waits for them.

use std::cell::Cell;
use std::sync::Arc;

use tonnage_sys::cuda::{CardWrites, CudaContext, WritesOrdering};
use tonnage_units::Result;

use crate::memory::cuda_region::gpu_failed;
use crate::memory::vendor::vendor_of;

/// The moment at which a flush is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlushMoment {
    /// Before an arrival or a read is told.
    Told,
    /// Behind plain writes of peers, which have ended.
    WritesEnded,
}

/// Words for the moments. They tell no number, which would be another one in each rank and each run.
const TOLD: &str = "before arrivals and reads are told";
const ENDED: &str = "when peers' plain writes have ended";

/// Need of a flush, before a GPU sees what has arrived.
enum FlushNeed {
    /// Needed, and made by this call.
    Flushing(CardWrites),
    /// Needed, and not to be had.
    Lacking,
    /// None, or none that is known.
    Nothing,
}

/// Arrivals in memory of one GPU.
pub(super) struct CardArrivals {
    context: Option<Arc<CudaContext>>,
    need: FlushNeed,
    /// Words about that, for the record.
    words: String,
    /// Moments at which a flush was due in this point: before something was told, and behind plain writes.
    was_due: [Cell<bool>; 2],
}

impl CardArrivals {
    /// Arrivals in memory of a context, as its driver says that they are to be treated; `None` for memory whose driver
    /// is not known here.
    pub(super) fn of(context: Option<&Arc<CudaContext>>) -> Self {
        let (need, words) = match context.map(|context| (context, context.writes_ordering())) {
            None => (
                FlushNeed::Nothing,
                "not done: whose memory it is has to do it".to_owned(),
            ),
            Some((context, WritesOrdering::Flushed)) => match CardWrites::into_memory_of(context) {
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
                "not needed: the driver orders what a card writes before the GPU's own work"
                    .to_owned(),
            ),
            Some((_, WritesOrdering::Unordered)) => (
                FlushNeed::Lacking,
                "needed and not done: the driver has no call for the host".to_owned(),
            ),
            Some((context, WritesOrdering::Untold)) => {
                let untold = vendor_of(context.driver()).cards.flush_untold;
                (FlushNeed::Nothing, format!("not done: {untold}"))
            }
        };
        Self {
            context: context.cloned(),
            need,
            words,
            was_due: [Cell::new(false), Cell::new(false)],
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
        let when = match (&self.need, self.was_due.each_ref().map(Cell::get)) {
            (FlushNeed::Flushing(_), [false, false]) => {
                return "needed, and never done: this worker was told of no arrival, of no read, and of no end of peers' \
                        writes"
                    .to_owned();
            }
            (FlushNeed::Flushing(_), [true, false]) => TOLD.to_owned(),
            (FlushNeed::Flushing(_), [false, true]) => ENDED.to_owned(),
            (FlushNeed::Flushing(_), [true, true]) => format!("{TOLD}, and {ENDED}"),
            _ => return self.words.clone(),
        };
        format!("{} {when}", self.words)
    }

    /// Begins a point, whose words and doubt are about what arrives from now on.
    pub(super) fn begin(&self) {
        self.was_due.iter().for_each(|due| due.set(false));
    }

    /// The doubt about what arrived, where the GPU may not have seen it when it counted.
    pub(super) fn doubt(&self) -> Option<String> {
        let was_due = self.was_due.iter().any(Cell::get);
        let is_lacking = matches!(self.need, FlushNeed::Lacking) && was_due;
        is_lacking.then(|| {
            format!(
                "what network cards wrote into memory of a GPU counted before the GPU had to see it: a flush was {}",
                self.words
            )
        })
    }

    /// Waits until the GPU sees what has arrived, where that is needed and can be done; returns whether it is.
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
