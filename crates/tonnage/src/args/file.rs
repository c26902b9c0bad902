//! `tonnage file`: one experiment with files, said on the command line.

use clap::Args;
use tonnage_plan::files::FileJob;
use tonnage_plan::{Experiment, Plan};

use super::common::{RankArgs, ResultArgs};

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
    /// The experiment.
    #[command(flatten)]
    pub job: FileJob,
    /// Placement of ranks.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Destination and format of results.
    #[command(flatten)]
    pub results: ResultArgs,
}

impl FileArgs {
    /// The plan that this command line stands for, before `--scale`.
    pub fn to_plan(&self) -> Plan {
        Plan {
            name: "file".to_owned(),
            ranks: self.ranks.ranks,
            experiments: vec![Experiment::File(self.job.clone())],
            ..Plan::default()
        }
    }
}
