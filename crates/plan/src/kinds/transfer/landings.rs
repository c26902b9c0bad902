//! Data that lands in one slot from several: what stays there is known as long as one follows the other.
//!
//! The data of a slot is known by the slot that it comes from, so the order at the end where bytes land (the
//! initiator's for a read, the target's for all else) matters only where it brings a slot different data. Then two
//! operations that are in flight together, or of which the first may still be on its way when it completes, must not
//! land in one slot, because it is unknown which of them stays.

use super::batching::BatchOf;
use super::point::{Addresses, Pacing, TransferPoint};
use super::verification::Verification;
use crate::refuse::usage;
use tonnage_engine::Verb;
use tonnage_units::Result;

impl TransferPoint {
    /// Orders of the slots where bytes land, and where they come from.
    fn landing_and_source(&self) -> (Addresses, Addresses) {
        let (local, remote) = self.orders();
        match self.op {
            Verb::Read | Verb::FetchAdd | Verb::CompareSwap => (local, remote),
            Verb::Write | Verb::WriteImm | Verb::Send => (remote, local),
        }
    }

    /// Returns whether a slot gets data of several slots, one after the other or at once.
    pub fn lands_anew(&self) -> bool {
        let (landing, source) = self.landing_and_source();
        // Ends of one order use slots in fixed pairs, also permuted ones, and a fixed source always sends the same.
        // Old values have places of their own.
        !self.op.is_atomic() && self.slots() > 1 && landing != source && source != Addresses::Fixed
    }

    /// Returns whether operations that are in flight together may bring different data to one slot.
    fn lands_at_once(&self) -> bool {
        let (landing, _) = self.landing_and_source();
        self.lands_anew()
            && match self.pacing {
                // One of several may be overtaken by any number of others.
                Pacing::Batch { .. } if self.batching.in_flight > 1 => true,
                // All of a batch are waited for before the next one, so that only those of one batch can meet.
                Pacing::Batch { .. } if landing == Addresses::Sequential => {
                    u64::from(self.batch_share_max()) > self.slots()
                }
                // No batch goes over the end of a round, whichever part of it a worker has.
                Pacing::Batch { .. } if landing == Addresses::Permuted => {
                    let goes_over =
                        |share: u32| share > 0 && !self.slots().is_multiple_of(share.into());
                    let least = self.batch_share(self.workers.saturating_sub(1));
                    goes_over(self.batch_share_max()) || goes_over(least)
                }
                _ => self.depth() > 1,
            }
    }
}

/// The largest batch, up to the one that was asked for, of which each round holds a whole number, for every worker
/// alike.
fn largest_divisor(point: &TransferPoint) -> u32 {
    let workers = workers_together(point);
    let asked = match point.pacing {
        Pacing::Batch { batch } => batch,
        _ => workers,
    };
    let fits = |share: &u32| point.slots().is_multiple_of((*share).into());
    let share = (1..=asked / workers).rev().find(fits).unwrap_or(1);
    share * workers
}

/// Workers that share a batch out.
fn workers_together(point: &TransferPoint) -> u32 {
    match point.batching.of {
        BatchOf::Worker => 1,
        BatchOf::Rank => point.workers,
    }
}

/// A pacing, similar to the point's, with which the final data of a slot is known.
fn known_pacing(point: &TransferPoint) -> String {
    if !matches!(point.pacing, Pacing::Batch { .. }) {
        return "window 1".to_owned();
    }
    if point.batching.in_flight > 1 {
        let mut alone = point.clone();
        alone.batching.in_flight = 1;
        return match alone.lands_at_once() {
            true => format!("batches-in-flight 1 and {}", known_pacing(&alone)),
            false => "batches-in-flight 1".to_owned(),
        };
    }
    match point.landing_and_source() {
        (Addresses::Sequential, _) => {
            let slots = point.slots() * u64::from(workers_together(point));
            format!("batch {slots} or less")
        }
        (Addresses::Permuted, _) => format!("batch {}", largest_divisor(point)),
        _ => format!("batch {}", workers_together(point)),
    }
}

/// Refuses verification if the final data of a slot cannot be known.
pub(super) fn check_landings(point: &TransferPoint) -> Result<()> {
    if point.verify != Verification::Last || !point.lands_at_once() {
        return Ok(());
    }
    let (local, remote) = point.orders();
    let instead = known_pacing(point);
    usage(format!(
        "verify cannot tell what is right where landings overlap, and with addresses {} and local-addresses {} operations \
         in flight together bring different data to one slot: write {instead}, or leave verify out",
        remote.name(),
        local.name(),
    ))
}

#[cfg(test)]
mod tests;
