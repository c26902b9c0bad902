//! Options that cannot be combined, as data: each group of options has its own rows. Checks that need more than which
//! options are given are written as code.

use toml::{Table, Value};

use crate::options::Tables;
use crate::refuse::usage_error;
use tonnage_units::{Error, Result};

/// A row of the table. It names an option by its key, or by its key and a value: `latency off`.
pub(crate) enum Conflict {
    /// `one` and `other` cannot both be given. In the message, `why` follows "because", and `instead` is the
    /// suggestion.
    Both {
        one: &'static str,
        other: &'static str,
        why: &'static str,
        instead: &'static str,
    },
    /// `one` has no effect without `other`.
    Without {
        one: &'static str,
        other: &'static str,
        instead: &'static str,
    },
}

impl Conflict {
    /// Two options that cannot both be given.
    pub(crate) const fn both(
        one: &'static str,
        other: &'static str,
        why: &'static str,
        instead: &'static str,
    ) -> Self {
        Self::Both {
            one,
            other,
            why,
            instead,
        }
    }

    /// An option that has no effect without another one.
    pub(crate) const fn without(
        one: &'static str,
        other: &'static str,
        instead: &'static str,
    ) -> Self {
        Self::Without {
            one,
            other,
            instead,
        }
    }

    fn check(&self, given: &Table) -> Result<()> {
        match *self {
            Self::Both {
                one,
                other,
                why,
                instead,
            } if is_given(given, one) && is_given(given, other) => usage_error(format!(
                "{} and {} contradict each other, because {why}: {instead}",
                shown(given, one),
                shown(given, other)
            )),
            Self::Without {
                one,
                other,
                instead,
            } if is_given(given, one) && !is_given(given, other) => {
                usage_error(format!("{} needs {other}: {instead}", shown(given, one)))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses the first combination of an experiment's options that a row excludes.
pub(crate) fn check(experiment: &impl Tables, rows: &[&[Conflict]]) -> Result<()> {
    let given = experiment
        .write()
        .map_err(|error| Error::Failed(format!("cannot write the options as a plan: {error}")))?;
    check_given(&given, rows)
}

fn check_given(given: &Table, rows: &[&[Conflict]]) -> Result<()> {
    let mut rows = rows.iter().copied().flatten();
    rows.try_for_each(|row| row.check(given))
}

/// Returns an option's name, followed by its value if that is a number or a short text.
fn shown(given: &Table, option: &str) -> String {
    const LONGEST: usize = 24;
    let value = match given.get(option) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Integer(_) | Value::Float(_))) => value.to_string(),
        _ => return option.to_owned(),
    };
    if value.len() > LONGEST || value.chars().any(char::is_control) {
        return option.to_owned();
    }
    format!("{option} {value}")
}

fn is_given(given: &Table, option: &str) -> bool {
    match option.split_once(' ') {
        Some((key, value)) => given.get(key).is_some_and(|of| has(of, value)),
        None => given.contains_key(option),
    }
}

fn has(given: &Value, value: &str) -> bool {
    match given {
        Value::Array(several) => several.iter().any(|one| has(one, value)),
        Value::Boolean(is_on) => value == if *is_on { "on" } else { "off" },
        Value::String(text) => text == value,
        other => other.to_string() == value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Refused;

    const ROWS: &[&[Conflict]] = &[
        &[Conflict::both("a", "b 2", "they do", "leave b out")],
        &[Conflict::without("c off", "a", "add a")],
    ];

    #[test]
    fn a_row_refuses_its_options_and_values_alone() {
        let checked = |text: &str| check_given(&text.parse().unwrap(), ROWS);
        for fine in [
            "",
            "a = 1",
            "b = 2",
            "a = 1\nb = 3",
            "c = true",
            "c = false\na = 1",
        ] {
            checked(fine).unwrap();
        }
        for both in ["a = 1\nb = 2", "a = 1\nb = '2'", "a = 1\nb = [1, 2]"] {
            checked(both)
                .refused("a 1 and b 2 contradict each other, because they do: leave b out");
        }
        checked("c = false").refused("c off needs a: add a");
        // A value with line breaks is left out of the message.
        checked("a = \"1\\n2\"\nb = 2").refused("a and b 2 contradict");
    }
}
