//! Figures per pair of ranks. If pairs take turns within a trial, each initiator keeps the figures of its pairs. Slow
//! pairs of a matrix get extra turns, because interference in a short turn looks like a slow link. Pairs with loads
//! from a file are timed twice: together in the trials, and alone in extra turns.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::layout::SliceLayout;
use super::per_rank::RankSums;
use super::point::PointLeader;
use super::rank_workers::RankWorkers;
use super::totals::{OperationSums, TrialTotals};
use super::trial::{RoundSequence, Schedule, WARM_UP};
use super::worker_threads::ThreadReport;
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::opening::description::WorkerCpus;
use tonnage_engine::Verb;
use tonnage_loops::flow_length::FlowLoads;
use tonnage_plan::point::Traffic;
use tonnage_plan::roles::Roles;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Distinct, Hosts, pack, unpack};
use tonnage_record::transfer::{MatrixVerdict, PairRate, judge};
use tonnage_units::{Reduce, Result};

/// Maximum number of extra turns for slow pairs of a matrix. A few suffice: a pair that is slow by chance is rarely
/// slow in all of them, and the best turn counts.
const EXTRA_TURNS_MAX: u64 = 3;

/// Maximum number of pairs in a record, and of pairs in a traffic file that get turns alone.
const PAIRS_MAX: usize = 1024;

/// This rank's sums over the trials, of its pairs and of its own workers.
#[derive(Default)]
pub(super) struct TrialSums {
    pairs: PairSums,
    times: PairTimes,
    pub(super) own: RankSums,
}

impl TrialSums {
    /// Adds a completed round to the pair that this rank initiates. The round's totals are already merged over its
    /// members. If the round has only this pair, the totals of both ends count.
    pub(super) fn count_pair(
        &mut self,
        workers: &RankWorkers<'_, '_>,
        sequence: &RoundSequence,
        (round, own): (u32, &TrialTotals),
        all: &TrialTotals,
    ) {
        let roles = workers.points.own.roles;
        let places = roles.flows_in_round(workers.rank.id(), round);
        let is_warm_up = sequence.number == WARM_UP;
        if is_warm_up || roles.traffic == Traffic::File || !roles.has_pairs_in_rounds() {
            return;
        }
        if !places.is_empty() {
            let has_round = roles.pair_of_round(round).is_some();
            let turn = PairSum::from_totals(if has_round { all } else { own });
            self.pairs.add(places.start, turn, sequence.is_extra);
        }
    }

    /// Adds this rank's part of a round: its own sums, and the times of its loads from a traffic file.
    pub(super) fn count_round(
        &mut self,
        workers: &RankWorkers<'_, '_>,
        sequence: &RoundSequence,
        schedule: &Schedule,
        totals: &TrialTotals,
        reports: &[ThreadReport],
    ) {
        if sequence.is_of_trial() {
            self.own.add(totals);
        }
        if workers.points.own.loads.is_none() || schedule.number == WARM_UP {
            return;
        }
        let mut times = workers.own.flow_times(schedule);
        for report in reports {
            FlowTime::merge(&mut times, &report.times);
        }
        let places = workers.own.in_round(schedule.round);
        if !places.is_empty() {
            self.times.add(places.start, &times, schedule.is_extra);
        }
    }
}

impl PointLeader<'_, '_> {
    /// Runs extra turns outside the trials, either of a matrix's slow pairs or of each pair of a traffic file alone.
    pub(super) fn run_extra_turns(&mut self) -> Result<(), StepFailure> {
        match self.workers.points.own.roles.traffic {
            Traffic::Matrix => self.repeat_slow_turns(),
            Traffic::File => self.run_pairs_alone(),
            _ => Ok(()),
        }
    }

    /// Runs each pair of a traffic file alone, once per trial. All pairs have their first turn before any has its
    /// second, so that drift affects all pairs.
    fn run_pairs_alone(&mut self) -> Result<(), StepFailure> {
        let point = self.workers.points.own;
        let roles = point.roles;
        let Some(loads) = point.loads.as_ref().filter(|_| are_few_enough_pairs(point)) else {
            return Ok(());
        };
        let trials = self.found.trials.len() as u64;
        let rounds = loads
            .pairs()
            .map(|(pair, _)| roles.round_of_pair_alone(pair));
        let rounds: Vec<u32> = rounds.collect();
        for turn in 0..trials {
            // Each of these turns has data of its own, like a further trial.
            let number = trials + 1 + turn;
            let turns = RoundSequence::extra(number, rounds.clone(), point.length.trial);
            self.run_rounds(&turns, "pair alone")?;
        }
        Ok(())
    }

    /// Repeats the turns of a matrix's slow pairs, until no pair is slow or `EXTRA_TURNS_MAX` is reached.
    fn repeat_slow_turns(&mut self) -> Result<(), StepFailure> {
        for attempt in 0..EXTRA_TURNS_MAX {
            self.collect_pairs()?;
            let is_root = self.workers.rank.id() == 0;
            let mine = is_root.then(|| pack(&self.slow_rounds())).transpose()?;
            let rank = &mut *self.workers.rank;
            let encoded = rank.broadcast("rounds with slow pairs", mine, DEADLINES.step)?;
            let suspect: Vec<u32> = unpack(&encoded)?;
            if suspect.is_empty() {
                break;
            }
            // Each of these turns has data of its own, like a further trial.
            let number = self.found.trials.len() as u64 + 1 + attempt;
            let length = self.workers.points.own.length.trial;
            let turns = RoundSequence::extra(number, suspect, length);
            self.run_rounds(&turns, "second look")?;
        }
        Ok(())
    }

    /// Returns the rounds with a pair that was slow in all its turns. The result is complete only on rank 0.
    fn slow_rounds(&self) -> Vec<u32> {
        let (point, rates) = (self.workers.points.own, &self.found.pairs);
        let (roles, reads) = (point.roles, point.op == Verb::Read);
        let verdict = judge(roles.ranks, rates, reads).unwrap_or_default();
        let slow = rates.iter().filter(|pair| verdict.is_slow(pair, reads));
        let slow: BTreeSet<_> = slow.map(|pair| (pair.initiator, pair.target)).collect();
        let is_slow = |pair: &(u32, u32)| slow.contains(pair);
        let suspect = (0..roles.round_count())
            .filter(|&round| roles.pairs_of_round(round).iter().any(is_slow));
        suspect.collect()
    }

    /// Collects the figures of all pairs on rank 0.
    pub(super) fn collect_pairs(&mut self) -> Result<()> {
        let point = self.workers.points.own;
        let roles = point.roles;
        let rank = &mut *self.workers.rank;
        if roles.traffic == Traffic::File {
            if are_few_enough_pairs(point) {
                let own = self.sums.times.pair_outcomes();
                let all = rank.collect("times of pairs", &own, DEADLINES.step)?;
                let (hosts, moves_bytes) = (rank.hosts(), self.workers.moves_bytes);
                self.found.pairs =
                    pair_rates_of_traffic_file(point, hosts, all.iter(), moves_bytes);
            }
        } else if roles.has_pairs_in_rounds() {
            let what = "figures of pairs";
            let all = rank.collect(what, &self.sums.pairs, DEADLINES.step)?;
            self.found.pairs = pair_rates(roles, rank.hosts(), all.iter());
        }
        Ok(())
    }
}

/// Sums of one initiator's pairs, in the order of the targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PairSums {
    of_targets: Vec<PairSum>,
}

/// Sums of one pair over its turns.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct PairSum {
    sums: OperationSums,
    window_ns: u64,
    /// Rate of the pair's best turn.
    best_bytes_per_s: f64,
}

impl PairSum {
    /// Returns the sums of a single turn.
    fn from_totals(totals: &TrialTotals) -> Self {
        let sums = OperationSums::from_totals(totals);
        Self {
            sums,
            window_ns: totals.window_ns,
            best_bytes_per_s: sums.bytes_per_s(totals.window_ns),
        }
    }

    fn rate(&self, (initiator, target): (u32, u32), hosts: &Hosts) -> PairRate {
        let host = hosts.host(initiator);
        PairRate {
            initiator,
            target,
            within_host: host.is_some() && host == hosts.host(target),
            shares_cpu: false,
            payload_bytes: self.sums.payload_bytes,
            bandwidth_bytes_per_s: self.sums.bytes_per_s(self.window_ns),
            bandwidth_bytes_per_s_max: self.best_bytes_per_s,
            time_ns_alone: None,
            time_ns_together: None,
            latency_ns_mean: self.sums.latency_ns_mean(),
            unfinished: self.sums.unfinished,
        }
    }
}

impl PairSums {
    /// Adds a turn of the initiator's pair with the target at index `place`. An extra turn counts only for the best
    /// rate.
    fn add(&mut self, place: usize, turn: PairSum, is_extra: bool) {
        if self.of_targets.len() <= place && !is_extra {
            self.of_targets.resize(place + 1, PairSum::default());
        }
        let Some(sum) = self.of_targets.get_mut(place) else {
            return;
        };
        if !is_extra {
            sum.sums.merge(turn.sums);
            sum.window_ns += turn.window_ns;
        }
        sum.best_bytes_per_s = sum.best_bytes_per_s.max(turn.best_bytes_per_s);
    }
}

/// Returns the pairs to record; none if there are more than `PAIRS_MAX`.
pub(super) fn summary(pairs: &[PairRate]) -> Vec<PairRate> {
    if pairs.len() > PAIRS_MAX {
        return Vec::new();
    }
    pairs.to_vec()
}

/// Returns the verdict on the pairs of a matrix; `None` for other traffic.
pub(super) fn verdict(point: &TransferPoint, pairs: &[PairRate]) -> Option<MatrixVerdict> {
    if point.roles.traffic != Traffic::Matrix {
        return None;
    }
    judge(point.roles.ranks, pairs, point.op == Verb::Read)
}

/// Marks pairs if a worker of one rank shares a CPU with its counterpart at the other rank.
pub(super) fn mark_shared_cpus(
    pairs: &mut [PairRate],
    places: &Distinct<WorkerCpus>,
    hosts: &Hosts,
) {
    for pair in pairs {
        let (one, other) = (pair.initiator, pair.target);
        let cpus = |rank: u32| places.get(rank).map(|places| places.cpus.iter());
        let shared = cpus(one).zip(cpus(other)).is_some_and(|(one, other)| {
            let mut both = one.zip(other);
            both.any(|(one, other)| one.is_some() && one == other)
        });
        pair.shares_cpu = shared && hosts.share_machine(one, other);
    }
}

/// Returns the rates of all pairs from the sums of all ranks, sorted by initiator and target.
fn pair_rates<'a>(
    roles: Roles,
    hosts: &Hosts,
    all: impl Iterator<Item = &'a PairSums>,
) -> Vec<PairRate> {
    let ranks = (0u32..).zip(all);
    let of_rank = |(rank, sums): (u32, &PairSums)| {
        let targets = roles.targets(rank);
        let pairs = targets.iter().zip(&sums.of_targets);
        pairs
            .map(|(&target, sum)| sum.rate((rank, target), hosts))
            .collect::<Vec<_>>()
    };
    ranks.flat_map(of_rank).collect()
}

/// Returns whether a traffic file has few enough pairs to run each of them alone.
fn are_few_enough_pairs(point: &TransferPoint) -> bool {
    let loads = point.loads.as_ref();
    loads.is_some_and(|loads| loads.pairs().take(PAIRS_MAX + 1).count() <= PAIRS_MAX)
}

/// Returns the remark that a traffic file has too many pairs to report.
pub(super) fn too_many_pairs_remark(point: &TransferPoint) -> Option<String> {
    let loads = point
        .loads
        .as_ref()
        .filter(|_| !are_few_enough_pairs(point))?;
    Some(format!(
        "no times of pairs: {} of them have bytes, and up to {PAIRS_MAX} are timed and recorded",
        loads.pairs().count()
    ))
}

/// Completed operations of one flow in a trial, and the time from the aligned start until the last one completed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowTime {
    pub operations: u64,
    /// Time in nanoseconds; 0 without operations.
    pub time_ns: u64,
}

impl FlowTime {
    /// Returns the times of the flows in a round that started at `start_ns`.
    pub(super) fn from_loads(loads: &FlowLoads, start_ns: u64) -> Vec<Self> {
        let flows = loads.flows().iter();
        let time = flows.map(|flow| Self {
            operations: flow.operations,
            time_ns: flow.ended_ns.saturating_sub(start_ns),
        });
        time.collect()
    }

    /// Adds the flows of another worker of this rank. Both lists must have the same order of targets.
    fn merge(all: &mut [Self], others: &[Self]) {
        for (one, other) in all.iter_mut().zip(others) {
            one.operations += other.operations;
            one.time_ns = one.time_ns.max(other.time_ns);
        }
    }
}

/// Times of one initiator's pairs, in the order of the targets with which it exchanges bytes.
#[derive(Debug, Default)]
struct PairTimes {
    of_targets: Vec<TurnTimes>,
}

/// Times of one pair in all its turns.
#[derive(Debug, Clone, Default)]
struct TurnTimes {
    /// Number of operations over all trials.
    operations: u64,
    together_ns: Vec<u64>,
    alone_ns: Vec<u64>,
}

/// Figures of a pair in a message to rank 0. The sender is the initiator.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PairOutcome {
    /// Index of the target among the initiator's targets.
    place: u32,
    operations: u64,
    /// Sum of the times over the trials.
    together_ns: u64,
    /// Time of the shortest trial.
    together_ns_min: u64,
    together_ns_median: f64,
    alone_ns_median: Option<f64>,
}

impl PairTimes {
    /// Adds the times of consecutive pairs, from index `first` on. They are from a trial, or from a turn in which the
    /// pair was alone.
    fn add(&mut self, first: usize, times: &[FlowTime], alone: bool) {
        let end = first + times.len();
        if self.of_targets.len() < end {
            self.of_targets.resize(end, TurnTimes::default());
        }
        let moved = self.of_targets[first..end].iter_mut().zip(times);
        for (turns, time) in moved.filter(|(_, time)| time.operations > 0) {
            if alone {
                turns.alone_ns.push(time.time_ns);
            } else {
                turns.operations += time.operations;
                turns.together_ns.push(time.time_ns);
            }
        }
    }

    /// Returns the figures of the pairs that completed at least one operation.
    fn pair_outcomes(&self) -> Vec<PairOutcome> {
        let numbered = (0u32..).zip(&self.of_targets);
        let outcome = |(place, turns): (u32, &TurnTimes)| {
            Some(PairOutcome {
                place,
                operations: turns.operations,
                together_ns: turns.together_ns.iter().sum(),
                together_ns_min: *turns.together_ns.iter().min()?,
                together_ns_median: median(&turns.together_ns)?,
                alone_ns_median: median(&turns.alone_ns),
            })
        };
        numbered.filter_map(outcome).collect()
    }
}

fn median(times_ns: &[u64]) -> Option<f64> {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    let (below, above) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some(f64::midpoint(sorted[below] as f64, sorted[above] as f64))
}

/// Returns the rates of all pairs in a traffic file, sorted by initiator and target. `moves_bytes` is whether
/// operations carry payload.
fn pair_rates_of_traffic_file<'a>(
    point: &TransferPoint,
    hosts: &Hosts,
    all: impl Iterator<Item = &'a Vec<PairOutcome>>,
    moves_bytes: bool,
) -> Vec<PairRate> {
    let size_bytes = u64::from(point.slots.size_bytes) * u64::from(moves_bytes);
    let per_second =
        |operations: f64, ns: u64| operations * size_bytes as f64 * 1e9 / ns.max(1) as f64;
    let of_rank = |(initiator, outcomes): (u32, &Vec<PairOutcome>)| {
        let targets = SliceLayout::new(point, initiator).out;
        let host = hosts.host(initiator);
        let rate = |pair: &PairOutcome| {
            let target = *targets.get(pair.place as usize)?;
            let trials = point.load_operations_of_pair(initiator, target).max(1);
            Some(PairRate {
                initiator,
                target,
                within_host: host.is_some() && host == hosts.host(target),
                shares_cpu: false,
                payload_bytes: pair.operations * size_bytes,
                bandwidth_bytes_per_s: per_second(pair.operations as f64, pair.together_ns),
                bandwidth_bytes_per_s_max: per_second(trials as f64, pair.together_ns_min),
                time_ns_alone: pair.alone_ns_median,
                time_ns_together: Some(pair.together_ns_median),
                latency_ns_mean: None,
                unfinished: 0,
            })
        };
        outcomes.iter().filter_map(rate).collect::<Vec<_>>()
    };
    (0u32..).zip(all).flat_map(of_rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::Access;

    #[test]
    fn turns_of_a_pair_add_up() {
        let mut all = vec![PairSums::default(); 3];
        for (from, place, bytes) in [(0, 0, 100), (0, 1, 400), (0, 0, 300), (2, 1, 50)] {
            let totals = TrialTotals {
                payload_bytes: bytes,
                window_ns: 1_000_000_000,
                samples: 2,
                latency_ns_sum: bytes,
                ..TrialTotals::default()
            };
            all[from].add(place, PairSum::from_totals(&totals), false);
        }
        let rates = pair_rates(
            Roles::new(Traffic::Matrix, 3),
            &Hosts::from_infos(&[]),
            all.iter(),
        );
        let found = rates.iter().map(|rate| {
            let ends = (rate.initiator, rate.target);
            let rates = [rate.bandwidth_bytes_per_s, rate.bandwidth_bytes_per_s_max];
            (ends, rate.payload_bytes, rates, rate.latency_ns_mean)
        });
        let expected = [
            ((0, 1), 400, [200.0, 300.0], Some(100.0)),
            ((0, 2), 400, [400.0, 400.0], Some(200.0)),
            ((2, 0), 0, [0.0, 0.0], None),
            ((2, 1), 50, [50.0, 50.0], Some(25.0)),
        ];
        assert!(found.eq(expected), "{rates:?}");
    }

    #[test]
    fn medians_are_over_turns_and_bytes_over_trials() {
        let time = |operations, time_ns| FlowTime {
            operations,
            time_ns,
        };
        let mut workers = vec![time(2, 300), time(0, 0)];
        FlowTime::merge(&mut workers, &[time(1, 100), time(0, 0)]);
        assert_eq!(workers, [time(3, 300), time(0, 0)]);
        let mut times = PairTimes::default();
        for together_ns in [300, 500, 400, 600] {
            times.add(0, &[time(3, together_ns), time(0, 0)], false);
        }
        times.add(0, &[time(3, 200)], true);
        let mut point = point(Access::Sequential, 8);
        (point.roles.traffic, point.roles.ranks) = (Traffic::File, 3);
        let rows = vec![vec![0, 24, 0], vec![0, 0, 0], vec![0, 0, 0]];
        point.loads = Some(rows.try_into().unwrap());
        let all = [times.pair_outcomes(), Vec::new(), Vec::new()];
        let rates = pair_rates_of_traffic_file(&point, &Hosts::from_infos(&[]), all.iter(), true);
        let [pair] = &rates[..] else {
            panic!("{rates:?}")
        };
        assert_eq!(
            (pair.initiator, pair.target, pair.payload_bytes),
            (0, 1, 96)
        );
        assert_eq!(pair.time_ns_together, Some(450.0));
        assert_eq!(pair.slowdown(), Some(2.25));
        assert_eq!(pair.bandwidth_bytes_per_s, 96.0 * 1e9 / 1800.0);
        assert_eq!(pair.bandwidth_bytes_per_s_max, 24.0 * 1e9 / 300.0);
        assert_eq!(
            (are_few_enough_pairs(&point), too_many_pairs_remark(&point)),
            (true, None)
        );
    }

    #[test]
    fn a_remark_explains_why_too_many_pairs_are_not_timed() {
        let mut point = point(Access::Sequential, 8);
        let row = |from| (0..33).map(|to| 8 * u64::from(from != to)).collect();
        let rows: Vec<Vec<u64>> = (0..33).map(row).collect();
        point.loads = Some(rows.try_into().unwrap());
        assert!(!are_few_enough_pairs(&point));
        assert!(
            too_many_pairs_remark(&point)
                .unwrap()
                .contains("1056 of them have bytes")
        );
    }
}
