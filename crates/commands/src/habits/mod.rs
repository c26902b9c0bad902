//! Habits from other benchmarks: their options in a command line of tonnage, and their whole command lines. The answer
//! is a command line that the parser and the plan accept.
//!
//! `tables` has the rows of each program. An option that tonnage itself has always takes precedence over a row.

mod draft;
mod foreign;
mod own;
mod shell;
mod tables;
#[cfg(test)]
mod tests;
mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use tonnage_plan::options::command_line::quoted;
use tonnage_units::{Error, Result};

use crate::args::Command;
use crate::args::from::FromArgs;
use crate::args::ior::IorRequest;
use crate::command::checks;
use crate::command::ior;
use crate::command::measure::resolve::{Resolved, job_of, layers_job, verify_job};
use crate::command::print;
use crate::parser_errors;
use draft::Draft;

pub use own::refuse;

/// `tonnage from`.
pub fn from(args: &FromArgs) -> Result<ExitCode> {
    let here = tonnage_sys::host::name();
    print(&answer(&args.words, &here)?).map(|()| ExitCode::SUCCESS)
}

/// Returns the translated line. Remarks are written as shell comments.
fn answer(words: &[OsString], here: &str) -> Result<String> {
    let words =
        texts(words).ok_or_else(|| Error::Usage("the command line is not UTF-8".to_owned()))?;
    let words = match &words[..] {
        [line] => shell::split(line)?,
        _ => words,
    };
    let (line, remarks) = foreign::translate(&words, here)?;
    let remarks = remarks.iter().map(|remark| format!("# {remark}\n"));
    Ok(format!(
        "{}\n{}",
        quoted(&line),
        remarks.collect::<String>()
    ))
}

fn texts(words: &[OsString]) -> Option<Vec<String>> {
    let texts = words.iter().map(|word| word.to_str().map(str::to_owned));
    texts.collect()
}

/// Checks a command line as its command would before it starts a rank. Words before `tonnage`, such as a launcher, are
/// ignored.
pub(crate) fn check(words: &[String]) -> Result<()> {
    let begin = words.iter().position(|word| word == "tonnage").unwrap_or(0);
    let words: Vec<_> = words.iter().skip(begin).map(OsString::from).collect();
    let cli = parser_errors::parse(&words)?;
    let job = match cli.command {
        Some(Command::Experiment(args)) => job_of(args.to_plan(), &args.ranks, &args.results),
        Some(Command::Verify(args)) => verify_job(&args),
        Some(Command::Layers(args)) => layers_job(&args),
        Some(Command::Ior(args)) => args.read().and_then(|request| match request {
            IorRequest::Run(asked) => ior::job(&asked.0, &asked.1),
            IorRequest::Help(_) => Err(Error::Usage("--help only prints".to_owned())),
        }),
        _ => return Ok(()),
    }?;
    Resolved::for_job(&job)?.check(&job)?;
    checks::check_interface(&job.ranks)
}

/// Removes options that the checks refuse, and adds each refusal as a remark.
///
/// # Errors
/// Returns the message of the checks if no single option is the cause.
fn settle(draft: &mut Draft) -> Result<()> {
    for _ in 0..draft.options.len() {
        let Err(error) = check(&draft.line()) else {
            return Ok(());
        };
        let reason = first_line(&error.to_string());
        let candidates = (0..draft.options.len()).rev();
        let without = candidates.map(|index| {
            let mut fewer = draft.clone();
            let (option, value) = fewer.options.remove(index);
            let words = [Some(option), value]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>();
            fewer.remark(format!("left out: {}: {reason}", quoted(&words)));
            fewer
        });
        let Some(fewer) = without
            .into_iter()
            .find(|fewer| check(&fewer.line()).is_ok())
        else {
            return Err(error);
        };
        *draft = fewer;
    }
    check(&draft.line())
}

fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}
