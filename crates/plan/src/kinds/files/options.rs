//! The options of a file experiment. Each group has its own heading in the help. `base` and `cell` check their
//! combinations.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::names::{ReadShift, StripeCount, Verify, verify};
use super::point::{DataKind, FileLayout, FileOrder, Fsync, Phase, Published};
use crate::options::{
    Group, Many, Pair, SWEEP, many_of, one_of, one_or_many, pairs, text, with_default,
};
use crate::point::BoundChoice;
use crate::skipping::SkippingOptions;
use crate::sweep::Sweep;
use tonnage_units::{Bytes, Count, Nanos};

/// One file experiment. Options that are not given get their defaults when the plan is expanded. Several engines,
/// blocks, transfers and depths make several points.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct FileJob {
    /// Files to read or write.
    #[command(flatten)]
    pub files: FilesOptions,
    /// Reads and writes.
    #[command(flatten)]
    pub work: WorkOptions,
    /// Engine and its use.
    #[command(flatten)]
    pub how: HowOptions,
    /// Data in the files.
    #[command(flatten)]
    pub data: DataOptions,
    /// Length of the measurement.
    #[command(flatten)]
    pub length: FileLengthOptions,
    /// Facts for readers of the job's results.
    #[command(flatten)]
    pub results: ResultsOptions,
    /// Whether missing hardware or libraries fail the run.
    #[command(flatten)]
    pub skipping: SkippingOptions,
}

crate::options::groups! {
    FileJob: "file", "a file experiment", needs &[("path", "data/file")];
    files, how, work, data, length, results, skipping
}

/// Files to read or write.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Files", mut_args = with_default::<Self>)]
pub struct FilesOptions {
    /// Heading under which tables put the points.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// The file, or the prefix of the files' names; with --layout per-process it may be repeated, and the ranks use the
    /// paths in turn.
    #[arg(long, value_name = "PATH", required = true)]
    #[serde(with = "one_or_many")]
    pub path: Vec<String>,

    /// Spread of the data over files. Per-process files are named PATH.00000000, PATH.00000001, …
    #[arg(long, value_name = "LAYOUT", value_parser = one_of::<FileLayout>())]
    pub layout: Option<FileLayout>,

    /// Put each rank's file into a separate directory.
    #[arg(long)]
    pub directory_per_rank: bool,

    /// Use separate files in each trial, with the trial's number behind their names.
    #[arg(long)]
    pub file_per_trial: bool,

    /// Keep the files when the run is over, so that another run can read them.
    #[arg(long)]
    pub keep: bool,

    /// Write into existing files instead of removing them first.
    #[arg(long)]
    pub existing: bool,

    /// Fill the files before the first phase, outside the clock.
    #[arg(long)]
    pub prefill: bool,

    /// On a file system that stripes: spread new files over this many targets, or all.
    #[arg(long, value_name = "N|all")]
    #[serde(with = "text")]
    pub stripe_count: Option<StripeCount>,

    /// On a file system that stripes: bytes on one target before the next target is used.
    #[arg(long, value_name = "BYTES")]
    pub stripe_size: Option<Bytes>,
}

pub(super) const LAYOUT_DEFAULT: FileLayout = FileLayout::Shared;

impl Group for FilesOptions {
    fn defaults() -> Self {
        Self {
            layout: Some(LAYOUT_DEFAULT),
            ..Self::default()
        }
    }
}

/// Reads and writes.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Reads and writes", mut_args = with_default::<Self>)]
pub struct WorkOptions {
    /// Bytes of one rank in one segment, a whole number of transfers: a value or a sweep.
    #[arg(long, value_name = SWEEP)]
    pub block: Option<Sweep>,

    /// Bytes of one read or write: a value or a sweep.
    #[arg(long, alias = "bs", value_name = SWEEP)]
    #[serde(alias = "bs")]
    pub transfer: Option<Sweep>,

    /// Number of times that the sequence of all ranks' blocks is repeated.
    #[arg(long, value_name = "N")]
    pub segments: Option<Count>,

    /// Phases to measure, in this order; several are joined by commas. A phase that reads data that no earlier phase
    /// wrote needs existing files, or --prefill. [default: write,read]
    #[arg(long, value_name = "NAMES", value_parser = many_of::<Phase>(), value_delimiter = ',')]
    pub phases: Option<Many<Phase>>,

    /// Reads among 100 transfers of a mixed phase; without --phases, only that phase is measured.
    #[arg(long, value_name = "N")]
    pub read_percent: Option<Count>,

    /// Order of a rank's transfers.
    #[arg(long, value_name = "ORDER", value_parser = one_of::<FileOrder>())]
    pub order: Option<FileOrder>,

    /// Seed of the shuffled order and of the choice between read and write.
    #[arg(long, value_name = "N")]
    pub seed: Option<Count>,

    /// Read the data of the rank this many behind, so that the host's own cache helps less: a number of ranks, or node
    /// or nodes=N for a rank that many hosts behind. [default: 0]
    #[arg(long, value_name = "N")]
    pub read_shift: Option<ReadShift>,

    /// Read what another rank wrote, by a permutation with this seed (1 if none is given).
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "1")]
    pub read_shuffled: Option<Count>,
}

pub(super) const BLOCK_BYTES_DEFAULT: u64 = 1 << 20;
pub(super) const TRANSFER_BYTES_DEFAULT: u64 = 256 << 10;
pub(super) const SEGMENTS_DEFAULT: Count = Count(1);
pub(super) const ORDER_DEFAULT: FileOrder = FileOrder::Sequential;
pub(super) const SEED_DEFAULT: Count = Count(1);

impl Group for WorkOptions {
    fn defaults() -> Self {
        Self {
            block: Some(Sweep::single(BLOCK_BYTES_DEFAULT)),
            transfer: Some(Sweep::single(TRANSFER_BYTES_DEFAULT)),
            segments: Some(SEGMENTS_DEFAULT),
            order: Some(ORDER_DEFAULT),
            seed: Some(SEED_DEFAULT),
            ..Self::default()
        }
    }
}

/// Engine and its use.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Engine", mut_args = with_default::<Self>)]
pub struct HowOptions {
    /// Engine that makes the reads and writes, such as posix, uring or mpiio; several are joined by commas. `tonnage
    /// engines` lists them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub engine: Option<Many<String>>,

    /// An option of the engine; may be repeated. `tonnage engines NAME` lists them.
    #[arg(long = "engine-option", value_name = "NAME=VALUE", value_parser = pairs::engine_option)]
    #[serde(with = "pairs")]
    pub engine_options: Vec<Pair>,

    /// A hint for MPI-IO, such as romio_cb_write=disable; may be repeated.
    #[arg(long = "hint", value_name = "NAME=VALUE", value_parser = pairs::hint)]
    #[serde(with = "pairs")]
    pub hints: Vec<Pair>,

    /// Bypass the page cache (O_DIRECT). It is an error if the file system does not support this.
    #[arg(long)]
    pub direct: bool,

    /// Force written data to stable storage, inside the clock.
    #[arg(long, value_name = "WHEN", value_parser = one_of::<Fsync>())]
    pub fsync: Option<Fsync>,

    /// All ranks make each transfer together (MPI-IO's collective calls).
    #[arg(long)]
    pub collective: bool,

    /// Give each rank a view of the shared file that has only its own parts (MPI-IO).
    #[arg(long)]
    pub file_view: bool,

    /// All ranks wait for each other between opening, transfers and closing.
    #[arg(long)]
    pub barriers: bool,

    /// Threads of each rank that share its transfers.
    #[arg(long, value_name = "N")]
    pub threads: Option<Count>,

    /// Transfers in flight for each thread, for engines that can have several: a value or a sweep. [default: 32, but at
    /// most 64M]
    #[arg(long, aliases = ["window", "iodepth"], value_name = SWEEP)]
    #[serde(alias = "window", alias = "iodepth")]
    pub depth: Option<Sweep>,

    /// Drop the files' pages from the page cache before each phase that reads.
    #[arg(long)]
    pub drop_caches: bool,
}

pub(super) const ENGINE_DEFAULT: &str = "posix";
pub(super) const FSYNC_DEFAULT: Fsync = Fsync::None;
pub(super) const THREADS_DEFAULT: Count = Count(1);

impl Group for HowOptions {
    fn defaults() -> Self {
        Self {
            engine: Some(Many(vec![ENGINE_DEFAULT.to_owned()])),
            fsync: Some(FSYNC_DEFAULT),
            threads: Some(THREADS_DEFAULT),
            ..Self::default()
        }
    }
}

/// Data in the files.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Data", mut_args = with_default::<Self>)]
pub struct DataOptions {
    /// Data to write: random, or compressible=30% (this part is zeros).
    #[arg(long, value_name = "KIND")]
    #[serde(with = "text")]
    pub data: Option<DataKind>,

    /// Seed of the data. [default: a new one for each write phase, which readers find in the files]
    #[arg(long, value_name = "N")]
    pub data_seed: Option<Count>,

    /// Check every byte that the files hold, or that was read, outside the clock. Checks after the last phase, or after
    /// named phases: --verify=write,read. Bytes that a phase wrote repeatedly are checked once.
    #[arg(long, value_name = "PHASES", num_args = 0..=1, require_equals = true, default_missing_value = "last")]
    #[serde(deserialize_with = "verify")]
    pub verify: Option<Verify>,
}

pub(super) const DATA_DEFAULT: DataKind = DataKind::Random;

impl Group for DataOptions {
    fn defaults() -> Self {
        Self {
            data: Some(DATA_DEFAULT),
            ..Self::default()
        }
    }
}

/// Length of the measurement.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Length", mut_args = with_default::<Self>)]
pub struct FileLengthOptions {
    /// Start no new transfers in a phase after this time.
    #[arg(long, value_name = "TIME")]
    pub stonewall: Option<Nanos>,

    /// Let all ranks go on after the stonewall until each has made as many transfers as the fastest rank had.
    #[arg(long)]
    pub wear_out: bool,

    /// With --wear-out: at least this many transfers of each rank.
    #[arg(long, value_name = "N")]
    pub wear_out_transfers: Option<Count>,

    /// Store in this file how much was written until the stonewall. A run that only reads then reads only this much.
    #[arg(long, value_name = "FILE")]
    pub stonewall_status: Option<String>,

    /// Repetitions of all phases.
    #[arg(long, value_name = "N")]
    pub trials: Option<Count>,

    /// Pause before each phase but the first.
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Nanos>,

    /// Start no further repetition after this time.
    #[arg(long, value_name = "TIME")]
    pub max_duration: Option<Nanos>,
}

pub(super) const TRIALS_DEFAULT: Count = Count(1);

impl Group for FileLengthOptions {
    fn defaults() -> Self {
        Self {
            trials: Some(TRIALS_DEFAULT),
            ..Self::default()
        }
    }
}

/// Facts for readers of the results.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Results", mut_args = with_default::<Self>)]
pub struct ResultsOptions {
    /// Name ranks if their transfers take this much longer than the mean. [default: those that stand out]
    #[arg(long, value_name = "TIME")]
    pub outlier: Option<Nanos>,

    /// Upper bound to compare bandwidth with: auto (the storage's own bound, measured), none, or a bandwidth such as
    /// 2GB/s.
    #[arg(long, alias = "limit", value_name = "BOUND")]
    #[serde(alias = "limit", with = "text")]
    pub bound: Option<BoundChoice>,

    /// Published figures for the same options, to compare with. Only plans can have them.
    #[arg(skip)]
    pub published: Vec<Published>,
}

pub(super) const BOUND_DEFAULT: BoundChoice = BoundChoice::Auto;

impl Group for ResultsOptions {
    fn defaults() -> Self {
        Self {
            bound: Some(BOUND_DEFAULT),
            ..Self::default()
        }
    }
}
