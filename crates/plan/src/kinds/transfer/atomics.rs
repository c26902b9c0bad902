//! Atomic operations, which change a word of the peer in one step: options that they exclude, and the memory for their
//! words at the initiator.
//!
//! At the target, an atomic operation uses a slot of one word, like any other operation. At the initiator, it uses a
//! place: memory for its operands and the old value ([`local_words_bytes`](tonnage_engine::Verb::local_words_bytes)).
//! Operations use the places in posting order. Normally there is one place for each operation in flight. A verified
//! trial has one place for each operation, so that no old value is overwritten.

use super::length::TrialLength;
use super::point::TransferPoint;
use crate::point::Traffic;
use crate::refuse::usage_error;
use tonnage_engine::Verb;
use tonnage_units::Result;

/// Maximum number of places of a flow.
const PLACES_MAX: u64 = 1 << 24;

/// Maximum number of operations of a thread in a verified trial by time. Each operation needs its own place.
const VERIFIED_OPERATIONS_MAX: u64 = 1 << 16;

impl TransferPoint {
    /// Number of places for the words of atomic operations, at the initiator of a flow.
    pub fn word_places(&self) -> u64 {
        let in_flight = u64::from(self.used_depth().max(1));
        match (self.verify.is_on(), self.length.trial) {
            (false, _) => in_flight,
            (true, TrialLength::DurationNs(_)) => VERIFIED_OPERATIONS_MAX.max(in_flight),
            (true, TrialLength::Iterations(count)) => {
                let each = u64::from(self.batch_share_max().max(1));
                count.saturating_mul(each).max(in_flight)
            }
        }
    }

    /// Returns the maximum number of iterations of a thread in a timed trial; `None` if the number is unlimited.
    pub fn iterations_max(&self) -> Option<u64> {
        let each = u64::from(self.batch_share_max().max(1));
        let bounded = self.op.is_atomic() && self.verify.is_on();
        bounded.then(|| (self.word_places() / each).max(1))
    }

    /// Bytes of a flow at the initiator.
    pub fn local_bytes(&self) -> u64 {
        match self.op.is_atomic() {
            true => self
                .word_places()
                .saturating_mul(self.op.local_words_bytes().into()),
            false => self.slots.footprint_bytes,
        }
    }
}

/// Refuses a point that needs more than [`PLACES_MAX`] places.
pub(super) fn check_places(point: &TransferPoint) -> Result<()> {
    if !point.op.is_atomic() || point.word_places() <= PLACES_MAX {
        return Ok(());
    }
    let most = PLACES_MAX / u64::from(point.batch_share_max().max(1));
    usage_error(format!(
        "--op {} with --verify has a place for the old value of each operation of a trial, {PLACES_MAX} at most: \
         use --iters {most} or less",
        point.op.name()
    ))
}

/// Refuses options that cannot be combined with atomic operations.
pub(super) fn check_atomics(point: &TransferPoint) -> Result<()> {
    if !point.op.is_atomic() {
        return Ok(());
    }
    let name = point.op.name();
    let word = tonnage_engine::WORD_BYTES;
    if point.slots.size_bytes != word {
        return usage_error(format!(
            "--op {name} changes one word of {word} bytes, and --sizes is {}: use --sizes {word}",
            point.slots.size_bytes
        ));
    }
    if !point.slots.stride_bytes.is_multiple_of(word.into()) {
        return usage_error(format!(
            "--op {name} needs words at multiples of {word} bytes, and slots are {} bytes apart: use --stride \
             {word}, or leave --stride and --gap out",
            point.slots.stride_bytes
        ));
    }
    let refused = match () {
        () if point.slots.local_access.is_some() => {
            Some(("local-access", "old values always land in posting order"))
        }
        () if !point.division.rails.is_single() => Some((
            "rails",
            "a word is changed in one step only among operations of one device",
        )),
        () if point.verify.is_on() && point.length.interval_ns.is_some() => Some((
            "interval",
            "a verified trial ends when no place is left for another old value",
        )),
        () if point.division.cut.is_some() => Some(("chunk", "a word is not cut")),
        () if point.background.is_some() => Some((
            "background",
            "its places at the initiator's end are for one trial",
        )),
        () if matches!(point.roles.traffic, Traffic::Matrix | Traffic::File) => {
            Some(("traffic", "pairs that take turns have no contention"))
        }
        () => None,
    };
    // The expected value of each operation is computed in advance. If a later operation runs before an earlier one,
    // both fail, and so do all that follow.
    if point.op == Verb::CompareSwap && point.verify.is_on() && point.division.queue_pairs > 1 {
        return usage_error(format!(
            "--op {name} with --verify and --queue-pairs {} do not go together, because queue pairs keep no order \
             among each other, and each operation expects the value that the one before it left: leave \
             --queue-pairs or --verify out, or use --op fetch-add",
            point.division.queue_pairs
        ));
    }
    match refused {
        Some(("traffic", why)) => usage_error(format!(
            "--op {name} and --traffic {} do not go together, because {why}: use --traffic fan-in, or --traffic \
             all-to-all",
            point.roles.traffic.name()
        )),
        Some((option, why)) => usage_error(format!(
            "--op {name} and --{option} do not go together, because {why}: leave --{option} out"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, transfers};

    fn points(lines: &str) -> Result<Vec<TransferPoint>> {
        transfers(&format!("engine = 'shm'\n{lines}"), 4)
    }

    #[test]
    fn words_are_8_bytes_and_are_not_cut_or_copied() {
        for (lines, part) in cases([
            "sizes = 4 => sizes is 4: use sizes 8",
            "sizes = 16 => sizes is 16: use sizes 8",
            "stride = 12 => 12 bytes apart",
            "local-access = 'random' => leave local-access out",
            "api = 'poll' => leave api out",
            "traffic = 'matrix' => use traffic fan-in, or traffic all-to-all",
            "batch = 8; merge = 'on' => merge on",
            "verify = true; queue-pairs = 2 => leave queue-pairs or verify out",
            "verify = true; interval = '50ms'; trial-time = '1s' => leave interval out",
        ]) {
            points(&format!("op = 'compare-swap'\n{lines}")).refused(part);
        }
    }

    #[test]
    fn the_default_size_is_a_word_and_each_operation_in_flight_has_a_place() {
        let one = |lines: &str| points(lines).unwrap().remove(0);
        let plain = one("op = 'compare-swap'\ndepth = 4");
        assert_eq!(
            (
                plain.slots.size_bytes,
                plain.slots.stride_bytes,
                plain.slots.count()
            ),
            (8, 8, 4)
        );
        assert_eq!((plain.word_places(), plain.local_bytes()), (4, 96));
        assert_eq!(plain.iterations_max(), None);
        let verified = one("op = 'fetch-add'\ndepth = 4\nverify = true");
        assert_eq!(verified.word_places(), VERIFIED_OPERATIONS_MAX);
        assert_eq!(verified.iterations_max(), Some(VERIFIED_OPERATIONS_MAX));
        let batches = one("op = 'fetch-add'\nbatch = 8\nverify = true\niters = 100");
        assert_eq!(batches.word_places(), 800);
        let shared = one("op = 'fetch-add'\ntraffic = 'fan-in'\ntarget-footprint = 'shared'");
        assert_eq!(
            shared.slots.target_footprint,
            super::super::slots::TargetFootprint::Shared
        );
        let copied = one("op = 'read'\nsizes = 8\nverify = true");
        assert_eq!(
            (copied.local_bytes(), copied.iterations_max()),
            (copied.slots.footprint_bytes, None)
        );
    }

    #[test]
    fn more_places_than_a_rank_has_memory_for_are_refused() {
        let message = points("op = 'fetch-add'\nverify = true\niters = 1000000000000");
        message.refused("use iters 16777216 or less");
        let message = points("op = 'fetch-add'\nverify = true\nbatch = 16\niters = 10000000");
        message.refused("use iters 1048576 or less");
    }
}
