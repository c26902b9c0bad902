//! `tonnage run`: a plan that is written down. The measuring is in `measure`.

use std::process::ExitCode;

use tonnage_units::Result;

use super::env;
use super::measure::{identity_of, measured};
use crate::args::run::RunArgs;

/// `tonnage run`.
///
/// # Errors
/// A wrong request, or what ended the run.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let (plan, left_out) = args.to_plan()?;
    if !left_out.is_empty() && tells(args)? {
        log::warn!(
            "--engine {} leaves out what is optional and has options of other engines: {}",
            args.engine.join(","),
            left_out.join(", ")
        );
    }
    measured(plan, &args.ranks, &args.results)
}

/// Returns whether this process is the one of the run that says what all of them find: whoever starts the ranks, or
/// rank 0 of those that a launcher has started.
fn tells(args: &RunArgs) -> Result<bool> {
    let identity = identity_of(&args.ranks)?;
    let has_supervisor = env("TONNAGE_RANK").is_some();
    Ok(identity.is_none_or(|identity| identity.rank == 0 && !has_supervisor))
}
