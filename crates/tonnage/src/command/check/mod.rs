//! `tonnage check`: measures what a baseline has for this kind of host, and says whether the host keeps to it.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this | the check from its request to its exit code |
//! | [`choice`] | what is measured, and in which order |
//! | [`child`] | one start of ranks, whose records are read as they come |
//! | [`clock`] | the budget, the step that is waited for, and the end of it all |
//! | [`cache`] | verdicts that are told again |
//!
//! Verdicts are judged in `tonnage_judge::check`. Whatever goes wrong here is an error, and an error is no failure of
//! the host.

mod cache;
mod child;
mod choice;
mod clock;

use std::collections::BTreeMap;
use std::process::ExitCode;

use tonnage_judge::baseline::BaselineEntry;
use tonnage_judge::baseline::build::point_json;
use tonnage_judge::baseline::lost::LostHardware;
use tonnage_judge::baseline::order::CheckStep;
use tonnage_judge::check::device::{DeviceState, HostDevices, device_failures};
use tonnage_judge::check::entry::EntryVerdict;
use tonnage_judge::check::nodelist::folded;
use tonnage_judge::check::reason::{cut, reason};
use tonnage_judge::check::step::of_point;
use tonnage_judge::check::{CHECK_FORMAT, CheckReport, CheckVerdict, ExitStyle};
use tonnage_machine::devices::links;
use tonnage_record::Record;
use tonnage_report::baseline::checked;
use tonnage_units::message::say;
use tonnage_units::{Error, Result};

use super::readable::is_same_file;
use super::whole_file::{refuse_existing, replace};
use super::{print, program};
use crate::args::check::CheckArgs;
use child::StepRecords;
use choice::{CheckChoice, KindHere};
use clock::{BudgetClock, unix_ns};

/// Checks this host. Whatever happens, the exit code is one of the style that was asked for.
pub fn check(args: &CheckArgs) -> ExitCode {
    let style = args.exit;
    let clock = match BudgetClock::start(args.budget.0, style) {
        Ok(clock) => clock,
        Err(error @ Error::Usage(_)) => return refused(style, &error),
        Err(error) => return failed(style, &error),
    };
    let report = match checked_report(args, &clock) {
        Ok(Some(report)) => report,
        Ok(None) => {
            clock.disarm();
            return ExitCode::SUCCESS;
        }
        Err(error @ Error::Usage(_)) => {
            clock.telling(style.code_of_wrong_request());
            return refused(style, &error);
        }
        Err(error) => {
            clock.telling(style.code(CheckVerdict::Error));
            return failed(style, &error);
        }
    };
    let (verdict, page) = match write(args, &report) {
        Ok(()) => (report.verdict, checked(&report)),
        // What failed has failed, whether or not that can be written down.
        Err(error) if report.verdict == CheckVerdict::Fail => {
            say(&format!("error: {error}"));
            (report.verdict, checked(&report))
        }
        Err(error) => {
            say(&format!("error: {error}"));
            let line = cut(&format!("error: {error}"));
            (CheckVerdict::Error, checked(&report) + &line + "\n")
        }
    };
    // Whoever reads nothing does not hold the check up: the watchdog ends it with this code.
    clock.telling(style.code(verdict));
    let code = ended(style, verdict, &page);
    clock.disarm();
    code
}

/// The end of a check that nothing was measured for: by an error before or beside it.
pub fn not_checked(style: ExitStyle, error: &Error) -> ExitCode {
    match error {
        Error::Usage(_) => refused(style, error),
        _ => failed(style, error),
    }
}

/// The code for a command line that the parser refused with some words, where it is one of a check, and its last line;
/// `None` for any other, and for one that asked for help.
pub fn refused_by_parser(
    line: impl Iterator<Item = String>,
    answer: &clap::Error,
) -> Option<ExitCode> {
    // What is no error has been answered on standard output.
    let code = answer.use_stderr().then(|| code_of_refused(line))??;
    let text = answer.to_string();
    let first = text.lines().next().unwrap_or("error: a wrong request");
    // Where nobody reads it the code says it.
    let _ = print(&format!("{}\n", cut(first)));
    Some(code)
}

/// The code of a wrong request of a check, by its words.
fn code_of_refused(line: impl Iterator<Item = String>) -> Option<ExitCode> {
    let words: Vec<String> = line.skip(1).collect();
    if !words.iter().any(|word| word == "check") {
        return None;
    }
    let styles = words
        .iter()
        .zip(words.iter().skip(1).map(Some).chain([None]));
    let said = styles.filter_map(|(word, next)| match word.strip_prefix("--exit") {
        Some("") => next.cloned(),
        Some(rest) => rest.strip_prefix('=').map(str::to_owned),
        None => None,
    });
    let said = said.last().and_then(|style| style.parse().ok());
    let style = said.unwrap_or(ExitStyle::Plain);
    Some(style.code_of_wrong_request().into())
}

fn refused(style: ExitStyle, error: &Error) -> ExitCode {
    say(&format!("error: {error}"));
    // A reader of the last line gets one, whatever the code.
    let _ = print(&format!("{}\n", cut(&format!("error: {error}"))));
    style.code_of_wrong_request().into()
}

fn failed(style: ExitStyle, error: &Error) -> ExitCode {
    say(&format!("error: {error}"));
    let line = cut(&format!("error: {error}"));
    ended(style, CheckVerdict::Error, &format!("{line}\n"))
}

/// Prints the last words. Where nobody reads them the code still says it.
fn ended(style: ExitStyle, verdict: CheckVerdict, page: &str) -> ExitCode {
    if let Err(error) = print(page) {
        say(&format!("error: {error}"));
    }
    style.code(verdict).into()
}

fn write(args: &CheckArgs, report: &CheckReport) -> Result<()> {
    let no_form = |error| Error::Failed(format!("the verdicts have no JSON form: {error}"));
    let output = args.output.as_ref().map_or(Ok(()), |path| {
        let text = serde_json::to_string_pretty(report).map_err(no_form)?;
        replace(path, &(text + "\n"), args.force)
    });
    // One file that cannot be written says nothing about the other.
    let nodelist = args.nodelist.as_ref().map_or(Ok(()), |path| {
        let hosts = folded(report.failed_hosts.iter().map(String::as_str));
        replace(path, &(hosts + "\n"), args.force)
    });
    output.and(nodelist)
}

/// Empties the files of an earlier check, which are none of this one's, however it ends.
fn empty_old(args: &CheckArgs) -> Result<()> {
    for path in [&args.output, &args.nodelist].into_iter().flatten() {
        refuse_existing(path, args.force)?;
        if is_same_file(path, &args.baseline) {
            return Err(Error::Usage(format!(
                "{} is the baseline: name another file for what was found",
                path.display()
            )));
        }
        if path.is_file() {
            std::fs::write(path, "")
                .map_err(|error| Error::io(format!("cannot write {}", path.display()), error))?;
        }
    }
    Ok(())
}

/// The report; `None` for a rank of a launcher other than rank 0, which tells it.
fn checked_report(args: &CheckArgs, clock: &BudgetClock) -> Result<Option<CheckReport>> {
    empty_old(args)?;
    clock.step("reading the baseline");
    let baseline = super::baseline::read(&args.baseline)?;
    let kept = cache::Cache::open(args)?;
    if let Some(told) = kept.as_ref().and_then(cache::Cache::young) {
        return Ok(Some(told));
    }
    clock.step("describing this host");
    let kind = match choice::kind_here(&baseline) {
        Ok(KindHere::Known(kind)) => kind,
        Ok(KindHere::Lost(lost)) => return Ok(Some(lost_report(args, clock, &lost))),
        // Nothing is known of such hosts, which is nobody's fault.
        Err(error) => {
            say(&format!("skip: {error}"));
            return Ok(Some(skipped(args, clock, &error)));
        }
    };
    let choice = CheckChoice::of(args, kind, clock)?;
    let report = measured(args, &choice, clock)?;
    if choice.is_silent {
        return Ok(None);
    }
    if let Some(kept) = &kept {
        kept.keep(&report)?;
    }
    Ok(Some(report))
}

/// Measures and judges what was chosen.
fn measured(
    args: &CheckArgs,
    choice: &CheckChoice<'_>,
    clock: &BudgetClock,
) -> Result<CheckReport> {
    let host = tonnage_sys::host::name();
    clock.step("looking at the devices");
    let entries: Vec<&BaselineEntry> = choice.entries().collect();
    let mut verdicts = device_failures(&entries, &device_states(), &host);
    let mut records: BTreeMap<&str, Vec<Record>> = BTreeMap::new();
    let mut why = None;
    // Over a link that is down there is nothing to measure; its failure is certain.
    let lacks_device = |step: &&CheckStep<'_>| {
        let mut devices = step.entries.iter().flat_map(|entry| entry.devices());
        devices.any(|name| verdicts.iter().any(|failed| failed.name == name))
    };
    let steps: Vec<&CheckStep<'_>> = choice
        .steps
        .iter()
        .filter(|step| !lacks_device(step))
        .collect();
    for group in choice::groups(&steps) {
        let StepRecords {
            records: own,
            failed,
        } = child::measure(args, &group, choice.times, clock)?;
        why = why.or(failed);
        keep(own, &steps, &mut records);
    }
    for _ in 0..if choice.times.is_some() {
        0
    } else {
        args.retest
    } {
        let again = choice::again(&steps, &records, clock);
        if again.is_empty() {
            break;
        }
        for group in choice::groups(&again) {
            // What cannot be measured again stays a failure that was not confirmed.
            let StepRecords { records: own, .. } = child::measure(args, &group, None, clock)?;
            keep(own, &steps, &mut records);
        }
    }
    clock.step("judging");
    for step in &steps {
        let own = records.get(step.point).map_or(&[][..], Vec::as_slice);
        verdicts.extend(of_step(step, own, why.as_deref(), args.retest + 1));
    }
    Ok(report(args, choice, verdicts, clock, host))
}

/// The report of a host that has lost hardware: beside which figures it would be set nobody can say.
fn lost_report(args: &CheckArgs, clock: &BudgetClock, lost: &LostHardware<'_>) -> CheckReport {
    let host = tonnage_sys::host::name();
    let entries = lost.kind.entries.iter().take(1).map(|entry| EntryVerdict {
        name: lost.fact.to_owned(),
        short: lost.fact.to_owned(),
        hosts: vec![host.clone()],
        verdict: CheckVerdict::Fail,
        why: Some(lost.why.clone()),
        ..EntryVerdict::of(entry)
    });
    report(
        args,
        &CheckChoice::nothing(),
        entries.collect(),
        clock,
        host.clone(),
    )
}

/// The report of a host that there is nothing to compare with.
fn skipped(args: &CheckArgs, clock: &BudgetClock, why: &Error) -> CheckReport {
    let nothing = CheckChoice::nothing();
    CheckReport {
        reason: cut(&format!("skip: {why}")),
        ..report(args, &nothing, Vec::new(), clock, tonnage_sys::host::name())
    }
}

/// Verdicts on the entries of one point; where nothing was measured, `why` is the reason.
fn of_step(
    step: &CheckStep<'_>,
    records: &[Record],
    why: Option<&str>,
    tries_min: u32,
) -> Vec<EntryVerdict> {
    let records: Vec<&Record> = records.iter().collect();
    let mut found = of_point(&step.entries, &records, tries_min);
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

fn report(
    args: &CheckArgs,
    choice: &CheckChoice<'_>,
    entries: Vec<EntryVerdict>,
    clock: &BudgetClock,
    host: String,
) -> CheckReport {
    let verdict = CheckVerdict::of(entries.iter().map(|entry| entry.verdict));
    let mut hosts: Vec<String> = entries
        .iter()
        .flat_map(|entry| entry.hosts.clone())
        .collect();
    hosts.sort();
    hosts.dedup();
    if hosts.is_empty() {
        hosts.push(host);
    }
    let failed = entries
        .iter()
        .filter(|entry| entry.verdict == CheckVerdict::Fail);
    let mut failed_hosts: Vec<String> = failed.flat_map(|entry| entry.hosts.clone()).collect();
    failed_hosts.sort();
    failed_hosts.dedup();
    CheckReport {
        format: CHECK_FORMAT,
        program: program().version,
        hosts,
        baseline: args.baseline.display().to_string(),
        time_unix_ns: unix_ns(),
        budget_s: clock.budget_s(),
        took_s: clock.elapsed_s(),
        verdict,
        reason: reason(verdict, &entries, choice.left.len()),
        failed_hosts,
        entries,
        not_measured: choice.left.clone(),
        cached_for_s: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_command_line_has_the_code_of_its_style() {
        let code = |line: &str| {
            let words = line.split_whitespace().map(str::to_owned);
            code_of_refused(words).map(|code| format!("{code:?}"))
        };
        let is = |code: u8| Some(format!("{:?}", ExitCode::from(code)));
        assert_eq!(code("tonnage check --exit prolog --bugdet 3s"), is(0));
        assert_eq!(code("tonnage check --exit=nagios"), is(3));
        assert_eq!(code("tonnage check --exit plain --x"), is(2));
        for other in ["tonnage check --x", "tonnage check --exit what"] {
            assert_eq!(code(other), is(2), "{other}");
        }
        assert_eq!(code("tonnage compare --exit prolog"), None);
    }
}
