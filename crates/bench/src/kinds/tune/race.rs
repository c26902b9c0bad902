//! A race compares values. It consists of rounds, in which each value has a trial, and eliminates values that can no
//! longer win. This module has no side effects, so that all ranks that see the same figures decide the same.
//!
//! Two values are compared by the logarithm of their ratio in each round in which both ran, because disturbances of the
//! machine affect both. A more expensive value must be better by a minimum, its price. Its comparison with a cheaper
//! value is decided when the interval of their ratio is entirely above or below this price. No elimination is final: if
//! the value that eliminated another one is eliminated itself, the other one returns.

use tonnage_plan::tune::point::TRIALS_PER_VALUE;
use tonnage_record::spread::{Trimmed, student_t_quantile, trimmed_mean};
use tonnage_record::tune::{TuneGain, TuneOutcome};

/// A more expensive value must be better by this fraction. For a smaller gain, users would not double the depth.
const WORTH: f64 = 0.03;

/// Rounds after which the race checks for decisions. There are only a few, because in each check noise may decide by
/// chance.
const CHECK_ROUNDS: [usize; 6] = [3, 5, 8, 12, 16, ROUNDS_MAX];
const ROUNDS_MAX: usize = 24;

/// Probability that noise decides wrongly between two values, over all checks including the last one.
const WRONG: f64 = 0.05;

/// Probability that the true value is beyond one end of a reported interval.
const BEYOND_TOLD: f64 = 0.025;

/// One competing value.
#[derive(Debug, Clone, Default)]
struct RaceCandidate {
    /// Logarithm of the value's figure in each round, negated if less is better. `None` for a round in which it did not
    /// run.
    merits: Vec<Option<f64>>,
    /// True if the value cannot be measured.
    is_refused: bool,
}

/// The values of one option, cheapest first.
#[derive(Debug)]
pub struct CandidateRace {
    runners: Vec<RaceCandidate>,
    less_is_better: bool,
    rounds: usize,
    trials: usize,
    /// Indices of the values that are not eliminated.
    open: Vec<usize>,
    /// Half width of the interval in a check, in standard errors. The index is the degrees of freedom.
    reach: Vec<f64>,
}

impl CandidateRace {
    /// Creates a race between `values` values.
    pub fn new(values: usize, less_is_better: bool) -> Self {
        let wrong = WRONG / (CHECK_ROUNDS.len() + 1) as f64;
        let freedoms = 0..ROUNDS_MAX as u32;
        Self {
            runners: vec![RaceCandidate::default(); values],
            less_is_better,
            rounds: 0,
            trials: 0,
            open: (0..values).collect(),
            reach: freedoms
                .map(|of| student_t_quantile(1.0 - wrong, of))
                .collect(),
        }
    }

    /// Begins a round, and returns its values in order. The order is reversed in every other round, so that no value
    /// always runs first. `None` if the race is decided, or if the trials are used up.
    pub fn round(&mut self) -> Option<Vec<usize>> {
        let runners = self.runners.iter().filter(|it| !it.is_refused).count();
        let most = runners * TRIALS_PER_VALUE as usize;
        let is_spent = self.rounds == ROUNDS_MAX || self.trials + self.open.len() > most;
        if is_spent || CHECK_ROUNDS.contains(&self.rounds) {
            self.eliminate();
        }
        if is_spent || self.open.len() < 2 {
            return None;
        }
        let is_back = self.rounds % 2 == 1;
        self.rounds += 1;
        for runner in &mut self.runners {
            runner.merits.push(None);
        }
        let mut order = self.open.clone();
        if is_back {
            order.reverse();
        }
        Some(order)
    }

    /// Returns the number of the current round, from 1.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Records the figure of a value in this round. It must be positive.
    pub fn record(&mut self, at: usize, figure: f64) {
        let merit = if self.less_is_better {
            -figure.ln()
        } else {
            figure.ln()
        };
        if let Some(last) = self.runners[at].merits.last_mut() {
            *last = Some(merit);
            self.trials += 1;
        }
    }

    /// Excludes a value that cannot be measured.
    pub fn refuse(&mut self, at: usize) {
        self.runners[at].is_refused = true;
        self.eliminate();
    }

    /// Returns the winner among the remaining values. It is the cheapest one with a mean as good as the best one's.
    /// `None` if all values were refused.
    pub fn winner(&self) -> Option<usize> {
        let best = self.best()?;
        let is_as_good = |at: usize| {
            let lost = self.ratio(best, at);
            at == best || lost.is_some_and(|lost| lost.mean <= WORTH.ln_1p())
        };
        self.open.iter().copied().find(|&at| is_as_good(at))
    }

    /// Returns the remaining value with the best mean.
    fn best(&self) -> Option<usize> {
        let better = |one, other| {
            let ratio = self.ratio(other, one);
            if ratio.is_some_and(|ratio| ratio.mean > 0.0) {
                other
            } else {
                one
            }
        };
        self.open.iter().copied().reduce(better)
    }

    /// Returns the number of trials of a value.
    pub fn trials(&self, at: usize) -> u32 {
        self.runners[at].merits.iter().flatten().count() as u32
    }

    /// Returns the mean figure of a value; `None` without trials.
    pub fn figure(&self, at: usize) -> Option<f64> {
        let merits: Vec<f64> = self.runners[at].merits.iter().copied().flatten().collect();
        let mean = trimmed_mean(&merits)?.mean;
        Some(if self.less_is_better { -mean } else { mean }.exp())
    }

    /// Returns the fraction by which a value is better than the winner.
    pub fn gain(&self, at: usize, winner: usize) -> Option<TuneGain> {
        let ratio = self
            .ratio(at, winner)
            .filter(|ratio| ratio.error.is_finite())?;
        let half = student_t_quantile(1.0 - BEYOND_TOLD, ratio.freedom) * ratio.error;
        Some(TuneGain {
            mean: ratio.mean.exp_m1(),
            low: (ratio.mean - half).exp_m1(),
            high: (ratio.mean + half).exp_m1(),
        })
    }

    /// Returns the outcome of the value at index `at`. `winner` is `None` if the race did not finish.
    pub fn outcome(&self, at: usize, winner: Option<usize>) -> TuneOutcome {
        let Some(winner) = winner.filter(|_| !self.runners[at].is_refused) else {
            let is_refused = self.runners[at].is_refused;
            return if is_refused {
                TuneOutcome::Refused
            } else {
                TuneOutcome::Unfinished
            };
        };
        match self.gain(at, winner) {
            _ if at == winner => TuneOutcome::Won,
            Some(gain) if gain.high < 0.0 => TuneOutcome::Worse,
            Some(gain) if at > winner && gain.high <= WORTH => TuneOutcome::AsGood,
            _ if self.open.contains(&at) => TuneOutcome::Tied,
            _ => TuneOutcome::LeftOut,
        }
    }

    /// Determines the remaining values. It begins with the cheapest, because an eliminated value cannot eliminate
    /// others as too expensive. A value that is certainly worth its price eliminates cheaper ones, even if it is
    /// eliminated itself.
    fn eliminate(&mut self) {
        let runners = 0..self.runners.len();
        let all: Vec<usize> = runners.filter(|&at| !self.runners[at].is_refused).collect();
        self.open.clear();
        for &at in &all {
            let mut dearer = all.iter().filter(|&&other| other > at);
            let is_passed = dearer.any(|&dearer| self.is_worth_its_cost(dearer, at) == Some(true));
            let mut cheaper = self.open.iter();
            let is_idle =
                cheaper.any(|&cheaper| self.is_worth_its_cost(at, cheaper) == Some(false));
            if !is_passed && !is_idle {
                self.open.push(at);
            }
        }
    }

    /// Returns whether an expensive value is worth its price, compared with a cheaper one. `None` if this is not
    /// decided yet.
    fn is_worth_its_cost(&self, dearer: usize, cheaper: usize) -> Option<bool> {
        let ratio = self.ratio(dearer, cheaper)?;
        let reach = self.reach.get(ratio.freedom as usize)?;
        let (half, worth) = (reach * ratio.error, WORTH.ln_1p());
        match () {
            () if ratio.mean - half > worth => Some(true),
            () if ratio.mean + half < worth => Some(false),
            () => None,
        }
    }

    /// Returns the logarithm of the ratio of two values, over the rounds in which both ran.
    fn ratio(&self, one: usize, other: usize) -> Option<Trimmed> {
        let (one, other) = (&self.runners[one].merits, &self.runners[other].merits);
        let both = one.iter().zip(other);
        let ratios: Vec<f64> = both
            .filter_map(|(one, other)| Some((*one)? - (*other)?))
            .collect();
        trimmed_mean(&ratios)
    }
}

#[cfg(test)]
mod tests;
