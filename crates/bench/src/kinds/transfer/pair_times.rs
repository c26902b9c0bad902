//! Times of pairs that have the loads of a file: in the trials, together, and in turns for themselves.

use serde::{Deserialize, Serialize};

use super::layout::SliceLayout;
use crate::drive::extent::FlowLoads;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::Hosts;
use tonnage_record::transfer::PairRate;

/// The most pairs that have turns for themselves, and are in a record.
pub(super) const PAIRS_MAX: usize = 1024;

/// Returns whether the pairs of a file are few enough for turns of their own.
pub(super) fn are_few(point: &TransferPoint) -> bool {
    let loads = point.loads.as_ref();
    loads.is_some_and(|loads| loads.pairs().take(PAIRS_MAX + 1).count() <= PAIRS_MAX)
}

/// Remark on pairs that are too many to be reported.
pub(super) fn why_none(point: &TransferPoint) -> Option<String> {
    let loads = point.loads.as_ref().filter(|_| !are_few(point))?;
    Some(format!(
        "no times of pairs: {} of them have bytes, and up to {PAIRS_MAX} are timed and recorded",
        loads.pairs().count()
    ))
}

/// Operations of one flow in an execution, and the time from the aligned start to the end of the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowTime {
    /// Completed operations.
    pub operations: u64,
    /// Nanoseconds; 0 without operations.
    pub time_ns: u64,
}

impl FlowTime {
    /// The flows of an execution that began then.
    pub(super) fn of(loads: &FlowLoads, start_ns: u64) -> Vec<Self> {
        let flows = loads.flows().iter();
        let time = flows.map(|flow| Self {
            operations: flow.operations,
            time_ns: flow.ended_ns.saturating_sub(start_ns),
        });
        time.collect()
    }

    /// Adds the flows of another worker of the rank, which are to the same ranks.
    pub(super) fn merge(all: &mut [Self], others: &[Self]) {
        for (one, other) in all.iter_mut().zip(others) {
            one.operations += other.operations;
            one.time_ns = one.time_ns.max(other.time_ns);
        }
    }
}

/// Times of the pairs of one initiator, in the order of the targets that it has bytes for.
#[derive(Debug, Default)]
pub(super) struct PairTimes {
    of_targets: Vec<Turns>,
}

/// Turns of a pair.
#[derive(Debug, Clone, Default)]
struct Turns {
    /// Operations of all trials.
    operations: u64,
    together_ns: Vec<u64>,
    alone_ns: Vec<u64>,
}

/// A pair's part of a record, without its ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PairOutcome {
    /// Place of the target among the initiator's.
    place: u32,
    operations: u64,
    /// Sum over the trials.
    together_ns: u64,
    /// The shortest.
    together_ns_min: u64,
    together_ns_median: f64,
    alone_ns_median: Option<f64>,
}

impl PairTimes {
    /// Takes note of the pairs from this place on: of a trial, or of a turn that one had for itself.
    pub(super) fn add(&mut self, first: usize, times: &[FlowTime], alone: bool) {
        let end = first + times.len();
        if self.of_targets.len() < end {
            self.of_targets.resize(end, Turns::default());
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

    /// The pairs that have moved something.
    pub(super) fn outcomes(&self) -> Vec<PairOutcome> {
        let numbered = (0u32..).zip(&self.of_targets);
        let outcome = |(place, turns): (u32, &Turns)| {
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

/// The pairs of all ranks, by initiator and target. `moves_bytes`: their operations carry something.
pub(super) fn rates<'a>(
    point: &TransferPoint,
    hosts: &Hosts,
    all: impl Iterator<Item = &'a Vec<PairOutcome>>,
    moves_bytes: bool,
) -> Vec<PairRate> {
    let size_bytes = u64::from(point.size_bytes) * u64::from(moves_bytes);
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
    use crate::drive::walk::tests::point;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::transfer::Addresses;

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
        let mut point = point(Addresses::Sequential, 8);
        (point.traffic, point.ranks) = (Traffic::File, 3);
        let rows = vec![vec![0, 24, 0], vec![0, 0, 0], vec![0, 0, 0]];
        point.loads = Some(rows.try_into().unwrap());
        let all = [times.outcomes(), Vec::new(), Vec::new()];
        let rates = rates(&point, &Hosts::of(&[]), all.iter(), true);
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
        assert_eq!((are_few(&point), why_none(&point)), (true, None));
    }

    #[test]
    fn of_too_many_pairs_it_is_said_why_none_is_timed() {
        let mut point = point(Addresses::Sequential, 8);
        let row = |from| (0..33).map(|to| 8 * u64::from(from != to)).collect();
        let rows: Vec<Vec<u64>> = (0..33).map(row).collect();
        point.loads = Some(rows.try_into().unwrap());
        assert!(!are_few(&point));
        assert!(
            why_none(&point)
                .unwrap()
                .contains("1056 of them have bytes")
        );
    }
}
