//! The body of a file experiment: bytes between memory and files.
//!
//! Times of a phase count from the common start, on rank 0's clock, so that times from different hosts are comparable.
//! docs/METHODOLOGY.md defines the figures.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_plan::files::{FilePoint, Phase, Published};
use tonnage_plan::point::PointNotes;

use crate::body::{CommonOptions, KindBody, Moved, MovedInTrial, Part};
use crate::bound::Bound;
use crate::histogram::{HistogramData, Latency};
use crate::spread::Spread;

/// A file experiment: the point and its results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileBody {
    /// The requested point.
    pub point: FilePoint,
    /// Published figures for the same options, for comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// A rank is an outlier if its time exceeds the mean by this much. If absent, the program chose the threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlier_ns: Option<u64>,
    /// Storage of the files. Ranks with the same storage are listed together.
    pub storage: Vec<Storage>,
    /// One entry per finished phase, in order. If the point failed, the phases that finished before are listed.
    pub phases: Vec<PhaseRecord>,
}

impl FileBody {
    /// Creates the body of an experiment before it is measured.
    pub fn new(point: FilePoint, reading: PointNotes) -> Self {
        Self {
            point,
            published: reading.published,
            outlier_ns: reading.outlier_ns,
            storage: Vec::new(),
            phases: Vec::new(),
        }
    }
}

/// The parts of a record are its phases. A phase that reads and writes has two additional parts, for the latencies of
/// reads and of writes. If no phase finished, the whole record is a part.
impl KindBody for FileBody {
    fn options(&self) -> CommonOptions<'_> {
        let point = &self.point;
        CommonOptions {
            depth: Some(point.depth),
            ..CommonOptions::new(
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
            bound: summary.bound.as_ref(),
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
    /// Returns the phase of a part.
    pub fn phase(&self, part: Part) -> Option<&PhaseRecord> {
        match part {
            Part::Nth(at) => self.phases.get(at),
            Part::Whole | Part::Inside(..) => None,
        }
    }

    /// Returns the phase of a part. If the part lies inside a phase, returns that phase.
    pub fn phase_around(&self, part: Part) -> Option<&PhaseRecord> {
        match part {
            Part::Nth(at) | Part::Inside(at, _) => self.phases.get(at),
            Part::Whole => None,
        }
    }

    /// Returns the latencies of a part. For a phase in one direction, these are the latencies of all its transfers.
    pub fn transfers(&self, part: Part) -> Option<&TransferLatency> {
        match (part, self.phase_around(part)?.latencies.as_slice()) {
            (Part::Nth(_), [only]) => Some(only),
            (Part::Inside(_, at), latencies) => latencies.get(at),
            (Part::Whole | Part::Nth(_), _) => None,
        }
    }
}

/// The file system that holds the files of some ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Storage {
    /// Ranks with files there, such as "0-3,8".
    pub ranks: String,
    /// Directory of the files.
    pub directory: String,
    /// Kind of the file system: "ext4", "tmpfs", "lustre", …
    pub file_system: String,
    /// Source of the mount: a device, a server's export, …; "unknown" if the system does not report it.
    pub source: String,
    /// Bytes free for this user at the start of the experiment.
    pub free_bytes: u64,
    /// Alignment of direct transfers; absent if the file system has none, or the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_alignment: Option<DirectAlignment>,
    /// Striping of new files as the file system reports it; absent if it does not stripe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub striping: Option<String>,
}

/// Alignment of direct transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectAlignment {
    /// Alignment of the memory address.
    pub memory_bytes: u32,
    /// Alignment of the file offset and the length.
    pub offset_bytes: u32,
}

/// One phase with its repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseRecord {
    /// Write, read or mixed.
    pub phase: Phase,
    /// One entry per repetition.
    pub trials: Vec<PhaseTrial>,
    /// Summary of the repetitions.
    pub summary: PhaseSummary,
    /// Latencies of individual reads and writes, over all ranks and repetitions.
    pub latencies: Vec<TransferLatency>,
}

/// One repetition of a phase over all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseTrial {
    /// Number of the repetition, from 0.
    pub trial: u32,
    /// Number of transfers.
    pub operations: u64,
    /// Number of reads among the transfers.
    pub reads: u64,
    /// Bytes moved.
    pub payload_bytes: u64,
    /// From the start of the first open to the end of the last close.
    pub total_ns: u64,
    /// `payload_bytes` / total time.
    pub bandwidth_bytes_per_s: f64,
    /// From the start of the first transfer to the end of the last transfer, including its sync.
    pub transfer_ns: u64,
    /// `operations` / transfer time.
    pub operations_per_s: f64,
    /// From the start of the first open to the end of the last open.
    pub open_ns: u64,
    /// From the start of the first close to the end of the last close.
    pub close_ns: u64,
    /// Time for a rank to open its files.
    pub open_of_rank: RankTimes,
    /// Time for a rank to make its transfers, including syncs.
    pub transfer_of_rank: RankTimes,
    /// Time that a rank waited for stable storage, over all its syncs; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_of_rank: Option<RankTimes>,
    /// Time for a rank to close its files.
    pub close_of_rank: RankTimes,
    /// Ranks with transfer times much longer than the mean, slowest first; at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<Outlier>,
    /// CPU time of all threads that made transfers, from open to close.
    pub cpu_ns: u64,
    /// Part of `cpu_ns` used by the transfers and their syncs.
    pub transfer_cpu_ns: u64,
    /// Maximum number of transfers that any thread had in flight, submitted to the system but not completed. 1 if each
    /// transfer is a blocking call. Absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max: Option<u32>,
    /// Time from the common start until the first rank had made all its transfers.
    pub first_done_ns: u64,
    /// Bytes of all ranks at `first_done_ns`, to within one interval of the series.
    pub first_done_bytes: u64,
    /// Time from the common start until the last rank had made all its transfers.
    pub last_done_ns: u64,
    /// Figures at the stonewall; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stonewall: Option<StonewallFigures>,
    /// Bytes of all ranks over time.
    pub series: Series,
    /// State of the page cache before the phase; absent for phases that only write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheState>,
    /// Bytes that were verified after the phase; absent if no bytes were checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
    /// Seed of the data; absent if no data was written or checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_seed: Option<u64>,
}

/// Statistics of one duration over all ranks.
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
    /// Number of the rank.
    pub rank: u32,
    /// Name of the rank's host.
    pub host: String,
    /// Time of the rank's transfers.
    pub ns: u64,
}

/// Figures at the time of a stonewall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StonewallFigures {
    /// Time from the common start to the stonewall.
    pub after_ns: u64,
    /// Exact number of transfers that had ended at the stonewall.
    pub operations: u64,
    /// Bytes of these transfers.
    pub payload_bytes: u64,
    /// Bytes of the rank that had moved the least data.
    pub rank_bytes_min: u64,
    /// Bytes of the rank that had moved the most data.
    pub rank_bytes_max: u64,
    /// `payload_bytes` / time from the start of the first transfer to the stonewall.
    pub bandwidth_bytes_per_s: f64,
    /// Number of transfers that every rank had made at the end of wear-out; absent without wear-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worn_out_transfers: Option<u64>,
}

/// Bytes over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// Length of one interval. The first begins at the common start.
    pub interval_ns: u64,
    /// Bytes of the transfers that ended in each interval. The last interval listed is the last one with any bytes.
    pub bytes: Vec<u64>,
}

/// State of the page caches on the ranks' hosts before a phase that reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheState {
    /// Bytes that the phase was going to read.
    pub bytes: u64,
    /// Bytes among these that were in the page cache before the phase.
    pub resident_bytes: u64,
    /// How `resident_bytes` was obtained: "cachestat" or "mincore", followed by "of a sample" if not every piece was
    /// queried. If the number is unknown, this is the reason, and `resident_bytes` is 0 and meaningless.
    pub how: String,
    /// True if the state is known on all ranks.
    pub known: bool,
    /// True if cached bytes were dropped before the phase.
    pub dropped: bool,
    /// True if the transfers were direct, and so bypassed the page cache.
    pub direct: bool,
}

/// Latencies of individual transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransferLatency {
    /// True for writes, false for reads.
    pub write: bool,
    /// Latency figures.
    pub latency: Latency,
    /// All samples.
    pub histogram: HistogramData,
}

/// Summary of a phase's repetitions.
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
    /// CPU time per transfer. Includes the transfer's share of the syncs, but not opening and closing.
    pub cpu_ns_per_operation: f64,
    /// CPU time per GiB, including opening and closing.
    pub cpu_ns_per_gib: f64,
    /// Upper bound of the storage, which utilization refers to.
    #[serde(alias = "limit", default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Mean bandwidth / bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
}
