//! Sums of the workers of a trial: merged within a rank, then over the ranks on the way up the control tree, so that a
//! trial of 44,000 ranks costs one small message each.

use serde::{Deserialize, Serialize};

use super::background_totals::{BackgroundTotals, longer};
use super::direction_totals::DirectionTotals;
use super::rails::{LeastRail, RailTotals, merge as merge_rails};
use tonnage_record::transfer::{Stall, Trial};
use tonnage_units::Reduce;

/// Sums, minima and maxima of one trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialTotals {
    /// Aligned start to the last completion or arrival; the longest. What targets flush comes behind it, until
    /// [`Self::flushed`] has added it.
    pub window_ns: u64,
    /// Aligned start to the last completion of an initiator's own operations, whatever else arrives after it; the
    /// longest.
    pub own_ns: u64,
    /// Time in which targets of plain writes flushed what had come; the longest.
    pub flush_ns: u64,
    /// Aligned start to the first operation; the longest.
    pub start_skew_ns: u64,
    /// Completed operations.
    pub operations: u64,
    /// Their payload.
    pub payload_bytes: u64,
    /// CPU time of initiating workers.
    pub initiator_cpu_ns: u64,
    /// CPU time of the other workers.
    pub target_cpu_ns: u64,
    /// Latency samples.
    pub samples: u64,
    /// Those of operations that never ended, which are lower bounds.
    pub unfinished: u64,
    /// Sum of the samples.
    pub latency_ns_sum: u64,
    /// Smallest sample; `u64::MAX` without any.
    pub latency_ns_min: u64,
    /// Largest sample.
    pub latency_ns_max: u64,
    /// Paced: operations that were due.
    pub due: u64,
    /// Paced: operations that were issued late or never.
    pub late: u64,
    /// Paced: the longest stall of a worker.
    pub stall: Option<Stall>,
    /// Batches: operations that the engine took, neighbours merged.
    pub handed_over: u64,
    /// Bytes that moved, were checked and found right.
    pub verified_bytes: u64,
    /// Compare-swaps that found what they expected, of a trial that was verified.
    pub swapped: u64,
    /// Time since the point began, checks and pauses included; the longest.
    pub elapsed_ns: u64,
    /// The most operations that a worker had in flight.
    pub in_flight_max: u64,
    /// Workers whose engine is still trying out how to carry operations out.
    pub unsettled: u64,
    /// The part that the targets of pairs initiated, where bytes move both ways.
    pub back: DirectionTotals,
    /// Background, which no other sum has any part of.
    pub background: BackgroundTotals,
    /// Rails, where workers have several.
    pub rails: Vec<RailTotals>,
    /// The rail with the least share of its worker's rate.
    pub least_rail: Option<LeastRail>,
}

impl TrialTotals {
    /// The sum of nothing.
    pub const NONE: Self = Self {
        window_ns: 0,
        own_ns: 0,
        flush_ns: 0,
        start_skew_ns: 0,
        operations: 0,
        payload_bytes: 0,
        initiator_cpu_ns: 0,
        target_cpu_ns: 0,
        samples: 0,
        unfinished: 0,
        latency_ns_sum: 0,
        latency_ns_min: u64::MAX,
        latency_ns_max: 0,
        due: 0,
        late: 0,
        stall: None,
        handed_over: 0,
        verified_bytes: 0,
        swapped: 0,
        elapsed_ns: 0,
        in_flight_max: 0,
        unsettled: 0,
        back: DirectionTotals {
            operations: 0,
            payload_bytes: 0,
            samples: 0,
            unfinished: 0,
            latency_ns_sum: 0,
        },
        background: BackgroundTotals::NONE,
        rails: Vec::new(),
        least_rail: None,
    };

    /// The trial as the record shows it.
    pub fn trial(&self, verified: bool) -> Trial {
        let seconds = self.window_ns.max(1) as f64 / 1e9;
        let sampled = self.samples > 0;
        Trial {
            window_ns: self.window_ns,
            target_flush_ns: (self.flush_ns > 0).then_some(self.flush_ns),
            operations: self.operations,
            payload_bytes: self.payload_bytes,
            bandwidth_bytes_per_s: self.payload_bytes as f64 / seconds,
            message_rate_per_s: self.operations as f64 / seconds,
            latency_ns_mean: sampled.then(|| self.latency_ns_sum as f64 / self.samples as f64),
            latency_ns_min: sampled.then_some(self.latency_ns_min),
            latency_ns_max: sampled.then_some(self.latency_ns_max),
            unfinished: self.unfinished,
            initiator_cpu_ns: self.initiator_cpu_ns,
            target_cpu_ns: self.target_cpu_ns,
            start_skew_ns: self.start_skew_ns,
            in_flight_max: Some(self.in_flight_max),
            verified_bytes: verified.then_some(self.verified_bytes),
            stall: self.stall,
            directions: None,
            series: None,
            background: None,
        }
    }
}

impl TrialTotals {
    /// Totals of a worker that moves the background: they are no part of what is measured.
    pub fn beside(self) -> Self {
        Self {
            background: BackgroundTotals {
                window_ns: self.window_ns,
                operations: self.operations,
                payload_bytes: self.payload_bytes,
                verified_bytes: self.verified_bytes,
                stall: self.stall,
            },
            elapsed_ns: self.elapsed_ns,
            unsettled: self.unsettled,
            ..Self::NONE
        }
    }

    /// Adds what targets flushed to the window of a round of which all ranks' parts are added up: initiators have
    /// closed it when their writes were done for them, and the bytes count when they can be seen.
    pub fn flushed(mut self) -> Self {
        self.window_ns = self.window_ns.saturating_add(self.flush_ns);
        self
    }

    /// Adds a later round of the same trial: the time of both counts.
    pub fn then(&mut self, later: Self) {
        let (window_ns, flush_ns) = (
            self.window_ns + later.window_ns,
            self.flush_ns + later.flush_ns,
        );
        let own_ns = self.own_ns + later.own_ns;
        let unsettled = self.unsettled.max(later.unsettled);
        let rates = mean_rates(&self.rails, &later.rails);
        self.merge(later);
        (self.window_ns, self.flush_ns, self.own_ns) = (window_ns, flush_ns, own_ns);
        self.unsettled = unsettled;
        for (rail, rate) in self.rails.iter_mut().zip(rates) {
            rail.busy_bytes_per_s = rate;
        }
    }
}

/// Rates of rails over two rounds, each weighed by how long the rail was busy.
fn mean_rates(one: &[RailTotals], other: &[RailTotals]) -> Vec<u64> {
    let weighed = |rail: &RailTotals| rail.busy_bytes_per_s as f64 * rail.busy_ns as f64;
    let mean = |(one, other): (&RailTotals, &RailTotals)| {
        let busy_ns = one.busy_ns.saturating_add(other.busy_ns).max(1);
        ((weighed(one) + weighed(other)) / busy_ns as f64) as u64
    };
    one.iter().zip(other).map(mean).collect()
}

/// Adds another worker's or rank's.
impl Reduce for TrialTotals {
    fn merge(&mut self, other: Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        self.own_ns = self.own_ns.max(other.own_ns);
        self.flush_ns = self.flush_ns.max(other.flush_ns);
        self.start_skew_ns = self.start_skew_ns.max(other.start_skew_ns);
        self.operations += other.operations;
        self.payload_bytes += other.payload_bytes;
        self.initiator_cpu_ns += other.initiator_cpu_ns;
        self.target_cpu_ns += other.target_cpu_ns;
        self.samples += other.samples;
        self.unfinished += other.unfinished;
        self.latency_ns_sum = self.latency_ns_sum.saturating_add(other.latency_ns_sum);
        self.latency_ns_min = self.latency_ns_min.min(other.latency_ns_min);
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
        self.due += other.due;
        self.late += other.late;
        self.stall = longer(self.stall, other.stall);
        self.handed_over += other.handed_over;
        self.verified_bytes += other.verified_bytes;
        self.swapped += other.swapped;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
        self.unsettled += other.unsettled;
        self.back.merge(other.back);
        self.background.merge(other.background);
        merge_rails(&mut self.rails, other.rails);
        let leasts = self.least_rail.into_iter().chain(other.least_rail);
        self.least_rail = leasts.min_by_key(|rail| (rail.share_permille, rail.rank, rail.worker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(length_ns: u64) -> Stall {
        Stall {
            length_ns,
            begin_ns: 3,
            loop_ns: 2,
            rank: 0,
            peer: 1,
        }
    }

    fn totals(n: u64) -> TrialTotals {
        TrialTotals {
            window_ns: 1000 * n,
            own_ns: 900 * n,
            flush_ns: 7 * n,
            start_skew_ns: 10 * n,
            operations: n,
            payload_bytes: 8 * n,
            initiator_cpu_ns: 20 * n,
            target_cpu_ns: 30 * n,
            samples: 1,
            unfinished: n,
            latency_ns_sum: n,
            latency_ns_min: n,
            latency_ns_max: n,
            due: 40 * n,
            late: 50 * n,
            stall: Some(stall(n)),
            handed_over: 55 * n,
            verified_bytes: 60 * n,
            swapped: 65 * n,
            elapsed_ns: 70 * n,
            in_flight_max: n,
            unsettled: n,
            back: DirectionTotals {
                operations: n,
                payload_bytes: 8 * n,
                samples: n,
                unfinished: n,
                latency_ns_sum: 2 * n,
            },
            background: BackgroundTotals {
                window_ns: 0,
                operations: n,
                payload_bytes: 8 * n,
                verified_bytes: n,
                stall: Some(stall(2 * n)),
            },
            rails: vec![RailTotals {
                bytes: n,
                busy_bytes_per_s: 2 * n,
                busy_ns: 3 * n,
                window_ns: 4 * n,
            }],
            least_rail: None,
        }
    }

    #[test]
    fn rounds_of_a_trial_follow_each_other() {
        let mut trial = totals(1);
        trial.then(totals(3));
        assert_eq!(
            (trial.window_ns, trial.operations, trial.unsettled),
            (4000, 4, 3)
        );
        assert_eq!((trial.flush_ns, trial.own_ns), (28, 3600));
        assert_eq!(
            (trial.start_skew_ns, trial.elapsed_ns, trial.samples),
            (30, 210, 2)
        );
        let [rail] = trial.rails[..] else {
            panic!("{trial:?}")
        };
        // Rates 2 and 6, busy for 3 and 9 ns.
        assert_eq!(
            (rail.bytes, rail.busy_ns, rail.busy_bytes_per_s),
            (4, 12, 5)
        );
    }

    #[test]
    fn trials_of_ranks_add_up() {
        let mut merged = totals(3);
        merged.merge(totals(5));
        let expected = TrialTotals {
            // The longest and the most; all else adds up.
            stall: Some(stall(5)),
            background: BackgroundTotals {
                stall: Some(stall(10)),
                ..totals(8).background
            },
            window_ns: 5000,
            own_ns: 4500,
            flush_ns: 35,
            start_skew_ns: 50,
            elapsed_ns: 350,
            in_flight_max: 5,
            samples: 2,
            latency_ns_min: 3,
            latency_ns_max: 5,
            ..totals(8)
        };
        assert_eq!(merged, expected);
        let mut alone = TrialTotals::NONE;
        alone.merge(totals(3));
        assert_eq!(alone, totals(3));
        let trial = merged.trial(false);
        assert_eq!(trial.in_flight_max, Some(5));
        assert_eq!(trial.bandwidth_bytes_per_s, 64.0 / 5e-6);
        assert_eq!(trial.message_rate_per_s, 8.0 / 5e-6);
        assert_eq!(trial.latency_ns_mean, Some(4.0));
        assert_eq!(trial.verified_bytes, None);
        assert_eq!(merged.trial(true).verified_bytes, Some(480));
        let silent = TrialTotals::NONE.trial(false);
        assert_eq!(silent.bandwidth_bytes_per_s, 0.0);
        assert_eq!(
            (
                silent.latency_ns_mean,
                silent.latency_ns_min,
                silent.latency_ns_max
            ),
            (None, None, None)
        );
    }

    /// The longest of the targets behind the longest window, once: initiators have no flush, and targets no window.
    #[test]
    fn a_flush_of_targets_comes_behind_the_window() {
        let initiator = TrialTotals {
            window_ns: 1000,
            payload_bytes: 64,
            ..TrialTotals::NONE
        };
        let target = |flush_ns| TrialTotals {
            flush_ns,
            ..TrialTotals::NONE
        };
        let mut round = initiator;
        round.merge(target(500));
        round.merge(target(600));
        assert_eq!((round.window_ns, round.flush_ns), (1000, 600));
        let trial = round.flushed().trial(false);
        assert_eq!((trial.window_ns, trial.target_flush_ns), (1600, Some(600)));
        assert_eq!(trial.bandwidth_bytes_per_s, 64.0 / 1.6e-6);
        let without = TrialTotals::NONE.flushed().trial(false);
        assert_eq!((without.window_ns, without.target_flush_ns), (0, None));
    }

    #[test]
    fn a_background_is_added_up_apart() {
        let own = TrialTotals {
            window_ns: 100,
            operations: 5,
            payload_bytes: 40,
            elapsed_ns: 900,
            ..TrialTotals::NONE
        };
        let mut sum = own.clone();
        let load = TrialTotals {
            window_ns: 300,
            operations: 2,
            payload_bytes: 2000,
            verified_bytes: 2000,
            start_skew_ns: 7,
            initiator_cpu_ns: 9,
            stall: Some(stall(1)),
            samples: 3,
            ..own.clone()
        };
        sum.merge(load.clone().beside());
        sum.merge(load.beside());
        let background = BackgroundTotals {
            window_ns: 300,
            operations: 4,
            payload_bytes: 4000,
            verified_bytes: 4000,
            stall: Some(stall(1)),
        };
        assert_eq!(sum, TrialTotals { background, ..own });
    }
}
