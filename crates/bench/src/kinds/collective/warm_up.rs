//! The time of an iteration, as a warm-up finds it out: trials are as long as it says. The runs are in `contest`.

use crate::drive::calls::CallSpan;
use tonnage_plan::collective::Refill;
use tonnage_plan::transfer::TrialLength;

/// Part of a trial that the last run of a warm-up takes, at least, where data are written once: one of so many.
const PART: u64 = 8;

/// Multiple of a run's iterations that the next one has until it takes that part.
pub(super) const GROWTH: u64 = 8;

/// Returns whether the length of a trial can be told by a run of so many iterations. Where data are written once,
/// writing them may take as long as a warm-up: the first call may be slow, and is left out, and the others have to be
/// enough.
pub(super) fn is_told(
    (refill, trial): (Refill, TrialLength),
    iterations: u64,
    turn_ns: u64,
) -> bool {
    match (refill, trial) {
        (Refill::Trial, TrialLength::DurationNs(ns)) if iterations == 1 => turn_ns >= ns,
        (Refill::Trial, TrialLength::DurationNs(ns)) => {
            turn_ns.saturating_mul(iterations) >= ns / PART
        }
        _ => true,
    }
}

/// Time of iterations with all that comes again for each, and how many these are: where data are written once, the
/// first one is not as the others are.
pub(super) fn turns(
    spans: &[CallSpan],
    refill: Refill,
    whole: CallSpan,
    iterations: u64,
) -> (CallSpan, u64) {
    let span = |begin_ns, end_ns| CallSpan { begin_ns, end_ns };
    match (refill, spans) {
        (Refill::Trial, [first, .., last]) => (span(first.end_ns, last.end_ns), iterations - 1),
        (Refill::Trial, [all]) => (*all, iterations),
        _ => (whole, iterations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_tells_the_length_of_a_trial_only_where_it_is_as_long() {
        let told = |refill, iterations, turn_ns| {
            is_told((refill, TrialLength::DurationNs(800)), iterations, turn_ns)
        };
        assert!(!told(Refill::Trial, 1, 799));
        assert!(told(Refill::Trial, 1, 800));
        assert!(!told(Refill::Trial, 8, 12));
        assert!(told(Refill::Trial, 8, 13));
        assert!(told(Refill::Iteration, 1, 1));
        assert!(is_told((Refill::Trial, TrialLength::Iterations(5)), 1, 1));
    }

    #[test]
    fn what_is_written_once_is_no_part_of_an_iteration() {
        let span = |(begin_ns, end_ns)| CallSpan { begin_ns, end_ns };
        let spans = [(100, 190), (195, 200), (205, 210)].map(span);
        let whole = span((0, 215));
        let of = |spans: &[CallSpan], refill, count| turns(spans, refill, whole, count);
        assert_eq!(of(&spans, Refill::Iteration, 3), (whole, 3));
        assert_eq!(of(&spans, Refill::Trial, 3), (span((190, 210)), 2));
        // One call, and calls that follow each other, which have one span together.
        assert_eq!(of(&spans[..1], Refill::Trial, 1), (spans[0], 1));
        assert_eq!(of(&spans[..1], Refill::Trial, 50), (spans[0], 50));
        assert_eq!(of(&[], Refill::Trial, 3), (whole, 3));
    }
}
