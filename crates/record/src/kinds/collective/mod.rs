//! The body of a collective: for each backend, its trials and their summary.
//!
//! Each rank measures the time of an iteration on its own clock. A trial holds the slowest rank's time, the mean and
//! the fastest rank's time. The parts of a record are its backends.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_collective::Algorithm;
use tonnage_plan::collective::{CollectivePoint, RankTime};

use crate::body::{CommonOptions, KindBody, Part};
use crate::bound::Bound;
use crate::histogram::{HistogramData, Latency};
use crate::outcome::Outcome;
use crate::spread::Spread;

/// Maximum number of ranks with individual times in a record.
pub const RANKS_KEPT_MAX: usize = 1024;

/// A collective: the point and its results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveBody {
    /// The requested point.
    pub point: CollectivePoint,
    /// The backends, in the requested order; empty if the point did not start.
    pub backends: Vec<BackendResult>,
}

impl CollectiveBody {
    /// Creates the body of a point before it is measured.
    pub fn new(point: CollectivePoint) -> Self {
        Self {
            point,
            backends: Vec::new(),
        }
    }

    /// Returns the backend of a part.
    pub fn backend(&self, part: Part) -> Option<&BackendResult> {
        match part {
            Part::Nth(at) => self.backends.get(at),
            Part::Whole | Part::Inside(..) => None,
        }
    }
}

/// One backend of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackendResult {
    /// Name of the backend, as in `--backend`.
    pub backend: String,
    /// Outcome of the point on this backend. One backend can fail while others are measured.
    pub backend_outcome: Outcome,
    /// True if the results actually overwrote the inputs.
    pub really_in_place: bool,
    /// The requested or chosen algorithm; absent if the backend does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_algorithm: Option<Algorithm>,
    /// The requested or chosen maximum message length; absent if the backend does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_chunk_bytes: Option<u64>,
    /// Upper bound of the bus bandwidth over this path, if one was measured.
    #[serde(alias = "bus_limit", default, skip_serializing_if = "Option::is_none")]
    pub bus_bound: Option<Bound>,
    /// One entry per timed repetition.
    pub trials: Vec<CollectiveTrial>,
    /// Summary of the trials; absent unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<CollectiveSummary>,
    /// Times of all iterations, each on its slowest rank. Absent for back-to-back calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramData>,
}

/// One timed repetition over all ranks. With back-to-back calls, a rank's time of an iteration is its total time
/// divided by the number of calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveTrial {
    /// Number of iterations in the trial.
    pub iterations: u64,
    /// Time of an iteration on its slowest rank, mean over the iterations.
    pub call_ns_rank_max: f64,
    /// Time of an iteration, mean over ranks and iterations.
    pub call_ns_rank_mean: f64,
    /// Time of an iteration on its fastest rank, mean over the iterations.
    pub call_ns_rank_min: f64,
}

/// Summary of a backend's trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveSummary {
    /// Number of trials.
    pub trials: u32,
    /// Iterations of all trials.
    pub iterations: u64,
    /// Time of an iteration over the trials, combined over ranks by `across` of the point.
    pub call_ns: Spread,
    /// Time on the slowest rank, mean over the trials.
    pub call_ns_rank_max: f64,
    /// Mean time of the ranks, mean over the trials.
    pub call_ns_rank_mean: f64,
    /// Time on the fastest rank, mean over the trials.
    pub call_ns_rank_min: f64,
    /// Size / time of an iteration. The mean is the size / mean of `call_ns`, with the same relative confidence
    /// interval. Absent for a barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algbw_bytes_per_s: Option<Spread>,
    /// `algbw_bytes_per_s` multiplied by the operation's factor; absent for a barrier and for one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busbw_bytes_per_s: Option<Spread>,
    /// Mean of `busbw_bytes_per_s` / `bus_bound`; absent without a bound.
    #[serde(
        alias = "busbw_limit_fraction",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub busbw_bound_fraction: Option<f64>,
    /// Latency of the iterations, each on its slowest rank. Absent for back-to-back calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Bytes of results that were verified.
    pub verified_bytes: u64,
    /// Times of individual ranks, in rank order. With more than 1,024 ranks, lists only those that most often began
    /// last.
    pub rank_times: Vec<RankCalls>,
    /// Times of individual groups, in the order of their numbers. With more than 1,024 groups, lists only the slowest
    /// ones. Empty if all ranks form one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_times: Vec<GroupTimes>,
}

/// Times of one group of ranks, means over iterations and trials. All groups called at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupTimes {
    /// Number of the group, counted from 0. The field `groups` of the point determines its ranks.
    pub group: u32,
    /// Time of an iteration on the slowest rank of the group.
    pub group_call_ns_rank_max: f64,
    /// Time of an iteration, mean over the group's ranks.
    pub group_call_ns_rank_mean: f64,
    /// Time of an iteration on the fastest rank of the group.
    pub group_call_ns_rank_min: f64,
}

impl GroupTimes {
    /// Returns the time of an iteration, combined over the group's ranks.
    pub fn call_ns(&self, across: RankTime) -> f64 {
        match across {
            RankTime::Max => self.group_call_ns_rank_max,
            RankTime::Mean => self.group_call_ns_rank_mean,
            RankTime::Min => self.group_call_ns_rank_min,
        }
    }
}

/// Times of one rank over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankCalls {
    /// The rank.
    pub rank: u32,
    /// The rank's time of an iteration, mean over the trials.
    pub call_ns_mean: f64,
    /// Number of iterations that this rank began later than all other ranks, by synchronized clocks.
    pub began_last: u64,
}

/// The parts of a record are its backends.
impl KindBody for CollectiveBody {
    fn options(&self) -> CommonOptions<'_> {
        let point = &self.point;
        CommonOptions {
            place: point.place,
            memory: Some(&point.memory),
            ..CommonOptions::new(
                &point.label,
                point.backends.first().map_or("", String::as_str),
                &point.engine_options,
                point.ranks,
            )
        }
    }

    fn engine(&self, part: Part) -> &str {
        let backend = self.backend(part).map(|backend| backend.backend.as_str());
        backend.unwrap_or(self.options().engine)
    }

    fn is_moved_by(&self, part: Part, engine: &str) -> bool {
        self.engine(part) == engine
    }

    fn operation(&self, _: Part) -> Option<&'static str> {
        Some(self.point.op.name())
    }

    fn parts(&self) -> Vec<Part> {
        match self.backends.len() {
            0 => vec![Part::Whole],
            backends => (0..backends).map(Part::Nth).collect(),
        }
    }

    fn measured_ns(&self, part: Part) -> u64 {
        let of_trial = |it: &CollectiveTrial| it.iterations as f64 * it.call_ns_rank_max;
        let own = |it: &BackendResult| it.trials.iter().map(of_trial).sum::<f64>();
        let ns: f64 = match part {
            Part::Whole => self.backends.iter().map(own).sum(),
            Part::Nth(_) | Part::Inside(..) => self.backend(part).map_or(0.0, own),
        };
        ns as u64
    }

    fn outcome(&self, part: Part) -> Option<&Outcome> {
        Some(&self.backend(part)?.backend_outcome)
    }

    fn trials(&self, part: Part) -> Option<u32> {
        let summary = self.backend(part)?.summary.as_ref()?;
        Some(summary.trials)
    }

    fn latency(&self, part: Part) -> Option<&Latency> {
        self.backend(part)?.summary.as_ref()?.latency.as_ref()
    }

    fn histogram(&self, part: Part) -> Option<&HistogramData> {
        self.backend(part)?.histogram.as_ref()
    }

    fn verified_bytes(&self, part: Part) -> Option<u64> {
        let summary = self.backend(part)?.summary.as_ref()?;
        Some(summary.verified_bytes).filter(|&bytes| bytes > 0)
    }

    fn lacks_a_part(&self) -> bool {
        let mut outcomes = self.backends.iter().map(|it| &it.backend_outcome);
        outcomes.any(|outcome| matches!(outcome, Outcome::Skipped { .. }))
    }
}
