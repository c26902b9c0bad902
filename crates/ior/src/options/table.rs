//! Every option of IOR 3.0.1 and 4.x: its names, what it does here, or why it is refused and what to use instead. The
//! parser, `tonnage ior --help` and the tables of the documentation are this list, whose rows are in [`super::rows`] and [`super::refused`].

use tonnage_units::Result;

use super::refused::REFUSED;
use super::rows::HONOURED;
use super::{IorOptions, Switch};

/// One option.
pub struct Row {
    /// `-b` has `'b'`.
    pub short: Option<char>,
    /// Names behind two hyphens, if any.
    pub long: &'static [&'static str],
    /// Names behind `-O`, of which case does not matter.
    pub keys: &'static [&'static str],
    /// What stands for its value in the help; empty for flags.
    pub value: &'static str,
    /// How it is taken.
    pub kind: Kind,
    /// What it does here; for what is refused, what to use instead.
    pub does: &'static str,
}

/// How an option is taken.
#[derive(Clone, Copy)]
pub enum Kind {
    /// On, or a count.
    Flag(fn(&mut IorOptions) -> &mut Switch),
    /// A size or a number.
    Number(fn(&mut IorOptions, u64)),
    /// Anything else; the second argument is the option's name.
    Text(fn(&mut IorOptions, &str, &str) -> Result<()>),
    /// The directives behind `-O`.
    Directives,
    /// A flag for what tonnage does in any case.
    Always,
    /// It cannot be honoured.
    Refused {
        /// Whether a value follows, which belongs to it.
        value: bool,
    },
}

impl Row {
    /// Whether a value follows.
    pub fn takes_value(&self) -> bool {
        match self.kind {
            Kind::Flag(_) | Kind::Always => false,
            Kind::Number(_) | Kind::Text(_) | Kind::Directives => true,
            Kind::Refused { value } => value,
        }
    }
}

/// The option of a letter.
pub fn short(letter: char) -> Option<&'static Row> {
    all().find(|row| row.short == Some(letter))
}

/// The option of a long name.
pub fn long(name: &str) -> Option<&'static Row> {
    all().find(|row| row.long.contains(&name))
}

/// The option of a key behind `-O`.
pub fn key(name: &str) -> Option<&'static Row> {
    all().find(|row| row.keys.iter().any(|key| key.eq_ignore_ascii_case(name)))
}

/// All long names.
pub fn long_names<'a>() -> impl Iterator<Item = &'a str> {
    all().flat_map(|row| row.long.iter().map(|name| -> &'a str { name }))
}

/// All keys behind `-O`.
pub fn keys() -> impl Iterator<Item = &'static str> {
    all().flat_map(|row| row.keys.iter().copied())
}

/// All options: those that are honoured, then those that are refused.
pub fn all() -> impl Iterator<Item = &'static Row> {
    HONOURED.iter().chain(REFUSED)
}

pub(super) const fn flag(
    short: Option<char>,
    long: &'static [&'static str],
    keys: &'static [&'static str],
    place: fn(&mut IorOptions) -> &mut Switch,
    does: &'static str,
) -> Row {
    let (value, kind) = ("", Kind::Flag(place));
    Row {
        short,
        long,
        keys,
        value,
        kind,
        does,
    }
}

pub(super) const fn number(
    short: Option<char>,
    long: &'static [&'static str],
    keys: &'static [&'static str],
    value: &'static str,
    set: fn(&mut IorOptions, u64),
    does: &'static str,
) -> Row {
    let kind = Kind::Number(set);
    Row {
        short,
        long,
        keys,
        value,
        kind,
        does,
    }
}

pub(super) const fn text(
    short: Option<char>,
    long: &'static [&'static str],
    keys: &'static [&'static str],
    value: &'static str,
    set: fn(&mut IorOptions, &str, &str) -> Result<()>,
    does: &'static str,
) -> Row {
    let kind = Kind::Text(set);
    Row {
        short,
        long,
        keys,
        value,
        kind,
        does,
    }
}

pub(super) const fn always(
    short: Option<char>,
    keys: &'static [&'static str],
    does: &'static str,
) -> Row {
    let (long, value, kind) = (&[] as &[&str], "", Kind::Always);
    Row {
        short,
        long,
        keys,
        value,
        kind,
        does,
    }
}

pub(super) const fn refused(
    short: Option<char>,
    long: &'static [&'static str],
    keys: &'static [&'static str],
    value: &'static str,
    does: &'static str,
) -> Row {
    let kind = Kind::Refused {
        value: !value.is_empty(),
    };
    Row {
        short,
        long,
        keys,
        value,
        kind,
        does,
    }
}
