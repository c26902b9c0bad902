//! Adds to the help of options: names to choose from, and defaults.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use crate::refuse::usage_error;
use clap::builder::{PossibleValue, StyledStr, TypedValueParser};
use clap::{Arg, ArgAction, Command};
use tonnage_units::Error;
use tonnage_units::names::{Named, quote, unknown_name_error};

use super::many::Many;
use super::repeated::is_list;
use super::table::{Group, given_options, keys};

/// Reads `on` or `off`.
pub fn on_off(text: &str) -> Result<bool, Error> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => usage_error(format!(
            "{} is neither on nor off: use on or off",
            quote(text)
        )),
    }
}

/// Reads one of the names of `T`, and lists them in the help.
pub fn one_of<T: Named>() -> Names<T, T> {
    Names(|_| true, PhantomData)
}

/// Reads one of those names of `T` for which `takes` returns true, and lists only these in the help.
pub fn one_of_these<T: Named>(takes: fn(&T) -> bool) -> Names<T, T> {
    Names(takes, PhantomData)
}

/// Reads names of `T` joined by commas, and lists them in the help.
pub fn many_of<T: Named>() -> Names<T, Many<T>> {
    Names(|_| true, PhantomData)
}

/// Reads a `V` that is written with names of `T`. The function selects the names that the option accepts.
pub struct Names<T, V>(fn(&T) -> bool, PhantomData<fn() -> V>);

impl<T, V> Clone for Names<T, V> {
    fn clone(&self) -> Self {
        Self(self.0, PhantomData)
    }
}

impl<T, V> TypedValueParser for Names<T, V>
where
    T: Named,
    V: FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    type Value = V;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<V, clap::Error> {
        let takes = self.0;
        let read = move |text: &str| {
            let taken = T::CHOICES.iter().filter(|(choice, ..)| takes(choice));
            let names: Vec<_> = taken.map(|(_, name, _)| *name).collect();
            let mut taken = T::CHOICES.iter().zip(T::ALIASES);
            let is_alias =
                taken.any(|((choice, ..), others)| takes(choice) && others.contains(&text));
            if names.len() < T::CHOICES.len() && !names.contains(&text) && !is_alias {
                return Err(unknown_name_error(T::WHAT, text, &names));
            }
            text.parse()
        };
        read.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let taken = T::CHOICES.iter().filter(|(choice, ..)| self.0(choice));
        Some(Box::new(taken.map(|(_, name, about)| {
            PossibleValue::new(*name).help(about.trim().trim_end_matches('.').to_owned())
        })))
    }
}

/// Placeholder in the help for the value of an option that takes a sweep.
pub const SWEEP: &str = "SWEEP";

/// Adds a group's default to the help of an option, reads a sweep as a list, and lets lists be repeated. Used as
/// `#[command(mut_args = with_default::<Self>)]`.
pub fn with_default<T: Group>(arg: Arg) -> Arg {
    declared(arg, keys::<T>(), || {
        given_options(&T::defaults(), &[]).unwrap_or_default()
    })
}

fn declared(arg: Arg, keys: &[&str], defaults: fn() -> toml::Table) -> Arg {
    let key = arg.get_id().as_str().replace('_', "-");
    if !keys.contains(&key.as_str()) {
        return arg;
    }
    let is_sweep = arg.get_value_names().is_some_and(|names| names == [SWEEP]);
    let arg = if is_sweep {
        arg.allow_hyphen_values(true).value_delimiter(',')
    } else {
        arg
    };
    let arg = if is_list(&arg) {
        arg.action(ArgAction::Append)
    } else {
        arg
    };
    let defaults = defaults();
    let Some(default) = defaults.get(&key) else {
        return arg;
    };
    let default = default
        .as_str()
        .map_or_else(|| default.to_string(), str::to_owned);
    // clap removes the full stop at the end of the help text.
    let with = |help: &StyledStr| format!("{help}. [default: {default}]");
    let (short, long) = (arg.get_help().map(with), arg.get_long_help().map(with));
    let arg = arg.help(short.unwrap_or_default());
    match long {
        Some(long) => arg.long_help(long),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_on_or_off() {
        assert_eq!(
            (on_off("on").unwrap(), on_off("off").unwrap()),
            (true, false)
        );
        let message = on_off("yes").unwrap_err().to_string();
        assert!(message.contains("use on or off"), "{message}");
    }
}
