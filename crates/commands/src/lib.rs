//! The commands: they parse arguments, start ranks or become one, and print recorded results.
//!
//! `args` defines the command line, and `command` implements each command. `tonnage_bench` measures, `tonnage_engines`
//! has the engines, and `tonnage_report` prints records.
#![forbid(unsafe_code)]

mod args;
mod command;
mod habits;
mod last_resort;
mod parser_errors;
#[cfg(test)]
mod refused;

use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;

use env_logger::Target;
use tonnage_bench::deadlines::DEADLINES;
use tonnage_judge::check::CheckVerdict;
use tonnage_units::Result;
use tonnage_units::message::{print_message, truncate_message};

use args::common::LogLevel;
use args::{Cli, Command};
use command::remote_rank;
use command::screen::MessageWriter;

#[global_allocator]
static ALLOCATOR: tonnage_sys::out_of_memory::OrEnd = tonnage_sys::out_of_memory::OrEnd;

/// Build information of this program.
#[derive(Debug, Clone, Copy)]
pub struct Build {
    /// The commit from which the program was built.
    pub revision: &'static str,
    /// The target triple.
    pub target: &'static str,
}

static BUILD: OnceLock<Build> = OnceLock::new();

/// Returns the build information. In tests, it is unknown.
fn build() -> Build {
    *BUILD.get_or_init(|| Build {
        revision: "unknown",
        target: "unknown",
    })
}

/// Runs the command that this process's arguments request.
pub fn main(this: Build) -> ExitCode {
    // This cannot fail, because `build` has not been called yet.
    let _ = BUILD.set(this);
    last_resort::prepare();
    tonnage_sys::process::refuse_oversized_writes();
    let typed: Vec<_> = std::env::args_os().collect();
    let words: Vec<String> = typed
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if let Some(page) = Cli::help_page(words.get(1..).unwrap_or_default()) {
        return match command::print(&page) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                command::say_error(&error);
                error.exit_code().into()
            }
        };
    }
    if let Some(refusal) = habits::refuse(&typed) {
        print_message(&refusal);
        return 2.into();
    }
    let cli = match Cli::parse_arguments() {
        Ok(cli) => cli,
        Err(answer) if !answer.use_stderr() => return command::answer(&answer),
        Err(answer) => {
            let message = parser_errors::text(&answer, &typed);
            print_message(&format!("error: {message}"));
            return command::check::refused_by_parser(words.into_iter(), &message)
                .unwrap_or(2.into());
        }
    };
    let style = match &cli.command {
        Some(Command::Check(args)) => Some(args.exit),
        _ => None,
    };
    if let Some(style) = style {
        tonnage_sys::out_of_memory::end_with(style.code(CheckVerdict::Error));
    }
    let outcome = match cli.command {
        Some(Command::HostRank) => remote_rank::read().and_then(|work| {
            start_log(work.log_level);
            bind_deadlines()?;
            work.work()
        }),
        _ => {
            start_log(cli.log_level());
            run(cli)
        }
    };
    match (outcome, style) {
        (Ok(code), _) => code,
        (Err(error), Some(style)) => command::check::not_checked(style, &error),
        (Err(error), None) => {
            command::say_error(&error);
            error.exit_code().into()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    tonnage_ranks::spawn::local::end_with_supervisor(&command::env)?;
    bind_deadlines()?;
    let Some(command) = cli.command else {
        return command::print(&Cli::overview()).map(|()| ExitCode::SUCCESS);
    };
    match command {
        Command::Tour(args) => command::tour::tour(&args),
        Command::Experiment(args) => command::measure::experiment(&args),
        Command::Ior(args) => command::ior::ior(&args),
        Command::Run(args) => command::measure::run(&args),
        Command::Verify(args) => command::measure::verify(&args),
        Command::Layers(args) => command::measure::layers(&args),
        Command::Show(args) => command::show::show(&args),
        Command::Ab(args) => command::ab::ab(&args),
        Command::Compare(args) => command::compare::compare(&args),
        Command::Baseline(args) => command::baseline::baseline(&args),
        Command::Check(args) => Ok(command::check::check(&args)),
        Command::History(args) => command::history::history(&args),
        Command::Export(args) => command::export::export(&args),
        Command::Report(args) => command::report::report(&args),
        Command::Explain(args) => command::show::explain(&args),
        Command::Devices(args) => command::show::devices(args.json),
        Command::Engines(args) => command::show::engines(args.name.as_deref()),
        Command::Plans(args) => command::plans::plans(&args),
        Command::Completions(args) => command::manual::completions(&args),
        Command::From(args) => habits::from(&args),
        Command::Man(args) => command::manual::man(&args),
        Command::Hosts(args) => command::hosts::hosts(&args),
        Command::HostAgent(args) => command::host_agent::agent(&args),
        Command::HostRank => remote_rank::read()?.work(),
    }
}

/// Limits how long ranks wait for each other, if an environment variable sets a limit.
fn bind_deadlines() -> Result<()> {
    let bound = tonnage_ranks::bootstrap::options::step_timeout(&command::env)?;
    bound.into_iter().for_each(|budget| DEADLINES.bind(budget));
    Ok(())
}

/// Sends log messages to standard error, one line each, so that standard output has only results.
fn start_log(level: LogLevel) {
    let level = match level {
        LogLevel::Error => log::LevelFilter::Error,
        LogLevel::Warn => log::LevelFilter::Warn,
        LogLevel::Info => log::LevelFilter::Info,
        LogLevel::Debug => log::LevelFilter::Debug,
    };
    env_logger::Builder::new()
        .filter_level(level)
        .target(Target::Pipe(Box::new(MessageWriter)))
        .format(|out, record| {
            writeln!(
                out,
                "{}: {}",
                record.level().as_str().to_lowercase(),
                truncate_message(&record.args().to_string())
            )
        })
        .init();
}
