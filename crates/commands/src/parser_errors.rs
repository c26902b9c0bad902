//! Errors of the parser in this program's words: the fault with the option as typed, then one next step.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

use crate::args::Cli;
use crate::args::short_help::EXAMPLES;

/// Words that other programs have for what a command does here, and a line to type.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "bench benchmark bandwidth bw throughput",
        "tonnage transfer --engine shm --op write --ranks 2 --sizes 8..1M",
    ),
    (
        "latency lat ping pingpong ping-pong",
        "tonnage transfer --engine shm --op write --ranks 2 --sizes 8 --ping-pong",
    ),
    ("list ls info", "tonnage engines"),
    ("version", "tonnage --version"),
];

/// Parses a command line.
pub fn parse(words: &[OsString]) -> Result<Cli> {
    Cli::try_parse_from(words).map_err(|error| Error::Usage(text(&error, words)))
}

/// Returns the message for a command line that the parser refuses, without `error: `. `words` is the whole line.
pub fn text(error: &clap::Error, words: &[OsString]) -> String {
    let program = Cli::command();
    let command = words
        .iter()
        .skip(1)
        .find_map(|word| program.find_subcommand(word));
    let name = command.map_or("tonnage".to_owned(), |command| {
        format!("tonnage {}", command.get_name())
    });
    let argument = strings(error, ContextKind::InvalidArg);
    // An option without its value: `--op <NAMES>` is `--op`.
    let option = |text: &String| {
        text.split([' ', '=', '['])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let options: Vec<_> = argument.iter().map(option).collect();
    let first = options.first().cloned().unwrap_or_default();
    let value = strings(error, ContextKind::InvalidValue).pop();
    match error.kind() {
        ErrorKind::UnknownArgument if !first.starts_with('-') => {
            format!(
                "{name} has no use for {}: `{name} --help` has its options",
                quote(&first)
            )
        }
        ErrorKind::UnknownArgument => {
            let own = command.map(clap::Command::get_arguments);
            let own = own.into_iter().flatten().chain(program.get_arguments());
            let names = own.filter(|argument| !argument.is_hide_set());
            let near = nearest(&first, names.filter_map(clap::Arg::get_long));
            let tips = strings(error, ContextKind::Suggested);
            let tip = tips.iter().find(|tip| tip.contains("separate command"));
            let next = match (tip, near) {
                (Some(tip), _) => tip.clone(),
                (None, Some(near)) => format!("did you mean --{near}?"),
                (None, None) => format!("`{name} --help` lists all"),
            };
            format!("{name} has no option {first}: {next}")
        }
        ErrorKind::InvalidSubcommand => {
            let typed = strings(error, ContextKind::InvalidSubcommand)
                .pop()
                .unwrap_or_default();
            let commands = program.get_subcommands();
            let names = commands.filter(|command| !command.is_hide_set());
            let near = nearest(&typed, names.map(clap::Command::get_name));
            let known = ELSEWHERE
                .iter()
                .find(|(names, _)| names.split(' ').any(|name| name == typed));
            let next = match (known, near) {
                (Some((_, line)), _) => format!("e.g. `{line}`"),
                (None, Some(near)) => format!("did you mean {near}?"),
                (None, None) => "`tonnage` lists all".to_owned(),
            };
            format!("there is no command {}: {next}", quote(&typed))
        }
        ErrorKind::MissingRequiredArgument => {
            let example = command.and_then(|command| {
                EXAMPLES
                    .iter()
                    .find(|(name, _)| *name == command.get_name())
            });
            let example = example.map_or(String::new(), |(_, line)| format!(", e.g. `{line}`"));
            let is_or_are = if options.len() == 1 { "is" } else { "are" };
            format!(
                "{name}: {} {is_or_are} required{example}",
                options.join(" and ")
            )
        }
        ErrorKind::ArgumentConflict => {
            let others = strings(error, ContextKind::PriorArg);
            let others: Vec<_> = others
                .iter()
                .map(option)
                .filter(|other| *other != first)
                .collect();
            match others.is_empty() {
                true => format!("{first} is given twice: leave one of them out"),
                false => format!(
                    "{first} and {} are mutually exclusive: leave one of them out",
                    others.join(" and ")
                ),
            }
        }
        ErrorKind::InvalidValue if value.as_deref() == Some("") || value.is_none() => {
            let hint = argument.first().map(String::as_str).unwrap_or_default();
            format!("{first} needs a value: {hint}; `{name} --help` describes it")
        }
        ErrorKind::InvalidValue => {
            let known = strings(error, ContextKind::ValidValue);
            let value = value.unwrap_or_default();
            let near = nearest(&value, known.iter().map(String::as_str));
            let near = near.map_or(String::new(), |near| format!("did you mean {near:?}? "));
            format!(
                "{first} has no value {}: {near}values: {}",
                quote(&value),
                known.join(", ")
            )
        }
        ErrorKind::ValueValidation
            if let (Some(value), Some(source)) = (&value, error.source()) =>
        {
            let source = source.to_string();
            match source.contains(&quote(value)) {
                true => format!("{first}: {source}"),
                false => format!("{first} {value}: {source}"),
            }
        }
        ErrorKind::TooManyValues => {
            format!(
                "{first} takes no value {}: leave the value out",
                quote(&value.unwrap_or_default())
            )
        }
        _ => plain(error),
    }
}

/// Returns the parser's own text as one line.
fn plain(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.lines().take_while(|line| !line.trim().is_empty());
    let words: Vec<_> = paragraph.flat_map(str::split_whitespace).collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
        Some(ContextValue::StyledStrs(texts)) => texts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// Returns the nearest name. It may differ by two slips, but by no more than one slip per three letters. If a name
/// begins with the typed text, and this has three letters or more, the missing end counts as two slips at most.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim_start_matches('-');
    let typed = typed.split([' ', '=']).next()?.to_lowercase();
    // The cost is the product of both lengths, and a text this long is near no name.
    if typed.len() > 64 {
        return None;
    }
    let slips = |name: &str| {
        let is_beginning = typed.len() >= 3 && name.starts_with(&typed);
        let slips = strsim::damerau_levenshtein(&typed, name);
        let slips = if is_beginning { slips.min(2) } else { slips };
        (slips <= 2.min(name.len() / 3)).then_some(slips)
    };
    let near = names.filter_map(|name| Some((slips(name)?, name)));
    near.min_by_key(|(slips, _)| *slips).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Command lines that the parser refuses, each with its message.
    const REFUSED: &[(&str, &str)] = &[
        (
            "transfer --dept 8",
            "tonnage transfer has no option --dept: did you mean --depth?",
        ),
        (
            "transfer --bidirect",
            "tonnage transfer has no option --bidirect: did you mean --bidirectional?",
        ),
        (
            "transfer --treads 4",
            "tonnage transfer has no option --treads: did you mean --threads?",
        ),
        (
            "transfer --queue-dep 4",
            "tonnage transfer has no option --queue-dep: `tonnage transfer --help` lists all",
        ),
        (
            "run tour --time 10",
            "tonnage run has no option --time: did you mean --time-limit?",
        ),
        (
            "transfer --engine shm --op write --stress",
            "tonnage transfer has no option --stress: random transfers have a separate command: 'tonnage stress \
             --engine NAME --ranks N --duration 30s'",
        ),
        (
            "tranfser",
            "there is no command \"tranfser\": did you mean transfer?",
        ),
        (
            "frobnicate",
            "there is no command \"frobnicate\": `tonnage` lists all",
        ),
        (
            "version",
            "there is no command \"version\": e.g. `tonnage --version`",
        ),
        (
            "explain a b",
            "tonnage explain has no use for \"b\": `tonnage explain --help` has its options",
        ),
        (
            "run",
            "tonnage run: <PLAN> is required, e.g. `tonnage run gpu-node --scale 0.1`",
        ),
        (
            "check",
            "tonnage check: --baseline is required, e.g. `tonnage check --baseline baseline.json --time-limit 20s`",
        ),
        (
            "transfer --op wirte",
            "--op: unknown op \"wirte\": did you mean \"write\"? ops: write, write-imm, read, send, fetch-add, \
             compare-swap",
        ),
        (
            "transfer --sizes 8 --sizes 8 --engine shm --op write",
            "--sizes: the sweep \"8,8\" has 8 twice: leave one of them out",
        ),
        (
            "show r.jsonl --format csv --json",
            "--format and --json are mutually exclusive: leave one of them out",
        ),
        (
            "connect --traffic pair --traffic fan-in",
            "--traffic is given twice: leave one of them out",
        ),
        (
            "transfer --engine",
            "--engine needs a value: --engine <NAMES>; `tonnage transfer --help` describes it",
        ),
        (
            "transfer --log-level loud",
            "--log-level has no value \"loud\": values: error, warn, info, debug",
        ),
        (
            "transfer --engine shm --op write --ping-pong=yes",
            "--ping-pong takes no value \"yes\": leave the value out",
        ),
    ];

    #[test]
    fn each_message_is_one_line_with_a_next_step() {
        for (line, expected) in REFUSED {
            let words: Vec<_> = format!("tonnage {line}")
                .split(' ')
                .map(OsString::from)
                .collect();
            let error = Cli::try_parse_from(&words).unwrap_err();
            assert_eq!(text(&error, &words), *expected);
        }
    }
}
