//! `tonnage run`: a plan that is written down. The measuring is in `measure`.

use std::process::ExitCode;

use tonnage_units::Result;

use super::measure::{identity_of, job_of, speaks, start};
use crate::args::run::RunArgs;

/// `tonnage run`.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let (plan, left_out) = args.to_plan()?;
    if !left_out.is_empty() && speaks(identity_of(&args.ranks)?.as_ref()) {
        log::warn!(
            "--engine {} leaves out what is optional and has options of other engines: {}",
            args.engine.join(","),
            left_out.join(", ")
        );
    }
    let job = job_of(plan, &args.ranks, &args.results)?;
    start(&job, args.results.print_plan)
}
