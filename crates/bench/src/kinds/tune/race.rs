//! A race of values: rounds of trials in turn, in which the ones that are surely worse are dropped. Pure, so that all
//! ranks that see the same figures decide alike.

use tonnage_record::spread::spread;
use tonnage_record::tune::TuneOutcome;

/// Below this many trials an interval says more about Student's t than about the machine.
const ROUNDS_MIN: usize = 3;

/// Part of the best figure that a value may be behind and still be as good: whoever runs a transfer does not double its
/// window for less.
const AS_GOOD: f64 = 0.03;

/// One value that competes.
#[derive(Debug, Clone, Default)]
pub struct Runner {
    /// Its figures so far.
    pub figures: Vec<f64>,
    /// Its end, if it is no longer in the race.
    pub out: Option<TuneOutcome>,
    /// Reason of a refusal.
    pub why: Option<String>,
}

impl Runner {
    /// Mean and half width of its interval, once there are enough figures.
    fn interval(&self) -> Option<(f64, f64)> {
        let spread = spread(&self.figures);
        let known = spread.ci95.filter(|_| self.figures.len() >= ROUNDS_MIN);
        known.map(|half| (spread.mean, half))
    }

    fn refused(&self) -> bool {
        self.out == Some(TuneOutcome::Refused)
    }
}

/// The values of one option, the cheapest first.
#[derive(Debug)]
pub struct Race {
    /// The values.
    pub runners: Vec<Runner>,
    less_is_better: bool,
}

impl Race {
    /// A race of so many values.
    pub fn new(runners: usize, less_is_better: bool) -> Self {
        Self {
            runners: vec![Runner::default(); runners],
            less_is_better,
        }
    }

    /// Takes a value out that cannot be measured.
    pub fn refuse(&mut self, at: usize, why: String) {
        if let Some(runner) = self.runners.get_mut(at) {
            (runner.out, runner.why) = (Some(TuneOutcome::Refused), Some(why));
        }
    }

    /// Values that are still in the race, the cheapest first.
    pub fn left(&self) -> Vec<usize> {
        let all = self.runners.iter().enumerate();
        all.filter(|(_, it)| it.out.is_none())
            .map(|(at, _)| at)
            .collect()
    }

    /// Mean of a value where more is better.
    fn merit(&self, mean: f64) -> f64 {
        if self.less_is_better { -mean } else { mean }
    }

    /// Mean and half width of the best value that is left.
    fn best(&self) -> Option<(f64, f64)> {
        let left = self.runners.iter().filter(|it| it.out.is_none());
        let known = left.filter_map(Runner::interval);
        known.max_by(|one, other| self.merit(one.0).total_cmp(&self.merit(other.0)))
    }

    /// Drops every value whose interval lies wholly on the worse side of the best one's, if it is not as good all the
    /// same.
    pub fn drop_worse(&mut self) {
        let Some((best, best_half)) = self.best() else {
            return;
        };
        let floor = self.merit(best) - best_half;
        let is_worse = |(mean, half): (f64, f64)| {
            let surely = self.merit(mean) + half < floor;
            surely && (best - mean).abs() > AS_GOOD * best.abs()
        };
        let left = self.left();
        let known = left
            .iter()
            .filter_map(|&at| Some((at, self.runners[at].interval()?)));
        let worse = known.filter(|&(_, interval)| is_worse(interval));
        let worse: Vec<usize> = worse.map(|(at, _)| at).collect();
        for at in worse {
            self.runners[at].out = Some(TuneOutcome::Dropped);
        }
    }

    /// Returns whether more rounds would tell nothing: one value is left, or all that are left are surely as good as
    /// the best.
    pub fn is_settled(&self) -> bool {
        let left = self.left();
        let Some((best, _)) = self.best() else {
            return left.len() <= 1;
        };
        let as_good = |at: &usize| {
            let known = self.runners[*at].interval();
            known.is_some_and(|(mean, half)| (best - mean).abs() + half <= AS_GOOD * best.abs())
        };
        left.len() <= 1 || left.iter().all(as_good)
    }

    /// Ends the race: the cheapest of those that are left wins. `None` where all were refused.
    pub fn end(&mut self) -> Option<usize> {
        let left = self.left();
        for &at in &left {
            self.runners[at].out = Some(TuneOutcome::Tied);
        }
        let winner = *left.first()?;
        self.runners[winner].out = Some(TuneOutcome::Won);
        Some(winner)
    }

    /// Returns whether every value was refused.
    pub fn all_refused(&self) -> bool {
        self.runners.iter().all(Runner::refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn raced(figures: &[&[f64]], less_is_better: bool) -> Race {
        let mut race = Race::new(figures.len(), less_is_better);
        for (runner, figures) in race.runners.iter_mut().zip(figures) {
            runner.figures = figures.to_vec();
        }
        race.drop_worse();
        race
    }

    #[test]
    fn the_surely_worse_are_dropped_and_ties_go_to_the_cheapest() {
        let figures: [&[f64]; 3] = [&[1.0, 1.1, 0.9], &[9.0, 10.0, 11.0], &[9.1, 10.1, 11.1]];
        let mut race = raced(&figures, false);
        assert_eq!(race.left(), [1, 2]);
        assert_eq!(race.end(), Some(1));
        assert_eq!(race.runners[0].out, Some(TuneOutcome::Dropped));
        assert_eq!(race.runners[2].out, Some(TuneOutcome::Tied));
        assert_eq!(raced(&figures, true).left(), [0]);
    }

    /// A value that is surely worse, but by little, is as good; and then no more rounds are needed.
    #[test]
    fn little_differences_end_the_race_for_the_cheapest() {
        let figures: [&[f64]; 3] = [
            &[98.0, 98.0, 98.01],
            &[100.0, 100.0, 100.01],
            &[90.0, 90.0, 90.01],
        ];
        let mut race = raced(&figures, false);
        assert_eq!((race.left(), race.is_settled()), (vec![0, 1], true));
        assert_eq!(race.end(), Some(0));
        let wide: [&[f64]; 2] = [&[98.0, 90.0, 106.0], &[100.0, 95.0, 105.0]];
        assert!(!raced(&wide, false).is_settled());
        assert!(raced(&wide[..1], false).is_settled());
    }

    proptest! {
        /// Noise never drops the one with the best mean, and whoever wins is in the race until the end.
        #[test]
        fn the_best_so_far_stays(
            figures in vec(vec(1.0f64..1000.0, 3..9), 1..8),
            less_is_better in any::<bool>(),
        ) {
            let all: Vec<&[f64]> = figures.iter().map(Vec::as_slice).collect();
            let mut race = raced(&all, less_is_better);
            let merit = |figures: &Vec<f64>| {
                let mean = figures.iter().sum::<f64>() / figures.len() as f64;
                if less_is_better { -mean } else { mean }
            };
            let best = (0..all.len()).max_by(|&one, &other| {
                merit(&figures[one]).total_cmp(&merit(&figures[other]))
            });
            prop_assert!(race.left().contains(&best.unwrap()));
            let first = race.left()[0];
            prop_assert_eq!(race.end(), Some(first));
        }
    }

    #[test]
    fn two_trials_tell_nothing_apart() {
        assert_eq!(raced(&[&[1.0, 1.0], &[9.0, 9.0]], false).left(), [0, 1]);
    }

    #[test]
    fn who_was_refused_does_not_win() {
        let mut race = Race::new(2, false);
        race.refuse(0, "no".to_owned());
        assert!(!race.all_refused());
        assert_eq!(race.end(), Some(1));
        let mut none = Race::new(1, false);
        none.refuse(0, "no".to_owned());
        assert!(none.all_refused());
        assert_eq!(none.end(), None);
    }
}
