//! `tonnage check`: measures what a baseline has for this kind of host, and says whether the host keeps to it.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this | the check from its request to its exit code |
//! | [`task`] | wishes with everything that they name in files |
//! | [`own`] | the check of this host |
//! | [`each`] | checks of several hosts, each by itself |
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
mod each;
pub mod own;
pub mod task;

use std::process::ExitCode;

use serde::Serialize;
use tonnage_judge::check::each_host::EachHostReport;
use tonnage_judge::check::nodelist::folded;
use tonnage_judge::check::reason::cut;
use tonnage_judge::check::{CheckReport, CheckVerdict, ExitStyle};
use tonnage_report::baseline::{checked, checked_each};
use tonnage_units::message::say;
use tonnage_units::{Error, Result};

use super::readable::is_same_file;
use super::whole_file::{refuse_existing, replace};
use super::{print, say_error};
use crate::args::check::CheckArgs;
use clock::BudgetClock;
use each::EachOutcome;
use task::CheckTask;

/// Findings of a check, and the forms in which they are told.
struct Findings {
    verdict: CheckVerdict,
    page: String,
    json: String,
    failed_hosts: Vec<String>,
    /// True where this process writes the files that were asked for.
    is_kept: bool,
}

impl Findings {
    fn of(report: &CheckReport, is_kept: bool) -> Result<Self> {
        Ok(Self {
            verdict: report.verdict,
            page: checked(report),
            json: json(report)?,
            failed_hosts: report.failed_hosts.clone(),
            is_kept,
        })
    }

    fn of_each(report: &EachHostReport) -> Result<Self> {
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

/// Teller of what was found.
enum Told {
    Here(Findings),
    /// Another process; this one ends as the verdict says.
    Elsewhere(CheckVerdict),
}

/// Checks this host. Whatever happens, the exit code is one of the style that was asked for.
pub fn check(args: &CheckArgs) -> ExitCode {
    let style = args.exit;
    let clock = match BudgetClock::start(args.budget.0, style) {
        Ok(clock) => clock,
        Err(error @ Error::Usage(_)) => return refused(style, &error),
        Err(error) => return failed(style, &error),
    };
    let found = match findings(args, &clock) {
        Ok(Told::Here(found)) => found,
        Ok(Told::Elsewhere(verdict)) => {
            clock.disarm();
            return style.code(verdict).into();
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
    let (verdict, page) = match write(args, &found) {
        Ok(()) => (found.verdict, found.page),
        // What failed has failed, whether or not that can be written down.
        Err(error) if found.verdict == CheckVerdict::Fail => {
            say(&format!("error: {error}"));
            (found.verdict, found.page)
        }
        Err(error) => {
            say(&format!("error: {error}"));
            let line = cut(&format!("error: {error}"));
            (CheckVerdict::Error, found.page + &line + "\n")
        }
    };
    // Whoever reads nothing does not hold the check up: the watchdog ends it with this code.
    clock.telling(style.code(verdict));
    let code = ended(style, verdict, &page);
    clock.disarm();
    code
}

fn findings(args: &CheckArgs, clock: &BudgetClock) -> Result<Told> {
    // Of a launcher's processes that check hosts by themselves only one writes files, and it empties them.
    let is_one_of_many = args.each_host && each::is_not_first(args)?;
    if !is_one_of_many {
        empty_old(args)?;
    }
    clock.step("reading the baseline");
    let task = CheckTask::of_command(args)?;
    if args.each_host {
        return match each::check(&task, args, clock)? {
            EachOutcome::All(report) => Findings::of_each(&report).map(Told::Here),
            EachOutcome::Own(report) => Findings::of(&report, false).map(Told::Here),
            EachOutcome::Elsewhere(verdict) => Ok(Told::Elsewhere(verdict)),
        };
    }
    match own::own_report(&task, clock)? {
        Some(report) => Findings::of(&report, true).map(Told::Here),
        None => Ok(Told::Elsewhere(CheckVerdict::Pass)),
    }
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
    // One file that cannot be written says nothing about the other.
    let nodelist = args.nodelist.as_ref().map_or(Ok(()), |path| {
        let hosts = folded(found.failed_hosts.iter().map(String::as_str));
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
