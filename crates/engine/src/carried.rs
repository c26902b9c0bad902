//! The contract of workers whose trials are carried out elsewhere, such as in the kernel: they get a whole trial as an
//! order, and time themselves, as backends of collectives in another process do.
//!
//! Domains say by [`Caps::carried`](crate::Caps::carried) that their workers are of this kind. Registering, connecting,
//! lanes and failures are those of every engine; single operations cannot be posted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tonnage_units::Result;

use crate::{Addresses, Lane, Verb};

/// Carries out the trials of a worker.
pub trait Carrier {
    /// Takes bytes of the worker's memory to where operations have theirs: offset and length of each stretch.
    ///
    /// # Errors
    /// When a stretch does not lie in the memory.
    fn take_over(&mut self, stretches: &[(u64, u64)]) -> Result<()>;
    /// Brings such bytes back, so that the worker's memory has what landed.
    ///
    /// # Errors
    /// When a stretch does not lie in the memory.
    fn bring_back(&mut self, stretches: &[(u64, u64)]) -> Result<()>;
    /// Makes ready for an order, and says how another thread sees its progress.
    ///
    /// # Errors
    /// When it cannot be carried out.
    fn begin(&mut self, order: &CarriedOrder<'_>) -> Result<Arc<dyn CarriedProgress>>;
    /// Carries out the order that was begun, in the calling thread; returns when all that was issued has completed, and
    /// what was written has arrived.
    ///
    /// # Errors
    /// When an operation fails, nothing completes for too long, or the run was stopped.
    fn carry_out(&mut self, order: &CarriedOrder<'_>) -> Result<CarriedTrial>;
    /// Latencies of the last order.
    ///
    /// # Errors
    /// When whoever carried it out is gone.
    fn latencies(&mut self) -> Result<BinnedLatencies>;
}

/// Progress of an order, which another thread asks for.
pub trait CarriedProgress: std::fmt::Debug + Send + Sync {
    /// Operations of the order that have completed; `None` once nobody can tell.
    fn operations(&self) -> Option<u64>;
    /// Latencies of the order so far.
    fn latencies(&self) -> Option<BinnedLatencies>;
}

/// A trial to carry out.
#[derive(Debug, Clone, Copy)]
pub struct CarriedOrder<'a> {
    /// The operation.
    pub verb: Verb,
    /// Payload of each.
    pub size_bytes: u32,
    /// Operations in flight of each flow, or of each of its batches.
    pub window: u32,
    /// True when a window is issued only once the one before it has completed.
    pub in_batches: bool,
    /// Places of operations at either end.
    pub slots: u64,
    /// Bytes between the beginnings of two of them.
    pub stride_bytes: u64,
    /// Orders of the slots at the initiator's end and at the target's.
    pub orders: (Addresses, Addresses),
    /// The flows.
    pub flows: &'a [CarriedFlow],
    /// Operations of all flows together, at most.
    pub operations_max: Option<u64>,
    /// Time in which operations are issued.
    pub duration: Option<Duration>,
    /// Time without a completion that is forgiven.
    pub patience: Duration,
    /// True when latencies are taken.
    pub timed: bool,
    /// Ends it early once true.
    pub stop: &'a AtomicBool,
}

/// Operations towards one peer.
#[derive(Debug, Clone, Copy)]
pub struct CarriedFlow {
    /// The lane that carries them.
    pub lane: Lane,
    /// Offset of the first slot in this worker's memory.
    pub local: u64,
    /// Offset of the first slot in the peer's.
    pub remote: u64,
    /// Seed of the orders of slots.
    pub seed: u64,
    /// Operations that were issued before, which the orders go on from.
    pub issued: u64,
}

/// Outcome of an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarriedTrial {
    /// Operations of each flow, all of which have completed.
    pub issued: Vec<u64>,
    /// The most that were in flight.
    pub in_flight_max: u64,
}

impl CarriedTrial {
    /// Operations of all flows.
    pub fn operations(&self) -> u64 {
        self.issued.iter().sum()
    }
}

/// Latencies as counts of the bins that records have, with the exact figures beside them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BinnedLatencies {
    /// Count of each bin.
    pub bins: Vec<u64>,
    /// Number of latencies.
    pub samples: u64,
    /// The smallest.
    pub min_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// Their sum.
    pub sum_ns: u64,
}

impl BinnedLatencies {
    /// Adds those of another lane.
    pub fn merge(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        self.min_ns = match self.samples {
            0 => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.samples += other.samples;
        self.sum_ns += other.sum_ns;
        self.bins.resize(self.bins.len().max(other.bins.len()), 0);
        let bins = self.bins.iter_mut().zip(&other.bins);
        bins.for_each(|(all, more)| *all += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_lanes_add_up_and_empty_ones_change_nothing() {
        let of = |bins: &[u64], [samples, min_ns, max_ns, sum_ns]: [u64; 4]| BinnedLatencies {
            bins: bins.to_vec(),
            samples,
            min_ns,
            max_ns,
            sum_ns,
        };
        let mut all = BinnedLatencies::default();
        all.merge(&of(&[0, 0], [0, u64::MAX, 0, 0]));
        all.merge(&of(&[1, 2], [3, 5, 9, 20]));
        all.merge(&of(&[0, 1], [1, 7, 11, 11]));
        assert_eq!(all, of(&[1, 3], [4, 5, 11, 31]));
        let trial = CarriedTrial {
            issued: vec![3, 4],
            in_flight_max: 2,
        };
        assert_eq!(trial.operations(), 7);
    }
}
