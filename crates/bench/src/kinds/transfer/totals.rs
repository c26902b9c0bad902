//! Sums of a trial. They are merged within a rank, and then over the ranks by the control tree on the way to its root.
//! So a trial of 44,000 ranks costs one small message per rank.

use serde::{Deserialize, Serialize};

use super::rails::{LeastLoadedRail, RailTotals, merge as merge_rails};
use tonnage_record::spread::spread;
use tonnage_record::transfer::{
    Directions, PairDirection, Stall, Trial, TrialDirection, TrialDirections,
};
use tonnage_units::Reduce;

/// Sums, minima and maxima of one trial, for one or more workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialTotals {
    /// Longest time from the aligned start to the last completion or arrival. [`Self::with_flush_time`] adds the flush
    /// of the targets later.
    pub window_ns: u64,
    /// Longest time from the aligned start to the last completion of an initiator's own operations. Arrivals don't
    /// count.
    pub own_ns: u64,
    /// Longest time that a target of plain writes took for its flush.
    pub flush_ns: u64,
    /// Longest time from the aligned start to the first operation.
    pub start_skew_ns: u64,
    pub operations: u64,
    pub payload_bytes: u64,
    /// CPU time of workers that initiate.
    pub initiator_cpu_ns: u64,
    /// CPU time of workers that don't initiate.
    pub target_cpu_ns: u64,
    /// Number of latency samples.
    pub samples: u64,
    /// Number of samples of operations that never ended. Such samples are lower bounds.
    pub unfinished: u64,
    /// Sum of the samples.
    pub latency_ns_sum: u64,
    /// Smallest sample.
    pub latency_ns_min: Option<u64>,
    /// Largest sample.
    pub latency_ns_max: u64,
    /// For a paced point: number of operations that were due.
    pub due: u64,
    /// For a paced point: number of operations that were issued late or never.
    pub late: u64,
    /// For a paced point: the longest stall of any worker.
    pub stall: Option<Stall>,
    /// For batches: number of operations that were posted after adjacent ones were merged.
    pub handed_over: u64,
    /// Number of bytes that were moved and found correct.
    pub verified_bytes: u64,
    /// Number of compare-swaps in verified trials that found the expected word.
    pub swapped: u64,
    /// Longest time since the point began, including checks and pauses.
    pub elapsed_ns: u64,
    /// Maximum number of operations that any worker had in flight.
    pub in_flight_max: u64,
    /// Number of workers with an engine that is still trying out methods.
    pub unsettled: u64,
    /// If bytes move in both directions: the part that the second ranks of the pairs initiated.
    pub back: OperationSums,
    /// Sums of the background load. No other field includes them.
    pub background: BackgroundTotals,
    /// Sums of each rail, if workers have several rails.
    pub rails: Vec<RailTotals>,
    /// The rail with the smallest share of its worker's rates.
    pub least_rail: Option<LeastLoadedRail>,
}

impl TrialTotals {
    /// Converts the trial for the record.
    pub fn to_record(&self, verified: bool) -> Trial {
        let seconds = self.window_ns.max(1) as f64 / 1e9;
        Trial {
            window_ns: self.window_ns,
            target_flush_ns: (self.flush_ns > 0).then_some(self.flush_ns),
            operations: self.operations,
            payload_bytes: self.payload_bytes,
            bandwidth_bytes_per_s: self.payload_bytes as f64 / seconds,
            message_rate_per_s: self.operations as f64 / seconds,
            latency_ns_mean: OperationSums::from_totals(self).latency_ns_mean(),
            latency_ns_min: self.latency_ns_min,
            latency_ns_max: (self.samples > 0).then_some(self.latency_ns_max),
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

    /// Converts both directions of the trial for the record.
    pub fn directions(&self) -> TrialDirections {
        let of = |sums: OperationSums| TrialDirection {
            operations: sums.operations,
            payload_bytes: sums.payload_bytes,
            bandwidth_bytes_per_s: sums.bytes_per_s(self.window_ns),
        };
        let [forward, back] = self.forward_and_back().map(of);
        TrialDirections { forward, back }
    }

    fn forward_and_back(&self) -> [OperationSums; 2] {
        [
            OperationSums::from_totals(self).without(self.back),
            self.back,
        ]
    }

    /// Moves the totals of a worker of the background load to [`Self::background`], so that they don't count as
    /// measured.
    pub fn into_background(self) -> Self {
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
            ..Self::default()
        }
    }

    /// Adds the targets' flush to the measured interval of a round, after the parts of all ranks were merged.
    /// Initiators ended the interval when their writes completed locally. But bytes count only when they are visible.
    pub fn with_flush_time(mut self) -> Self {
        self.window_ns = self.window_ns.saturating_add(self.flush_ns);
        self
    }

    /// Adds a later round of the same trial, so times are added up.
    pub fn append_round(&mut self, later: Self) {
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

/// Returns the mean rates of the rails over two rounds, weighted by the time that they were busy.
fn mean_rates(one: &[RailTotals], other: &[RailTotals]) -> Vec<u64> {
    let weighed = |rail: &RailTotals| rail.busy_bytes_per_s as f64 * rail.busy_ns as f64;
    let mean = |(one, other): (&RailTotals, &RailTotals)| {
        let busy_ns = one.busy_ns.saturating_add(other.busy_ns).max(1);
        ((weighed(one) + weighed(other)) / busy_ns as f64) as u64
    };
    one.iter().zip(other).map(mean).collect()
}

/// Adds the totals of another worker or rank at the same time.
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
        let smallest = self.latency_ns_min.into_iter().chain(other.latency_ns_min);
        self.latency_ns_min = smallest.min();
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
        self.due += other.due;
        self.late += other.late;
        self.stall = longer_stall(self.stall, other.stall);
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

/// Sums of consecutive rounds, of one rank or merged over several ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SequenceTotals {
    /// Sum of all rounds except the last one. These rounds ran one after the other, and each of them was merged over
    /// its ranks.
    pub(super) rounds: TrialTotals,
    /// This rank's part of the last round, and the verification results of all rounds.
    pub(super) last: TrialTotals,
}

impl SequenceTotals {
    /// Returns the totals over all rounds.
    pub(super) fn into_totals(self) -> TrialTotals {
        let mut whole = self.rounds;
        whole.append_round(self.last);
        whole
    }
}

/// Adds another rank's sums. Its merged rounds ran at other times, but its part of the last round ran at the same time.
impl Reduce for SequenceTotals {
    fn merge(&mut self, other: Self) {
        self.rounds.append_round(other.rounds);
        self.last.merge(other.last);
    }
}

/// Sums of some operations: of one direction, of a pair, or of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationSums {
    pub operations: u64,
    pub payload_bytes: u64,
    /// Number of latency samples.
    pub samples: u64,
    /// Number of samples of operations that never ended.
    pub unfinished: u64,
    pub latency_ns_sum: u64,
}

impl OperationSums {
    /// Returns the sums of all operations in `totals`.
    pub fn from_totals(totals: &TrialTotals) -> Self {
        Self {
            operations: totals.operations,
            payload_bytes: totals.payload_bytes,
            samples: totals.samples,
            unfinished: totals.unfinished,
            latency_ns_sum: totals.latency_ns_sum,
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            operations: self.operations.saturating_sub(other.operations),
            payload_bytes: self.payload_bytes.saturating_sub(other.payload_bytes),
            samples: self.samples.saturating_sub(other.samples),
            unfinished: self.unfinished.saturating_sub(other.unfinished),
            latency_ns_sum: self.latency_ns_sum.saturating_sub(other.latency_ns_sum),
        }
    }

    pub fn bytes_per_s(&self, ns: u64) -> f64 {
        self.payload_bytes as f64 * 1e9 / ns.max(1) as f64
    }

    pub fn latency_ns_mean(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.latency_ns_sum as f64 / self.samples as f64)
    }
}

impl Reduce for OperationSums {
    fn merge(&mut self, other: Self) {
        self.operations += other.operations;
        self.payload_bytes += other.payload_bytes;
        self.samples += other.samples;
        self.unfinished += other.unfinished;
        self.latency_ns_sum = self.latency_ns_sum.saturating_add(other.latency_ns_sum);
    }
}

/// Returns both directions over all trials; `None` if bytes move in one direction only.
pub fn directions(trials: &[Trial], totals: &[TrialTotals]) -> Option<Directions> {
    let of_trials = trials.iter().map(|trial| trial.directions.as_ref());
    let of_trials: Vec<&TrialDirections> = of_trials.collect::<Option<_>>()?;
    let mut all = [OperationSums::default(); 2];
    for trial in totals {
        for (sum, direction) in all.iter_mut().zip(trial.forward_and_back()) {
            sum.merge(direction);
        }
    }
    let direction = |sum: OperationSums, of: fn(&TrialDirections) -> &TrialDirection| {
        let rates = of_trials
            .iter()
            .map(|trial| of(trial).bandwidth_bytes_per_s);
        PairDirection {
            operations: sum.operations,
            payload_bytes: sum.payload_bytes,
            bandwidth_bytes_per_s: spread(&rates.collect::<Vec<_>>()),
            latency_ns_mean: sum.latency_ns_mean(),
            unfinished: sum.unfinished,
        }
    };
    let [forward, back] = all;
    (!of_trials.is_empty()).then(|| Directions {
        forward: direction(forward, |trial| &trial.forward),
        back: direction(back, |trial| &trial.back),
    })
}

/// Sums of the background load in one trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundTotals {
    /// Longest time from the start of the background to its last completion.
    pub window_ns: u64,
    pub operations: u64,
    pub payload_bytes: u64,
    /// Number of bytes that were moved and found correct.
    pub verified_bytes: u64,
    /// The longest stall of the background, if it has a rate.
    pub stall: Option<Stall>,
}

impl Reduce for BackgroundTotals {
    fn merge(&mut self, other: Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        self.operations += other.operations;
        self.payload_bytes += other.payload_bytes;
        self.verified_bytes += other.verified_bytes;
        self.stall = longer_stall(self.stall, other.stall);
    }
}

fn longer_stall(one: Option<Stall>, other: Option<Stall>) -> Option<Stall> {
    let both = one.into_iter().chain(other);
    both.max_by_key(|stall| stall.length_ns)
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
            latency_ns_min: Some(n),
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
            back: OperationSums {
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
        trial.append_round(totals(3));
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
        // The rates are 2 and 6, and the rail is busy for 3 and 9 ns, so the weighted mean is 5.
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
            // These fields are maxima. All other fields are added up.
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
            latency_ns_min: Some(3),
            latency_ns_max: 5,
            ..totals(8)
        };
        assert_eq!(merged, expected);
        let mut alone = TrialTotals::default();
        alone.merge(totals(3));
        assert_eq!(alone, totals(3));
        let trial = merged.to_record(false);
        assert_eq!(trial.in_flight_max, Some(5));
        assert_eq!(trial.bandwidth_bytes_per_s, 64.0 / 5e-6);
        assert_eq!(trial.message_rate_per_s, 8.0 / 5e-6);
        assert_eq!(trial.latency_ns_mean, Some(4.0));
        assert_eq!(trial.verified_bytes, None);
        assert_eq!(merged.to_record(true).verified_bytes, Some(480));
        let silent = TrialTotals::default().to_record(false);
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

    /// The targets' longest flush must be added once to the longest interval. Initiators don't flush, and mere targets
    /// have no interval.
    #[test]
    fn the_targets_flush_extends_the_measured_interval() {
        let initiator = TrialTotals {
            window_ns: 1000,
            payload_bytes: 64,
            ..TrialTotals::default()
        };
        let target = |flush_ns| TrialTotals {
            flush_ns,
            ..TrialTotals::default()
        };
        let mut round = initiator;
        round.merge(target(500));
        round.merge(target(600));
        assert_eq!((round.window_ns, round.flush_ns), (1000, 600));
        let trial = round.with_flush_time().to_record(false);
        assert_eq!((trial.window_ns, trial.target_flush_ns), (1600, Some(600)));
        assert_eq!(trial.bandwidth_bytes_per_s, 64.0 / 1.6e-6);
        let without = TrialTotals::default().with_flush_time().to_record(false);
        assert_eq!((without.window_ns, without.target_flush_ns), (0, None));
    }

    #[test]
    fn a_background_is_summed_separately() {
        let own = TrialTotals {
            window_ns: 100,
            operations: 5,
            payload_bytes: 40,
            elapsed_ns: 900,
            ..TrialTotals::default()
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
        sum.merge(load.clone().into_background());
        sum.merge(load.into_background());
        let background = BackgroundTotals {
            window_ns: 300,
            operations: 4,
            payload_bytes: 4000,
            verified_bytes: 4000,
            stall: Some(stall(1)),
        };
        assert_eq!(sum, TrialTotals { background, ..own });
    }

    fn one_rail(window_ns: u64, busy_bytes_per_s: u64) -> TrialTotals {
        TrialTotals {
            window_ns,
            operations: 1,
            unsettled: 1,
            rails: vec![RailTotals {
                busy_bytes_per_s,
                busy_ns: window_ns,
                ..RailTotals::default()
            }],
            ..TrialTotals::default()
        }
    }

    #[test]
    fn intervals_of_rounds_add_up_and_those_of_ranks_do_not() {
        let mut all = SequenceTotals {
            rounds: one_rail(100, 3),
            last: one_rail(10, 4),
        };
        all.merge(SequenceTotals {
            rounds: one_rail(300, 7),
            last: one_rail(20, 6),
        });
        // This rank took no part.
        all.merge(SequenceTotals {
            rounds: TrialTotals::default(),
            last: TrialTotals::default(),
        });
        let rates = |totals: &TrialTotals| totals.rails[0].busy_bytes_per_s;
        assert_eq!((all.rounds.window_ns, rates(&all.rounds)), (400, 6));
        assert_eq!((all.last.window_ns, rates(&all.last)), (20, 10));
        let whole = all.into_totals();
        assert_eq!((whole.window_ns, whole.operations), (420, 4));
        // The totals of a trial with a single round are those of the round.
        let alone = SequenceTotals {
            rounds: TrialTotals::default(),
            last: one_rail(10, 4),
        };
        assert_eq!(alone.into_totals(), one_rail(10, 4));
    }

    #[test]
    fn directions_add_up_to_the_trial() {
        let totals = [(300, 100), (500, 500)].map(|(all, back)| TrialTotals {
            window_ns: 2_000_000_000,
            operations: all,
            payload_bytes: 8 * all,
            samples: all,
            unfinished: all,
            latency_ns_sum: 10 * (all - back) + 70 * back,
            back: OperationSums {
                operations: back,
                payload_bytes: 8 * back,
                samples: back,
                unfinished: back,
                latency_ns_sum: 70 * back,
            },
            ..TrialTotals::default()
        });
        let trials: Vec<Trial> = totals
            .iter()
            .map(|totals| Trial {
                directions: Some(totals.directions()),
                ..totals.to_record(false)
            })
            .collect();
        let rates = trials.iter().map(|trial| {
            let both = trial.directions.as_ref().unwrap();
            let [forward, back] =
                [&both.forward, &both.back].map(|direction| direction.bandwidth_bytes_per_s);
            (forward, back, trial.bandwidth_bytes_per_s)
        });
        assert!(rates.eq([(800.0, 400.0, 1200.0), (0.0, 2000.0, 2000.0)]));
        let both = directions(&trials, &totals).unwrap();
        assert_eq!((both.forward.operations, both.back.operations), (200, 600));
        assert_eq!((both.forward.unfinished, both.back.unfinished), (200, 600));
        assert_eq!(both.forward.latency_ns_mean, Some(10.0));
        assert_eq!(both.back.latency_ns_mean, Some(70.0));
        assert_eq!(both.back.bandwidth_bytes_per_s.mean, 1200.0);
        let one_way: Vec<_> = totals
            .iter()
            .map(|totals| totals.to_record(false))
            .collect();
        assert_eq!(directions(&one_way, &totals), None);
        assert_eq!(directions(&[], &[]), None);
    }
}
