//! The body of a transfer: bytes between the memories of ranks.

mod background;
mod background_figures;
mod batches;
pub(crate) mod figures;
mod matrix;
mod paced;
mod series;

pub use background::{
    BackgroundSummary, LoadedLatency, MeasuringCpus, TrialBackground, TrialLatency,
};
pub use matrix::{MatrixVerdict, PairMiddle, SlowPair, SlowRank, Unclear, judge};
pub use paced::{Pace, Stall};
pub use series::{
    BrokenOff, ClientSeries, IntervalExtremes, IntervalLatency, SERIES_CLIENTS_MAX, Standstill,
    TrialSeries,
};

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use tonnage_engine::Verb;
use tonnage_plan::transfer::{Pacing, TransferPoint};

use crate::body::{KindBody, Moved, MovedInTrial, Part, PointOptions};
use crate::histogram::{HistogramData, Latency};
use crate::spread::Spread;
use series::is_zero;

/// A transfer as it was asked for, and what came out of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransferBody {
    /// The point that was asked for.
    pub point: TransferPoint,
    /// One entry for each timed repetition.
    pub trials: Vec<Trial>,
    /// The trials taken together; absent unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Latencies of all operations of all trials and workers; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramData>,
    /// Intervals of the trial in which the point failed, where `--interval` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_off: Option<BrokenOff>,
    /// CPUs of the workers that measure beside a background; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring_cpus: Option<MeasuringCpus>,
    /// Time in which a rank's process, as that saw it, started the driver of its GPU and took the GPU into use, the
    /// longest of all ranks: once in a process, when its first point is opened, and in no window. Every record of a run
    /// has it again, so that sums over records mean nothing. Absent where no memory is a GPU's or pinned for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_start_ns: Option<u64>,
}

impl TransferBody {
    /// A point before anything was measured.
    pub fn new(point: TransferPoint) -> Self {
        Self {
            point,
            trials: Vec::new(),
            summary: None,
            histogram: None,
            broken_off: None,
            measuring_cpus: None,
            driver_start_ns: None,
        }
    }

    /// Backgrounds of the trials that ended, taken together, also of a point that failed later.
    pub fn background(&self) -> Option<Cow<'_, BackgroundSummary>> {
        let summary = self.summary.as_ref();
        if let Some(summary) = summary.and_then(|summary| summary.background.as_ref()) {
            return Some(Cow::Borrowed(summary));
        }
        let trials = self.trials.iter();
        let loads: Vec<_> = trials
            .filter_map(|trial| trial.background.as_ref())
            .collect();
        BackgroundSummary::of(&loads, None).map(Cow::Owned)
    }
}

impl KindBody for TransferBody {
    fn options(&self) -> PointOptions<'_> {
        let point = &self.point;
        PointOptions {
            workers: Some(point.workers),
            traffic: Some(point.roles.traffic),
            place: point.place,
            memory: Some(&point.memory),
            window: match point.pacing {
                Pacing::Stream { window } | Pacing::Paced { window, .. } => Some(window),
                Pacing::PingPong | Pacing::Batch { .. } => None,
            },
            ..PointOptions::new(
                &point.label,
                &point.engine,
                &point.engine_options,
                point.roles.ranks,
            )
        }
    }

    fn verb(&self, _: Part) -> Option<Verb> {
        Some(self.point.op)
    }

    fn measured_ns(&self, _: Part) -> u64 {
        self.trials.iter().map(|trial| trial.window_ns).sum()
    }

    fn trials(&self, _: Part) -> Option<u32> {
        self.summary.as_ref().map(|summary| summary.trials)
    }

    fn latency(&self, _: Part) -> Option<&Latency> {
        self.summary.as_ref()?.latency.as_ref()
    }

    fn histogram(&self, _: Part) -> Option<&HistogramData> {
        self.histogram.as_ref()
    }

    fn moved(&self, _: Part) -> Option<Moved<'_>> {
        let summary = self.summary.as_ref()?;
        let trials = self.trials.iter().map(|trial| MovedInTrial {
            bandwidth_bytes_per_s: trial.bandwidth_bytes_per_s,
            message_rate_per_s: Some(trial.message_rate_per_s),
            cpu_ns_per_operation: per(trial.initiator_cpu_ns, trial.operations),
            in_flight_max: trial.in_flight_max,
        });
        Some(Moved {
            bandwidth_bytes_per_s: summary.bandwidth_bytes_per_s,
            message_rate_per_s: Some(summary.message_rate_per_s.mean),
            operations: summary.operations,
            payload_bytes: summary.payload_bytes,
            cpu_ns_per_operation: summary.initiator_cpu_ns_per_operation,
            limit: None,
            utilization: summary.utilization,
            trials: trials.collect(),
        })
    }

    fn verified_bytes(&self, _: Part) -> Option<u64> {
        let checked = self.trials.iter().filter_map(|trial| trial.verified_bytes);
        checked.reduce(u64::saturating_add)
    }
}

impl TransferBody {
    /// Batches that are under way at once: those of a worker, or rank, towards each of its peers.
    pub fn batches_at_once(&self) -> u64 {
        let roles = self.point.roles;
        let flows = roles.flows() / u64::from(roles.rounds());
        flows.saturating_mul(self.point.batches_to_a_peer().into())
    }
}

/// A part of a sum for each of some things; `None` where there are none.
fn per(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// One timed repetition over all ranks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trial {
    /// Time from the aligned start to the last completion or arrival on any rank, closing flush and `target_flush_ns`
    /// included.
    pub window_ns: u64,
    /// Time in which targets of plain writes flushed what network cards had written into memory of a GPU, by their own
    /// clocks, the longest of each round; it is at the end of the window. Absent where none was needed, or made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_flush_ns: Option<u64>,
    /// Operations completed (a round trip of a ping-pong is two).
    pub operations: u64,
    /// Payload bytes of those operations.
    pub payload_bytes: u64,
    /// `payload_bytes` / window.
    pub bandwidth_bytes_per_s: f64,
    /// `operations` / window.
    pub message_rate_per_s: f64,
    /// Mean of the latencies recorded in this trial; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Smallest latency of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_min: Option<u64>,
    /// Largest latency of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_max: Option<u64>,
    /// Operations that were due and never ended, among the samples. With any, the mean and the largest latency are lower
    /// bounds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
    /// CPU time of all initiating workers inside the window.
    pub initiator_cpu_ns: u64,
    /// CPU time of all workers that only serve.
    pub target_cpu_ns: u64,
    /// Delay of the last rank's real start after the aligned start.
    pub start_skew_ns: u64,
    /// The most operations that any worker had in flight at a time, on all its lanes together; absent in records of
    /// older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max: Option<u64>,
    /// Bytes that were checked after the trial and found right; absent without `--verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
    /// Paced runs: the longest stall, if there was any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// Each direction, where pairs move bytes both ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<TrialDirections>,
    /// Its intervals, where `--interval` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<TrialSeries>,
    /// The load beside it, where `--background` asked for one, and the latency without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<TrialBackground>,
}

/// The trials of a point taken together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Number of trials.
    pub trials: u32,
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Message rate over the trials.
    pub message_rate_per_s: Spread,
    /// Latency; absent where none was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Phases of batches, where their latency was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_phases: Option<BatchPhases>,
    /// The load beside the latency, where there was one, and the latency without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundSummary>,
    /// Initiators' CPU time per operation.
    pub initiator_cpu_ns_per_operation: f64,
    /// Serving ranks' CPU time per operation.
    pub target_cpu_ns_per_operation: f64,
    /// Mean bandwidth / limit, 1.0 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Rails and their loads, where workers have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rails: Vec<Rail>,
    /// The slowest rail, where one was 10 % under its share in every trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_rail: Option<SlowRail>,
    /// Each direction, where pairs move bytes both ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<Directions>,
    /// Each initiating rank, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initiators: Vec<InitiatorFigures>,
    /// Operations that the engine was handed for those of batches, where neighbours were merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_operations: Option<u64>,
    /// Each pair, where they take turns; none where there are more than 1,024 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairRate>,
    /// Verdict on the pairs of a matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<MatrixVerdict>,
    /// Part of the compare-swaps that found what they expected, of trials that were verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_fraction: Option<f64>,
    /// Paced runs: what was asked for and what was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// With `--until-ci`: true when the interval became that narrow before the time was up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converged: Option<bool>,
}

/// Phases that make up the latency of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchPhases {
    /// Building its operations.
    pub prepare: BatchPhase,
    /// Handing them over, waits for room included.
    pub post: BatchPhase,
    /// From there to the completion of the last one.
    pub complete: BatchPhase,
}

/// Times of one phase, over all batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchPhase {
    /// Mean time.
    pub time_ns_mean: f64,
    /// Median.
    pub time_ns_p50: u64,
    /// 99th percentile.
    pub time_ns_p99: u64,
}

/// Both directions of a trial, over the same window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialDirections {
    /// Operations of the first ranks of the pairs.
    pub forward: TrialDirection,
    /// Operations of the ranks behind them.
    pub back: TrialDirection,
}

/// One direction of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialDirection {
    /// Operations completed.
    pub operations: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// `payload_bytes` / window of the trial, so that both directions add up to the trial's bandwidth.
    pub bandwidth_bytes_per_s: f64,
}

/// Both directions over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Directions {
    /// Operations of the first ranks of the pairs.
    pub forward: PairDirection,
    /// Operations of the ranks behind them.
    pub back: PairDirection,
}

/// One direction over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairDirection {
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Mean of its latencies; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Operations among its latencies that were due and never ended. With any, the mean is a lower bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}

/// One rail of all ranks together: the devices with the same place in their lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rail {
    /// Place in the lists of devices, from 0.
    pub rail: u32,
    /// Device of the initiating ranks, where all of them have one of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Payload bytes of all trials that initiators handed to it; answers of a ping-pong are not in it.
    pub payload_bytes: u64,
    /// Rate while it was busy, all initiating workers together: `payload_bytes` / the part of the windows in which it
    /// had something in flight. Without a clock of its own: a worker counts the polls at which it had.
    pub busy_bytes_per_s: f64,
    /// Part of the windows in which it had something in flight, mean over the initiating workers.
    pub busy_fraction: f64,
}

/// A rail that was slower than the others of its worker in every trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowRail {
    /// The initiating rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Place in its list of devices.
    pub rail: u32,
    /// Its device, where that has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Rate while busy / mean rate of the worker's other rails that are like it: below 0.9 in every trial. The lowest.
    pub share: f64,
}

/// One initiating rank over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InitiatorFigures {
    /// The rank.
    pub rank: u32,
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// `payload_bytes` / the rank's own time: from the aligned start of each trial to its last completion, closing
    /// flush included.
    pub bandwidth_bytes_per_s: f64,
    /// Smallest latency; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_min: Option<u64>,
    /// Mean of its latencies; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Operations among its latencies that were due and never ended. With any, the mean is a lower bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}

/// One pair of ranks that had the path for itself in its turn, or one with a load of a file, whose bytes and rates are
/// those of the trials, in which all pairs move theirs at once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairRate {
    /// The rank that initiated.
    pub initiator: u32,
    /// The other one.
    pub target: u32,
    /// True where both are on one host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub within_host: bool,
    /// True where workers of both are on one CPU, so that they take turns on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_cpu: bool,
    /// Payload bytes of all its turns.
    #[serde(default)]
    pub payload_bytes: u64,
    /// Payload bytes of all its turns / their time.
    pub bandwidth_bytes_per_s: f64,
    /// Rate of its best turn.
    #[serde(default)]
    pub bandwidth_bytes_per_s_max: f64,
    /// Time from the aligned start until its load had arrived in a turn for itself, nanoseconds: the median of as many
    /// turns as trials. Only of loads of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns_alone: Option<f64>,
    /// Median of that time over the trials, beside the other pairs. Only of loads of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns_together: Option<f64>,
    /// Mean of its latencies; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Operations among its latencies that were due and never ended. With any, the mean is a lower bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}

impl PairRate {
    /// Time beside the other pairs / time alone.
    pub fn slowdown(&self) -> Option<f64> {
        let alone_ns = self.time_ns_alone.filter(|&ns| ns > 0.0)?;
        Some(self.time_ns_together? / alone_ns)
    }

    /// The rank that sends and the one that receives. `reads`: bytes flow towards the initiator.
    pub fn direction(&self, reads: bool) -> (u32, u32) {
        match reads {
            true => (self.target, self.initiator),
            false => (self.initiator, self.target),
        }
    }
}
