//! The state of one backend during a point: its trials and their combined figures.

use super::backend::{Backend, Choice, Prepared};
use super::trial_times::TrialTimes;
use serde::{Deserialize, Serialize};
use tonnage_collective::bus::bus_factor;
use tonnage_plan::collective::{CollectivePoint, Grouping, RankTime};
use tonnage_plan::point::BoundChoice;
use tonnage_record::collective::{
    BackendResult, CollectiveSummary, CollectiveTrial, GroupTimes, RANKS_KEPT_MAX, RankCalls,
};
use tonnage_record::spread::spread;
use tonnage_record::{Bound, HistogramData, Latency, LatencyKind, Outcome, Spread};
use tonnage_units::histogram::LatencyHistogram;

/// The state of one backend during a point.
#[derive(Default)]
pub struct Contestant<'a> {
    pub name: &'a str,
    /// The backend; `None` if it ended early.
    pub backend: Option<&'a mut dyn Backend>,
    /// Why the backend ended early; `None` if it did not.
    pub ended: Option<Outcome>,
    /// Properties reported by `prepare`.
    pub prepared: Option<Prepared>,
    /// The algorithm and message size in use.
    pub choice: Choice,
    /// Number of calls so far. The data of a call depend on its number.
    pub calls: u64,
    /// Time of an iteration on the slowest rank, including the overhead between two iterations. It is the same on all
    /// ranks.
    pub turn_ns: u64,
    /// Number of bytes that this rank has checked.
    pub verified_bytes: u64,
    /// Upper bound of the bytes per second that each rank sends, if it was measured.
    pub bound: Option<Bound>,
    trials: Vec<CollectiveTrial>,
    histogram: LatencyHistogram,
    /// Sum over the trials of this rank's mean time per iteration.
    own_ns: f64,
    began_last: u64,
    /// Sums of iteration times in this rank's group over the trials: slowest rank, mean, fastest rank. [`RankFigures`]
    /// has the means.
    group_ns: [f64; 3],
    /// Figures of all ranks and groups; empty until they are gathered.
    ranks: Vec<RankCalls>,
    groups: Vec<GroupTimes>,
}

/// One rank's own figures, which it sends to the other ranks.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RankFigures {
    call_ns_mean: f64,
    began_last: u64,
    verified_bytes: u64,
    /// Times of the rank's group: slowest rank, mean of the ranks, fastest rank. All are 0 without groups.
    group_ns: [f64; 3],
}

impl<'a> Contestant<'a> {
    /// Creates the state before the first trial. A backend that could not be opened has already ended.
    pub fn new(name: &'a str, backend: Result<&'a mut dyn Backend, Outcome>) -> Self {
        let (backend, ended) = match backend {
            Ok(backend) => (Some(backend), None),
            Err(ended) => (None, Some(ended)),
        };
        Self {
            name,
            backend,
            ended,
            ..Self::default()
        }
    }

    /// Adds a trial of `iterations` by `ranks` ranks in groups of `group_ranks`. `own_ns` is this rank's mean time of
    /// an iteration.
    pub fn add_trial(
        &mut self,
        iterations: u64,
        (ranks, group_ranks): (u32, u32),
        times: &TrialTimes,
        own_ns: f64,
        aligned: bool,
    ) {
        let count = iterations.max(1) as f64;
        let longest: u64 = times.longest_ns.iter().sum();
        self.trials.push(CollectiveTrial {
            iterations,
            call_ns_rank_max: longest as f64 / count,
            call_ns_rank_mean: times.sum_ns as f64 / count / f64::from(ranks.max(1)),
            call_ns_rank_min: times.shortest_sum_ns as f64 / count,
        });
        if aligned {
            times
                .longest_ns
                .iter()
                .for_each(|&ns| self.histogram.record(ns));
            self.began_last += times.began_last;
        }
        self.own_ns += own_ns;
        if let Some(sums) = times.group {
            let mean_ns = sums.all_ns as f64 / f64::from(group_ranks.max(1));
            let of_group = [sums.longest_ns as f64, mean_ns, sums.shortest_ns as f64];
            let both = self.group_ns.iter_mut().zip(of_group);
            both.for_each(|(all, own)| *all += own / count);
        }
    }

    /// Number of trials so far.
    pub fn trials(&self) -> usize {
        self.trials.len()
    }

    /// Returns the iteration times of the trials, combined over the ranks by `across`.
    pub fn times_ns(&self, across: RankTime) -> Vec<f64> {
        self.trials
            .iter()
            .map(|trial| trial.call_ns(across))
            .collect()
    }

    /// Returns this rank's mean time of an iteration, how often it began last, and how many bytes it checked.
    pub fn own_figures(&self) -> RankFigures {
        let trials = self.trials.len().max(1) as f64;
        RankFigures {
            call_ns_mean: self.own_ns / trials,
            began_last: self.began_last,
            verified_bytes: self.verified_bytes,
            group_ns: self.group_ns.map(|ns| ns / trials),
        }
    }

    /// Stores the figures of all ranks, which come in rank order.
    pub fn set_rank_figures(&mut self, all: &[RankFigures], grouping: Grouping) {
        self.verified_bytes = all.iter().map(|own| own.verified_bytes).sum();
        let times = |(rank, own): (u32, &RankFigures)| RankCalls {
            rank,
            call_ns_mean: own.call_ns_mean,
            began_last: own.began_last,
        };
        self.ranks = (0..).zip(all).map(times).collect();
        if self.ranks.len() > RANKS_KEPT_MAX {
            self.ranks
                .sort_by_key(|it| std::cmp::Reverse(it.began_last));
            self.ranks.truncate(RANKS_KEPT_MAX);
            self.ranks.sort_by_key(|it| it.rank);
        }
        if grouping.count() > 1 {
            self.groups = group_times(all, grouping);
        }
    }

    pub fn into_record(self, point: &CollectivePoint) -> BackendResult {
        let summary =
            (self.ended.is_none() && !self.trials.is_empty()).then(|| self.summary(point));
        let samples = self.histogram.count() > 0;
        BackendResult {
            backend: self.name.to_owned(),
            backend_outcome: self.ended.unwrap_or(Outcome::Measured),
            really_in_place: self.prepared.is_some_and(|prepared| prepared.in_place),
            chosen_algorithm: self.choice.algorithm,
            chosen_chunk_bytes: self.choice.chunk_bytes,
            bus_bound: self.bound.filter(|_| summary.is_some()),
            trials: self.trials,
            summary,
            histogram: samples.then(|| HistogramData::from_histogram(&self.histogram)),
        }
    }

    fn summary(&self, point: &CollectivePoint) -> CollectiveSummary {
        let of = |across| spread(&self.times_ns(across));
        let bytes = point.shape().size_bytes() as f64;
        let call_ns = of(point.across);
        // A backend that makes no calls moves no bytes.
        let moves = bytes > 0.0 && self.prepared.is_some_and(|it| it.has_results);
        let algbw = moves.then(|| rate_of_bytes(bytes, &call_ns));
        let factor = bus_factor(point.op, point.shape().ranks);
        let busbw = algbw
            .zip(factor)
            .map(|(algbw, factor)| scale_spread(algbw, factor));
        let bound = match point.bound {
            BoundChoice::Stated { bytes_per_s } => Some(bytes_per_s),
            BoundChoice::Auto => self.bound.as_ref().map(|bound| bound.bytes_per_s),
            BoundChoice::None => None,
        };
        CollectiveSummary {
            trials: self.trials.len() as u32,
            iterations: self.trials.iter().map(|trial| trial.iterations).sum(),
            call_ns,
            call_ns_rank_max: of(RankTime::Max).mean,
            call_ns_rank_mean: of(RankTime::Mean).mean,
            call_ns_rank_min: of(RankTime::Min).mean,
            algbw_bytes_per_s: algbw,
            busbw_bytes_per_s: busbw,
            busbw_bound_fraction: busbw.zip(bound).map(|(busbw, bound)| busbw.mean / bound),
            latency: Latency::summarize(&self.histogram, LatencyKind::Call),
            verified_bytes: self.verified_bytes,
            rank_times: self.ranks.clone(),
            group_times: self.groups.clone(),
        }
    }
}

/// Returns the times of the groups in order. If there are too many groups, returns only the slowest.
fn group_times(all: &[RankFigures], grouping: Grouping) -> Vec<GroupTimes> {
    let times = |group: u32| {
        let first = all.get(grouping.rank(group, 0) as usize)?;
        Some(GroupTimes {
            group,
            group_call_ns_rank_max: first.group_ns[0],
            group_call_ns_rank_mean: first.group_ns[1],
            group_call_ns_rank_min: first.group_ns[2],
        })
    };
    let mut groups: Vec<_> = (0..grouping.count()).filter_map(times).collect();
    if groups.len() > RANKS_KEPT_MAX {
        groups.sort_by(|one, other| {
            let (one, other) = (one.group_call_ns_rank_max, other.group_call_ns_rank_max);
            other.total_cmp(&one)
        });
        groups.truncate(RANKS_KEPT_MAX);
        groups.sort_by_key(|it| it.group);
    }
    groups
}

/// Returns the bytes per second of calls of `bytes` that take `call_ns`. The relative spread is that of the times.
fn rate_of_bytes(bytes: f64, call_ns: &Spread) -> Spread {
    let of = |ns: f64| bytes * 1e9 / ns;
    let mean = of(call_ns.mean);
    let part = |ns: Option<f64>| ns.map(|ns| ns / call_ns.mean * mean);
    Spread {
        mean,
        min: of(call_ns.max),
        max: of(call_ns.min),
        stddev: part(call_ns.stddev),
        ci95: part(call_ns.ci95),
    }
}

fn scale_spread(of: Spread, factor: f64) -> Spread {
    Spread {
        mean: of.mean * factor,
        min: of.min * factor,
        max: of.max * factor,
        stddev: of.stddev.map(|it| it * factor),
        ci95: of.ci95.map(|it| it * factor),
    }
}
