//! The words of a command line. Each begins with `-`: letters of flags in a group (`-wrk`), the last of which may take
//! the rest of the word or the next word (`-b4m`, `-b 4m`, `-b=4m`), or one long name (`--posix.odirect`).
//!
//! IOR 4 goes on looking for flags in an attached value, so that its `-b1m` also means `-m` and its `-t64k` also `-k`;
//! that is not repeated here.

use tonnage_units::{Error, Result};

use super::IorOptions;
use super::table::{self, Kind, Row};
use super::value::{times, whole};

/// A long option that belongs to tonnage and not to IOR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Its name without the two hyphens.
    pub name: String,
    /// Whether it takes a value.
    pub value: bool,
}

/// A command line, divided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Divided {
    /// What IOR understands.
    pub ior: IorOptions,
    /// The words that are tonnage's own, in order.
    pub own: Vec<String>,
    /// Whether help was asked for; then nothing else counts.
    pub help: bool,
}

/// Reads a command line of IOR in which options of `own` may be mixed. Whether options go together is checked in
/// [`super::check`].
///
/// # Errors
/// `Usage` with the word that is wrong, and what to write instead.
pub fn read(words: &[String], own: &[Own]) -> Result<Divided> {
    let mut divided = Divided::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if word == "-h" || word == "--help" {
            divided.help = true;
            return Ok(divided);
        }
        let mut next = || rest.next().cloned();
        let long = word.strip_prefix("--");
        if let Some(option) = long.and_then(|long| find_own(own, long)) {
            divided.own.push(word.clone());
            if option.value && !word.contains('=') {
                let value = next().ok_or_else(|| no_value(word))?;
                divided.own.push(value);
            }
        } else if let Some(long) = long {
            read_long(&mut divided.ior, long, own, &mut next)?;
        } else {
            match word.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => {
                    read_letters(&mut divided.ior, letters, &mut next)?;
                }
                _ => return Err(no_option(word)),
            }
        }
    }
    Ok(divided)
}

fn find_own<'a>(own: &'a [Own], long: &str) -> Option<&'a Own> {
    let name = long.split('=').next().unwrap_or(long);
    own.iter().find(|option| option.name == name)
}

/// `--name`, `--name=value` or `--name value`.
fn read_long(
    options: &mut IorOptions,
    long: &str,
    own: &[Own],
    next: &mut dyn FnMut() -> Option<String>,
) -> Result<()> {
    let (name, value) = match long.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (long, None),
    };
    let Some(row) = table::long(name) else {
        return Err(unknown_long(name, own));
    };
    let shown = format!("--{name}");
    let value = match value {
        None if row.takes_value() => Some(next().ok_or_else(|| no_value(&shown))?),
        value => value,
    };
    apply(options, row, &shown, value.as_deref())
}

/// A group of letters, the last of which may take a value.
fn read_letters(
    options: &mut IorOptions,
    letters: &str,
    next: &mut dyn FnMut() -> Option<String>,
) -> Result<()> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let Some(row) = table::short(letter) else {
            return Err(unknown_letter(letter, letters));
        };
        let shown = format!("-{letter}");
        let behind = rest.as_str();
        let stated = behind.strip_prefix('=');
        if row.takes_value() {
            let value = match (stated, behind) {
                (Some(value), _) => value.to_owned(),
                (None, "") => next().ok_or_else(|| no_value(&shown))?,
                (None, value) => value.to_owned(),
            };
            return apply(options, row, &shown, Some(&value));
        }
        if stated.is_some() {
            return apply(options, row, &shown, stated);
        }
        apply(options, row, &shown, None)?;
    }
    Ok(())
}

/// The directives of one `-O`: `KEY=VALUE`, several with commas between them.
fn read_directives(options: &mut IorOptions, text: &str) -> Result<()> {
    for directive in text.split(',') {
        let Some((key, value)) = directive.split_once('=') else {
            return Err(Error::Usage(format!(
                "-O {directive:.40?} is not a directive: write -O KEY=VALUE, such as -O summaryFormat=JSON"
            )));
        };
        let (key, value) = (key.trim(), value.trim());
        let long = key.strip_prefix("--").unwrap_or(key);
        let found = table::key(key).or_else(|| table::long(long));
        // A list of directives in a directive would have no end.
        let Some(row) = found.filter(|row| !matches!(row.kind, Kind::Directives)) else {
            return Err(unknown_key(key));
        };
        apply(options, row, &format!("-O {key}="), Some(value))?;
    }
    Ok(())
}

/// Carries out one option. `shown` is its name as the user wrote it.
fn apply(options: &mut IorOptions, row: &Row, shown: &str, value: Option<&str>) -> Result<()> {
    let text = value.unwrap_or_default();
    if value == Some("") {
        return Err(no_value(shown));
    }
    match row.kind {
        Kind::Flag(place) => {
            let switch = place(options);
            switch.0 = match value {
                Some(text) => times(shown, text)?,
                None => switch.0.saturating_add(1),
            };
        }
        // Setting it to 0 would ask for what is not done, unlike leaving it out.
        Kind::Always => match value.map(|text| times(shown, text)).transpose()? {
            Some(0) => {
                return Err(Error::Usage(format!(
                    "{shown}0: {} always: leave it out",
                    row.does
                )));
            }
            _ => return Ok(()),
        },
        Kind::Number(set) => set(options, whole(shown, text)?),
        Kind::Text(set) => set(options, shown, text)?,
        Kind::Directives => read_directives(options, text)?,
        Kind::Refused { .. } => {
            return Err(Error::Usage(format!(
                "{shown} of IOR is not in tonnage: {}",
                row.does
            )));
        }
    }
    Ok(())
}

fn no_value(shown: &str) -> Error {
    Error::Usage(format!(
        "{shown} needs a value: `tonnage ior --help` says which"
    ))
}

fn no_option(word: &str) -> Error {
    Error::Usage(format!(
        "{word:.60?} is no option of IOR: options begin with -, and the path follows -o"
    ))
}

fn unknown_letter(letter: char, group: &str) -> Error {
    let within = match group.chars().count() {
        0 | 1 => String::new(),
        _ => format!(" in {:.60?}", format!("-{group}")),
    };
    Error::Usage(format!(
        "-{}{within} is no option of IOR: `tonnage ior --help` lists them",
        letter.escape_default()
    ))
}

fn unknown_long(name: &str, own: &[Own]) -> Error {
    let mut names: Vec<&str> = own.iter().map(|option| option.name.as_str()).collect();
    names.extend(table::long_names());
    unknown("--", name, &names)
}

fn unknown_key(key: &str) -> Error {
    unknown("-O ", key, &table::keys().collect::<Vec<_>>())
}

fn unknown(before: &str, name: &str, names: &[&str]) -> Error {
    let near = match tonnage_units::names::nearest(name, names) {
        Some(near) => format!("did you mean {before}{near}? "),
        None => String::new(),
    };
    Error::Usage(format!(
        "{before}{} is no option of IOR: {near}`tonnage ior --help` lists them",
        format!("{name:.60}").escape_debug()
    ))
}
