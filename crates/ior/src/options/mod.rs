//! IOR's own options, read as IOR reads them. What becomes of them is in `super::translate`.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`table`], [`rows`], [`refused`] | every option of IOR 3.0.1 and 4.x, its names, and whether it is honoured or why not |
//! | [`words`] | the words of a command line, matched with that table |
//! | [`check`] | which options go together |
//! | [`value`] | sizes and numbers |
//!
//! Nothing here knows the rest of tonnage but its errors, so that the fuzz target can take this folder as it is.

pub mod check;
pub mod refused;
pub mod rows;
pub mod table;
pub mod value;
pub mod words;

/// How often a flag was given; `-F=0` takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switch(pub u64);

impl Switch {
    /// Whether it is on.
    pub fn on(self) -> bool {
        self.0 > 0
    }
}

/// What moves the bytes (`-a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Api {
    /// pread and pwrite.
    #[default]
    Posix,
    /// MPI-IO.
    Mpiio,
    /// io_uring, which IOR has not.
    Uring,
}

impl Api {
    /// The name as IOR prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::Mpiio => "MPIIO",
            Self::Uring => "URING",
        }
    }
}

/// How the result block is written (`-O summaryFormat=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SummaryFormat {
    /// IOR's table.
    #[default]
    Text,
    /// One JSON object.
    Json,
    /// One line for each pass.
    Csv,
}

/// Over how many targets a file is spread (`--posix.lustre.stripecount`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stripes {
    /// All, which Lustre writes as -1.
    All,
    /// So many.
    Targets(u64),
}

/// A command line of IOR. The fields have IOR's defaults and units; flags that IOR counts are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IorOptions {
    /// `-a`.
    pub api: Api,
    /// `-b`: bytes of one rank in one segment.
    pub block_bytes: u64,
    /// `-t`: bytes of one read or write.
    pub transfer_bytes: u64,
    /// `-s`: how often the blocks of all ranks are repeated.
    pub segments: u64,
    /// `-o`: one path, or several with `@` between them.
    pub path: String,
    /// `-w`.
    pub write: Switch,
    /// `-r`.
    pub read: Switch,
    /// `-W`: check what was written.
    pub check_write: Switch,
    /// `-R`: check what is read.
    pub check_read: Switch,
    /// `-F`.
    pub file_per_process: Switch,
    /// `-u`: a directory for each rank.
    pub directory_per_rank: Switch,
    /// `-m`: a file for each repetition.
    pub file_per_repetition: Switch,
    /// `-E`: do not remove files before writing.
    pub existing: Switch,
    /// `-k`.
    pub keep: Switch,
    /// `-c`.
    pub collective: Switch,
    /// `-B`, `--posix.odirect`.
    pub direct: Switch,
    /// `-e`: one fsync after the last write.
    pub fsync: Switch,
    /// `-Y`: an fsync after each write.
    pub fsync_each: Switch,
    /// `-g`.
    pub barriers: Switch,
    /// `-z`: every transfer once, in shuffled order; twice for places that repeat.
    pub shuffled: Switch,
    /// `--random-offset-seed`.
    pub shuffle_seed: Option<u64>,
    /// `--randomPrefill`: files are filled first; IOR takes the size of those writes, 0 for none.
    pub prefill_bytes: u64,
    /// `-C`: read what the task a constant number behind wrote.
    pub reorder: Switch,
    /// `-Z`: read what another task wrote, by chance.
    pub reorder_random: Switch,
    /// `-Q`: how many nodes behind; IOR's default is 1.
    pub task_offset: Option<u64>,
    /// `-X`: seeds `-Z`.
    pub reorder_seed: u64,
    /// `-N`: number of ranks.
    pub tasks: Option<u64>,
    /// `-i`.
    pub repetitions: u64,
    /// `-d`: pause before each phase.
    pub delay_s: u64,
    /// `-T`: no further repetition after so many minutes, 0 for no bound.
    pub duration_minutes_max: u64,
    /// `-D`: stonewall, 0 for none.
    pub stonewall_s: u64,
    /// `-O stoneWallingWearOut=1`.
    pub wear_out: Switch,
    /// `-O stoneWallingWearOutIterations=N`: at least so many transfers of each rank.
    pub wear_out_transfers: u64,
    /// `-O stoneWallingStatusFile=FILE`.
    pub status_file: Option<String>,
    /// `-j`: ranks this much slower than the mean are named, 0 for none.
    pub outlier_s: u64,
    /// `-G`: seeds what is written.
    pub signature: Option<u64>,
    /// `-H`, `--mpiio.showHints`.
    pub show_hints: Switch,
    /// `-U`, `--mpiio.hintsFileName`.
    pub hints_file: Option<String>,
    /// `-V`, `--mpiio.useFileView`.
    pub file_view: Switch,
    /// `-p`, `--mpiio.preallocate`.
    pub preallocate: Switch,
    /// `--posix.lustre.stripecount`.
    pub stripe_count: Option<Stripes>,
    /// `--posix.lustre.stripesize`.
    pub stripe_bytes: Option<u64>,
    /// `-v`.
    pub verbose: Switch,
    /// `--dryRun`.
    pub dry_run: Switch,
    /// `-O summaryFormat=`.
    pub summary_format: SummaryFormat,
    /// `-O summaryFile=`.
    pub summary_file: Option<String>,
}

impl Default for IorOptions {
    fn default() -> Self {
        let off = Switch::default();
        Self {
            api: Api::default(),
            block_bytes: 1 << 20,
            transfer_bytes: 256 << 10,
            segments: 1,
            path: "testFile".to_owned(),
            write: off,
            read: off,
            check_write: off,
            check_read: off,
            file_per_process: off,
            directory_per_rank: off,
            file_per_repetition: off,
            existing: off,
            keep: off,
            collective: off,
            direct: off,
            fsync: off,
            fsync_each: off,
            barriers: off,
            shuffled: off,
            shuffle_seed: None,
            prefill_bytes: 0,
            reorder: off,
            reorder_random: off,
            task_offset: None,
            reorder_seed: 0,
            tasks: None,
            repetitions: 1,
            delay_s: 0,
            duration_minutes_max: 0,
            stonewall_s: 0,
            wear_out: off,
            wear_out_transfers: 0,
            status_file: None,
            outlier_s: 0,
            signature: None,
            show_hints: off,
            hints_file: None,
            file_view: off,
            preallocate: off,
            stripe_count: None,
            stripe_bytes: None,
            verbose: off,
            dry_run: off,
            summary_format: SummaryFormat::default(),
            summary_file: None,
        }
    }
}

impl IorOptions {
    /// The paths of `-o`.
    pub fn paths(&self) -> Vec<&str> {
        self.path.split('@').collect()
    }

    /// Whether files are written: by `-w`, or because nothing was said.
    pub fn writes(&self) -> bool {
        self.write.on() || self.says_nothing()
    }

    /// Whether files are read: by `-r`, by `-R` (which reads too), or because nothing was said.
    pub fn reads(&self) -> bool {
        self.read.on() || self.check_read.on() || self.says_nothing()
    }

    fn says_nothing(&self) -> bool {
        let said = [self.write, self.read, self.check_write, self.check_read];
        !said.into_iter().any(Switch::on)
    }

    /// `-Q`, or IOR's default.
    pub fn nodes_behind(&self) -> u64 {
        self.task_offset.unwrap_or(1)
    }
}

#[cfg(test)]
mod tests;
