//! The command line. A command that measures is converted to a [`Plan`]; there is no other way to request measurements.
//!
//! `tonnage_plan` and `tonnage_units` parse the values. They also parse plan files, so both report the same errors.
//! [`Plan::points`] checks whether options can be combined. [`crate::command`] implements the commands.
//!
//! [`Plan`]: tonnage_plan::Plan
//! [`Plan::points`]: tonnage_plan::Plan::points

pub mod ab;
pub mod baseline;
pub mod check;
pub mod common;
pub mod compare;
pub mod experiment;
pub mod export;
pub mod from;
pub mod history;
pub mod hosts;
pub mod ior;
pub mod layers;
pub mod manual;
mod overview;
pub mod passed_on;
pub mod report;
pub mod run;
pub mod short_help;
pub mod values;
pub mod verify;
pub mod version;
pub mod view;

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use tonnage_plan::options::one_of;
use tonnage_report::Format;

use ab::AbArgs;
use baseline::BaselineArgs;
use check::CheckArgs;
use common::LogLevel;
use compare::CompareArgs;
use experiment::ExperimentArgs;
use export::ExportArgs;
use from::FromArgs;
use history::HistoryArgs;
use hosts::HostsArgs;
use ior::IorArgs;
use layers::LayersArgs;
use manual::{CompletionsArgs, ManArgs};
use report::ReportArgs;
use run::{RunArgs, TourArgs};
use verify::VerifyArgs;
use view::ViewArgs;

/// Measure how fast bytes really move in a cluster, and where they slow down.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "tonnage", version = version::short(), long_version = version::long(), max_term_width = 100)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    /// Command to run; without one, the overview of commands is printed.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Level of messages on standard error about what tonnage does.
    #[arg(long, global = true, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Warn)]
    pub log_level: LogLevel,
}

/// Returns the help that this process's arguments request. The text is created only on request, because every rank of a
/// run parses its arguments.
fn help() -> Option<clap::Error> {
    let program = Cli::command();
    let overview = overview::text(&program);
    let program = short_help::shorten(program.override_help(overview));
    program.try_get_matches().err()
}

/// Meaning of the exit codes of all commands except `check`, which has more codes.
const EXIT_CODES: &str = "Exit codes: 0 everything was measured, 1 something failed, 2 wrong request, or impossible here, \
                          128 + signal when interrupted.";

impl Cli {
    /// Parses this process's arguments. The help of the program as a whole is the [`overview`].
    ///
    /// # Errors
    /// The parser's result, if it is not a command: help, the version, or the error in the command line.
    pub fn parse_arguments() -> Result<Self, clap::Error> {
        Self::try_parse().map_err(|answer| match answer.kind() {
            ErrorKind::DisplayHelp => help().unwrap_or(answer),
            _ => answer,
        })
    }

    /// Returns a help page that belongs to no single command: `tonnage help launch`.
    pub fn help_page(words: &[String]) -> Option<String> {
        short_help::page(words)
    }

    /// Returns the overview of commands.
    pub fn overview() -> String {
        overview::text(&Self::command())
    }

    /// Returns the log level. IOR's command lines set it with their own options.
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
    /// Measure this host in less than a minute; one page.
    ///
    /// Prints its hardware, its upper bounds for memory, caches and loopback, and how close transfers between two local
    /// ranks come to these bounds.
    Tour(TourArgs),
    /// One experiment of any kind.
    #[command(flatten)]
    Experiment(Box<ExperimentArgs>),
    /// Run IOR's command line, with IOR's result block.
    #[command(disable_help_flag = true)]
    Ior(IorArgs),
    /// Run a plan from a file, or one inside this program.
    Run(RunArgs),
    /// Print the tables of a results file or page again.
    Show(ShowArgs),
    /// Measure two sides in alternation, for `compare`.
    Ab(AbArgs),
    /// Compare two sides point by point, with intervals.
    Compare(CompareArgs),
    /// Derive thresholds from the records of healthy hosts.
    ///
    /// A baseline has the typical figures of each kind of host, and thresholds for warnings and failures.
    Baseline(BaselineArgs),
    /// Judge this host by a baseline, in limited time.
    Check(Box<CheckArgs>),
    /// Show a metric over many runs and mark its changes.
    ///
    /// Changes of the environment at the same time are marked too.
    History(HistoryArgs),
    /// Write records as Prometheus, JUnit or Markdown.
    Export(ExportArgs),
    /// Write one HTML page: tables, plots and the records.
    Report(ReportArgs),
    /// Explain a column of a table, or a term.
    Explain(ExplainArgs),
    /// List this host's hardware and libraries, and missing ones.
    ///
    /// For each missing item: why, and how to get it. Engines and their options are in `tonnage engines`.
    Devices(DevicesArgs),
    /// List engines, memories and backends, or one's options.
    Engines(EnginesArgs),
    /// List the plans in this program, or print one.
    Plans(PlansArgs),
    /// Move data of many sizes and check all of it.
    ///
    /// A batch of four operations at each size, or every collective.
    Verify(VerifyArgs),
    /// Cost of each layer: engine, collective, library.
    ///
    /// Moves the same bytes by engines, by collectives over them and by libraries. Prints the fraction of the layer
    /// below that each layer reaches.
    Layers(Box<LayersArgs>),
    /// Check that hosts can be reached by ssh and take part.
    ///
    /// Reaches them as --hosts does, and prints facts about each host and where ranks would meet.
    Hosts(HostsArgs),
    /// Translate another benchmark's command line.
    ///
    /// Prints the equivalent line of tonnage, and a remark for each option without an equivalent.
    From(FromArgs),
    /// Print a shell's completion script.
    Completions(CompletionsArgs),
    /// Print a man page, or write all of them.
    Man(ManArgs),
    /// Agent of a host, which --hosts and `tonnage hosts` start by ssh.
    #[command(hide = true)]
    HostAgent(AgentArgs),
    /// A rank that the agent of a host starts.
    #[command(hide = true)]
    HostRank,
}

/// The agent of a host.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct AgentArgs {
    /// Print the hash of this program and exit.
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
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<Format>(), default_value_t = Format::Table,
        default_value_if("json", "true", "jsonl"), conflicts_with = "json")]
    pub format: Format,

    /// Write JSON lines: the same as --format jsonl.
    #[arg(short = 'j', long)]
    pub json: bool,

    /// Tables.
    #[command(flatten)]
    pub view: ViewArgs,
}

/// `tonnage explain`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ExplainArgs {
    /// Header of a column such as "Avg Lat", its name in CSV, or a term such as lane; by default, all columns are
    /// listed.
    #[arg(value_name = "COLUMN|TERM")]
    pub column: Option<String>,
}

/// `tonnage devices`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct DevicesArgs {
    /// Write JSON instead of text.
    #[arg(short, long)]
    pub json: bool,
}

/// `tonnage engines`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct EnginesArgs {
    /// Engine, memory or backend to print the options of, such as verbs or fabric:tcp; by default, all are listed
    /// without their options.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// `tonnage plans`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct PlansArgs {
    /// Plan to print, as a start for your own: `tonnage plans tour > mine.toml`; by default, all are listed.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

#[cfg(test)]
mod tests;
