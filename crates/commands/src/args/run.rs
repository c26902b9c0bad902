//! `tonnage run` and `tonnage tour`: experiments from a plan file.

use std::path::{Path, PathBuf};

use clap::Args;
use tonnage_plan::Plan;
use tonnage_units::Result;

use super::common::{RankArgs, ResultArgs};
use super::values::scale;
use super::verify::RANKS_DEFAULT;
use crate::command::plans::load;

/// `tonnage run`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct RunArgs {
    /// A plan file, such as my.toml, or the name of a plan that `tonnage plans` lists, such as tour.
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,

    /// Use these engines in every experiment instead of the plan's; several are joined by commas. An optional
    /// experiment with engine options uses only those of them that it names itself. If there are none, the experiment
    /// is left out with a warning.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub engine: Vec<String>,

    /// Location of the files of file experiments. In a directory, files keep the plan's names; otherwise they are named
    /// PLACE-NAME. By default, the plan decides.
    ///
    /// An existing directory or a name that ends with a slash counts as a directory.
    #[arg(long, value_name = "PLACE")]
    pub path: Option<String>,

    /// Placement of ranks.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Destination and format of results.
    #[command(flatten)]
    pub results: ResultArgs,
}

impl RunArgs {
    /// Loads the plan, and applies the engines and the location of files from the command line, but not `--scale`. Also
    /// returns the names of experiments that use none of these engines. The plan keeps its own number of ranks, if it
    /// has one.
    pub fn to_plan(&self) -> Result<(Plan, Vec<String>)> {
        let mut plan = load(&self.plan)?;
        let mut left_out = Vec::new();
        if !self.engine.is_empty() {
            plan.refuse_given("--engine")?;
            left_out = plan.use_engines(&self.engine)?;
        }
        if let Some(place) = &self.path {
            plan.move_files(place)?;
        }
        plan.ranks = plan.ranks.or(self.ranks.ranks);
        Ok((plan, left_out))
    }
}

/// `tonnage tour`.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct TourArgs {
    /// Write the results to this file. By default, its name is the time, in $XDG_STATE_HOME/tonnage or
    /// ~/.local/state/tonnage.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print the plan of the tour as TOML instead of running it.
    #[arg(long)]
    pub print_plan: bool,

    /// Multiply all measuring times by this factor, such as 0.1 for a quick look.
    #[arg(long, value_name = "FACTOR", value_parser = scale)]
    pub scale: Option<f64>,
}

impl TourArgs {
    /// Returns the plan of the tour's measurements between ranks, scaled as requested.
    pub fn to_plan(&self) -> Result<Plan> {
        let mut plan = load(Path::new("tour"))?;
        if let Some(factor) = self.scale {
            plan.scale(factor, plan.ranks.unwrap_or(RANKS_DEFAULT))?;
        }
        Ok(plan)
    }
}
