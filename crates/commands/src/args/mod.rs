//! The command line. A command that measures compiles to a [`Plan`]; there is no second way in.
//!
//! Values are parsed by `tonnage_plan` and `tonnage_units`, which also read plan files, so that both report the same
//! errors. [`Plan::points`] checks whether options can be combined. The commands themselves are in [`crate::command`].
//!
//! [`Plan`]: tonnage_plan::Plan [`Plan::points`]: tonnage_plan::Plan::points

pub mod ab;
pub mod baseline;
pub mod check;
pub mod common;
pub mod compare;
pub mod experiment;
pub mod export;
pub mod history;
pub mod hosts;
pub mod ior;
pub mod layers;
pub mod manual;
pub mod passed_on;
pub mod report;
pub mod run;
pub mod values;
pub mod verify;
pub mod version;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tonnage_plan::options::one_of;
use tonnage_report::Format;

use ab::AbArgs;
use baseline::BaselineArgs;
use check::CheckArgs;
use common::LogLevel;
use compare::CompareArgs;
use experiment::ExperimentArgs;
use export::ExportArgs;
use history::HistoryArgs;
use hosts::HostsArgs;
use ior::IorArgs;
use layers::LayersArgs;
use manual::{CompletionsArgs, ManArgs};
use report::ReportArgs;
use run::{RunArgs, TourArgs};
use verify::VerifyArgs;

/// Measure how fast bytes really move in this cluster, and where they slow down.
///
/// Without a command, tonnage makes a tour: it looks at this machine, measures it for less than a minute and prints
/// one page.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "tonnage", version = version::short(), long_version = version::long(), max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 everything was measured, 1 something failed, 2 the request is wrong, \
                        128 + signal when interrupted."
)]
pub struct Cli {
    /// Command to run. [default: tour]
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Level of messages on standard error about what tonnage does.
    #[arg(long, global = true, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Warn)]
    pub log_level: LogLevel,
}

impl Cli {
    /// Returns the log level; IOR's command lines have their own options for it.
    pub fn log_level(&self) -> LogLevel {
        match &self.command {
            Some(Command::Ior(args)) => args.log_level().unwrap_or(self.log_level),
            _ => self.log_level,
        }
    }
}

/// Command to run.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum Command {
    /// Look at this machine, measure it for less than a minute, and print one page.
    Tour(TourArgs),
    /// One experiment of some kind.
    #[command(flatten)]
    Experiment(Box<ExperimentArgs>),
    /// Experiments with files by IOR's own command lines, with IOR's result block: `tonnage ior --help`.
    #[command(disable_help_flag = true)]
    Ior(IorArgs),
    /// Measure everything that a plan file asks for.
    Run(RunArgs),
    /// Print the table of a results file, or of a page, again.
    Show(ShowArgs),
    /// Measure two sides in alternation, so that they can be compared.
    Ab(AbArgs),
    /// Compare records of two sides: which one is better on each point, with confidence intervals.
    Compare(CompareArgs),
    /// Create a baseline from records: typical figures of each kind of host, and limits for warnings and failures.
    Baseline(BaselineArgs),
    /// Measure this host within a time budget and judge it against a baseline.
    Check(Box<CheckArgs>),
    /// Show a metric over the runs of files, and mark its changes and simultaneous changes of the surroundings.
    History(HistoryArgs),
    /// Write records in formats of other programs: Prometheus, CI systems, pages in Markdown.
    Export(ExportArgs),
    /// Write one page with tables, plots and the records, which can be sent on.
    Report(ReportArgs),
    /// Explain a column of a table.
    Explain(ExplainArgs),
    /// List hardware and libraries of this machine; for each one missing, why and how to get it.
    Devices(DevicesArgs),
    /// Move a batch of four at each of many sizes, or call every collective, and check all data.
    Verify(VerifyArgs),
    /// Move the same bytes by engines, by collectives over them and by libraries, and say how much each keeps of the
    /// layer below.
    Layers(Box<LayersArgs>),
    /// Reach other hosts by ssh as --hosts does, and show facts about each and where ranks would meet.
    Hosts(HostsArgs),
    /// Print the completion script of a shell.
    Completions(CompletionsArgs),
    /// Print a man page, or write all of them.
    Man(ManArgs),
    /// Agent of a host, which --hosts and `tonnage hosts` start by ssh.
    #[command(hide = true)]
    HostAgent(AgentArgs),
    /// A rank that this agent starts.
    #[command(hide = true)]
    HostRank,
}

/// The agent of a host.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct AgentArgs {
    /// Print the hash of this program instead.
    #[arg(long)]
    pub build: bool,
}

/// `tonnage show`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ShowArgs {
    /// The file of results, as written with --output, or a page of `tonnage report`.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Draw tables, or write the records as JSON lines or CSV.
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<Format>(), default_value_t = Format::Table)]
    pub format: Format,
}

/// `tonnage explain`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ExplainArgs {
    /// The column as the table heads it, such as "Avg Lat"; every column when it is left out.
    #[arg(value_name = "COLUMN")]
    pub column: Option<String>,
}

/// `tonnage devices`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct DevicesArgs {
    /// Write JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests;
