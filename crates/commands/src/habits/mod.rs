//! Habits from other benchmarks: their options in a command line of tonnage, and their whole command lines. The answer
//! is a line that the user can type. The parser and the plan accept it.
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

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use tonnage_plan::options::command_line::quoted;
use tonnage_units::{Error, Result};

use crate::args::from::FromArgs;
use crate::args::ior::IorRequest;
use crate::args::{Cli, Command};
use crate::command::checks;
use crate::command::ior;
use crate::command::measure::resolve::{Resolved, job_of, layers_job, verify_job};
use crate::command::print;
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
    let cli = Cli::try_parse_from(words.iter().skip(begin))
        .map_err(|error| Error::Usage(error.to_string()))?;
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

/// Replaces the parser's suggestions if they only look similar or are former names. The new suggestion is the nearest
/// name in the help. It differs by at most two typing errors, or begins with the typed letters if there are at least
/// three.
pub fn without_wrong_hints(error: &mut clap::Error, words: &[OsString]) {
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let program = Cli::command();
    if error.remove(ContextKind::SuggestedArg).is_some() {
        // The second suggestion is the same option at another command.
        error.remove(ContextKind::Suggested);
        let typed = text(error, ContextKind::InvalidArg);
        let command = words.iter().find_map(|word| program.find_subcommand(word));
        let own = command.map(clap::Command::get_arguments);
        let own = own.into_iter().flatten().chain(program.get_arguments());
        let names = own.filter(|argument| !argument.is_hide_set());
        let names = names.filter_map(clap::Arg::get_long);
        let near = nearest(&typed, names).map(|near| format!("--{near}"));
        if let Some(near) = near {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
        } else if let Some(command) = command {
            // The usage line contains the parser's suggestion too.
            let name = format!("tonnage {}", command.get_name());
            let usage = command.clone().bin_name(name).render_usage();
            error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
        }
    }
    if error.remove(ContextKind::SuggestedSubcommand).is_some() {
        let typed = text(error, ContextKind::InvalidSubcommand);
        let commands = program.get_subcommands();
        let names = commands.filter(|command| !command.is_hide_set());
        if let Some(near) = nearest(&typed, names.map(clap::Command::get_name)) {
            let near = ContextValue::Strings(vec![near.to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, near);
        }
    }
}

/// Returns the nearest name, if one is near enough.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim_start_matches('-');
    let typed = typed.split([' ', '=']).next()?.to_lowercase();
    // The cost is the product of both lengths. No name is near a text of this length.
    if typed.len() > 64 {
        return None;
    }
    let slips = |name: &str| {
        let is_beginning = typed.len() >= 3 && name.starts_with(&typed);
        let slips = strsim::damerau_levenshtein(&typed, name);
        let slips = if is_beginning { slips.min(2) } else { slips };
        (slips <= 2.min(name.len() / 2)).then_some(slips)
    };
    let near = names.filter_map(|name| Some((slips(name)?, name)));
    near.min_by_key(|(slips, _)| *slips).map(|(_, name)| name)
}
