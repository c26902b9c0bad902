//! `tonnage transfer`: one experiment, said on the command line.

use clap::Args;
use tonnage_plan::{Experiment, Plan, Transfer};

use super::common::{RankArgs, ResultArgs};

/// `tonnage transfer`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "A sweep is one value (4096), a doubling range (8..1M), a linear range (1M..32M+1M), a range \
    with a factor (1..1000*10), or several of these joined by commas. Several sweeps multiply. k, M and G are powers \
    of two in sizes and sweeps; kB, MB and GB are decimal.\n\n\
    Examples:\n  \
    tonnage transfer --engine shm --op read --ranks 2 --sizes 8..1M --batch 128\n  \
    tonnage transfer --engine shm --op write-imm --ranks 2 --sizes 8,4k --ping-pong --duration 2s"
)]
pub struct TransferArgs {
    /// The experiment.
    #[command(flatten)]
    pub transfer: Transfer,
    /// Placement of ranks.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Destination and format of results.
    #[command(flatten)]
    pub results: ResultArgs,
}

impl TransferArgs {
    /// The plan that this command line stands for, before `--scale`.
    pub fn to_plan(&self) -> Plan {
        Plan {
            name: "transfer".to_owned(),
            ranks: self.ranks.ranks,
            experiments: vec![Experiment::Transfer(self.transfer.clone())],
            ..Plan::default()
        }
    }
}
