//! Estimates the ratio of two sides, gives a verdict on it, and predicts the number of additional runs for a clear
//! verdict.

use tonnage_record::figures::Better;

use crate::criteria::{Criteria, FALSE_DISCOVERY_RATE, PointVerdict};
use crate::welch::{LogSummary, Welch};

/// Upper limit of the prediction, because more runs are impractical.
const RUNS_MAX: usize = 1000;

/// Ratio of two sides, second / first, with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    sides: [LogSummary; 2],
    welch: Welch,
    interval: (f64, f64),
    /// Probability of a difference this large between equal sides. It is for this point alone, without a correction for
    /// the number of points.
    pub p: f64,
}

impl Estimate {
    /// Compares the values of two sides. Returns `None` if a side has fewer than two values, or a value that is not
    /// above 0.
    pub fn new(first: &[f64], second: &[f64], criteria: &Criteria) -> Option<Self> {
        Some(Self::from_summaries(
            [
                LogSummary::from_values(first)?,
                LogSummary::from_values(second)?,
            ],
            criteria,
        ))
    }

    fn from_summaries(sides: [LogSummary; 2], criteria: &Criteria) -> Self {
        let welch = Welch::new(&sides[0], &sides[1]);
        Self {
            sides,
            welch,
            interval: welch.interval(criteria.confidence),
            p: welch.p(),
        }
    }

    /// The ratio of the geometric means.
    pub fn ratio(&self) -> f64 {
        self.welch.difference.exp()
    }

    /// Returns whether the values on each side are all equal. The figure's resolution is then too coarse.
    pub fn is_without_spread(&self) -> bool {
        self.sides.iter().all(|side| side.variance == 0.0)
    }

    /// Ends of the confidence interval of the ratio.
    pub fn interval(&self) -> (f64, f64) {
        (self.interval.0.exp(), self.interval.1.exp())
    }

    /// Returns the verdict, given a p value that is already adjusted for the number of points.
    pub fn verdict(&self, p_adjusted: f64, better: Better, criteria: &Criteria) -> PointVerdict {
        let (least, most) = criteria.log_margins();
        let (low, high) = self.interval;
        if low >= least && high <= most {
            return PointVerdict::Same;
        }
        if p_adjusted > FALSE_DISCOVERY_RATE {
            return PointVerdict::Unclear;
        }
        match (low > most, high < least, better) {
            (true, _, Better::High) | (_, true, Better::Low) => PointVerdict::Better,
            (true, _, Better::Low) | (_, true, Better::High) => PointVerdict::Worse,
            (false, false, _) => PointVerdict::Unclear,
        }
    }

    /// Returns the number of additional runs per side for a clear verdict, if means and spreads stay the same. `None`
    /// if a thousand are not enough.
    pub fn more_runs(&self, p_adjusted: f64, criteria: &Criteria) -> Option<usize> {
        // Assume the same correction as now, because changes in the other points are unknown.
        let correction = if self.p > 0.0 {
            p_adjusted / self.p
        } else {
            1.0
        };
        let decided = |more: usize| {
            let sides = self.sides.map(|side| side.with_count(side.count + more));
            let then = Self::from_summaries(sides, criteria);
            let p = (then.p * correction).min(1.0);
            then.verdict(p, Better::High, criteria) != PointVerdict::Unclear
        };
        if !decided(RUNS_MAX) {
            return None;
        }
        // More runs only narrow the interval, so bisection finds the smallest sufficient number.
        let (mut too_few, mut enough) = (0, RUNS_MAX);
        while enough - too_few > 1 {
            let middle = too_few.midpoint(enough);
            if decided(middle) {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        Some(enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(first: &[f64], second: &[f64]) -> Estimate {
        Estimate::new(first, second, &Criteria::default()).unwrap()
    }

    #[test]
    fn verdicts_follow_interval_margin_and_direction() {
        let criteria = Criteria::default();
        let base = [99.0, 100.0, 101.0];
        let times = |factor: f64| base.map(|value| value * factor);
        for (factor, high, low) in [
            (1.5, PointVerdict::Better, PointVerdict::Worse),
            (0.5, PointVerdict::Worse, PointVerdict::Better),
            (1.0, PointVerdict::Same, PointVerdict::Same),
            (1.06, PointVerdict::Unclear, PointVerdict::Unclear),
            (1.05, PointVerdict::Unclear, PointVerdict::Unclear),
        ] {
            let found = of(&base, &times(factor));
            assert_eq!(found.verdict(found.p, Better::High, &criteria), high);
            assert_eq!(found.verdict(found.p, Better::Low, &criteria), low);
        }
        // The correction for many points can make the verdict unclear.
        let found = of(&base, &times(1.5));
        assert_eq!(
            found.verdict(0.06, Better::High, &criteria),
            PointVerdict::Unclear
        );
        let (low, high) = found.interval();
        assert!(low < found.ratio() && found.ratio() < high);
        assert!((found.ratio() - 1.5).abs() < 1e-12);
    }

    #[test]
    fn more_runs_are_the_fewest_that_would_decide() {
        let criteria = Criteria::default();
        let found = of(&[95.0, 100.0, 105.0], &[96.0, 101.0, 104.0]);
        assert_eq!(
            found.verdict(found.p, Better::High, &criteria),
            PointVerdict::Unclear
        );
        let more = found.more_runs(found.p, &criteria).unwrap();
        let verdict = |count| {
            let sides = found.sides.map(|side| side.with_count(count));
            let then = Estimate::from_summaries(sides, &criteria);
            then.verdict(then.p, Better::High, &criteria)
        };
        assert_eq!(verdict(3 + more), PointVerdict::Same);
        assert_eq!(verdict(3 + more - 1), PointVerdict::Unclear);
        // Both sides get the same number of additional runs, even if one side already has more.
        let many = [
            100.0, 93.0, 107.0, 95.0, 105.0, 99.0, 101.0, 94.0, 106.0, 97.0, 103.0,
        ];
        let found = of(&[93.0, 100.0, 107.0], &many);
        let more = found.more_runs(found.p, &criteria).unwrap();
        let verdict = |more| {
            let sides = found.sides.map(|side| side.with_count(side.count + more));
            let then = Estimate::from_summaries(sides, &criteria);
            then.verdict(then.p, Better::High, &criteria)
        };
        assert_eq!(verdict(more), PointVerdict::Same);
        assert_eq!(verdict(more - 1), PointVerdict::Unclear);
        // If the ratio is exactly at the margin, no number of runs decides.
        let at = of(&[95.0, 100.0, 105.0], &[99.75, 105.0, 110.25]);
        assert_eq!(at.more_runs(at.p, &criteria), None);
    }
}
