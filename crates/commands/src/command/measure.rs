//! The commands of kinds, `run`, `layers` and `verify`: a plan goes to ranks, and records come back.
//!
//! Without a launcher this process starts the ranks and looks after them ([`supervise`]); started by one, it is a rank
//! ([`be_a_rank`]). Everything that can be known to be wrong is refused before a rank starts, by [`Resolved`].

use std::borrow::Cow;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tonnage_bench::conductor;
use tonnage_bench::deadlines::DEADLINES;
use tonnage_bench::settings::{DeviceNames, Settings};
use tonnage_engine::{BeforeJoin, Lifecycle};
use tonnage_engines::LISTS;
use tonnage_machine::Topology;
use tonnage_plan::order::shuffled;
use tonnage_plan::{Plan, Planned};
use tonnage_ranks::spawn::local::{TURN_PARENT, start_local};
use tonnage_ranks::spawn::remote::list::HostPlacement;
use tonnage_ranks::spawn::remote::words::CHECKPOINT;
use tonnage_ranks::{Identity, Meeting, Rank, RankFailure};
use tonnage_record::read::{already_measured, final_attempts};
use tonnage_record::{Outcome, Record, published};
use tonnage_report::Format;
use tonnage_report::wire_proof::lacks_proof;
use tonnage_sys::clock::Clock;
use tonnage_units::message::say;
use tonnage_units::{Error, Result};

use super::checks::{
    check_devices, check_effects, check_interface, check_output, check_placement, check_places,
    facts,
};
use super::job::Job;
use super::leftovers::{Leftovers, clean_up, ledger};
use super::observer::Keeper;
use super::output::{in_order_of_plan, open_output, show};
use super::rank_count::{CountSource, how_many};
use super::spare::{Spare, SpareWriter};
use super::{env, print, program, remote, say_error};
use crate::args::common::{RankArgs, ResultArgs};
use crate::args::experiment::ExperimentArgs;
use crate::args::layers::LayersArgs;
use crate::args::run::RunArgs;
use crate::args::verify::{RANKS_DEFAULT, Ranks, VerifyArgs};

/// Points to measure, expanded from the plan.
fn points(plan: &Plan, ranks: u32) -> Result<Vec<Planned>> {
    let points = plan.points(ranks, &LISTS)?;
    // Points of one experiment, which follow each other, have the same tables.
    let mut checked = None;
    for Planned { reading, .. } in &points {
        if checked.is_none_or(|last| !Arc::ptr_eq(last, &reading.tables)) {
            published::check(&reading.tables)?;
            checked = Some(&reading.tables);
        }
    }
    Ok(points)
}

/// The command of a kind: `tonnage transfer`, `tonnage file`, …
pub fn experiment(args: &ExperimentArgs) -> Result<ExitCode> {
    let job = job_of(args.to_plan(), &args.ranks, &args.results)?;
    start(&job, args.results.print_plan)
}

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

/// `tonnage verify`.
pub fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    start(&verify_job(args)?, args.print_plan)
}

/// `tonnage layers`.
pub fn layers(args: &LayersArgs) -> Result<ExitCode> {
    start(&layers_job(args)?, args.results.print_plan)
}

/// A plan, by these ranks and with these results.
pub fn job_of(plan: Plan, ranks: &RankArgs, results: &ResultArgs) -> Result<Job> {
    let count = how_many(ranks, &plan, identity_of(ranks)?.as_ref())?;
    Ok(Job {
        output: results.output()?,
        format: Some(results.format),
        require_path: results.require_path,
        runs: results.runs,
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

/// Where a job runs, and the points that it measures there.
pub(crate) struct Resolved {
    identity: Option<Identity>,
    placement: Option<HostPlacement>,
    ranks: u32,
    points: Vec<Planned>,
}

impl Resolved {
    pub(crate) fn of(job: &Job) -> Result<Self> {
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

    /// Checks everything but what only the start of ranks on this host needs.
    pub(crate) fn check(&self, job: &Job) -> Result<()> {
        let here = match (&self.identity, &self.placement) {
            (Some(identity), _) => identity.local_size,
            (None, Some(_)) => None,
            (None, None) => Some(self.ranks),
        };
        check_points(job, &self.points, (self.ranks, here))?;
        match self.placement {
            Some(_) => Ok(()),
            None => check_placement(job, &self.points),
        }
    }
}

/// Checks a job, then starts its ranks or becomes one.
pub fn start(job: &Job, print_plan: bool) -> Result<ExitCode> {
    let resolved = Resolved::of(job)?;
    // A side of `tonnage ab` is checked wholly, so that no later turn is refused; any other plan can be printed where
    // it could not run.
    if !print_plan || env(TURN_PARENT).is_some() {
        resolved.check(job)?;
    }
    if print_plan {
        return print(&job.plan.to_toml()?).map(|()| ExitCode::SUCCESS);
    }
    if let Some(identity) = resolved.identity {
        return be_a_rank(job, &resolved.points, identity);
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

/// Takes part as a rank that the agent of a host has started.
pub fn be_a_remote_rank(job: &Job, identity: Identity) -> Result<ExitCode> {
    let points = points(&job.plan, identity.size)?;
    check_points(job, &points, (identity.size, identity.local_size))?;
    check_placement(job, &points)?;
    be_a_rank(job, &points, identity)
}

/// Checks that need no look at a host, for `ranks` of which these many are `here`.
fn check_points(job: &Job, points: &[Planned], (ranks, here): (u32, Option<u32>)) -> Result<()> {
    check_places(job, points)?;
    check_effects(job, points)?;
    check_devices(&job.ranks.device_names()?, points, (ranks, here))
}

/// This process's place in the run; `None` where it has to start the ranks.
pub(super) fn identity_of(ranks: &RankArgs) -> Result<Option<Identity>> {
    let identity = tonnage_ranks::detect(&env, ranks.explicit())?;
    match (&identity, ranks.placement()?) {
        (Some(identity), Some(placement)) => {
            let host = placement.hosts.first().map_or("", |host| &host.name);
            Err(Error::Usage(format!(
                "--hosts {host}, … starts ranks itself, and {} says that this process is rank {} of {}: leave --hosts out, or start \
                 tonnage outside of the launcher",
                identity.source, identity.rank, identity.size
            )))
        }
        _ => Ok(identity),
    }
}

/// Returns whether this process is the one of the run that says what all of them find: whoever starts the ranks, or
/// rank 0 of those that a launcher has started.
pub(super) fn speaks(identity: Option<&Identity>) -> bool {
    let has_supervisor = env("TONNAGE_RANK").is_some();
    identity.is_none_or(|identity| identity.rank == 0 && !has_supervisor)
}

/// Starts the ranks with these arguments and returns the run's exit code. Where rank 0 is lost before it has shown the
/// records of `shown`, they are shown here.
pub fn supervise(
    ranks: u32,
    arguments: &[std::ffi::OsString],
    shown: Option<&Job>,
) -> Result<ExitCode> {
    let program = std::env::current_exe()
        .map_err(|error| Error::io("cannot find this program's own file", error))?;
    // A stream of records goes out as they come.
    let shown = shown.filter(|job| job.format.is_some_and(|format| format != Format::Jsonl));
    let spare = shown.and_then(|_| Spare::new());
    let leftovers = Leftovers::new();
    let variables = spare.iter().map(Spare::variable);
    let variables: Vec<_> = variables.chain([leftovers.variable()]).collect();
    let supervisor = start_local(&env, ranks, &program, arguments, &variables)?;
    let pids = supervisor.pids();
    let code = supervisor.wait()?;
    if code != 0 {
        leftovers.remove(ranks, pids);
    }
    if let (Some(job), Some(spare)) = (shown, spare) {
        let records = spare.not_shown()?;
        if !records.is_empty() {
            log::warn!("rank 0 was lost before it had shown what was measured, which is:");
            show(job, &records)?;
        }
    }
    Ok(ExitCode::from(code))
}

/// Joins the run, measures, and on rank 0 keeps and shows the records.
fn be_a_rank(job: &Job, points: &[Planned], identity: Identity) -> Result<ExitCode> {
    // Libraries may pin this thread when they start, and workers do.
    let topology = Arc::new(Topology::read());
    let before = |identity: &Identity| before_join(job, points, identity);
    let mut met = match &job.letter {
        Some(letter) => before(&identity).and_then(|()| letter.met(identity))?,
        None => tonnage_ranks::meet(
            &env,
            identity,
            job.ranks.control_interface.as_deref(),
            before,
        )?,
    };
    let asked = format!(
        "{}\n{}\n{:?}",
        job.plan.hash_text()?,
        met.identity.size,
        job.runs
    );
    let mut options = met.options(&env, tonnage_ranks::plan_hash(&asked)?)?;
    // Until the end of this function, so that the launcher sees this rank go only when the run is over.
    let leave = met.leave;
    options.interface.clone_from(&job.ranks.control_interface);
    let mut rank = match Rank::join(met.identity, options) {
        Ok(rank) => rank,
        Err(RankFailure { error, is_told }) => {
            // Ranks that are stopped or have not come are the launcher's to end: nobody here knows them.
            if !matches!(error, Error::Usage(_)) {
                leave.omit();
            }
            if is_told {
                log::debug!("ended with the others, of which one says why: {error}");
                return Ok(error.exit_code().into());
            }
            return Err(error);
        }
    };
    log::debug!(
        "rank {} of {} has joined as process {}",
        rank.id(),
        rank.size(),
        std::process::id()
    );
    // What engines keep until the end is ended while the others are still watched, so that nobody is waited for in
    // vain.
    let result = with_records(job, points, &mut rank, topology)
        .and_then(|code| finish_engines().map(|()| code));
    let failure = match result {
        Ok(code) => match rank.close() {
            Ok(()) => return Ok(code),
            Err(failure) if failure.is_told => return Ok(failure.error.exit_code().into()),
            Err(failure) => return Err(failure.error),
        },
        Err(error) => error,
    };
    if rank.why_stopped().is_none() {
        rank.fail(&failure);
    }
    // The first cause counts, which may be another rank's; only some ranks say it, so that it is said once.
    let cause = settled_cause(&rank).unwrap_or(failure);
    if rank.claims_report() {
        say_error(&cause);
    }
    let code = cause.exit_code();
    // They may have been killed.
    let processes = rank.pids_of_container();
    drop(rank);
    processes.into_iter().for_each(clean_up);
    Ok(ExitCode::from(code))
}

/// Starts what engines of the run have to start before the ranks meet, each once.
fn before_join(job: &Job, points: &[Planned], identity: &Identity) -> Result<()> {
    let libraries = job.ranks.libraries()?;
    let joining = BeforeJoin {
        identity,
        libraries: &libraries,
    };
    let mut done: Vec<&Lifecycle> = Vec::new();
    for lifecycle in facts(points).map(|facts| facts.lifecycle) {
        if !done.iter().any(|known| std::ptr::eq(*known, lifecycle)) {
            (lifecycle.before_join)(&joining);
            done.push(lifecycle);
        }
    }
    Ok(())
}

/// Ends, together with all other ranks, what engines have started for the whole life of this process. For the end of a
/// run in which nothing failed; ranks that have died would be waited for.
fn finish_engines() -> Result<()> {
    LISTS.lifecycles().try_for_each(|of| (of.finish)())
}

/// The cause of an early end, once the control thread has taken it up.
fn settled_cause(rank: &Rank) -> Option<Error> {
    for _ in 0..100 {
        if let Some(cause) = rank.why_stopped() {
            return Some(cause);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// The points with what was asked for in nodes turned into ranks, which all ranks do alike now that each knows where
/// the others are. What this changes was in no check that came before.
fn placed<'a>(job: &Job, found: &'a [Planned], rank: &Rank) -> Result<Cow<'a, [Planned]>> {
    let mut plan = job.plan.clone();
    plan.resolve_nodes(rank.hosts().machines())?;
    if plan == job.plan {
        Ok(Cow::Borrowed(found))
    } else {
        points(&plan, rank.size()).map(Cow::Owned)
    }
}

fn with_records(
    job: &Job,
    points: &[Planned],
    rank: &mut Rank,
    topology: Arc<Topology>,
) -> Result<ExitCode> {
    let points = placed(job, points, rank)?;
    let (before, writer) = match rank.id() {
        0 => open_output(job)?,
        _ => (Vec::new(), None),
    };
    let letter = job.letter.as_ref();
    let checkpoints = letter
        .map(|letter| letter.way_home(CHECKPOINT))
        .transpose()?;
    let settings = Settings {
        ledger: ledger(rank.identity(), job.letter.is_some()),
        ..settings(job, &points, topology)?
    };
    let runs = runs_left(job, &points, rank, &before)?;
    let format = job.format.unwrap_or_default();
    let spare = SpareWriter::inherited(rank.identity(), &before);
    let mut keeper = Keeper::new(before, writer, spare, format);
    keeper.write_checkpoints_to(checkpoints.flatten());
    let mut runs = runs.into_iter();
    let result = runs.try_for_each(|(repetition, left)| {
        let settings = Settings {
            repetition,
            ..settings.clone()
        };
        conductor::run(&left, rank, &settings, &mut keeper)
    });
    let stored = keeper.finish();
    if rank.id() == 0 {
        let shown = show(job, &in_order_of_plan(job, &points, &keeper.records));
        // Also what could not be written: the supervisor could not either.
        keeper.shown();
        shown?;
    }
    result.and(stored)?;
    let mut code = 0;
    if rank.id() == 0 {
        let unproven = lacks_proof(&keeper.records).filter(|_| job.require_path);
        // What was lost of the file has been reported when it was lost.
        let unfine = why_not_fine(&points, &keeper.records).filter(|_| !keeper.lost_output());
        code = keeper.exit_code(unproven.is_none());
        let whys: Vec<_> = unproven.into_iter().chain(unfine).collect();
        if !whys.is_empty() {
            say(&format!("error: {}", whys.join("; ")));
        }
    }
    match job.letter.is_none() && matches!(rank.identity().meeting, Meeting::Master { .. }) {
        true => code_of_root(rank, code),
        false => Ok(code.into()),
    }
}

/// The reason why a run whose records are complete ends with an error: the first point that is not fine, and how many
/// there are. Standard output may be a format without reasons, or nobody reads it.
fn why_not_fine(points: &[Planned], records: &[Record]) -> Option<String> {
    let all = final_attempts(records);
    let missing: Vec<&Record> = all.iter().filter(|record| !record.is_fine()).collect();
    let first = missing.first()?;
    let body = first.body.any();
    let parts = body.parts();
    let of_parts = parts.into_iter().filter_map(|part| body.outcome(part));
    let mut outcomes = std::iter::once(&first.outcome).chain(of_parts);
    let why = outcomes.find_map(|outcome| match outcome {
        Outcome::Measured => None,
        Outcome::Skipped { why } => Some(format!("skipped: {why}")),
        Outcome::Failed { why } => Some(why.clone()),
    });
    let why = why.unwrap_or_default();
    let planned = points
        .iter()
        .find(|planned| first.body.is_of(&planned.point));
    let name = planned.map_or_else(
        || body.options().engine.to_owned(),
        |planned| planned.point.any().name(),
    );
    Some(match missing.len() {
        1 => format!("{name}: {why}"),
        count => format!(
            "{count} of {} points failed or were skipped; the first is {name}: {why}",
            all.len()
        ),
    })
}

/// The code of rank 0, which has the records. A launcher that has started the ranks may look at any of them.
fn code_of_root(rank: &mut Rank, code: u8) -> Result<ExitCode> {
    let mine = (rank.id() == 0).then(|| vec![code]);
    let told = rank.broadcast("the exit code of the run", mine, DEADLINES.step)?;
    Ok(told.first().copied().unwrap_or(code).into())
}

/// One run of the conductor: the number of its repetition, and its points.
type OneRun = (Option<u32>, Vec<Planned>);

/// The runs that are to be made: one of all points, or as many as were asked for, each in an order of its own. Points
/// that a resumed file holds are left out.
fn runs_left(
    job: &Job,
    points: &[Planned],
    rank: &mut Rank,
    before: &[Record],
) -> Result<Vec<OneRun>> {
    let Some(runs) = job.runs else {
        let left = points_left(points.to_vec(), None, rank, before)?;
        return Ok(vec![(None, left)]);
    };
    let of = |repetition: u32| {
        let ordered = shuffled(points.to_vec(), repetition);
        let left = points_left(ordered, Some(repetition), rank, before)?;
        Ok((Some(repetition), left))
    };
    (0..runs).map(of).collect()
}

/// The points that a resumed file does not hold. Rank 0 knows, and tells the others.
fn points_left(
    points: Vec<Planned>,
    repetition: Option<u32>,
    rank: &mut Rank,
    before: &[Record],
) -> Result<Vec<Planned>> {
    if points.is_empty() {
        return Ok(points);
    }
    let mine = (rank.id() == 0).then(|| {
        let measured = |planned: &Planned| already_measured(before, &planned.point, repetition);
        let each = points.iter().map(|planned| u8::from(measured(planned)));
        each.collect()
    });
    let measured = rank.broadcast("points that are measured already", mine, DEADLINES.step)?;
    let of = points.len();
    let each = points.into_iter().zip(measured);
    let left = each.filter_map(|(point, measured)| (measured == 0).then_some(point));
    let left: Vec<_> = left.collect();
    if rank.id() == 0 && left.len() < of {
        log::info!("{} of {of} points are measured already", of - left.len());
    }
    Ok(left)
}

fn settings(job: &Job, points: &[Planned], topology: Arc<Topology>) -> Result<Settings> {
    let (cpus, numa) = job.placement();
    let mut each = points.iter().map(|planned| planned.point.any());
    let may_idle = each.any(|point| point.spans_devices());
    Ok(Settings {
        plan: job.plan.name.clone(),
        topology,
        cpus,
        numa,
        devices: DeviceNames {
            may_idle,
            ..job.ranks.device_names()?
        },
        gpus: job.ranks.gpus.clone().map_or_else(Vec::new, |list| list.0),
        link_bytes_per_s: job.ranks.link_speed,
        libraries: job.ranks.libraries()?,
        lists: LISTS,
        clock: Clock::new(),
        program: program(),
        repetition: None,
        ledger: None,
    })
}
