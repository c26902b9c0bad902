//! IOR's options, parsed as IOR does. `super::translate` turns them into a plan.
//!
//! | file | contents |
//! | --- | --- |
//! | this one | the supported options: each is one field with its names, its default and its help |
//! | [`others`] | options that change nothing here, and refused ones with their replacement |
//! | [`words`] | splitting a command line into options, with these declarations |
//! | [`value`] | sizes, numbers and names |
//! | [`check`] | combinations of options |
//!
//! The options are those of IOR 3.0.1 and 4.x. Of tonnage's other modules, this folder uses only the error type, so
//! that the fuzz target can include it.

pub mod check;
pub mod others;
pub mod value;
pub mod words;

use clap::Parser;

pub use value::{Api, Stripes, SummaryFormat};

/// A command line of IOR, with IOR's defaults and units.
///
/// A long name with the prefix `O.` is one of IOR's keys for `-O`, in upper or lower case. `--O.KEY` itself is not
/// accepted on the command line. Options without another name can only be set through `-O`.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct IorOptions {
    /// Interface: POSIX, MPIIO, or URING, which IOR does not have. [default: POSIX]
    #[arg(
        short = 'a', alias = "O.api",
        value_name = "API", default_value = "POSIX", value_parser = value::parse_api
    )]
    pub api: Api,
    /// Bytes of one task in one segment. [default: 1m]
    #[arg(
        short = 'b', alias = "O.blockSize",
        value_name = "SIZE", default_value = "1m", value_parser = value::parse_size
    )]
    pub block_bytes: u64,
    /// Bytes of one read or write. [default: 256k]
    #[arg(
        short = 't', alias = "O.transferSize",
        value_name = "SIZE", default_value = "256k", value_parser = value::parse_size
    )]
    pub transfer_bytes: u64,
    /// Number of segments: each has one block of every task. [default: 1]
    #[arg(
        short = 's', alias = "O.segmentCount",
        value_name = "N", default_value = "1", value_parser = value::parse_size
    )]
    pub segments: u64,
    /// The file; with -F also several, a@b@c, which the tasks use in turn. [default: testFile]
    #[arg(
        short = 'o',
        alias = "O.testFile",
        value_name = "PATH",
        default_value = "testFile"
    )]
    pub path: String,
    /// Write. Without -w, -r, -W and -R: write, then read.
    #[arg(short = 'w', alias = "O.writeFile")]
    pub write: bool,
    /// Read.
    #[arg(short = 'r', alias = "O.readFile")]
    pub read: bool,
    /// With -w: check the written data, outside the clock.
    #[arg(short = 'W', alias = "O.checkWrite")]
    pub check_write: bool,
    /// Read, and check the data, outside the clock.
    #[arg(short = 'R', alias = "O.checkRead")]
    pub check_read: bool,
    /// A file for each task, PATH.00000000 and so on.
    #[arg(short = 'F', alias = "O.filePerProc")]
    pub file_per_process: bool,
    /// With -F: a directory for each task.
    #[arg(short = 'u', alias = "O.uniqueDir")]
    pub directory_per_rank: bool,
    /// A file for each repetition.
    #[arg(short = 'm', alias = "O.multiFile")]
    pub file_per_repetition: bool,
    /// Write into existing files (--existing of tonnage file). Without it, files that tonnage wrote are removed first,
    /// and other files are an error.
    #[arg(short = 'E', alias = "O.useExistingTestFile")]
    pub existing: bool,
    /// Keep the files. Without it, files that this run created are removed; IOR also removes files that it only read.
    #[arg(short = 'k', alias = "O.keepFile")]
    pub keep: bool,
    /// With MPIIO: all tasks make each transfer together.
    #[arg(short = 'c', long = "collective", alias = "O.collective")]
    pub collective: bool,
    /// Bypass the page cache, as -B of IOR 3 does; an error if that is impossible.
    #[arg(short = 'B', long = "posix.odirect", alias = "O.useO_DIRECT")]
    pub direct: bool,
    /// Fsync after the last write, inside the clock.
    #[arg(short = 'e', alias = "O.fsync")]
    pub fsync: bool,
    /// Fsync after each write.
    #[arg(short = 'Y', alias = "O.fsyncPerWrite")]
    pub fsync_each: bool,
    /// Barriers between open, transfers and close.
    #[arg(short = 'g', alias = "O.intraTestBarriers")]
    pub barriers: bool,
    /// Make every transfer once, in random order over the whole file.
    #[arg(short = 'z', alias = "O.randomOffset", action = clap::ArgAction::Count)]
    pub shuffled: u8,
    /// Seed of -z.
    #[arg(long = "random-offset-seed", value_name = "N", value_parser = value::parse_signed)]
    pub shuffle_seed: Option<i64>,
    /// With -z: fill the files first, outside the clock.
    #[arg(long = "randomPrefill", value_name = "SIZE", default_value = "0", value_parser = value::parse_size)]
    pub prefill_bytes: u64,
    /// Read the data of the task Q nodes behind. A node is all tasks of task 0's host, or one task if task 1 is on
    /// another host. On a single node: read the data of the task Q tasks behind; IOR does nothing there.
    #[arg(short = 'C', aliases = ["O.reorderTasks", "O.reorderTasksConstant"])]
    pub reorder: bool,
    /// Distance Q of -C. [default: 1]
    #[arg(short = 'Q', alias = "O.taskPerNodeOffset", value_name = "N", value_parser = value::parse_size)]
    pub task_offset: Option<u64>,
    /// Read other tasks' data, in a random permutation of the tasks (-Z or -ZZ).
    #[arg(short = 'Z', alias = "O.reorderTasksRandom", action = clap::ArgAction::Count)]
    pub reorder_random: u8,
    /// Seed of -Z. [default: 0]
    #[arg(
        short = 'X', alias = "O.reorderTasksRandomSeed",
        value_name = "N", default_value = "0", value_parser = value::parse_signed
    )]
    pub reorder_seed: i64,
    /// Number of tasks, like --ranks.
    #[arg(short = 'N', alias = "O.numTasks", value_name = "N", value_parser = value::parse_size)]
    pub tasks: Option<u64>,
    /// Number of repetitions. [default: 1]
    #[arg(
        short = 'i', alias = "O.repetitions",
        value_name = "N", default_value = "1", value_parser = value::parse_size
    )]
    pub repetitions: u64,
    /// Pause before each phase except the first; IOR also pauses before the first.
    #[arg(
        short = 'd', alias = "O.interTestDelay",
        value_name = "SECONDS", default_value = "0", value_parser = value::parse_time
    )]
    pub delay_s: u64,
    /// Start no further repetition after this time.
    #[arg(
        short = 'T', alias = "O.maxTimeDuration",
        value_name = "MINUTES", default_value = "0", value_parser = value::parse_time
    )]
    pub duration_minutes_max: u64,
    /// End each phase after this time.
    #[arg(
        short = 'D', alias = "O.deadlineForStonewalling",
        value_name = "SECONDS", default_value = "0", value_parser = value::parse_time
    )]
    pub stonewall_s: u64,
    /// With -D: afterwards, each task continues to as many transfers as the fastest made.
    #[arg(long = "O.stoneWallingWearOut")]
    pub wear_out: bool,
    /// With stoneWallingWearOut: minimum number of transfers of each task.
    #[arg(
        long = "O.stoneWallingWearOutIterations",
        value_name = "N", default_value = "0", value_parser = value::parse_size
    )]
    pub wear_out_transfers: u64,
    /// With -k: file that stores how much was written, for the run that reads the data.
    #[arg(long = "O.stoneWallingStatusFile", value_name = "FILE")]
    pub status_file: Option<String>,
    /// List tasks that are slower than the mean by this time.
    #[arg(
        short = 'j', alias = "O.outlierThreshold",
        value_name = "SECONDS", default_value = "0", value_parser = value::parse_time
    )]
    pub outlier_s: u64,
    /// Seed of the written data; not needed for reading it.
    #[arg(short = 'G', alias = "O.setTimeStampSignature", value_name = "N", value_parser = value::parse_signed)]
    pub signature: Option<i64>,
    /// Kind of data. All kinds are the same here: the data contains its offset and does not compress.
    #[arg(
        short = 'l', long = "dataPacketType", alias = "O.dataPacketType",
        value_name = "TYPE", value_parser = value::parse_data
    )]
    pub data: Option<String>,
    /// With MPIIO: print the hints that were passed and used.
    #[arg(short = 'H', long = "mpiio.showHints", alias = "O.showHints")]
    pub show_hints: bool,
    /// With MPIIO: file with lines IOR_HINT__MPI__NAME=VALUE, in addition to the environment.
    #[arg(
        short = 'U',
        long = "mpiio.hintsFileName",
        alias = "O.hintsFileName",
        value_name = "FILE"
    )]
    pub hints_file: Option<String>,
    /// With MPIIO: each task sees only its own blocks.
    #[arg(short = 'V', long = "mpiio.useFileView", alias = "O.useFileView")]
    pub file_view: bool,
    /// With MPIIO: allocate the whole file when it is opened for writing.
    #[arg(short = 'p', long = "mpiio.preallocate", alias = "O.preallocate")]
    pub preallocate: bool,
    /// Number of targets that a new file on Lustre is striped over; -1 for all.
    #[arg(
        long = "posix.lustre.stripecount", alias = "O.lustreStripeCount",
        value_name = "N", value_parser = value::parse_stripes
    )]
    pub stripe_count: Option<Stripes>,
    /// Bytes of one stripe on Lustre.
    #[arg(
        long = "posix.lustre.stripesize", alias = "O.lustreStripeSize",
        value_name = "SIZE", value_parser = value::parse_size
    )]
    pub stripe_bytes: Option<u64>,
    /// Print more about the run; may be repeated.
    #[arg(short = 'v', alias = "O.verbose", action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Check everything and print what would be done.
    #[arg(long = "dryRun")]
    pub dry_run: bool,
    /// Format of the result block: default, JSON or CSV.
    #[arg(
        long = "O.summaryFormat",
        value_name = "FORMAT", default_value = "default", value_parser = value::parse_summary_format
    )]
    pub summary_format: SummaryFormat,
    /// Write the result block to this file.
    #[arg(long = "O.summaryFile", value_name = "FILE")]
    pub summary_file: Option<String>,
}

impl IorOptions {
    /// Returns the paths of `-o`, which `@` separates.
    pub fn paths(&self) -> Vec<&str> {
        self.path.split('@').collect()
    }

    /// Returns whether the run writes files: because of `-w`, or because no phase was requested.
    pub fn writes(&self) -> bool {
        self.write || self.no_phase_given()
    }

    /// Returns whether the run reads files: because of `-r` or `-R`, or because no phase was requested.
    pub fn reads(&self) -> bool {
        self.read || self.check_read || self.no_phase_given()
    }

    fn no_phase_given(&self) -> bool {
        !(self.write || self.read || self.check_write || self.check_read)
    }

    /// Returns `-Q`, or IOR's default.
    pub fn nodes_behind(&self) -> u64 {
        self.task_offset.unwrap_or(1)
    }
}

#[cfg(test)]
mod tests;
