//! Splits a command line into options. Each word begins with `-`. It is a group of flag letters (`-wrk`) or one long
//! name (`--posix.odirect`). The last letter of a group may take its value from the rest of the word or the next word
//! (`-b4m`, `-b 4m`, `-b=4m`).
//!
//! clap parses twice. The first pass knows the names of all options, but not their types. It puts tonnage's own options
//! aside, and rejects refused options. It replaces each directive (`-O KEY=VALUE`) by the options that it names, and
//! keeps the last value of each option. The second pass parses the result as [`IorOptions`].
//!
//! IOR 4 also looks for flags in an attached value, so that its `-b1m` includes `-m` and its `-t64k` includes `-k`.
//! This parser does not.

use std::collections::BTreeMap;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory, Parser};
use tonnage_units::{Error, Result};

use super::IorOptions;
use super::others::{self, ALWAYS, DIRECTIVES, OptionRow};
use super::value::parse_flag;

/// A long option that belongs to tonnage and not to IOR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnOption {
    /// The option's name without the two hyphens.
    pub name: String,
    /// True if it takes a value.
    pub value: bool,
}

/// A command line, split into IOR's options and tonnage's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedLine {
    /// IOR's options.
    pub ior: IorOptions,
    /// tonnage's own options, in order, with values attached by an equals sign.
    pub own: Vec<String>,
    /// True if help was requested; the other fields are then irrelevant.
    pub help: bool,
}

/// Parses an IOR command line that may also contain the options in `own`. [`super::check`] checks combinations of
/// options.
pub fn read(words: &[String], own: &[OwnOption]) -> Result<ParsedLine> {
    let mut collected = CollectedOptions::default();
    let help = match split_words(words, own) {
        Ok(found) => {
            for (id, value) in found {
                collected.option(&id, &value, own)?;
            }
            false
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelp => true,
        Err(error) => return Err(wrong_word(&error, words, own)),
    };
    let ior = IorOptions::try_parse_from(collected.words()).map_err(|error| wrong_value(&error))?;
    let own = collected.own;
    Ok(ParsedLine { ior, own, help })
}

/// Returns every option on the command line with its value, in order. The value of a flag without one is [`MORE`].
fn split_words(words: &[String], own: &[OwnOption]) -> clap::error::Result<Vec<(String, String)>> {
    let ours = own.iter().map(|option| {
        let name = option.name.clone();
        let arg = Arg::new(format!("{OURS}{name}")).long(name);
        untyped(arg, option.value)
    });
    let theirs = honoured().into_iter().chain(refused());
    let theirs = theirs.filter_map(|arg| {
        let names = OptionNames::new(&arg);
        let mut bare = Arg::new(arg.get_id().clone()).short(names.short);
        if let Some((first, others)) = names.long.split_first() {
            bare = bare
                .long(first.to_string())
                .aliases(others.iter().map(ToString::to_string));
        }
        let known = names.short.is_some() || !names.long.is_empty();
        known.then(|| untyped(bare, takes_value(&arg)))
    });
    let command = Command::new("ior").no_binary_name(true);
    let matches = command
        .args(theirs)
        .args(ours)
        .try_get_matches_from(words)?;
    let mut found = Vec::new();
    for id in matches.ids() {
        let values = matches
            .get_many::<String>(id.as_str())
            .into_iter()
            .flatten();
        let places = matches.indices_of(id.as_str()).into_iter().flatten();
        found.extend(
            places
                .zip(values)
                .map(|(place, value)| (place, id.to_string(), value.clone())),
        );
    }
    found.sort();
    Ok(found
        .into_iter()
        .map(|(_, id, value)| (id, value))
        .collect())
}

/// Prefix of the argument IDs of tonnage's own options.
const OURS: &str = "own ";
/// Stands for the value of a flag that was given without one. No command-line word can contain this character.
const MORE: &str = "\0";

/// Turns `arg` into an option that may be repeated and takes any text. If it is a flag, it also accepts `=N`.
fn untyped(arg: Arg, takes_value: bool) -> Arg {
    let arg = arg.action(ArgAction::Append).allow_hyphen_values(true);
    match takes_value {
        true => arg,
        false => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(MORE),
    }
}

/// The last value of each option; the keys are the fields of [`IorOptions`].
#[derive(Default)]
struct CollectedOptions {
    flags: BTreeMap<String, (Arg, u64)>,
    values: BTreeMap<String, (Arg, String)>,
    own: Vec<String>,
}

impl CollectedOptions {
    /// Records one option of the command line.
    fn option(&mut self, id: &str, value: &str, own: &[OwnOption]) -> Result<()> {
        if let Some(name) = id.strip_prefix(OURS) {
            let alone = own
                .iter()
                .any(|option| option.name == name && !option.value)
                && value == MORE;
            self.own.push(if alone {
                format!("--{name}")
            } else {
                format!("--{name}={value}")
            });
            return Ok(());
        }
        let arg = find(|arg| arg.get_id() == id);
        // clap returns only declared options, so `find` always succeeds.
        let Some(arg) = arg else { return Ok(()) };
        if id != DIRECTIVES.0 {
            let shown = OptionNames::new(&arg).word();
            return self.set(arg, &shown, value);
        }
        for directive in value.split(',') {
            let Some((key, value)) = directive.split_once('=') else {
                return Err(Error::Usage(format!(
                    "-O {directive:.40?} is not a directive: use -O KEY=VALUE, e.g. `-O summaryFormat=JSON`"
                )));
            };
            let (key, value) = (key.trim(), value.trim());
            let arg =
                find(|arg| OptionNames::new(arg).is_key(key)).ok_or_else(|| unknown_key(key))?;
            self.set(arg, &format!("-O {key}="), value)?;
        }
        Ok(())
    }

    /// Records one option. `shown` is the option's name as the user typed it.
    fn set(&mut self, arg: Arg, shown: &str, value: &str) -> Result<()> {
        let id = arg.get_id().to_string();
        if value.is_empty() {
            return Err(no_value(shown));
        }
        if let Some((_, _, instead)) = others::refused().find(|row| row.0 == id) {
            return Err(Error::Usage(format!(
                "{shown} of IOR is not supported by tonnage: {instead}"
            )));
        }
        if takes_value(&arg) {
            self.values.insert(id, (arg, value.to_owned()));
            return Ok(());
        }
        let times = match value {
            MORE => None,
            text => Some(
                parse_flag(text)
                    .map_err(|why| Error::Usage(format!("{shown} {text:.40?} {why}")))?,
            ),
        };
        match (ALWAYS.iter().find(|row| row.0 == id), times) {
            // This behaviour cannot be turned off, so setting its flag to 0 is an error. Omitting the flag is fine.
            (Some((_, _, does)), Some(0)) => {
                let does = does.to_lowercase();
                return Err(Error::Usage(format!(
                    "{shown}0: {does} in any case: leave it out"
                )));
            }
            (Some(_), _) => {}
            (None, times) => {
                let flag = self.flags.entry(id).or_insert((arg, 0));
                flag.1 = times.unwrap_or_else(|| flag.1.saturating_add(1));
            }
        }
        Ok(())
    }

    /// Returns the options as words that [`IorOptions`] parses.
    fn words(&self) -> Vec<String> {
        let flags = self.flags.values().flat_map(|(arg, times)| {
            let most = if matches!(arg.get_action(), ArgAction::Count) {
                u8::MAX.into()
            } else {
                1
            };
            (0..(*times).min(most)).map(|_| OptionNames::new(arg).word())
        });
        let values = self.values.values();
        let values = values.map(|(arg, value)| format!("{}={value}", OptionNames::new(arg).word()));
        flags.chain(values).collect()
    }
}

/// Returns the supported options, in the order of the help.
pub fn honoured() -> Vec<Arg> {
    let fields = IorOptions::command()
        .get_arguments()
        .cloned()
        .collect::<Vec<_>>();
    let others = std::iter::once(DIRECTIVES)
        .chain(ALWAYS.iter().copied())
        .map(arg);
    fields.into_iter().chain(others).collect()
}

/// Returns the refused options; the help text of each is its replacement.
pub fn refused() -> Vec<Arg> {
    others::refused().map(arg).collect()
}

fn arg((names, value, does): OptionRow) -> Arg {
    let arg = Arg::new(names).help(does);
    let arg = match value.is_empty() {
        true => arg.action(ArgAction::SetTrue),
        false => arg.value_name(value),
    };
    names
        .split(' ')
        .fold(arg, |arg, name| match name.strip_prefix('-') {
            Some(long) if long.starts_with('-') => {
                arg.alias(long.trim_start_matches('-').to_owned())
            }
            Some(short) => arg.short(short.chars().next()),
            None => arg.alias(format!("{KEY}{name}")),
        })
}

fn find(which: impl Fn(&Arg) -> bool) -> Option<Arg> {
    honoured().into_iter().chain(refused()).find(which)
}

/// Whether the option takes a value.
pub fn takes_value(arg: &Arg) -> bool {
    !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count)
}

/// Prefix of long names that are keys of `-O`.
const KEY: &str = "O.";

/// The names of an option.
pub struct OptionNames<'a> {
    /// The option's letter.
    pub short: Option<char>,
    /// The option's names with two hyphens.
    pub long: Vec<&'a str>,
    /// The option's keys for `-O`, which are not case-sensitive.
    pub keys: Vec<&'a str>,
}

impl<'a> OptionNames<'a> {
    pub fn new(arg: &'a Arg) -> Self {
        let all = arg
            .get_long()
            .into_iter()
            .chain(arg.get_all_aliases().unwrap_or_default());
        let (keys, long) = all.partition::<Vec<_>, _>(|name| name.starts_with(KEY));
        let keys = keys
            .into_iter()
            .map(|key| key.trim_start_matches(KEY))
            .collect();
        let short = arg.get_short();
        Self { short, long, keys }
    }

    /// Returns a word for this option that [`IorOptions`] accepts.
    fn word(&self) -> String {
        match (self.short, self.long.first(), self.keys.first()) {
            (Some(short), _, _) => format!("-{short}"),
            (None, Some(long), _) => format!("--{long}"),
            (None, None, key) => format!("--{KEY}{}", key.unwrap_or(&"")),
        }
    }

    fn is_key(&self, name: &str) -> bool {
        let long = name.strip_prefix("--").unwrap_or(name);
        self.keys.iter().any(|key| key.eq_ignore_ascii_case(name)) || self.long.contains(&long)
    }
}

/// Error for a word that clap rejected.
fn wrong_word(error: &clap::Error, words: &[String], own: &[OwnOption]) -> Error {
    let name = context(error, ContextKind::InvalidArg);
    if error.kind() != ErrorKind::UnknownArgument {
        return no_value(name.split(' ').next().unwrap_or_default());
    }
    match (name.strip_prefix("--"), name.strip_prefix('-')) {
        (Some(""), _) => {
            let has_hyphen = |word: &&String| {
                let letters = word.strip_prefix('-').unwrap_or_default();
                !letters.starts_with('-') && letters.contains('-')
            };
            match words.iter().find(has_hyphen) {
                Some(word) => Error::Usage(format!(
                    "{word:.60?} is not an option of IOR: put a blank between options, e.g. `{:.60}`",
                    word.split('-').collect::<Vec<_>>().join(" -").trim_start()
                )),
                None => unknown("--", "", &[]),
            }
        }
        (Some(long), _) => {
            let (honoured, refused) = (honoured(), refused());
            let long_names = honoured
                .iter()
                .chain(&refused)
                .flat_map(|arg| OptionNames::new(arg).long);
            let names = own.iter().map(|option| option.name.as_str());
            unknown("--", long, &names.chain(long_names).collect::<Vec<_>>())
        }
        (None, Some(letter)) if !letter.is_empty() => {
            let group =
                |word: &&String| word.len() > 2 && !word.starts_with("--") && word.starts_with('-');
            let group = words
                .iter()
                .filter(group)
                .find(|word| word.contains(letter));
            let within = group.map_or(String::new(), |group| format!(" in {group:.60?}"));
            Error::Usage(format!(
                "-{}{within} is not an option of IOR: `tonnage ior --help` lists them",
                letter.escape_debug()
            ))
        }
        _ => Error::Usage(format!(
            "{name:.60?} is not an option of IOR: options begin with -, and the path follows -o"
        )),
    }
}

/// Error for a wrong value, prefixed with the option's name.
fn wrong_value(error: &clap::Error) -> Error {
    let name = context(error, ContextKind::InvalidArg);
    let name = name.split(' ').next().unwrap_or_default();
    let shown = match name.strip_prefix("--O.") {
        Some(key) => format!("-O {key}"),
        None => name.to_owned(),
    };
    let value = context(error, ContextKind::InvalidValue);
    let why = std::error::Error::source(error)
        .map_or_else(|| error.kind().to_string(), ToString::to_string);
    Error::Usage(format!("{shown} {value:.40?} {why}"))
}

fn context(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

fn no_value(shown: &str) -> Error {
    Error::Usage(format!("{shown} needs a value: see `tonnage ior --help`"))
}

fn unknown_key(key: &str) -> Error {
    let (honoured, refused) = (honoured(), refused());
    let keys = honoured
        .iter()
        .chain(&refused)
        .flat_map(|arg| OptionNames::new(arg).keys);
    unknown("-O ", key, &keys.collect::<Vec<_>>())
}

fn unknown(before: &str, name: &str, names: &[&str]) -> Error {
    let near = match tonnage_units::names::nearest(name, names) {
        Some(near) => format!("did you mean {before}{near}? "),
        None => String::new(),
    };
    Error::Usage(format!(
        "{before}{} is not an option of IOR: {near}`tonnage ior --help` lists them",
        format!("{name:.60}").escape_debug()
    ))
}
