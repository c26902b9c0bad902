//! A point of a file experiment, which moves bytes between memory and files. Every value is fixed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tonnage_engine::calls::FileUse;
pub use tonnage_engine::calls::{FileLayout, FileOrder, Fsync};

use crate::kind::{AnyPoint, EngineFacts};
use crate::point::BoundChoice;
use crate::point::is_default;
pub use crate::point::{Phase, Published};
use tonnage_engine::{EngineOptions, Lists};
use tonnage_units::{Bytes, Result};

/// One file experiment with every option explicit; defaults were filled in when the plan was expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FilePoint {
    /// Heading under which tables list the point, if the plan gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Engine name, as in `--engine`.
    pub engine: String,
    /// The engine's own options that differ from their defaults.
    #[serde(default, skip_serializing_if = "EngineOptions::is_empty")]
    pub engine_options: EngineOptions,
    /// Hints for the engine's library by name, such as `romio_cb_write`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hints: BTreeMap<String, String>,
    /// Ranks of the run; all of them take part.
    pub ranks: u32,
    /// Threads of each rank that make transfers.
    pub threads: u32,
    /// Paths of the files. With layout per-process, rank r uses path number r modulo the number of paths. The shared
    /// layout has one path.
    pub paths: Vec<String>,
    /// Whether all ranks share one file or each has its own.
    pub layout: FileLayout,
    /// Each rank's file is in a separate directory, named after the rank.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directory_per_rank: bool,
    /// Each trial uses separate files, with the trial's number behind their names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub file_per_trial: bool,
    /// Bytes that one rank has in one segment; a whole number of transfers.
    pub block_bytes: u64,
    /// Bytes of one read or write.
    pub transfer_bytes: u64,
    /// Number of times that the sequence of all ranks' blocks is repeated.
    pub segments: u64,
    /// Order of a rank's transfers.
    pub order: FileOrder,
    /// Seeds the shuffled order and the choice between read and write.
    pub seed: u64,
    /// Phases to measure, in order.
    pub phases: Vec<Phase>,
    /// Reads among 100 transfers of a mixed phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_percent: Option<u32>,
    /// Data that a rank reads.
    pub read_from: ReadFrom,
    /// When written data is forced to stable storage, inside the measured interval.
    pub fsync: Fsync,
    /// True to bypass the page cache (O_DIRECT).
    pub direct: bool,
    /// All ranks make each transfer together.
    pub collective: bool,
    /// Each rank has a view of the shared file that contains only its own parts.
    pub file_view: bool,
    /// All ranks wait for each other between open, transfers and close.
    pub barriers: bool,
    /// Files stay when the run is over.
    pub keep: bool,
    /// Existing files are not removed before they are written.
    pub existing: bool,
    /// Transfers in flight for each thread, if the engine supports several.
    #[serde(alias = "window")]
    pub depth: u32,
    /// Time after which a phase starts no new transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stonewall: Option<Stonewall>,
    /// File that stores how many transfers each rank wrote. A later run then reads only these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_file: Option<String>,
    /// Files are filled before the first phase, outside the clock.
    pub prefill: bool,
    /// Kind of data that is written.
    pub data: DataKind,
    /// Seed of the written data. Without one, each write phase uses a random seed, which readers find in the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_seed: Option<u64>,
    /// Phases after which the bytes written or read are checked, outside the clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verify_after: Vec<Phase>,
    /// The files' pages are dropped from the page cache before each phase that reads.
    pub drop_caches: bool,
    /// Striping of new files on a file system that stripes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub striping: Option<Striping>,
    /// Repetitions of all phases.
    pub trials: u32,
    /// Pause before each phase but the first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay_ns: u64,
    /// Time after which no further repetition starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ns: Option<u64>,
    /// Upper bound to compare the bandwidth with.
    #[serde(alias = "limit")]
    pub bound: BoundChoice,
}

impl FilePoint {
    /// Returns the properties that opening an engine may depend on.
    pub fn usage(&self) -> FileUse {
        FileUse {
            options: self.engine_options.clone(),
            hints: self.hints.clone(),
            ranks: self.ranks,
            threads: self.threads,
            depth: self.depth,
            layout: self.layout,
            order: self.order,
            fsync: self.fsync,
            direct: self.direct,
            collective: self.collective,
            file_view: self.file_view,
            stonewalled: self.stonewall.is_some(),
            bytes_of_rank: self.bytes_of_rank(),
        }
    }

    /// Number of transfers that one rank makes in a complete phase.
    pub fn transfers_of_rank(&self) -> u64 {
        self.block_bytes / self.transfer_bytes.max(1) * self.segments
    }

    /// Bytes that one rank moves in a complete phase.
    pub fn bytes_of_rank(&self) -> u64 {
        self.block_bytes * self.segments
    }
}

impl AnyPoint for FilePoint {
    fn planned_time(&self) -> Option<Duration> {
        let phases = self.phases.len() as u64 * u64::from(self.trials);
        let stonewall = self.stonewall.as_ref()?;
        Some(Duration::from_nanos(
            stonewall.after_ns.saturating_mul(phases),
        ))
    }

    fn planned_bytes(&self) -> Option<u64> {
        let of_rank = self.block_bytes.saturating_mul(self.segments);
        let of_phase = of_rank.saturating_mul(u64::from(self.ranks));
        let phases = self.phases.len() as u64 * u64::from(self.trials);
        Some(of_phase.saturating_mul(phases))
    }

    fn engines(&self) -> Vec<&str> {
        vec![&self.engine]
    }

    fn depends_on_earlier_points(&self) -> bool {
        true
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn name(&self) -> String {
        format!(
            "engine {}, block {}, transfer {}",
            self.engine,
            Bytes(self.block_bytes),
            Bytes(self.transfer_bytes)
        )
    }

    fn progress(&self) -> String {
        format!(
            "{} {}, {} x {} by {}",
            self.engine,
            self.layout.name(),
            self.segments,
            Bytes(self.block_bytes),
            Bytes(self.transfer_bytes)
        )
    }

    fn engine_facts(&self, lists: &Lists) -> Result<Vec<EngineFacts>> {
        let entry = lists.file_engine(&self.engine)?;
        Ok(vec![EngineFacts {
            has_devices: false,
            libraries: entry.libraries,
            lifecycle: &entry.lifecycle,
        }])
    }
}

/// Data that a rank reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ReadFrom {
    /// Its own data.
    Own,
    /// Data of the rank this many behind the reading rank.
    Shift {
        /// Number of ranks.
        ranks: u32,
    },
    /// Data of another rank, by a seeded permutation of the ranks.
    Shuffled {
        /// Seed of the permutation.
        seed: u64,
    },
}

/// Ends a phase after a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stonewall {
    /// Time since the common start of all ranks.
    pub after_ns: u64,
    /// After that time, all ranks go on until each has made as many transfers as the fastest rank had.
    pub wear_out: bool,
    /// Minimum number of transfers of each rank, with `wear_out`; 0 for no minimum.
    #[serde(default, skip_serializing_if = "is_default")]
    pub transfers_min: u64,
}

/// Kind of data that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DataKind {
    /// Data that cannot be compressed.
    Random,
    /// Data with this percentage of zeros.
    Compressible {
        /// 1 to 99.
        percent: u32,
    },
}

/// Striping of a new file over the servers of a file system that stripes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Striping {
    /// Number of targets; `None` for all, 0 if the file system chooses.
    #[serde(default)]
    pub count: Option<u32>,
    /// Bytes on one target before the next target is used; `None` for the file system's default.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}
