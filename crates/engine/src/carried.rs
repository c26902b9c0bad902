//! Contract for workers that run trials elsewhere, such as in the kernel. A worker of this kind receives a whole trial
//! as one order, and measures the time itself.
//!
//! A domain reports by [`Caps::carried`](crate::Caps::carried) that its workers are of this kind. Registering,
//! connecting, lanes and failures work as in any engine, but single operations cannot be posted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tonnage_units::Result;
pub use tonnage_units::histogram::BinnedLatencies;

use crate::{Access, Lane, Verb};

/// Runs the trials of a worker.
pub trait TrialCarrier {
    /// Copies parts of the worker's memory, each given as offset and length, to the memory that carried operations use.
    ///
    /// # Errors
    /// If a part does not lie in the memory.
    fn copy_to_landing(&mut self, stretches: &[(u64, u64)]) -> Result<()>;
    /// Copies parts back from that memory, so that the worker's memory holds the bytes that arrived.
    ///
    /// # Errors
    /// If a part does not lie in the memory.
    fn copy_from_landing(&mut self, stretches: &[(u64, u64)]) -> Result<()>;
    /// Prepares an order, and returns a handle by which another thread follows its progress.
    ///
    /// # Errors
    /// If the order cannot be carried out.
    fn begin(&mut self, order: &CarriedOrder<'_>) -> Result<Arc<dyn CarriedProgress>>;
    /// Runs the prepared order on the calling thread. Returns after every issued operation has completed and every
    /// write has arrived.
    ///
    /// # Errors
    /// If an operation fails, nothing completes for too long, or the run was stopped.
    fn carry_out(&mut self, order: &CarriedOrder<'_>) -> Result<CarriedOutcome>;
    /// Returns the latencies of the last order.
    ///
    /// # Errors
    /// If the executor (such as the kernel module) is gone.
    fn latencies(&mut self) -> Result<BinnedLatencies>;
}

/// Progress of an order, as another thread sees it.
pub trait CarriedProgress: std::fmt::Debug + Send + Sync {
    /// Number of the order's operations that have completed; `None` once the number is unknown.
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
    /// Operations in flight per flow, or operations per batch.
    pub depth: u32,
    /// True if each batch is issued only after the previous one has completed.
    pub in_batches: bool,
    /// Number of slots at each end.
    pub slots: u64,
    /// Distance between the starts of neighbouring slots.
    pub stride_bytes: u64,
    /// Slot order at the initiator and at the target.
    pub orders: (Access, Access),
    /// The flows.
    pub flows: &'a [CarriedFlow],
    /// Limit on the operations of all flows together; `None` for no limit.
    pub operations_max: Option<u64>,
    /// How long to issue operations; `None` for no time limit.
    pub duration: Option<Duration>,
    /// The longest time without a completion before the order fails.
    pub patience: Duration,
    /// True to record latencies.
    pub timed: bool,
    /// Ends the order early when it becomes true.
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
    /// Number of operations that earlier orders issued. The slot orders continue after them.
    pub issued: u64,
}

/// Outcome of an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarriedOutcome {
    /// Number of operations issued for each flow. All of them have completed.
    pub issued: Vec<u64>,
    /// The largest number of operations in flight at once.
    pub in_flight_max: u64,
}

impl CarriedOutcome {
    /// Number of operations of all flows.
    pub fn operations(&self) -> u64 {
        self.issued.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_has_the_operations_of_all_flows() {
        let outcome = CarriedOutcome {
            issued: vec![3, 4],
            in_flight_max: 2,
        };
        assert_eq!(outcome.operations(), 7);
    }
}
