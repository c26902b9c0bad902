//! The body of an experiment with collectives: for each backend its trials, and what they add up to.
//!
//! The time of an iteration is made of those of all ranks, each by its own clock: that of the slowest rank, their mean
//! and that of the fastest one. The parts of a record are its backends.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_collective::Algorithm;
use tonnage_plan::collective::{Across, CollectivePoint};

use crate::body::{KindBody, Part, PointOptions};
use crate::histogram::{HistogramData, Latency};
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::spread::Spread;

/// Ranks whose times are in a record, at most.
pub const RANKS_KEPT_MAX: usize = 1024;

/// An experiment with collectives as it was asked for, and what came out of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveBody {
    /// The point that was asked for.
    pub point: CollectivePoint,
    /// The backends in the order in which they were asked for; empty unless it was begun.
    pub backends: Vec<BackendRecord>,
}

impl CollectiveBody {
    /// A point before anything was measured.
    pub fn new(point: CollectivePoint) -> Self {
        Self {
            point,
            backends: Vec::new(),
        }
    }

    /// The backend that a part is.
    pub fn backend(&self, part: Part) -> Option<&BackendRecord> {
        match part {
            Part::Nth(at) => self.backends.get(at),
            Part::Whole | Part::Inside(..) => None,
        }
    }
}

/// One backend of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackendRecord {
    /// Its name, as in `--backend`.
    pub backend: String,
    /// End of the point on it; others may have ended otherwise.
    pub backend_outcome: Outcome,
    /// True where results really took the place of the inputs.
    pub really_in_place: bool,
    /// Algorithm that it was asked for or chose; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_algorithm: Option<Algorithm>,
    /// Longest message that it was asked for or chose; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_chunk_bytes: Option<u64>,
    /// Upper bound of the bus's bandwidth over its path, where one was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_limit: Option<Limit>,
    /// One entry for each timed repetition.
    pub trials: Vec<CollectiveTrial>,
    /// The trials taken together; absent unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<CollectiveSummary>,
    /// Times of all iterations, of the slowest rank of each; absent where calls follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramData>,
}

/// One timed repetition over all ranks. Where calls follow each other, a rank's time of an iteration is that of all of
/// them / their number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveTrial {
    /// Iterations.
    pub iterations: u64,
    /// Time of an iteration on the slowest rank of each, mean over the iterations.
    pub call_ns_rank_max: f64,
    /// Time of an iteration, mean over ranks and iterations.
    pub call_ns_rank_mean: f64,
    /// Time of an iteration on the fastest rank of each, mean over the iterations.
    pub call_ns_rank_min: f64,
}

/// The trials of a backend taken together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveSummary {
    /// Number of trials.
    pub trials: u32,
    /// Iterations of all trials.
    pub iterations: u64,
    /// Time of an iteration over the trials, combined as `across` of the point says.
    pub call_ns: Spread,
    /// Of the slowest rank, mean over the trials.
    pub call_ns_rank_max: f64,
    /// Of all ranks, mean over the trials.
    pub call_ns_rank_mean: f64,
    /// Of the fastest rank, mean over the trials.
    pub call_ns_rank_min: f64,
    /// Size / `call_ns`: the mean is that of the mean time, and its interval has the same part of it; absent for a
    /// barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algbw_bytes_per_s: Option<Spread>,
    /// `algbw_bytes_per_s` multiplied by the operation's factor; absent for a barrier and for one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busbw_bytes_per_s: Option<Spread>,
    /// Mean of `busbw_bytes_per_s` / the limit; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busbw_limit_fraction: Option<f64>,
    /// Times of the iterations, each of its slowest rank; absent where calls follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Bytes of results that were checked and right.
    pub verified_bytes: u64,
    /// Ranks in their order; of more than 1,024 those that began last most often.
    pub rank_times: Vec<RankCalls>,
    /// Groups in their order; of more than 1,024 the slowest. Empty where all ranks are one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_times: Vec<GroupTimes>,
}

/// Times of one group of ranks, which called at the same time as the others: means over iterations and trials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupTimes {
    /// The group, counted from 0; its ranks follow from `groups` of the point.
    pub group: u32,
    /// Time of an iteration on the slowest rank of the group.
    pub group_call_ns_rank_max: f64,
    /// Time of an iteration, mean over the group's ranks.
    pub group_call_ns_rank_mean: f64,
    /// Time of an iteration on the fastest rank of the group.
    pub group_call_ns_rank_min: f64,
}

impl GroupTimes {
    /// Time of an iteration, combined over the group's ranks.
    pub fn call_ns(&self, across: Across) -> f64 {
        match across {
            Across::Max => self.group_call_ns_rank_max,
            Across::Mean => self.group_call_ns_rank_mean,
            Across::Min => self.group_call_ns_rank_min,
        }
    }
}

/// Times of one rank over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankCalls {
    /// The rank.
    pub rank: u32,
    /// Its time of an iteration, mean over the trials.
    pub call_ns_mean: f64,
    /// Iterations that it began after all others, by clocks that were followed.
    pub began_last: u64,
}

/// The parts of a record are its backends.
impl KindBody for CollectiveBody {
    fn options(&self) -> PointOptions<'_> {
        let point = &self.point;
        PointOptions {
            place: point.place,
            memory: Some(&point.memory),
            ..PointOptions::new(
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
        let own = |it: &BackendRecord| it.trials.iter().map(of_trial).sum::<f64>();
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
