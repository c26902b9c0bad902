//! The body of a file experiment: bytes between memory and files.
//!
//! Times of a phase are counted from the common start by rank 0's clock, so that those of different hosts can be
//! compared. The meaning of the figures is in docs/METHODOLOGY.md.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_plan::files::{FilePoint, Phase, Published};
use tonnage_plan::point::Reading;

use crate::body::{KindBody, Moved, MovedInTrial, Part, PointOptions};
use crate::histogram::{HistogramData, Latency};
use crate::limit::Limit;
use crate::spread::Spread;

/// A file experiment as it was asked for, and what came out of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileBody {
    /// The point that was asked for.
    pub point: FilePoint,
    /// Figures that others measured with the same options, for comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Time beyond the mean from which on a rank is reported as an outlier; automatic when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlier_ns: Option<u64>,
    /// Storage of the files, ranks with the same answer together.
    pub storage: Vec<Storage>,
    /// One entry for each phase that ended, in order, with its repetitions; those before a failure are there too.
    pub phases: Vec<PhaseRecord>,
}

impl FileBody {
    /// An experiment before anything was measured.
    pub fn new(point: FilePoint, reading: Reading) -> Self {
        Self {
            point,
            published: reading.published,
            outlier_ns: reading.outlier_ns,
            storage: Vec::new(),
            phases: Vec::new(),
        }
    }
}

/// The parts of a record are its phases. One that both reads and writes has two more, for the latencies of each. Where
/// no phase ended, the whole is a part.
impl KindBody for FileBody {
    fn options(&self) -> PointOptions<'_> {
        let point = &self.point;
        PointOptions {
            window: Some(point.window),
            ..PointOptions::new(
                &point.label,
                &point.engine,
                &point.engine_options,
                point.ranks,
            )
        }
    }

    fn parts(&self) -> Vec<Part> {
        if self.phases.is_empty() {
            return vec![Part::Whole];
        }
        let parts = self.phases.iter().enumerate().flat_map(|(at, phase)| {
            let several = phase.latencies.len() > 1;
            let directions = 0..phase.latencies.len();
            let inside = directions.filter(move |_| several);
            let inside = inside.map(move |direction| Part::Inside(at, direction));
            std::iter::once(Part::Nth(at)).chain(inside)
        });
        parts.collect()
    }

    fn measured_ns(&self, part: Part) -> u64 {
        let own = |phase: &PhaseRecord| phase.trials.iter().map(|trial| trial.total_ns).sum();
        match part {
            Part::Whole => self.phases.iter().map(own).sum(),
            Part::Nth(_) | Part::Inside(..) => self.phase(part).map_or(0, own),
        }
    }

    fn trials(&self, part: Part) -> Option<u32> {
        self.phase(part).map(|phase| phase.summary.trials)
    }

    fn latency(&self, part: Part) -> Option<&Latency> {
        self.transfers(part).map(|transfers| &transfers.latency)
    }

    fn histogram(&self, part: Part) -> Option<&HistogramData> {
        self.transfers(part).map(|transfers| &transfers.histogram)
    }

    fn moved(&self, part: Part) -> Option<Moved<'_>> {
        let phase = self.phase(part)?;
        let summary = &phase.summary;
        let trials = phase.trials.iter().map(|trial| MovedInTrial {
            bandwidth_bytes_per_s: trial.bandwidth_bytes_per_s,
            message_rate_per_s: None,
            cpu_ns_per_operation: (trial.operations > 0)
                .then(|| trial.transfer_cpu_ns as f64 / trial.operations as f64),
            in_flight_max: trial.in_flight_max.map(u64::from),
        });
        Some(Moved {
            bandwidth_bytes_per_s: summary.bandwidth_bytes_per_s,
            message_rate_per_s: None,
            operations: summary.operations,
            payload_bytes: summary.payload_bytes,
            cpu_ns_per_operation: summary.cpu_ns_per_operation,
            limit: summary.limit.as_ref(),
            utilization: summary.utilization,
            trials: trials.collect(),
        })
    }

    fn verified_bytes(&self, part: Part) -> Option<u64> {
        let trials = self.phase(part)?.trials.iter();
        let checked = trials.filter_map(|trial| trial.verified_bytes);
        checked.reduce(u64::saturating_add)
    }
}

impl FileBody {
    /// The phase that a part is.
    pub fn phase(&self, part: Part) -> Option<&PhaseRecord> {
        match part {
            Part::Nth(at) => self.phases.get(at),
            Part::Whole | Part::Inside(..) => None,
        }
    }

    /// The phase that a part is, or is inside of.
    pub fn phase_around(&self, part: Part) -> Option<&PhaseRecord> {
        match part {
            Part::Nth(at) | Part::Inside(at, _) => self.phases.get(at),
            Part::Whole => None,
        }
    }

    /// Latencies of a part: the reads or the writes of a phase, or all of a phase that has only the one or the other.
    pub fn transfers(&self, part: Part) -> Option<&TransferLatency> {
        match (part, self.phase_around(part)?.latencies.as_slice()) {
            (Part::Nth(_), [only]) => Some(only),
            (Part::Inside(_, at), latencies) => latencies.get(at),
            (Part::Whole | Part::Nth(_), _) => None,
        }
    }
}

/// The file system that some ranks' files are on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Storage {
    /// Ranks, such as "0-3,8".
    pub ranks: String,
    /// The directory of their files.
    pub directory: String,
    /// Its kind: "ext4", "tmpfs", "lustre", …
    pub file_system: String,
    /// Source of the mount: a device, a server's export, …; "unknown" where the system does not tell.
    pub source: String,
    /// Bytes free for this user when the experiment began.
    pub free_bytes: u64,
    /// Alignment of direct transfers; absent where the file system has none, or the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_alignment: Option<DirectAlignment>,
    /// Stripes of new files as the file system reports them; absent where it does not stripe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub striping: Option<String>,
}

/// Alignment of direct transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectAlignment {
    /// The address in memory.
    pub memory_bytes: u32,
    /// Offset in the file, and length.
    pub offset_bytes: u32,
}

/// One phase with its repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseRecord {
    /// Write, read or mixed.
    pub phase: Phase,
    /// One entry for each repetition.
    pub trials: Vec<PhaseTrial>,
    /// The repetitions taken together.
    pub summary: PhaseSummary,
    /// Latency of single reads and of single writes, over all ranks and repetitions.
    pub latencies: Vec<TransferLatency>,
}

/// One repetition of a phase over all ranks. Times named "first" and "last" are over ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseTrial {
    /// Number of the repetition, from 0.
    pub trial: u32,
    /// Transfers made.
    pub operations: u64,
    /// Reads among these.
    pub reads: u64,
    /// Bytes moved.
    pub payload_bytes: u64,
    /// First open begun to last close ended.
    pub total_ns: u64,
    /// `payload_bytes` / total.
    pub bandwidth_bytes_per_s: f64,
    /// First transfer begun to last transfer (with its sync) ended.
    pub transfer_ns: u64,
    /// `operations` / transfer.
    pub operations_per_s: f64,
    /// Opening, first begun to last ended.
    pub open_ns: u64,
    /// Closing, first begun to last ended.
    pub close_ns: u64,
    /// Time that one rank took to open its files.
    pub open_of_rank: RankTimes,
    /// Time that one rank took for its transfers, sync included.
    pub transfer_of_rank: RankTimes,
    /// Time that one rank waited for its data to be on stable storage, all syncs together; absent where none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_of_rank: Option<RankTimes>,
    /// Time that one rank took to close its files.
    pub close_of_rank: RankTimes,
    /// Ranks whose transfers took much longer than the mean, slowest first; at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<Outlier>,
    /// CPU time of all threads that made transfers, open to close.
    pub cpu_ns: u64,
    /// Part of `cpu_ns` that the transfers and their syncs took.
    pub transfer_cpu_ns: u64,
    /// The most transfers that any thread had in flight at a time: handed to the system and not taken back. 1 where
    /// each transfer is a call that blocks; absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max: Option<u32>,
    /// Time at which the first rank had made all its transfers, from the common start.
    pub first_done_ns: u64,
    /// Bytes of all ranks by then; exact to one interval of the series.
    pub first_done_bytes: u64,
    /// Time at which the last rank had made all its transfers.
    pub last_done_ns: u64,
    /// Bytes and transfers that had been moved when the stonewall came; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stonewall: Option<StonewallFigures>,
    /// Bytes of all ranks over time.
    pub series: Series,
    /// State of the page cache before; absent for phases that only write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheState>,
    /// Bytes that were checked after the phase and found right; absent where none were checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
    /// Seed of the data; absent where none was written or checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_seed: Option<u64>,
}

/// One duration over all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankTimes {
    /// Time of the fastest rank.
    pub ns_min: u64,
    /// Mean over the ranks.
    pub ns_mean: f64,
    /// Time of the slowest rank.
    pub ns_max: u64,
    /// The slowest rank.
    pub slowest: u32,
}

/// A rank that was much slower than the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outlier {
    /// Its number.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Time that its transfers took.
    pub ns: u64,
}

/// Figures at the moment of a stonewall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StonewallFigures {
    /// Time from the common start.
    pub after_ns: u64,
    /// Transfers that had ended by then, exactly.
    pub operations: u64,
    /// Their bytes.
    pub payload_bytes: u64,
    /// Bytes of the rank that had moved least.
    pub rank_bytes_min: u64,
    /// Bytes of the rank that had moved most.
    pub rank_bytes_max: u64,
    /// `payload_bytes` over the time from the first transfer's begin to the stonewall.
    pub bandwidth_bytes_per_s: f64,
    /// Transfers of each rank once all had caught up; absent without wear-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worn_out_transfers: Option<u64>,
}

/// Bytes over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// Length of one interval; the first begins at the common start.
    pub interval_ns: u64,
    /// Bytes of the transfers that ended in each interval; nothing follows the last.
    pub bytes: Vec<u64>,
}

/// State of the page caches of the ranks' hosts before a phase that reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheState {
    /// Bytes that the phase was to read.
    pub bytes: u64,
    /// Bytes of these that were resident before.
    pub resident_bytes: u64,
    /// Source of the figures: "cachestat" or "mincore", "of a sample" where the pieces were too many to ask about each;
    /// or why there are none: then `resident_bytes` is 0 and says nothing.
    pub how: String,
    /// True when it could be found out on all ranks.
    pub known: bool,
    /// True when cached bytes were dropped before.
    pub dropped: bool,
    /// True when the page cache had no part in it, because the transfers were direct.
    pub direct: bool,
}

/// Latencies of single transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransferLatency {
    /// True for writes, false for reads.
    pub write: bool,
    /// The figures.
    pub latency: Latency,
    /// All samples.
    pub histogram: HistogramData,
}

/// The repetitions of a phase taken together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseSummary {
    /// Number of repetitions.
    pub trials: u32,
    /// Transfers of all repetitions.
    pub operations: u64,
    /// Bytes of all repetitions.
    pub payload_bytes: u64,
    /// Bandwidth over the repetitions.
    pub bandwidth_bytes_per_s: Spread,
    /// Transfers per second over the repetitions.
    pub operations_per_s: Spread,
    /// CPU time of a transfer, its share of the syncs included, opening and closing not.
    pub cpu_ns_per_operation: f64,
    /// CPU time for each GiB, opening and closing included.
    pub cpu_ns_per_gib: f64,
    /// The upper bound that the bandwidth is a fraction of: the storage's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Mean bandwidth / limit, 1.0 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
}
