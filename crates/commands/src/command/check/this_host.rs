//! The check of this host. It is measured and judged here, but another process may print the report.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use tonnage_judge::baseline::BaselineEntry;
use tonnage_judge::baseline::build::point_json;
use tonnage_judge::baseline::lost::LostHardware;
use tonnage_judge::baseline::order::CheckStep;
use tonnage_judge::check::device::{DeviceState, HostDevices, device_failures};
use tonnage_judge::check::entry::EntryVerdict;
use tonnage_judge::check::reason::{reason, truncate};
use tonnage_judge::check::step::judge_point;
use tonnage_judge::check::{CHECK_FORMAT, CheckReport, CheckVerdict, ExitStyle};
use tonnage_machine::devices::links;
use tonnage_record::Record;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

use super::cache::Cache;
use super::child::{self, StepRecords};
use super::choice::{self, CheckChoice, HostKindMatch};
use super::clock::{BudgetClock, unix_ns};
use super::task::{CheckTask, TimeBudget};
use crate::command::{print, program};

/// Returns the report. `None` for a launcher's ranks other than 0, because rank 0 prints the report.
pub fn check_this_host(task: &CheckTask, clock: &BudgetClock) -> Result<Option<CheckReport>> {
    let kept = Cache::open(task)?;
    if let Some(told) = kept.as_ref().and_then(Cache::recent) {
        return Ok(Some(told));
    }
    clock.step("describing this host");
    let kind = match choice::match_host_kind(&task.baseline) {
        Ok(HostKindMatch::Known(kind)) => kind,
        Ok(HostKindMatch::Lost(lost)) => return Ok(Some(lost_report(task, clock, &lost))),
        // A host of a kind that the baseline does not cover has not failed.
        Err(error) => {
            print_message(&format!("skip: {error}"));
            return Ok(Some(skipped(task, clock, &error)));
        }
    };
    let choice = CheckChoice::new(task, kind, clock)?;
    let is_silent = choice.is_silent;
    let report = measured(task, choice, clock)?;
    if is_silent {
        return Ok(None);
    }
    if let Some(kept) = &kept {
        kept.store(&report)?;
    }
    Ok(Some(report))
}

/// Checks this host for a process on another host. Prints the report as one line of standard output.
pub fn report_to_caller(task: &CheckTask, time: TimeBudget) -> Result<ExitCode> {
    let clock = BudgetClock::start_rest(time.asked_ns, time.budget_ns, ExitStyle::Plain)?;
    if let Some(report) = check_this_host(task, &clock)? {
        let text = serde_json::to_string(&report)
            .map_err(|error| Error::Failed(format!("the verdicts have no JSON form: {error}")))?;
        clock.set_exit_code(ExitStyle::Plain.code(report.verdict));
        print(&(text + "\n"))?;
    }
    clock.disarm();
    Ok(ExitCode::SUCCESS)
}

/// Verdicts on a host so far, and the points for which there was no time.
#[derive(Default)]
struct Judged {
    verdicts: Vec<EntryVerdict>,
    left: Vec<String>,
}

/// Measures and judges the chosen points, and then more points of the baseline if there is time left. The baseline's
/// durations come from other machines, so the estimates are corrected as points complete.
fn measured(task: &CheckTask, choice: CheckChoice<'_>, clock: &BudgetClock) -> Result<CheckReport> {
    let host = tonnage_sys::host::name();
    clock.step("looking at the devices");
    let devices = device_states();
    let mut judged = Judged::default();
    let mut next = Some(choice);
    while let Some(choice) = next {
        let entries: Vec<&BaselineEntry> = choice.entries().collect();
        let lost = device_failures(&entries, &devices, &host);
        let is_first = judged.verdicts.is_empty();
        let found = judge_steps(task, &choice, (&lost, is_first), clock)?;
        judged.verdicts.extend(found.verdicts);
        add_missing_devices(&mut judged.verdicts, lost);
        judged.left = found.too_late;
        judged.left.extend(names(&choice.left));
        next = found.pace.and_then(|pace| choice.next(pace, clock));
    }
    Ok(report(task, judged, clock, host))
}

/// Verdicts on points that were chosen together.
struct JudgedSteps {
    verdicts: Vec<EntryVerdict>,
    /// Names of additional points that were not finished in time.
    too_late: Vec<String>,
    /// Measured time divided by the baseline's estimate. `None` if not all points could be measured.
    pace: Option<f64>,
}

/// Measures points and judges them. A point over a link that is down is not measured, because it fails for certain. If
/// points of the first choice are late, they are errors, because a step may hang. Points of later choices are judged
/// only if they are finished.
fn judge_steps(
    task: &CheckTask,
    choice: &CheckChoice<'_>,
    (lost, is_first): (&[EntryVerdict], bool),
    clock: &BudgetClock,
) -> Result<JudgedSteps> {
    let mut records: BTreeMap<&str, Vec<Record>> = BTreeMap::new();
    let (mut why, mut is_late) = (None, false);
    let lacks_device = |step: &&CheckStep<'_>| {
        let mut devices = step.entries.iter().flat_map(|entry| entry.devices());
        devices.any(|name| lost.iter().any(|failed| failed.name == name))
    };
    let steps: Vec<&CheckStep<'_>> = choice
        .steps
        .iter()
        .filter(|step| !lacks_device(step))
        .collect();
    let begun_s = clock.elapsed_s();
    for group in choice::groups(&steps) {
        let found = child::measure(task, &group, choice.runs, clock)?;
        is_late |= found.is_late;
        why = why.or(found.failed);
        keep(found.records, &steps, &mut records);
    }
    let took_s = clock.elapsed_s() - begun_s;
    // Under a launcher, all points were already measured several times.
    let retests = choice.runs.map_or(choice.retests, |_| 0);
    for _ in 0..retests {
        let again = choice::again(choice, &steps, &records, clock);
        if again.is_empty() {
            break;
        }
        for group in choice::groups(&again) {
            // A retest may give no records; the failure is then not confirmed.
            let StepRecords { records: own, .. } = child::measure(task, &group, None, clock)?;
            keep(own, &steps, &mut records);
        }
    }
    clock.step("judging");
    let is_excused =
        |step: &CheckStep<'_>| !is_first && is_late && !records.contains_key(step.point);
    let (too_late, told): (Vec<&CheckStep<'_>>, Vec<_>) =
        steps.iter().copied().partition(|step| is_excused(step));
    let mut verdicts = Vec::new();
    for step in told {
        let own = records.get(step.point).map_or(&[][..], Vec::as_slice);
        verdicts.extend(judge_step(step, own, why.as_deref(), choice.retests + 1));
    }
    Ok(JudgedSteps {
        verdicts,
        too_late: too_late.iter().map(|step| step.name().to_owned()).collect(),
        pace: (why.is_none() && !steps.is_empty()).then(|| took_s / choice.estimated_s(&steps)),
    })
}

/// Adds missing devices at the front of the verdicts, each only once.
fn add_missing_devices(verdicts: &mut Vec<EntryVerdict>, lost: Vec<EntryVerdict>) {
    let is_new = |found: &EntryVerdict| verdicts.iter().all(|known| known.name != found.name);
    let new: Vec<EntryVerdict> = lost.into_iter().filter(is_new).collect();
    verdicts.splice(0..0, new);
}

fn names(steps: &[CheckStep<'_>]) -> Vec<String> {
    let names = steps.iter().map(|step| step.name().to_owned());
    names.collect()
}

/// Returns the report for a host with missing hardware, to which no baseline applies.
fn lost_report(task: &CheckTask, clock: &BudgetClock, lost: &LostHardware<'_>) -> CheckReport {
    let host = tonnage_sys::host::name();
    let entries = lost.kind.entries.iter().take(1).map(|entry| EntryVerdict {
        name: lost.fact.to_owned(),
        short: lost.fact.to_owned(),
        hosts: vec![host.clone()],
        verdict: CheckVerdict::Fail,
        why: Some(lost.why.clone()),
        ..EntryVerdict::unmeasured(entry)
    });
    let judged = Judged {
        verdicts: entries.collect(),
        ..Judged::default()
    };
    report(task, judged, clock, host)
}

/// Returns the report for a host of a kind that is not in the baseline.
fn skipped(task: &CheckTask, clock: &BudgetClock, why: &Error) -> CheckReport {
    CheckReport {
        reason: truncate(&format!("skip: {why}")),
        ..report(task, Judged::default(), clock, tonnage_sys::host::name())
    }
}

/// Returns verdicts on the entries of one point. `why` is the reason if nothing was measured.
fn judge_step(
    step: &CheckStep<'_>,
    records: &[Record],
    why: Option<&str>,
    tries_min: u32,
) -> Vec<EntryVerdict> {
    let records: Vec<&Record> = records.iter().collect();
    let mut found = judge_point(&step.entries, &records, tries_min);
    if let (true, Some(why)) = (records.is_empty(), why) {
        let whys = found.iter_mut().map(|verdict| &mut verdict.why);
        whys.for_each(|it| *it = Some(why.to_owned()));
    }
    found
}

fn keep<'a>(
    own: Vec<Record>,
    steps: &[&CheckStep<'a>],
    records: &mut BTreeMap<&'a str, Vec<Record>>,
) {
    for record in own {
        let json = point_json(&record);
        if let Some(step) = steps.iter().find(|step| step.point == json) {
            records.entry(step.point).or_default().push(record);
        }
    }
}

fn device_states() -> HostDevices {
    let found = links();
    let states = found.links.into_iter().map(|link| DeviceState {
        name: link.name,
        state: link.state,
    });
    HostDevices {
        devices: states.collect(),
        gap: found.gap,
    }
}

fn report(task: &CheckTask, judged: Judged, clock: &BudgetClock, host: String) -> CheckReport {
    let entries = judged.verdicts;
    let verdict = CheckVerdict::combine(entries.iter().map(|entry| entry.verdict));
    let mut hosts = BTreeSet::from_iter(entries.iter().flat_map(|entry| entry.hosts.clone()));
    if hosts.is_empty() {
        hosts.insert(host);
    }
    let failed = entries.iter().flat_map(EntryVerdict::failed_hosts);
    let failed_hosts = BTreeSet::from_iter(failed.cloned());
    CheckReport {
        format: CHECK_FORMAT,
        program: program().version,
        hosts: hosts.into_iter().collect(),
        baseline: task.baseline_name.clone(),
        time_unix_ns: unix_ns(),
        budget_s: clock.budget_s(),
        took_s: clock.elapsed_s(),
        verdict,
        reason: reason(verdict, &entries, judged.left.len()),
        failed_hosts: failed_hosts.into_iter().collect(),
        entries,
        not_measured: judged.left,
        cached_for_s: None,
    }
}
