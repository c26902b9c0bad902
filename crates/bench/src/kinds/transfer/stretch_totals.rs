//! Sums of rounds that followed each other, kept where they were added up until all ranks add up theirs.

use serde::{Deserialize, Serialize};

use super::totals::TrialTotals;
use tonnage_units::Reduce;

/// One rank's part of the sums of a stretch of rounds, or that of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StretchTotals {
    /// Rounds that have been added up over their ranks; they were one after the other.
    pub(super) rounds: TrialTotals,
    /// The last round, which this rank has only its own part of, and what all rounds' checks found.
    pub(super) last: TrialTotals,
}

impl StretchTotals {
    /// All rounds together.
    pub(super) fn whole(self) -> TrialTotals {
        let mut whole = self.rounds;
        whole.then(self.last);
        whole
    }
}

/// Adds another rank's: its rounds were at other times, its part of the last one at the same time.
impl Reduce for StretchTotals {
    fn merge(&mut self, other: Self) {
        self.rounds.then(other.rounds);
        self.last.merge(other.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::transfer::rails::RailTotals;

    fn of(window_ns: u64, busy_bytes_per_s: u64) -> TrialTotals {
        TrialTotals {
            window_ns,
            operations: 1,
            unsettled: 1,
            rails: vec![RailTotals {
                busy_bytes_per_s,
                busy_ns: window_ns,
                ..RailTotals::default()
            }],
            ..TrialTotals::NONE
        }
    }

    #[test]
    fn windows_of_rounds_add_up_and_those_of_ranks_do_not() {
        let mut all = StretchTotals {
            rounds: of(100, 3),
            last: of(10, 4),
        };
        all.merge(StretchTotals {
            rounds: of(300, 7),
            last: of(20, 6),
        });
        // Whoever took no part.
        all.merge(StretchTotals {
            rounds: TrialTotals::NONE,
            last: TrialTotals::NONE,
        });
        let rates = |totals: &TrialTotals| totals.rails[0].busy_bytes_per_s;
        assert_eq!((all.rounds.window_ns, rates(&all.rounds)), (400, 6));
        assert_eq!((all.last.window_ns, rates(&all.last)), (20, 10));
        let whole = all.whole();
        assert_eq!((whole.window_ns, whole.operations), (420, 4));
    }

    #[test]
    fn a_trial_of_one_round_is_what_it_was() {
        let alone = StretchTotals {
            rounds: TrialTotals::NONE,
            last: of(10, 4),
        };
        assert_eq!(alone.whole(), of(10, 4));
    }
}
