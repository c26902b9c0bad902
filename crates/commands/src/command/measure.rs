//! The commands of kinds, `run`, `layers` and `verify`. They run a plan, and the ranks of the run produce records.
//!
//! Everything that can be checked without ranks is checked before a rank starts ([`resolve`]). Without a launcher, this
//! process starts the ranks and supervises them ([`supervise`]). If a launcher started this process, it is a rank
//! itself ([`participate`]).

pub mod participate;
pub mod resolve;
pub mod supervise;

use std::process::ExitCode;

use tonnage_ranks::spawn::local::TURN_PARENT;
use tonnage_units::Result;

use self::participate::participate;
use self::resolve::{Resolved, identity_of, job_of, layers_job, reports_for_all, verify_job};
use self::supervise::supervise;
use super::checks::{check_interface, check_output};
use super::job::Job;
use super::{dry_run, env, print, remote};
use crate::args::common::ResultArgs;
use crate::args::experiment::ExperimentArgs;
use crate::args::layers::LayersArgs;
use crate::args::run::RunArgs;
use crate::args::verify::VerifyArgs;

/// The command of a kind: `tonnage transfer`, `tonnage file`, …
pub fn experiment(args: &ExperimentArgs) -> Result<ExitCode> {
    let job = job_of(args.to_plan(), &args.ranks, &args.results)?;
    start_or_print(&job, &args.results)
}

/// `tonnage run`.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let (plan, left_out) = args.to_plan()?;
    if !left_out.is_empty() && reports_for_all(identity_of(&args.ranks)?.as_ref()) {
        log::warn!(
            "--engine {} leaves out what is optional and has options of other engines: {}",
            args.engine.join(","),
            left_out.join(", ")
        );
    }
    let job = job_of(plan, &args.ranks, &args.results)?;
    start_or_print(&job, &args.results)
}

/// `tonnage verify`.
pub fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    start(&verify_job(args)?, args.print_plan)
}

/// `tonnage layers`.
pub fn layers(args: &LayersArgs) -> Result<ExitCode> {
    start_or_print(&layers_job(args)?, &args.results)
}

/// Starts a job. If requested, prints its points or its plan instead.
pub fn start_or_print(job: &Job, results: &ResultArgs) -> Result<ExitCode> {
    if !results.dry_run {
        return start(job, results.print_plan);
    }
    let resolved = Resolved::for_job(job)?;
    resolved.check(job)?;
    let runs = job.runs.unwrap_or(1);
    print(&dry_run::page(&resolved.points, resolved.ranks, runs)).map(|()| ExitCode::SUCCESS)
}

/// Checks a job, and then starts its ranks or becomes one of them.
pub fn start(job: &Job, print_plan: bool) -> Result<ExitCode> {
    let resolved = Resolved::for_job(job)?;
    // A side of `tonnage ab` is checked completely, so that none of its later runs is refused. Any other plan can be
    // printed even on a host that could not run it.
    if !print_plan || env(TURN_PARENT).is_some() {
        resolved.check(job)?;
    }
    if print_plan {
        return print(&job.plan.to_toml()?).map(|()| ExitCode::SUCCESS);
    }
    if let Some(identity) = resolved.identity {
        return participate(job, &resolved.points, identity);
    }
    if resolved.placement.is_none() {
        check_interface(&job.ranks)?;
    }
    if let Some((path, resume)) = &job.output {
        check_output(path, *resume)?;
    }
    match resolved.placement {
        Some(placement) => remote::supervise(job, &resolved.points, &placement),
        None => {
            let arguments: Vec<_> = std::env::args_os().skip(1).collect();
            supervise(resolved.ranks, &arguments, Some(job))
        }
    }
}
