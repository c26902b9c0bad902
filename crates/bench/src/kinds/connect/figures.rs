//! Times of steps, and totals of trials with their summary for a record.

use serde::{Deserialize, Serialize};

use super::connections::ConnectionCounts;

use tonnage_record::connect::{ConnectSummary, ConnectTrial, Step, StepRecord};
use tonnage_record::spread::spread;
use tonnage_record::{HistogramData, Latency, LatencyKind};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Reduce, Result};

/// Times of the steps over all set-ups of one worker, and in the current round.
#[derive(Debug)]
pub struct StepTimes {
    /// Histograms in the order of [`Step::ALL`].
    steps: Vec<LatencyHistogram>,
    round_ns: [u64; Step::ALL.len()],
}

impl Default for StepTimes {
    fn default() -> Self {
        Self {
            steps: Step::ALL.iter().map(|_| LatencyHistogram::new()).collect(),
            round_ns: [0; Step::ALL.len()],
        }
    }
}

impl StepTimes {
    /// Adds time to a step of the current round. A step may have several parts.
    pub fn add(&mut self, step: Step, ns: u64) {
        self.round_ns[step as usize] += ns;
    }

    /// Records the total time of a set-up that is complete.
    pub fn add_total(&mut self, ns: u64) {
        self.round_ns[Step::Total as usize] = ns;
    }

    /// Ends a round after all connections were closed. A round without a complete set-up does not count.
    pub fn end_round(&mut self, close_ns: u64) {
        self.round_ns[Step::Close as usize] = close_ns;
        let round = std::mem::take(&mut self.round_ns);
        if round[Step::Total as usize] == 0 {
            return;
        }
        for (took_ns, histogram) in round.into_iter().zip(&mut self.steps) {
            histogram.record(took_ns);
        }
    }

    /// Adds the times of another worker.
    pub fn merge(&mut self, other: &Self) {
        for (mine, other) in self.steps.iter_mut().zip(&other.steps) {
            mine.merge(other);
        }
    }

    /// Discards all times, such as those of the warm-up.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the histogram of each step.
    pub fn steps(&self) -> impl Iterator<Item = (Step, &LatencyHistogram)> {
        Step::ALL.into_iter().zip(&self.steps)
    }
}

/// Returns the figures of a step; `None` if the step was never taken.
pub fn step_record(step: Step, histogram: &LatencyHistogram) -> Option<StepRecord> {
    Some(StepRecord {
        step,
        latency: Latency::summarize(histogram, LatencyKind::Step)?,
        histogram: HistogramData::from_histogram(histogram),
    })
}

/// Totals of one trial over all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialTotals {
    /// Time from the aligned start until all connections were closed.
    pub window_ns: u64,
    /// Numbers of connections that initiators and targets counted.
    pub counted: ConnectionCounts,
    /// CPU time of the ranks inside the measured interval.
    pub cpu_ns: u64,
    /// Largest delay of a rank's start after the aligned start.
    pub start_skew_ns: u64,
}

impl Reduce for TrialTotals {
    fn merge(&mut self, other: Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        self.counted.add(other.counted);
        self.cpu_ns += other.cpu_ns;
        self.start_skew_ns = self.start_skew_ns.max(other.start_skew_ns);
    }
}

impl TrialTotals {
    /// Appends later rounds of the same trial.
    pub fn append_round(&mut self, next: &Self) {
        let window_ns = self.window_ns + next.window_ns;
        self.merge(*next);
        self.window_ns = window_ns;
    }

    /// Checks that both ends counted every connection. Targets count only if the engine moves bytes.
    pub fn check(&self, expected: u64, moves_bytes: bool) -> Result<()> {
        let ConnectionCounts { begun, accepted } = self.counted;
        if begun == expected && (accepted == expected || !moves_bytes) {
            return Ok(());
        }
        Err(Error::Failed(format!(
            "of {expected} connections, initiators counted {begun} and targets {accepted}: try another --engine"
        )))
    }

    /// Returns the trial's entry in the record.
    pub fn trial(&self) -> ConnectTrial {
        ConnectTrial {
            window_ns: self.window_ns,
            connections: self.counted.begun,
            connections_per_s: self.counted.begun as f64 * 1e9 / self.window_ns.max(1) as f64,
            cpu_ns: self.cpu_ns,
            start_skew_ns: self.start_skew_ns,
        }
    }
}

/// Combines all trials into the summary.
pub fn summarize(trials: &[ConnectTrial]) -> ConnectSummary {
    let rates: Vec<f64> = trials.iter().map(|trial| trial.connections_per_s).collect();
    let connections = trials.iter().map(|trial| trial.connections).sum();
    let cpu_ns: u64 = trials.iter().map(|trial| trial.cpu_ns).sum();
    ConnectSummary {
        trials: trials.len() as u32,
        connections,
        connections_per_s: spread(&rates),
        cpu_ns_per_connection: cpu_ns as f64 / connections.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_only_if_its_set_up_was_complete() {
        let mut times = StepTimes::default();
        times.add(Step::Open, 10);
        times.end_round(5);
        assert!(times.steps().all(|(_, histogram)| histogram.count() == 0));
        for part in [3, 4] {
            times.add(Step::Connect, part);
        }
        times.add(Step::Open, 10);
        times.add_total(20);
        times.end_round(5);
        let record = |step: Step| step_record(step, &times.steps[step as usize]);
        assert_eq!(record(Step::Connect).unwrap().latency.latency_ns_max, 7);
        assert_eq!(record(Step::Total).unwrap().latency.latency_ns_max, 20);
        assert_eq!(record(Step::Close).unwrap().latency.latency_ns_max, 5);
        assert_eq!(record(Step::Register).unwrap().latency.latency_ns_max, 0);
    }

    #[test]
    fn times_of_workers_add_up_and_the_warm_up_is_discarded() {
        let round = |ns| {
            let mut times = StepTimes::default();
            times.add(Step::Open, ns);
            times.add_total(ns + 1);
            times.end_round(ns + 2);
            times
        };
        let mut all = round(10);
        all.merge(&round(30));
        let seen = |times: &StepTimes, step: Step| {
            let histogram = &times.steps[step as usize];
            (histogram.count(), histogram.min_ns(), histogram.max_ns())
        };
        assert_eq!(seen(&all, Step::Open), (2, Some(10), Some(30)));
        assert_eq!(seen(&all, Step::Total), (2, Some(11), Some(31)));
        assert_eq!(seen(&all, Step::Close), (2, Some(12), Some(32)));
        let order: Vec<Step> = all.steps().map(|(step, _)| step).collect();
        assert_eq!(order, Step::ALL);
        all.clear();
        assert_eq!(seen(&all, Step::Open), (0, None, None));
        assert!(step_record(Step::Open, &LatencyHistogram::new()).is_none());
    }

    #[test]
    fn ranks_of_a_trial_run_at_once_and_its_rounds_one_after_the_other() {
        let rank = |window_ns, begun, accepted| TrialTotals {
            window_ns,
            counted: ConnectionCounts { begun, accepted },
            cpu_ns: 1_000,
            start_skew_ns: window_ns,
        };
        let mut followed = rank(10, 1, 2);
        followed.append_round(&rank(7, 10, 20));
        let both = TrialTotals {
            cpu_ns: 2_000,
            start_skew_ns: 10,
            ..rank(17, 11, 22)
        };
        assert_eq!(followed, both);
        let mut all = rank(1_000_000_000, 6, 0);
        all.merge(rank(2_000_000_000, 0, 6));
        assert_eq!((all.counted.begun, all.counted.accepted), (6, 6));
        assert!(all.check(6, true).is_ok() && all.check(7, true).is_err());
        let short = rank(1, 6, 5);
        let message = short.check(6, true).unwrap_err().to_string();
        assert!(message.contains("counted 6 and targets 5"), "{message}");
        assert!(short.check(6, false).is_ok() && short.check(5, false).is_err());
        let trial = all.trial();
        assert_eq!(trial.connections_per_s, 3.0);
        let summary = summarize(&[trial.clone(), trial]);
        assert_eq!((summary.trials, summary.connections), (2, 12));
        assert_eq!(summary.connections_per_s.mean, 3.0);
        assert_eq!(summary.cpu_ns_per_connection, 4_000.0 / 12.0);
        assert_eq!(summarize(&[]).cpu_ns_per_connection, 0.0);
    }
}
