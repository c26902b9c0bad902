//! The contract of workers whose trials run elsewhere, such as in the kernel. They receive a whole trial as one order
//! and time it themselves, as backends of collectives in another process do.
//!
//! Domains report by [`Caps::carried`](crate::Caps::carried) that their workers are of this kind. Registering,
//! connecting, lanes and failures work as for any engine; single operations cannot be posted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tonnage_units::Result;
pub use tonnage_units::histogram::BinnedLatencies;

use crate::{Access, Lane, Verb};

/// Runs the trials of a worker.
pub trait TrialCarrier {
    /// Copies parts of the worker's memory to the place where operations read theirs: offset and length of each part.
    ///
    /// # Errors
    /// If a part does not lie in the memory.
    fn take_over(&mut self, stretches: &[(u64, u64)]) -> Result<()>;
    /// Copies such parts back, so that the worker's memory holds the bytes that arrived.
    ///
    /// # Errors
    /// If a part does not lie in the memory.
    fn bring_back(&mut self, stretches: &[(u64, u64)]) -> Result<()>;
    /// Prepares an order, and returns a handle by which another thread follows its progress.
    ///
    /// # Errors
    /// If it cannot be carried out.
    fn begin(&mut self, order: &CarriedOrder<'_>) -> Result<Arc<dyn CarriedProgress>>;
    /// Runs the prepared order on the calling thread. Returns once all issued operations have completed and all writes
    /// have arrived.
    ///
    /// # Errors
    /// If an operation fails, nothing completes for too long, or the run was stopped.
    fn carry_out(&mut self, order: &CarriedOrder<'_>) -> Result<CarriedTrial>;
    /// Returns the latencies of the last order.
    ///
    /// # Errors
    /// If the executor (such as the kernel module) is gone.
    fn latencies(&mut self) -> Result<BinnedLatencies>;
}

/// Progress of an order, as another thread sees it.
pub trait CarriedProgress: std::fmt::Debug + Send + Sync {
    /// Number of the order's operations that have completed; `None` once that is unknown.
    fn operations(&self) -> Option<u64>;
    /// Latencies of the order so far.
    fn latencies(&self) -> Option<BinnedLatencies>;
}

/// A trial to run.
#[derive(Debug, Clone, Copy)]
pub struct CarriedOrder<'a> {
    /// Verb of the operations.
    pub verb: Verb,
    /// Payload of each operation.
    pub size_bytes: u32,
    /// Operations in flight of each flow, or operations of each batch.
    pub depth: u32,
    /// True if a batch is issued only once the one before it has completed.
    pub in_batches: bool,
    /// Number of slots at either end.
    pub slots: u64,
    /// Distance between the starts of two slots.
    pub stride_bytes: u64,
    /// Slot order at the initiator and at the target.
    pub orders: (Access, Access),
    /// The flows.
    pub flows: &'a [CarriedFlow],
    /// Limit on the operations of all flows together.
    pub operations_max: Option<u64>,
    /// How long operations are issued.
    pub duration: Option<Duration>,
    /// How long the order may go without a completion before it fails.
    pub patience: Duration,
    /// True to record latencies.
    pub timed: bool,
    /// Ends the order early once true.
    pub stop: &'a AtomicBool,
}

/// Operations towards one peer.
#[derive(Debug, Clone, Copy)]
pub struct CarriedFlow {
    /// The lane that carries them.
    pub lane: Lane,
    /// Offset of the first slot in this worker's memory.
    pub local: u64,
    /// Offset of the first slot in the peer's memory.
    pub remote: u64,
    /// Seed of the slot orders.
    pub seed: u64,
    /// Operations issued by earlier orders. The slot orders continue from there.
    pub issued: u64,
}

/// Outcome of an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarriedTrial {
    /// Operations of each flow. All of them have completed.
    pub issued: Vec<u64>,
    /// The most operations that were in flight.
    pub in_flight_max: u64,
}

impl CarriedTrial {
    /// Number of operations of all flows.
    pub fn operations(&self) -> u64 {
        self.issued.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_has_the_operations_of_all_flows() {
        let trial = CarriedTrial {
            issued: vec![3, 4],
            in_flight_max: 2,
        };
        assert_eq!(trial.operations(), 7);
    }
}
