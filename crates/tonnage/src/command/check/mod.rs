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
use tonnage_judge::baseline::order::CheckStep;
use tonnage_judge::check::device::{DeviceState, device_failures};
use tonnage_judge::check::entry::{EntryVerdict, judged};
use tonnage_judge::check::nodelist::folded;
use tonnage_judge::check::reason::{cut, reason};
use tonnage_judge::check::{CHECK_FORMAT, CheckReport, CheckVerdict, ExitStyle};
use tonnage_machine::devices::links;
use tonnage_record::Record;
use tonnage_report::baseline::checked;
use tonnage_units::message::say;
use tonnage_units::{Error, Result};

use super::whole_file::{refuse_existing, replace};
use super::{print, program};
use crate::args::check::CheckArgs;
use child::StepRecords;
use choice::CheckChoice;
use clock::{BudgetClock, unix_ns};

/// Checks this host. Whatever happens, the exit code is one of the style that was asked for.
pub fn check(args: &CheckArgs) -> ExitCode {
    let style = args.exit;
    let clock = match BudgetClock::start(args.budget.0, style) {
        Ok(clock) => clock,
        Err(error) => return refused(style, &error),
    };
    let report = match checked_report(args, &clock) {
        Ok(Some(report)) => report,
        Ok(None) => {
            clock.disarm();
            return ExitCode::SUCCESS;
        }
        Err(error @ Error::Usage(_)) => return refused(style, &error),
        Err(error) => {
            say(&format!("error: {error}"));
            let line = cut(&format!("error: {error}"));
            return ended(style, CheckVerdict::Error, &format!("{line}\n"));
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
    clock.disarm();
    ended(style, verdict, &page)
}

/// The code for a command line that the parser refused, where it is one of a check; `None` for any other.
pub fn code_of_refused(line: impl Iterator<Item = String>) -> Option<ExitCode> {
    let words: Vec<String> = line.skip(1).collect();
    if !words.iter().any(|word| word == "check") || words.iter().any(|word| word == "--help") {
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
    let style: ExitStyle = said.last()?.parse().ok()?;
    Some(style.code_of_wrong_request().into())
}

fn refused(style: ExitStyle, error: &Error) -> ExitCode {
    say(&format!("error: {error}"));
    // A reader of the last line gets one, whatever the code.
    let _ = print(&format!("{}\n", cut(&format!("error: {error}"))));
    style.code_of_wrong_request().into()
}

/// Prints the last words. Where nobody reads them the code still says it.
fn ended(style: ExitStyle, verdict: CheckVerdict, page: &str) -> ExitCode {
    if let Err(error) = print(page) {
        say(&format!("error: {error}"));
    }
    style.code(verdict).into()
}

fn write(args: &CheckArgs, report: &CheckReport) -> Result<()> {
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(report)
            .map_err(|error| Error::Failed(format!("the verdicts have no JSON form: {error}")))?;
        replace(path, &(text + "\n"), args.force)?;
    }
    if let Some(path) = &args.nodelist {
        let hosts = folded(report.failed_hosts.iter().map(String::as_str));
        replace(path, &(hosts + "\n"), args.force)?;
    }
    Ok(())
}

/// The report; `None` for a rank of a launcher other than rank 0, which tells it.
fn checked_report(args: &CheckArgs, clock: &BudgetClock) -> Result<Option<CheckReport>> {
    for path in [&args.output, &args.nodelist].into_iter().flatten() {
        refuse_existing(path, args.force)?;
    }
    clock.step("reading the baseline");
    let baseline = super::baseline::read(&args.baseline)?;
    let kept = cache::Cache::open(args)?;
    if let Some(told) = kept.as_ref().and_then(cache::Cache::young) {
        return Ok(Some(told));
    }
    clock.step("describing this host");
    let kind = match choice::kind_here(&baseline) {
        Ok(kind) => kind,
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

/// The report of a host that there is nothing to compare with.
fn skipped(args: &CheckArgs, clock: &BudgetClock, why: &Error) -> CheckReport {
    let nothing = CheckChoice {
        steps: Vec::new(),
        left: Vec::new(),
        times: None,
        is_silent: false,
    };
    CheckReport {
        reason: cut(&format!("skip: {why}")),
        ..report(args, &nothing, Vec::new(), clock, tonnage_sys::host::name())
    }
}

/// Verdicts on the entries of one point: of those that differ only in the way of the bytes, one.
fn of_step(
    step: &CheckStep<'_>,
    records: &[Record],
    why: Option<&str>,
    tries_min: u32,
) -> Vec<EntryVerdict> {
    let records: Vec<&Record> = records.iter().collect();
    let mut found: Vec<EntryVerdict> = Vec::new();
    let mut seen: Vec<&BaselineEntry> = Vec::new();
    for entry in &step.entries {
        let is_alike =
            |other: &&&BaselineEntry| other.part == entry.part && other.metric == entry.metric;
        if seen.iter().any(|known| is_alike(&known)) {
            continue;
        }
        seen.push(entry);
        let others: Vec<&BaselineEntry> = step
            .entries
            .iter()
            .filter(|it| is_alike(it))
            .copied()
            .collect();
        let fits = others.iter().find(|other| {
            let mut rows = records
                .iter()
                .flat_map(|record| tonnage_record::figures::Row::of(record));
            rows.any(|row| {
                let (device, link) = tonnage_judge::baseline::host_kind::carriers(&row);
                device == other.device && link == other.link_bytes_per_s
            })
        });
        let mut verdict = judged(fits.unwrap_or(entry), &others, &records, tries_min);
        if records.is_empty()
            && let Some(why) = why
        {
            verdict.why = Some(why.to_owned());
        }
        found.push(verdict);
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

fn device_states() -> Vec<DeviceState> {
    let states = links().into_iter().map(|link| DeviceState {
        name: link.name,
        state: link.state,
        link_bytes_per_s: link.bits_per_s.map(|bits| bits as f64 / 8.0),
    });
    states.collect()
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
        for other in [
            "tonnage check --x",
            "tonnage compare --exit prolog",
            "tonnage check --exit what",
        ] {
            assert_eq!(code(other), None, "{other}");
        }
    }
}
