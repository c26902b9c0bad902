//! Takes part in a run as one of its ranks: joins the other ranks and measures. Rank 0 also stores and prints the
//! records.

use std::borrow::Cow;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonnage_bench::conductor::{self, RunEnd};
use tonnage_bench::deadlines::DEADLINES;
use tonnage_bench::settings::{DeviceNames, Settings};
use tonnage_bench::time_limit::TimeLimit;
use tonnage_engine::{BeforeJoin, Lifecycle};
use tonnage_engines::LISTS;
use tonnage_machine::Topology;
use tonnage_plan::Planned;
use tonnage_plan::order::shuffled;
use tonnage_ranks::spawn::remote::messages::CHECKPOINT;
use tonnage_ranks::{Identity, Meeting, Rank, RankFailure};
use tonnage_record::read::{already_measured, final_attempts};
use tonnage_record::{Outcome, Record};
use tonnage_report::Format;
use tonnage_report::wire_proof::lacks_proof;
use tonnage_sys::clock::Clock;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

use super::resolve::{check_points, points};
use crate::command::checks::{check_placement, facts};
use crate::command::job::Job;
use crate::command::leftovers::{clean_up, ledger};
use crate::command::observer::{Keeper, is_nothing_measured_in_time, why_unavailable};
use crate::command::output::{in_order_of_plan, open_output, show};
use crate::command::spare::SpareWriter;
use crate::command::{env, program, say_error};

/// Takes part in a run as a rank that the agent of a host has started.
pub fn participate_remotely(job: &Job, identity: Identity) -> Result<ExitCode> {
    let points = points(&job.plan, identity.size)?;
    check_points(job, &points, (identity.size, identity.local_size))?;
    check_placement(job, &points)?;
    participate(job, &points, identity)
}

/// Joins the run and measures. Rank 0 also stores and prints the records.
pub(super) fn participate(job: &Job, points: &[Planned], identity: Identity) -> Result<ExitCode> {
    let began = Instant::now();
    // The topology is read first: libraries may pin this thread when they start, and so may measuring threads.
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
        "{}\n{}\n{:?} {:?}",
        job.plan.hash_text()?,
        met.identity.size,
        job.runs,
        job.time_limit,
    );
    let mut options = met.options(&env, tonnage_ranks::plan_hash(&asked)?)?;
    if let Some(limit) = job.time_limit {
        let limit = Duration::from_nanos(limit.0);
        options.join_timeout = options.join_timeout.min(limit);
    }
    // Kept until the end of this function. The launcher then sees this rank end only when the run is over.
    let leave = met.leave;
    options.interface.clone_from(&job.ranks.control_interface);
    let mut rank = match Rank::join(met.identity, options) {
        Ok(rank) => rank,
        Err(RankFailure { error, is_told }) => {
            // Ranks that are stopped or have not arrived are unknown here, so the launcher must end them.
            if !matches!(error, Error::Usage(_)) {
                leave.skip();
            }
            if is_told {
                log::debug!("ended with the other ranks, one of which reports the cause: {error}");
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
    let limit = job.time_limit.map(|limit| TimeLimit::new(limit, began));
    let result = measure(job, points, &mut rank, topology, limit).and_then(|code| {
        // Stops everything that engines started for the whole process. The control channel still watches the other
        // ranks meanwhile. This is not done after a failure, or after a stop in the middle of a point, because it would
        // wait for ranks that have ended.
        if is_stopped_by_limit(&rank) {
            return Ok(code);
        }
        let mut lifecycles = LISTS.lifecycles();
        lifecycles.try_for_each(|of| (of.finish)())?;
        Ok(code)
    });
    leave_run(rank, result)
}

/// Leaves the run with this result. After a failure, reports the first cause, which may be another rank's failure.
fn leave_run(rank: Rank, result: Result<ExitCode>) -> Result<ExitCode> {
    let failure = match result {
        // Every rank ends by itself, and the exit code of the run is that of rank 0.
        Ok(code) if is_stopped_by_limit(&rank) => return Ok(code),
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
    // Only a rank that claims the report prints it, so that it is printed once.
    let cause = settled_cause(&rank).unwrap_or(failure);
    if rank.claims_report() {
        say_error(&cause);
    }
    let code = cause.exit_code();
    // Ranks that were killed may have left files.
    let processes = rank.pids_of_container();
    drop(rank);
    processes.into_iter().for_each(clean_up);
    Ok(ExitCode::from(code))
}

/// Returns whether the time limit has stopped the ranks in the middle of a point.
fn is_stopped_by_limit(rank: &Rank) -> bool {
    matches!(rank.why_stopped(), Some(Error::TimeLimit(_)))
}

/// Returns the cause of an early end as soon as the control thread has processed it.
fn settled_cause(rank: &Rank) -> Option<Error> {
    for _ in 0..100 {
        if let Some(cause) = rank.why_stopped() {
            return Some(cause);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Starts the libraries that must start before the ranks meet. Each library starts once.
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

/// Measures the points and returns the rank's exit code. Rank 0 also stores and prints the records.
fn measure(
    job: &Job,
    points: &[Planned],
    rank: &mut Rank,
    topology: Arc<Topology>,
    limit: Option<TimeLimit>,
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
        time_limit: limit,
        ..settings(job, &points, rank, topology)?
    };
    let runs = runs_left(job, &points, rank, &before)?;
    let format = job.format.unwrap_or_default();
    let spare = SpareWriter::inherited(rank.identity(), &before);
    let mut keeper = Keeper::new(before, writer, spare, format, job.view.clone());
    keeper.write_checkpoints_to(checkpoints.flatten());
    let watched = limit.filter(|_| rank.id() == 0);
    let watch = watched.map(|limit| limit.watch(rank.alarm())).transpose()?;
    let result = measure_runs(runs, rank, &settings, &mut keeper);
    drop(watch);
    let stored = keeper.finish();
    if rank.id() == 0 {
        let is_refused = why_unavailable(&final_attempts(&keeper.records)).is_some();
        // If nothing could be measured, the error gives the reason, and a table would only repeat it.
        let shown = match is_refused && job.block.is_none() && job.format == Some(Format::Table) {
            true => Ok(()),
            false => show(job, &in_order_of_plan(job, &points, &keeper.records)),
        };
        // Empty the backup even if printing failed, because the supervisor could not print the records either.
        keeper.shown();
        shown?;
    }
    match result {
        Err(Error::TimeLimit(_)) => {}
        result => result?,
    }
    stored?;
    let mut code = 0;
    if rank.id() == 0 {
        let unproven = lacks_proof(&keeper.records).filter(|_| job.require_path);
        // Lost output is not reported again, because it was reported when it was lost.
        let unfine = why_not_fine(&points, &keeper.records).filter(|_| !keeper.lost_output());
        code = keeper.exit_code(unproven.is_none());
        if let (Some((path, _)), true) = (&job.output, keeper.is_cut()) {
            log::warn!(
                "the time limit ended the run early: the same command with --resume {} measures the rest",
                path.display()
            );
        }
        let whys: Vec<_> = unproven.into_iter().chain(unfine).collect();
        if !whys.is_empty() {
            print_message(&format!("error: {}", whys.join("; ")));
        }
    }
    if is_stopped_by_limit(rank) {
        return Ok(code.into());
    }
    match job.letter.is_none() && matches!(rank.identity().meeting, Meeting::Master { .. }) {
        true => code_of_root(rank, code),
        false => Ok(code.into()),
    }
}

/// Measures the runs in order. Stops when the time limit has ended one of them.
fn measure_runs(
    runs: Vec<OneRun>,
    rank: &mut Rank,
    settings: &Settings,
    keeper: &mut Keeper,
) -> Result<()> {
    let mut later_runs = runs.len() as u32;
    for (repetition, left) in runs {
        later_runs -= 1;
        keeper.begin_run(&left, later_runs);
        let settings = Settings {
            repetition,
            ..settings.clone()
        };
        if conductor::run(&left, rank, &settings, keeper)? == RunEnd::OutOfTime {
            break;
        }
    }
    Ok(())
}

/// Converts options in nodes to ranks, now that all ranks know their hosts. All ranks get the same points. No earlier
/// check depends on the converted values.
fn placed<'a>(job: &Job, found: &'a [Planned], rank: &Rank) -> Result<Cow<'a, [Planned]>> {
    let mut plan = job.plan.clone();
    plan.resolve_nodes(rank.hosts().machines())?;
    if plan == job.plan {
        Ok(Cow::Borrowed(found))
    } else {
        points(&plan, rank.size()).map(Cow::Owned)
    }
}

fn settings(
    job: &Job,
    points: &[Planned],
    rank: &Rank,
    topology: Arc<Topology>,
) -> Result<Settings> {
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
        time_limit: None,
        repetition: None,
        ledger: ledger(rank.identity(), job.letter.is_some()),
    })
}

/// One run of the conductor: the number of its repetition, and its points.
type OneRun = (Option<u32>, Vec<Planned>);

/// Returns the runs that are left. There is one run of all points, or one for each requested repetition, with its own
/// order. In a resumed run, points in the results file are left out.
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

/// Returns the points that are not in the resumed file. Only rank 0 has the file, so it sends the list to the other
/// ranks.
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

/// Explains why a run that has all records ends with an error: the first point that is not fine, and the number of such
/// points. Without this, a closed standard output or a format without reasons would hide the reason.
fn why_not_fine(points: &[Planned], records: &[Record]) -> Option<String> {
    let all = final_attempts(records);
    if is_nothing_measured_in_time(&all) {
        return Some("the time limit passed before the first point was measured".to_owned());
    }
    if let Some(why) = why_unavailable(&all) {
        return Some(why.to_owned());
    }
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

/// Returns rank 0's exit code on all ranks, because a launcher may use the exit code of any rank.
fn code_of_root(rank: &mut Rank, code: u8) -> Result<ExitCode> {
    let mine = (rank.id() == 0).then(|| vec![code]);
    let codes = rank.broadcast("the exit code of the run", mine, DEADLINES.step)?;
    Ok(codes.first().copied().unwrap_or(code).into())
}
