//! Options that cannot be combined, as data: each group of options has its own rows. Checks that need more than which
//! options are given are written as code.

use toml::{Table, Value};

use crate::options::Tables;
use crate::refuse::usage_error;
use tonnage_units::{Error, Result};

/// A row of the table. It names an option by its key, or by its key and a value: `latency off`. Suggestions name options
/// as they are typed: `--latency on`.
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
                "{} and {} are mutually exclusive, because {why}: {instead}",
                shown(given, one),
                shown(given, other)
            )),
            Self::Without {
                one,
                other,
                instead,
            } if is_given(given, one) && !is_given(given, other) => {
                usage_error(format!("{} needs --{other}: {instead}", shown(given, one)))
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

/// Returns an option as it is typed, followed by its value if that is a number or a short text.
fn shown(given: &Table, option: &str) -> String {
    const LONGEST: usize = 24;
    let value = match given.get(option) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Integer(_) | Value::Float(_))) => value.to_string(),
        _ => return format!("--{option}"),
    };
    let option = option.split(' ').next().unwrap_or(option);
    if value.len() > LONGEST || value.chars().any(char::is_control) {
        return format!("--{option}");
    }
    format!("--{option} {value}")
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

/// Tries every row with a command line, and takes each of its suggestions.
#[cfg(test)]
pub(crate) mod trial {
    use std::collections::VecDeque;

    use clap::Command;
    use tonnage_engine::Lists;

    use super::Conflict;
    use crate::kind::Kind;
    use crate::options::from_command_line;
    use crate::{Experiment, Plan};
    use tonnage_units::{Error, Result};

    /// Command lines of one kind.
    pub(crate) struct Lines<'a> {
        /// What every line has.
        pub(crate) base: &'a str,
        /// Words that give an option of a row, which is named as there.
        pub(crate) samples: &'a [(&'a str, &'a str)],
        pub(crate) lists: &'a Lists,
    }

    impl Lines<'_> {
        /// Each row's options must be refused together, and every suggestion in the message must be accepted.
        pub(crate) fn try_rows<T: Kind + Into<Experiment>>(&self, rows: &[&[Conflict]]) {
            for row in rows.iter().copied().flatten() {
                let (given, fault, instead) = match *row {
                    Conflict::Both {
                        one,
                        other,
                        why,
                        instead,
                    } => (
                        vec![one, other],
                        format!(" are mutually exclusive, because {why}: {instead}"),
                        instead,
                    ),
                    Conflict::Without {
                        one,
                        other,
                        instead,
                    } => (vec![one], format!(" needs --{other}: {instead}"), instead),
                };
                let samples = given
                    .iter()
                    .flat_map(|option| self.sample(option).split(' '));
                let line: Vec<_> = self.base.split(' ').chain(samples).collect();
                let message = check::<T>(&line, self.lists).unwrap_err().to_string();
                assert!(message.starts_with("--"), "{message}");
                assert!(message.ends_with(&fault), "no {fault:?}: {message}");
                for suggestion in instead.split(", or ") {
                    for line in changed(&line, &given, suggestion) {
                        check::<T>(&line, self.lists)
                            .unwrap_or_else(|error| panic!("{suggestion}: {line:?}: {error}"));
                    }
                }
            }
        }

        fn sample(&self, option: &str) -> &str {
            let known = self.samples.iter().find(|(name, _)| *name == option);
            known
                .unwrap_or_else(|| panic!("no value of {option} to try its row with"))
                .1
        }
    }

    /// Expands a command line to its points.
    fn check<T: Kind + Into<Experiment>>(line: &[&str], lists: &Lists) -> Result<()> {
        let command = T::augment_args(Command::new(T::KEY).no_binary_name(true));
        let matches = command.try_get_matches_from(line);
        let experiment = matches.and_then(|matches| from_command_line::<T>(&matches));
        let experiment = experiment.map_err(|error| Error::Failed(error.to_string()))?;
        let plan = Plan {
            experiments: vec![experiment.into()],
            ..Plan::default()
        };
        plan.points(2, lists).map(|_| ())
    }

    /// Returns a line as a suggestion changes it: `leave --a out`, `use --a 1 in place of --b`, `add --a 1`, or, in two
    /// ways, `leave one of them out`.
    fn changed<'a>(line: &[&'a str], given: &[&str], suggestion: &'a str) -> Vec<Vec<&'a str>> {
        let words: Vec<_> = suggestion.split(' ').collect();
        match words[..] {
            ["leave", "one", "of", "them", "out"] => given
                .iter()
                .map(|option| without(line, option.split(' ').next().unwrap_or(option)))
                .collect(),
            ["leave", option, "out"] => vec![without(line, &option[2..])],
            ["use" | "add", option, value, ref rest @ ..] => {
                let mut line = without(line, &option[2..]);
                if let ["in", "place", "of", old] = rest {
                    line = without(&line, &old[2..]);
                }
                line.extend([option, value]);
                vec![line]
            }
            _ => panic!("a suggestion of another form: {suggestion}"),
        }
    }

    /// Returns a line without an option and its value.
    fn without<'a>(line: &[&'a str], option: &str) -> Vec<&'a str> {
        let mut left: VecDeque<_> = line.iter().copied().collect();
        let mut kept = Vec::new();
        while let Some(word) = left.pop_front() {
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            if name.strip_prefix("--") != Some(option) {
                kept.push(word);
            } else if attached.is_none() && left.front().is_some_and(|next| !next.starts_with("--"))
            {
                left.pop_front();
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Refused;

    const ROWS: &[&[Conflict]] = &[
        &[Conflict::both("a", "b 2", "they do", "leave --b out")],
        &[Conflict::without("c off", "a", "add --a 1")],
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
                .refused("--a 1 and --b 2 are mutually exclusive, because they do: leave --b out");
        }
        checked("c = false").refused("--c off needs --a: add --a 1");
        // A value with line breaks is left out of the message.
        checked("a = \"1\\n2\"\nb = 2").refused("--a and --b 2 are mutually");
    }
}
