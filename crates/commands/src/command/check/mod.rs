//! `tonnage check`: measures points of a baseline for this kind of host, and judges whether the host meets the
//! baseline.
//!
//! | file | contents |
//! | --- | --- |
//! | this | a check from its request to its exit code |
//! | [`task`] | the request, with the contents of the files that it names |
//! | [`this_host`] | the check of this host |
//! | [`each`] | separate checks of several hosts |
//! | [`choice`] | the points to measure, and their order |
//! | [`child`] | one start of ranks; reads their records as they arrive |
//! | [`clock`] | the time budget, the step in progress, and the watchdog |
//! | [`cache`] | cached verdicts |
//!
//! `tonnage_judge::check` judges. Problems of the check itself are errors, which do not count as failures of the host.

mod cache;
mod child;
mod choice;
mod clock;
mod each;
pub mod task;
pub mod this_host;

use std::process::ExitCode;

use serde::Serialize;
use tonnage_judge::check::each_host::EachHostReport;
use tonnage_judge::check::nodelist::fold_names;
use tonnage_judge::check::reason::truncate;
use tonnage_judge::check::{CheckReport, CheckVerdict, ExitStyle};
use tonnage_report::baseline::{checked, checked_each};
use tonnage_report::result::ResultWord;
use tonnage_report::text::WIDTH;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

use super::atomic_file::{refuse_existing, replace};
use super::record_files::is_same_file;
use super::{print, say_error};
use crate::args::check::CheckArgs;
use clock::BudgetClock;
use each::EachOutcome;
use task::CheckTask;

/// Findings of a check, in all output formats.
struct Findings {
    verdict: CheckVerdict,
    page: String,
    json: String,
    failed_hosts: Vec<String>,
    /// True if this process writes the requested files.
    is_kept: bool,
}

impl Findings {
    fn new(report: &CheckReport, is_kept: bool) -> Result<Self> {
        Ok(Self {
            verdict: report.verdict,
            page: checked(report),
            json: json(report)?,
            failed_hosts: report.failed_hosts.clone(),
            is_kept,
        })
    }

    fn from_each_host(report: &EachHostReport) -> Result<Self> {
        Ok(Self {
            verdict: report.verdict,
            page: checked_each(report),
            json: json(report)?,
            failed_hosts: report.failed_hosts.clone(),
            is_kept: true,
        })
    }
}

fn json(report: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(report);
    text.map(|text| text + "\n")
        .map_err(|error| Error::Failed(format!("the verdicts have no JSON form: {error}")))
}

/// Which process prints the findings.
enum CheckOutcome {
    Here(Findings),
    /// Another process prints the findings, and this one exits with the verdict's code.
    Elsewhere(CheckVerdict),
}

/// Checks this host, or several. The exit code always follows the requested style.
pub fn check(args: &CheckArgs) -> ExitCode {
    let style = args.exit;
    let clock = match BudgetClock::start(args.budget.0, style) {
        Ok(clock) => clock,
        Err(error @ Error::Usage(_)) => return refused(style, &error),
        Err(error) => return failed(style, &error),
    };
    let found = match findings(args, &clock) {
        Ok(CheckOutcome::Here(found)) => found,
        Ok(CheckOutcome::Elsewhere(verdict)) => {
            clock.disarm();
            return style.code(verdict).into();
        }
        Err(error @ Error::Usage(_)) => {
            clock.set_exit_code(style.code_of_wrong_request());
            return refused(style, &error);
        }
        Err(error) => {
            clock.set_exit_code(style.code(CheckVerdict::Error));
            return failed(style, &error);
        }
    };
    let (verdict, page) = match write(args, &found) {
        Ok(()) => (found.verdict, found.page),
        // A failure stays a failure even if a file cannot be written.
        Err(error) if found.verdict == CheckVerdict::Fail => {
            print_message(&format!("error: {error}"));
            (found.verdict, found.page)
        }
        Err(error) => {
            print_message(&format!("error: {error}"));
            let line = truncate(&format!("error: {error}"));
            let result = ResultWord::Error
                .with(format!("{error}; not stored:"))
                .plain(WIDTH);
            (
                CheckVerdict::Error,
                format!("{result}\n{}{line}\n", found.page),
            )
        }
    };
    // If the output blocks because no process reads it, the watchdog exits with this code.
    clock.set_exit_code(style.code(verdict));
    let code = ended(style, verdict, &page);
    clock.disarm();
    code
}

fn findings(args: &CheckArgs, clock: &BudgetClock) -> Result<CheckOutcome> {
    // If a launcher's processes check hosts separately, only the first process writes the output files. So only this
    // process empties them.
    let is_one_of_many = args.each_host && each::is_not_first(args)?;
    if !is_one_of_many {
        empty_old(args)?;
    }
    clock.step("reading the baseline");
    let task = CheckTask::from_command_line(args)?;
    if args.each_host {
        return match each::check(&task, args, clock)? {
            EachOutcome::All(report) => Findings::from_each_host(&report).map(CheckOutcome::Here),
            EachOutcome::Own(report) => Findings::new(&report, false).map(CheckOutcome::Here),
            EachOutcome::Elsewhere(verdict) => Ok(CheckOutcome::Elsewhere(verdict)),
        };
    }
    match this_host::check_this_host(&task, clock)? {
        Some(report) => Findings::new(&report, true).map(CheckOutcome::Here),
        None => Ok(CheckOutcome::Elsewhere(CheckVerdict::Pass)),
    }
}

/// Ends a check that has measured nothing because of an error.
pub fn not_checked(style: ExitStyle, error: &Error) -> ExitCode {
    match error {
        Error::Usage(_) => refused(style, error),
        _ => failed(style, error),
    }
}

/// Handles a command line that the parser refused, if the command is `check`: prints the last line and returns the exit
/// code. Returns `None` for other commands.
pub fn refused_by_parser(line: impl Iterator<Item = String>, message: &str) -> Option<ExitCode> {
    let code = code_of_refused(line)?;
    // If the line cannot be printed, the exit code still reports the error.
    let _ = print(&format!("{}\n", truncate(&format!("error: {message}"))));
    Some(code)
}

/// Returns the exit code for a wrong request of `check`. `None` if the words are not a command line of `check`.
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
    print_message(&format!("error: {error}"));
    // The last line must give the reason, whatever the style of the exit code is.
    let _ = print(&format!("{}\n", truncate(&format!("error: {error}"))));
    style.code_of_wrong_request().into()
}

fn failed(style: ExitStyle, error: &Error) -> ExitCode {
    print_message(&format!("error: {error}"));
    let line = truncate(&format!("error: {error}"));
    ended(style, CheckVerdict::Error, &format!("{line}\n"))
}

/// Prints the last lines. If this fails, the exit code still reports the verdict.
fn ended(style: ExitStyle, verdict: CheckVerdict, page: &str) -> ExitCode {
    if let Err(error) = print(page) {
        say_error(&error);
    }
    style.code(verdict).into()
}

fn write(args: &CheckArgs, found: &Findings) -> Result<()> {
    if !found.is_kept {
        return Ok(());
    }
    let output = args
        .output
        .as_ref()
        .map_or(Ok(()), |path| replace(path, &found.json, args.force));
    // If one file cannot be written, the other file must still be written.
    let nodelist = args.nodelist.as_ref().map_or(Ok(()), |path| {
        let hosts = fold_names(found.failed_hosts.iter().map(String::as_str));
        replace(path, &(hosts + "\n"), args.force)
    });
    output.and(nodelist)
}

/// Empties the output files of an earlier check. Otherwise they could be mistaken for results of this check.
fn empty_old(args: &CheckArgs) -> Result<()> {
    for path in [&args.output, &args.nodelist].into_iter().flatten() {
        refuse_existing(path, args.force)?;
        if is_same_file(path, &args.baseline) {
            return Err(Error::Usage(format!(
                "{} is the baseline: name another file for the findings",
                path.display()
            )));
        }
        if path.is_file() {
            replace(path, "", true)?;
        }
    }
    Ok(())
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
