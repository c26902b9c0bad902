//! The body of a transfer: bytes between the memories of ranks.

mod background;
mod background_figures;
mod batches;
pub(crate) mod figures;
mod matrix;
mod paced;
mod series;

pub use background::{BackgroundSummary, CpuSharing, LoadedLatency, TrialBackground, TrialLatency};
pub use matrix::{MatrixVerdict, PairSpread, SlowPair, SlowRank, Unclear, judge};
pub use paced::{Pace, Stall};
pub use series::{
    BrokenOff, ClientSeries, IntervalExtremes, IntervalLatency, SERIES_CLIENTS_MAX, Standstill,
    TrialSeries,
};

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use tonnage_engine::Verb;
use tonnage_plan::transfer::{Pacing, TransferPoint};

use crate::body::{CommonOptions, KindBody, Moved, MovedInTrial, Part};
use crate::histogram::{HistogramData, Latency};
use crate::spread::Spread;
use series::is_zero;

/// A transfer: the point and its results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransferBody {
    /// The requested point.
    pub point: TransferPoint,
    /// One entry per timed repetition.
    pub trials: Vec<Trial>,
    /// Summary of the trials; absent unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Latencies of all operations in all trials and threads; absent if none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramData>,
    /// Intervals of the trial that was running when the point failed, if `--interval` was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_off: Option<BrokenOff>,
    /// CPUs of the threads that measure latency under a background load; absent without a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring_cpus: Option<CpuSharing>,
    /// Time that a rank's process needed to start the driver of its GPU and to initialize the GPU. The largest value of
    /// all ranks. This happens once per process, when its first point opens, outside all measured intervals. Every
    /// record of a run repeats the value, so don't sum it over records. Absent unless some memory is a GPU's or pinned
    /// for a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_start_ns: Option<u64>,
}

impl TransferBody {
    /// Creates the body of a point before it is measured.
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

    /// Returns the summary of the background load over the finished trials, even if the point failed later.
    pub fn background(&self) -> Option<Cow<'_, BackgroundSummary>> {
        let summary = self.summary.as_ref();
        if let Some(summary) = summary.and_then(|summary| summary.background.as_ref()) {
            return Some(Cow::Borrowed(summary));
        }
        let trials = self.trials.iter();
        let loads: Vec<_> = trials
            .filter_map(|trial| trial.background.as_ref())
            .collect();
        BackgroundSummary::from_trials(&loads, None).map(Cow::Owned)
    }
}

impl KindBody for TransferBody {
    fn options(&self) -> CommonOptions<'_> {
        let point = &self.point;
        CommonOptions {
            threads: Some(point.threads),
            traffic: Some(point.roles.traffic),
            place: point.place,
            memory: Some(&point.memories.memory),
            depth: match point.pacing {
                Pacing::Stream { depth } | Pacing::Paced { depth, .. } => Some(depth),
                Pacing::PingPong | Pacing::Batch { .. } => None,
            },
            ..CommonOptions::new(
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
            cpu_ns_per_operation: mean_per(trial.initiator_cpu_ns, trial.operations),
            in_flight_max: trial.in_flight_max,
        });
        Some(Moved {
            bandwidth_bytes_per_s: summary.bandwidth_bytes_per_s,
            message_rate_per_s: Some(summary.message_rate_per_s.mean),
            operations: summary.operations,
            payload_bytes: summary.payload_bytes,
            cpu_ns_per_operation: summary.initiator_cpu_ns_per_operation,
            bound: None,
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
    /// Returns the number of batches in flight at once: the number of flows in a round, times the batches in flight per
    /// flow.
    pub fn batches_at_once(&self) -> u64 {
        let roles = self.point.roles;
        let flows = roles.flow_count() / u64::from(roles.round_count());
        flows.saturating_mul(self.point.batches_to_a_peer().into())
    }
}

/// Returns `sum` / `count`; `None` if `count` is 0.
fn mean_per(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// One timed repetition over all ranks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trial {
    /// Measured interval: from the aligned start to the last completion or arrival on any rank. It includes the closing
    /// flush and `target_flush_ns`.
    pub window_ns: u64,
    /// Time in which targets of plain writes flushed data that NICs had written to GPU memory. Only the longest flush
    /// of each round counts. It is measured on the target's own clock, and is part of the measured interval. Absent if
    /// no flush was needed or made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_flush_ns: Option<u64>,
    /// Operations completed. A round trip of a ping-pong counts as two.
    pub operations: u64,
    /// Payload bytes of those operations.
    pub payload_bytes: u64,
    /// `payload_bytes` / measured interval.
    pub bandwidth_bytes_per_s: f64,
    /// `operations` / measured interval.
    pub message_rate_per_s: f64,
    /// Mean of the latencies recorded in this trial; absent if none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Smallest latency of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_min: Option<u64>,
    /// Largest latency of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_max: Option<u64>,
    /// Number of latency samples for operations that were due and never ended. If there are any, the mean and the
    /// maximum are lower bounds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
    /// CPU time of all initiating threads inside the measured interval.
    pub initiator_cpu_ns: u64,
    /// CPU time of all threads that are only targets, inside the measured interval.
    pub target_cpu_ns: u64,
    /// Delay from the aligned start to the last rank's actual start.
    pub start_skew_ns: u64,
    /// Maximum number of operations that any thread had in flight, over all its lanes; absent in records of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max: Option<u64>,
    /// Bytes that were verified after the trial; absent without `--verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
    /// The longest stall of a paced run; absent without a stall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// Figures of each direction, if pairs move bytes in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<TrialDirections>,
    /// Intervals of the trial, if `--interval` was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<TrialSeries>,
    /// Figures of the background load, and the latency without load, if `--background` was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<TrialBackground>,
}

/// Summary of a point's trials.
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
    /// Latency; absent if none was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Phases of batches, if their latency was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_phases: Option<BatchPhases>,
    /// Figures of the background load, and the latency without load, if there was a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundSummary>,
    /// Initiators' CPU time per operation.
    pub initiator_cpu_ns_per_operation: f64,
    /// CPU time of target threads per operation.
    pub target_cpu_ns_per_operation: f64,
    /// Mean bandwidth / bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Rails and their loads, if threads have several rails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rails: Vec<Rail>,
    /// The slowest rail, if its rate was more than 10 % below its share in every trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_rail: Option<SlowRail>,
    /// Figures of each direction, if pairs move bytes in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<Directions>,
    /// Figures of each initiating rank, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initiators: Vec<InitiatorFigures>,
    /// Operations actually posted for batches, if adjacent ones were merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_operations: Option<u64>,
    /// Figures of each pair, if pairs take turns. Empty if there are more than 1,024 pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairRate>,
    /// Verdict on the pairs of a matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<MatrixVerdict>,
    /// Fraction of compare-swaps that found the expected value, over all verified trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_fraction: Option<f64>,
    /// Offered and reached rate of a paced run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// With `--until-ci`: true if the confidence interval became narrow enough in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converged: Option<bool>,
}

/// Phases that make up the latency of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchPhases {
    /// Building the batch's operations.
    pub prepare: BatchPhase,
    /// Posting the batch's operations, including waits for free space in queues.
    pub post: BatchPhase,
    /// From the last post until the last completion of the batch.
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

/// Both directions of a trial, over the same measured interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialDirections {
    /// Operations that the first rank of each pair initiates.
    pub forward: TrialDirection,
    /// Operations that the second rank of each pair initiates.
    pub back: TrialDirection,
}

/// One direction of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialDirection {
    /// Operations completed.
    pub operations: u64,
    /// Payload bytes of these operations.
    pub payload_bytes: u64,
    /// `payload_bytes` / the trial's measured interval, so that both directions add up to the trial's bandwidth.
    pub bandwidth_bytes_per_s: f64,
}

/// Both directions over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Directions {
    /// Operations that the first rank of each pair initiates.
    pub forward: PairDirection,
    /// Operations that the second rank of each pair initiates.
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
    /// Mean of the direction's latencies; absent if no latencies were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Number of latency samples for operations that were due and never ended. If there are any, the mean is a lower
    /// bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}

/// One rail over all ranks: the devices that have the same index in each rank's list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rail {
    /// Index in the lists of devices, from 0.
    pub rail: u32,
    /// Device of the initiating ranks, if all of them use this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Payload bytes that initiators posted to the rail in all trials. Replies of ping-pongs don't count.
    pub payload_bytes: u64,
    /// Rate while busy, over all initiating threads: `payload_bytes` / the part of the measured intervals in which the
    /// rail had operations in flight. Estimated without clock reads: a thread counts the polls while the rail is busy.
    pub busy_bytes_per_s: f64,
    /// Fraction of the measured intervals in which the rail had operations in flight; mean over the initiating threads.
    pub busy_fraction: f64,
}

/// A rail that was slower than the other rails of its thread in every trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowRail {
    /// The initiating rank.
    pub rank: u32,
    /// Name of the rank's host.
    pub host: String,
    /// Index in the rank's list of devices.
    pub rail: u32,
    /// Device of the rail, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Lowest ratio of any trial: the rail's rate while busy / mean rate of the thread's other rails of the same kind.
    /// The ratio was below 0.9 in every trial.
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
    /// `payload_bytes` / the rank's own time. This time is from the aligned start of each trial to the rank's last
    /// completion, including the closing flush.
    pub bandwidth_bytes_per_s: f64,
    /// Smallest latency; absent if none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_min: Option<u64>,
    /// Mean of the rank's latencies; absent if no latencies were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Number of latency samples for operations that were due and never ended. If there are any, the mean is a lower
    /// bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}

/// One pair of ranks, which has the path to itself during its turns. With loads from a file, bytes and rates are those
/// of the trials, in which all pairs move their loads at the same time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairRate {
    /// The initiating rank.
    pub initiator: u32,
    /// The target rank.
    pub target: u32,
    /// True if both ranks are on one host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub within_host: bool,
    /// True if threads of both ranks share a CPU, so that they take turns on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_cpu: bool,
    /// Payload bytes of all turns of the pair.
    #[serde(default)]
    pub payload_bytes: u64,
    /// `payload_bytes` / total time of the pair's turns.
    pub bandwidth_bytes_per_s: f64,
    /// Rate of the pair's best turn.
    #[serde(default)]
    pub bandwidth_bytes_per_s_max: f64,
    /// Time in nanoseconds from the aligned start until the load had arrived, while the pair ran alone. Median of one
    /// turn per trial. Only for loads from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns_alone: Option<f64>,
    /// Time in nanoseconds from the aligned start until the load had arrived, while all pairs ran together. Median over
    /// the trials. Only for loads from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns_together: Option<f64>,
    /// Mean of the pair's latencies; absent if no latencies were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Number of latency samples for operations that were due and never ended. If there are any, the mean is a lower
    /// bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}

impl PairRate {
    /// Returns the time with other pairs / the time alone.
    pub fn slowdown(&self) -> Option<f64> {
        let alone_ns = self.time_ns_alone.filter(|&ns| ns > 0.0)?;
        Some(self.time_ns_together? / alone_ns)
    }

    /// Returns the sending and the receiving rank. If `reads`, bytes flow towards the initiator.
    pub fn direction(&self, reads: bool) -> (u32, u32) {
        match reads {
            true => (self.target, self.initiator),
            false => (self.initiator, self.target),
        }
    }
}
