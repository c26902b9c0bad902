//! The command.

mod args;

use clap::Parser;
use tonnage_core::Result;
use tonnage_core::plan::Plan;

use args::{Cli, Command};

fn main() -> std::process::ExitCode {
    match print(Cli::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_code().into()
        }
    }
}

/// Prints the plan of commands that have one.
fn print(cli: Cli) -> Result<()> {
    let plan: Plan = match cli
        .command
        .unwrap_or(Command::Tour(args::run::TourArgs::default()))
    {
        Command::Tour(args) => args.to_plan()?,
        Command::Transfer(args) => {
            args.results.destination()?;
            args.results.scaled(args.to_plan())?
        }
        Command::Run(args) => {
            args.results.destination()?;
            args.results.scaled(args.to_plan()?)?
        }
        Command::Verify(args) => args.to_plan(&[])?,
        Command::Show(_) | Command::Explain(_) | Command::Devices(_) => return Ok(()),
    };
    print!("{}", plan.to_toml());
    Ok(())
}
