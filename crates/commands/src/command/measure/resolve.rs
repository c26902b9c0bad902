//! Converts arguments to a job and its points. Refuses everything that can be refused without ranks.

use std::sync::Arc;
use std::time::Duration;

use tonnage_engines::LISTS;
use tonnage_plan::{Plan, Planned};
use tonnage_ranks::Identity;
use tonnage_ranks::spawn::remote::list::HostPlacement;
use tonnage_record::published;
use tonnage_report::Format;
use tonnage_units::{Error, Result};

use crate::args::common::{RankArgs, ResultArgs};
use crate::args::layers::LayersArgs;
use crate::args::verify::{RANKS_DEFAULT, Ranks, VerifyArgs};
use crate::command::checks::{check_devices, check_effects, check_placement, check_places};
use crate::command::env;
use crate::command::job::Job;
use crate::command::rank_count::{CountSource, how_many};

/// Creates the job of a plan, with these options for ranks and results.
pub(crate) fn job_of(plan: Plan, ranks: &RankArgs, results: &ResultArgs) -> Result<Job> {
    let count = how_many(ranks, &plan, identity_of(ranks)?.as_ref())?;
    Ok(Job {
        output: results.output()?,
        format: Some(results.format),
        view: results.view.view(results.format)?,
        require_path: results.require_path,
        runs: results.runs,
        time_limit: results.time_limit,
        ..Job::new(results.scaled(plan, count)?, ranks.clone())
    })
}

pub(crate) fn verify_job(args: &VerifyArgs) -> Result<Job> {
    let identity = identity_of(&args.ranks)?;
    let asked = args.ranks.asked()?.unwrap_or(RANKS_DEFAULT);
    let plan = args.to_plan(&LISTS, Ranks::of(identity.as_ref(), asked))?;
    Ok(Job {
        output: args.output.clone().map(|path| (path, false)),
        format: Some(Format::Table),
        view: args.view.view(Format::Table)?,
        time_limit: args.time_limit,
        ..Job::new(plan, args.ranks.clone())
    })
}

pub(crate) fn layers_job(args: &LayersArgs) -> Result<Job> {
    if args.results.runs.is_some() {
        return Err(Error::Usage(
            "--runs would take layers out of their turns: use --rounds N, or measure `tonnage layers` several times"
                .to_owned(),
        ));
    }
    let identity = identity_of(&args.ranks)?;
    let asked = args.ranks.asked()?.unwrap_or(RANKS_DEFAULT);
    let placement = args.ranks.placement()?;
    let plan = args
        .to_plan(&LISTS, Ranks::of(identity.as_ref(), asked))
        .map_err(|error| CountSource::of(identity.as_ref(), placement.as_ref()).advise(error))?;
    job_of(plan, &args.ranks, &args.results)
}

/// The ranks of a job, and the points that they measure.
pub(crate) struct Resolved {
    pub(super) identity: Option<Identity>,
    pub(super) placement: Option<HostPlacement>,
    pub(crate) ranks: u32,
    pub(crate) points: Vec<Planned>,
}

impl Resolved {
    pub(crate) fn for_job(job: &Job) -> Result<Self> {
        let identity = identity_of(&job.ranks)?;
        let placement = job.ranks.placement()?;
        let ranks = how_many(&job.ranks, &job.plan, identity.as_ref())?;
        let points = points(&job.plan, ranks).map_err(|error| {
            CountSource::of(identity.as_ref(), placement.as_ref()).advise(error)
        })?;
        Ok(Self {
            identity,
            placement,
            ranks,
            points,
        })
    }

    /// Checks everything except the requirements for starting ranks on this host.
    pub(crate) fn check(&self, job: &Job) -> Result<()> {
        let here = match (&self.identity, &self.placement) {
            (Some(identity), _) => identity.local_size,
            (None, Some(_)) => None,
            (None, None) => Some(self.ranks),
        };
        check_points(job, &self.points, (self.ranks, here))?;
        check_time_limit(job, &self.points)?;
        match self.placement {
            Some(_) => Ok(()),
            None => check_placement(job, &self.points),
        }
    }
}

/// Returns this process's rank in the run. `None` if this process has to start the ranks.
pub(crate) fn identity_of(ranks: &RankArgs) -> Result<Option<Identity>> {
    let identity = tonnage_ranks::detect(&env, ranks.explicit())?;
    match (&identity, ranks.placement()?) {
        (Some(identity), Some(placement)) => {
            let host = placement.hosts.first().map_or("", |host| &host.name);
            Err(Error::Usage(format!(
                "--hosts {host}, … starts ranks itself, but {} made this process rank {} of {}: leave --hosts out, or start \
                 tonnage outside of the launcher",
                identity.source, identity.rank, identity.size
            )))
        }
        _ => Ok(identity),
    }
}

/// Returns whether this process prints messages that all processes of the run would print. It is the process that
/// starts the ranks, or rank 0 if a launcher started them.
pub(crate) fn reports_for_all(identity: Option<&Identity>) -> bool {
    let has_supervisor = env("TONNAGE_RANK").is_some();
    identity.is_none_or(|identity| identity.rank == 0 && !has_supervisor)
}

/// Expands the plan to the points that are measured.
pub(super) fn points(plan: &Plan, ranks: u32) -> Result<Vec<Planned>> {
    let points = plan.points(ranks, &LISTS)?;
    // Consecutive points of one experiment share their tables, which are checked once.
    let mut checked = None;
    for Planned { reading, .. } in &points {
        if checked.is_none_or(|last| !Arc::ptr_eq(last, &reading.tables)) {
            published::check(&reading.tables)?;
            checked = Some(&reading.tables);
        }
    }
    Ok(points)
}

/// Runs the checks that do not depend on the host. There are `ranks` ranks, and `here` of them are on this host.
pub(super) fn check_points(
    job: &Job,
    points: &[Planned],
    (ranks, here): (u32, Option<u32>),
) -> Result<()> {
    check_places(job, points)?;
    check_effects(job, points)?;
    check_devices(&job.ranks.device_names()?, points, (ranks, here))
}

/// Refuses a time limit that is too short even for a result of the first point.
fn check_time_limit(job: &Job, points: &[Planned]) -> Result<()> {
    let (Some(limit), Some(first)) = (job.time_limit, points.first()) else {
        return Ok(());
    };
    let needed = first.point.any().least_time();
    if needed < Duration::from_nanos(limit.0) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--time-limit {limit} is too short: the warm-up and one trial of the first point take {:.3} s; e.g. --time-limit {}s",
        needed.as_secs_f64(),
        needed.as_secs() + 5
    )))
}
