//! `tonnage connect`: one experiment with connections, said on the command line.

use clap::Args;
use tonnage_plan::{Connect, Experiment, Plan};

use super::common::{RankArgs, ResultArgs};

/// `tonnage connect`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "Workers and register take sweeps: one value (4), a doubling range (1..16), a range with a factor \
    (4k..1G*16), or several of these joined by commas. Several sweeps multiply. k, M and G are powers of two.\n\n\
    Examples:\n  \
    tonnage connect --engine shm,fabric:tcp --ranks 2 --workers 1..8\n  \
    tonnage connect --engine fabric:tcp --ranks 8 --traffic fan-in --register 4k..1G*16 --memory small,huge"
)]
pub struct ConnectArgs {
    /// The experiment.
    #[command(flatten)]
    pub connect: Connect,
    /// Placement of ranks.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Destination and format of results.
    #[command(flatten)]
    pub results: ResultArgs,
}

impl ConnectArgs {
    /// The plan that this command line stands for, before `--scale`.
    pub fn to_plan(&self) -> Plan {
        Plan {
            name: "connect".to_owned(),
            ranks: self.ranks.ranks,
            experiments: vec![Experiment::Connect(self.connect.clone())],
            ..Plan::default()
        }
    }
}
