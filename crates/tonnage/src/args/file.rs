//! `tonnage file`: one experiment with files, said on the command line.

use clap::Args;
use tonnage_plan::files::{DataKind, FileLayout, FileOrder, Fsync, Phase};
use tonnage_plan::files::{FileJob, ReadShift, StripeCount, Verify};
use tonnage_plan::point::LimitChoice;
use tonnage_plan::sweep::Sweep;
use tonnage_plan::{Experiment, Plan};
use tonnage_units::{Bytes, Count, Nanos};

use super::common::{RankArgs, ResultArgs};
use super::values::{engine_option, hint};

/// `tonnage file`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "Block, transfer and window take sweeps: one value (4096), a doubling range (8..1M), a linear range \
    (1M..32M+1M), a range with a factor (1..1000*10), or several of these joined by commas. Several sweeps multiply. \
    k, M and G are powers of two; kB, MB and GB are decimal.\n\n\
    A rank moves segments x block bytes in each phase. In a shared file a segment has a block of every rank, one after \
    the other. Files that were made are removed at the end unless --keep is given.\n\n\
    Examples:\n  \
    tonnage file --ranks 2 --path t.dat --layout per-process --block 4m --transfer 4m --segments 64 --fsync end\n  \
    tonnage file --ranks 2 --engine uring --direct --path t.dat --block 256m --transfer 4k --order shuffled --window 32"
)]
pub struct FileArgs {
    /// Which files.
    #[command(flatten)]
    pub files: FilesArgs,
    /// What is read and written.
    #[command(flatten)]
    pub work: WorkArgs,
    /// How it is done.
    #[command(flatten)]
    pub how: HowArgs,
    /// What the bytes are.
    #[command(flatten)]
    pub data: DataArgs,
    /// How long it is measured.
    #[command(flatten)]
    pub length: FileLengthArgs,
    /// Where ranks run.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// What becomes of results.
    #[command(flatten)]
    pub results: ResultArgs,
}

/// Which files.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Files")]
pub struct FilesArgs {
    /// The file, or what the files' names begin with; may be repeated for files of their own, and then the ranks take the
    /// paths in turn.
    #[arg(long, value_name = "PATH", required = true)]
    pub path: Vec<String>,

    /// One file for all ranks (shared), or one for each (per-process), named PATH.00000000, PATH.00000001, …
    /// [default: shared]
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<FileLayout>,

    /// Put each rank's file into a directory of its own.
    #[arg(long)]
    pub directory_per_rank: bool,

    /// Use files of its own in each trial, with the trial's number behind their names.
    #[arg(long)]
    pub file_per_trial: bool,

    /// Leave the files when the run is over, for a run that reads them.
    #[arg(long)]
    pub keep: bool,

    /// Write into files that are there instead of removing them first.
    #[arg(long)]
    pub existing: bool,

    /// Fill the files before the first phase, outside the clock.
    #[arg(long)]
    pub prefill: bool,

    /// On a file system that stripes: spread new files over so many targets, or all.
    #[arg(long, value_name = "N|all")]
    pub stripe_count: Option<StripeCount>,

    /// On a file system that stripes: bytes on one target before the next one's turn.
    #[arg(long, value_name = "BYTES")]
    pub stripe_size: Option<Bytes>,
}

/// What is read and written.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Reads and writes")]
pub struct WorkArgs {
    /// Bytes of one rank in one segment, a whole number of transfers: a value or a sweep. [default: 1M]
    #[arg(long, value_name = "SWEEP", allow_hyphen_values = true)]
    pub block: Option<Sweep>,

    /// Bytes of one read or write: a value or a sweep. [default: 256k]
    #[arg(long, value_name = "SWEEP", allow_hyphen_values = true)]
    pub transfer: Option<Sweep>,

    /// How often the sequence of all ranks' blocks is repeated. [default: 1]
    #[arg(long, value_name = "N")]
    pub segments: Option<Count>,

    /// What is measured, in this order: write, read, mixed; several are joined by commas. A phase that reads what no
    /// phase before it wrote needs files that are there, or --prefill. [default: write,read]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub phases: Vec<Phase>,

    /// How many of 100 transfers of a mixed phase are reads; without --phases, that phase is all that is measured.
    #[arg(long, value_name = "N")]
    pub read_percent: Option<Count>,

    /// Order of a rank's transfers: sequential, or shuffled (seeded, each transfer once). [default: sequential]
    #[arg(long, value_name = "ORDER")]
    pub order: Option<FileOrder>,

    /// Seed of the shuffled order and of the choice between read and write. [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<Count>,

    /// Read what the rank this many behind wrote, so that what a rank has in its own host's cache helps less: a number
    /// of ranks, or node or nodes=N for what was written on the host before, or so many before. [default: 0]
    #[arg(long, value_name = "N")]
    pub read_shift: Option<ReadShift>,

    /// Read what another rank wrote, by a permutation with this seed (1 when none is said).
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "1")]
    pub read_shuffled: Option<Count>,
}

/// How it is done.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "How it is done")]
pub struct HowArgs {
    /// What makes the reads and writes, such as posix, uring or mpiio; several are joined by commas. `tonnage devices`
    /// lists them. [default: posix]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub engine: Vec<String>,

    /// An option of the engine's own; may be repeated. `tonnage devices` ends with the engines and all their options.
    #[arg(long, value_name = "NAME=VALUE", value_parser = engine_option)]
    pub engine_option: Vec<(String, String)>,

    /// A hint for MPI-IO, such as romio_cb_write=disable; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = hint)]
    pub hint: Vec<(String, String)>,

    /// Leave the page cache out (O_DIRECT). A file system that cannot is an error.
    #[arg(long)]
    pub direct: bool,

    /// Force what was written to stable storage, inside the clock: after the last write of a phase (end), after each
    /// write (each), or never (none). [default: none]
    #[arg(long, value_name = "WHEN")]
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

    /// Threads of each rank that share its transfers. [default: 1]
    #[arg(long, value_name = "N")]
    pub threads: Option<Count>,

    /// Transfers in flight for each thread, for engines that can have several: a value or a sweep. [default: 32, but at
    /// most 64M]
    #[arg(long, value_name = "SWEEP", allow_hyphen_values = true)]
    pub window: Option<Sweep>,

    /// Drop what the page cache holds of the files before each phase that reads.
    #[arg(long)]
    pub drop_caches: bool,
}

/// What the bytes are.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Data")]
pub struct DataArgs {
    /// What is written: random, or compressible=30% (this part is zeros). [default: random]
    #[arg(long, value_name = "KIND")]
    pub data: Option<DataKind>,

    /// Seed of the data. [default: a new one for each write phase, which readers find in the files]
    #[arg(long, value_name = "N")]
    pub data_seed: Option<Count>,

    /// Check every byte, outside the clock, after the last phase or after those that are named: --verify=write,read.
    #[arg(long, value_name = "PHASES", num_args = 0..=1, require_equals = true, default_missing_value = "last")]
    pub verify: Option<Verify>,
}

/// How long it is measured.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Length")]
pub struct FileLengthArgs {
    /// Make no new transfers in a phase after this time.
    #[arg(long, value_name = "TIME")]
    pub stonewall: Option<Nanos>,

    /// After the stonewall all ranks go on until each has made as many transfers as the fastest had.
    #[arg(long)]
    pub wear_out: bool,

    /// With --wear-out: at least so many transfers of each rank.
    #[arg(long, value_name = "N")]
    pub wear_out_transfers: Option<Count>,

    /// Keep in this file how much was written until the stonewall, for a run that reads; one that only reads reads just
    /// that much.
    #[arg(long, value_name = "FILE")]
    pub stonewall_status: Option<String>,

    /// Repetitions of all phases. [default: 1]
    #[arg(long, value_name = "N")]
    pub trials: Option<Count>,

    /// Pause before each phase but the first.
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Nanos>,

    /// Begin no further repetition after this time.
    #[arg(long, value_name = "TIME")]
    pub max_duration: Option<Nanos>,

    /// Name ranks whose transfers take this much longer than the mean. [default: those that stand out]
    #[arg(long, value_name = "TIME")]
    pub outlier: Option<Nanos>,

    /// What bandwidth is set beside: auto (the storage's own limit, measured), none, or a bandwidth such as 2GB/s.
    /// [default: auto]
    #[arg(long, value_name = "LIMIT")]
    pub limit: Option<LimitChoice>,

    /// Heading under which tables put the points.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
}

impl FileArgs {
    /// The plan that this command line stands for, before `--scale`.
    pub fn to_plan(&self) -> Plan {
        Plan {
            name: "file".to_owned(),
            ranks: self.ranks.ranks,
            experiments: vec![Experiment::File(self.to_job())],
            ..Plan::default()
        }
    }

    fn to_job(&self) -> FileJob {
        let Self {
            files,
            work,
            how,
            data,
            length,
            ranks: _,
            results: _,
        } = self.clone();
        FileJob {
            label: length.label,
            engine: how.engine,
            engine_options: how.engine_option.into_iter().collect(),
            hints: how.hint.into_iter().collect(),
            path: files.path,
            layout: files.layout,
            directory_per_rank: files.directory_per_rank,
            file_per_trial: files.file_per_trial,
            block: work.block,
            transfer: work.transfer,
            segments: work.segments,
            order: work.order,
            seed: work.seed,
            phases: work.phases,
            read_percent: work.read_percent,
            read_shift: work.read_shift,
            read_shuffled: work.read_shuffled,
            fsync: how.fsync,
            direct: how.direct,
            collective: how.collective,
            file_view: how.file_view,
            barriers: how.barriers,
            keep: files.keep,
            existing: files.existing,
            threads: how.threads,
            window: how.window,
            stonewall: length.stonewall,
            wear_out: length.wear_out,
            wear_out_transfers: length.wear_out_transfers,
            stonewall_status: length.stonewall_status,
            prefill: files.prefill,
            data: data.data,
            data_seed: data.data_seed,
            verify: data.verify,
            drop_caches: how.drop_caches,
            stripe_count: files.stripe_count,
            stripe_size: files.stripe_size,
            outlier: length.outlier,
            trials: length.trials,
            delay: length.delay,
            max_duration: length.max_duration,
            limit: length.limit,
            published: Vec::new(),
        }
    }
}
