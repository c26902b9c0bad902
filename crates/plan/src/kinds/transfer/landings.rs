//! Several operations that land in one slot with different data: the final data is known only if they land one after
//! the other.
//!
//! The expected data of a slot follows from its source slot. Data lands at the initiator for a read, otherwise at the
//! target. The order of slots at that end matters only if it brings different data to one slot. In that case, two
//! operations in flight at once must not land in one slot, because either data may remain. The same holds if the first
//! operation may complete before its data has landed.

use super::batching::BatchOf;
use super::point::{Pacing, TransferPoint};
use super::slots::Access;
use super::verification::Verification;
use crate::refuse::usage_error;
use tonnage_engine::Verb;
use tonnage_units::Result;

impl TransferPoint {
    /// Returns the slot orders of the end where data lands and of the source end.
    fn landing_and_source(&self) -> (Access, Access) {
        let (local, remote) = self.slots.orders();
        match self.op {
            Verb::Read | Verb::FetchAdd | Verb::CompareSwap => (local, remote),
            Verb::Write | Verb::WriteImm | Verb::Send => (remote, local),
        }
    }

    /// Returns whether a slot receives data from several source slots, either one after the other or at once.
    pub fn reuses_landing_slots(&self) -> bool {
        let (landing, source) = self.landing_and_source();
        // If both ends have the same order, even a permuted one, slots are used in fixed pairs. A fixed source always
        // sends the same data. Old values of atomic operations do not land in slots.
        !self.op.is_atomic()
            && self.slots.count() > 1
            && landing != source
            && source != Access::Fixed
    }

    /// Returns whether operations that are in flight at once may bring different data to one slot.
    fn may_land_concurrently(&self) -> bool {
        let (landing, _) = self.landing_and_source();
        self.reuses_landing_slots()
            && match self.pacing {
                // With several batches in flight, a batch may be overtaken by any number of later ones.
                Pacing::Batch { .. } if self.batching.in_flight > 1 => true,
                // A batch completes before the next one starts, so only operations of the same batch can use one slot
                // at once.
                Pacing::Batch { .. } if landing == Access::Sequential => {
                    u64::from(self.batch_share_max()) > self.slots.count()
                }
                // Operations use one slot at once only if a batch crosses the end of a pass over the slots. The
                // threads' shares differ by at most one operation, so it is enough to check the largest and the
                // smallest share.
                Pacing::Batch { .. } if landing == Access::Permuted => {
                    let goes_over =
                        |share: u32| share > 0 && !self.slots.count().is_multiple_of(share.into());
                    let least = self.batch_share(self.threads.saturating_sub(1));
                    goes_over(self.batch_share_max()) || goes_over(least)
                }
                _ => self.depth() > 1,
            }
    }
}

/// Returns the largest batch, up to the requested one, that evenly divides each thread's pass over the slots.
fn largest_divisor(point: &TransferPoint) -> u32 {
    let threads = workers_sharing_a_slot(point);
    let asked = match point.pacing {
        Pacing::Batch { batch } => batch,
        _ => threads,
    };
    let fits = |share: &u32| point.slots.count().is_multiple_of((*share).into());
    let share = (1..=asked / threads).rev().find(fits).unwrap_or(1);
    share * threads
}

/// Number of threads that share a batch.
fn workers_sharing_a_slot(point: &TransferPoint) -> u32 {
    match point.batching.of {
        BatchOf::Thread => 1,
        BatchOf::Rank => point.threads,
    }
}

/// Suggests a pacing, similar to the point's, for which the final data of each slot is known.
fn suggest_pacing(point: &TransferPoint) -> String {
    if !matches!(point.pacing, Pacing::Batch { .. }) {
        return "--depth 1".to_owned();
    }
    if point.batching.in_flight > 1 {
        let mut alone = point.clone();
        alone.batching.in_flight = 1;
        return match alone.may_land_concurrently() {
            true => format!("--batches-in-flight 1 and {}", suggest_pacing(&alone)),
            false => "--batches-in-flight 1".to_owned(),
        };
    }
    match point.landing_and_source() {
        (Access::Sequential, _) => {
            let slots = point.slots.count() * u64::from(workers_sharing_a_slot(point));
            format!("--batch {slots} or less")
        }
        (Access::Permuted, _) => format!("--batch {}", largest_divisor(point)),
        _ => format!("--batch {}", workers_sharing_a_slot(point)),
    }
}

/// Refuses verification if the final data of a slot cannot be known.
pub(super) fn check_landings(point: &TransferPoint) -> Result<()> {
    if point.verify != Verification::Last || !point.may_land_concurrently() {
        return Ok(());
    }
    let (local, remote) = point.slots.orders();
    let instead = suggest_pacing(point);
    usage_error(format!(
        "--verify cannot know the right data of a slot if landings overlap, and with --access {} and --local-access \
         {} operations in flight together bring different data to one slot: use {instead}, or leave --verify out",
        remote.name(),
        local.name(),
    ))
}

#[cfg(test)]
mod tests;
