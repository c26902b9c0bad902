//! Lists that are repeated on the command line: `--op write --op read` means the same as `--op write,read`.
//!
//! Fields derived with clap keep only one value of a repeated option. A field with `value_delimiter = ','` is a list.
//! This module joins all values of a list, by writing them to a plan's table and reading it.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command};
use toml::de::DeTable;
use toml::{Table, Value};

use super::table::{Parsed, Source, Tables};

/// Returns the experiment that a command line requests.
pub fn from_command_line<T: Tables + Args>(matches: &ArgMatches) -> Result<T, clap::Error> {
    let read = T::from_arg_matches(matches)?;
    let mut command = T::augment_args(Command::new(T::KEY));
    // Messages show an option's full name only if the command is built.
    command.build();
    let lists = command.get_arguments().filter(|arg| is_list(arg));
    let several: Vec<(&Arg, Vec<String>)> = lists
        .map(|list| (list, given_texts(list, matches)))
        .filter(|(_, texts)| texts.len() > 1)
        .collect();
    if several.is_empty() {
        return Ok(read);
    }
    let mut table = read.write().map_err(|error| value_error(&error))?;
    for (list, texts) in several {
        let texts = texts.into_iter().map(Value::String).collect();
        table.extend(
            list.get_long()
                .map(|key| (key.to_owned(), Value::Array(texts))),
        );
        // Lists are added one at a time, so that the message can name the option.
        if let Err(error) = parse_table::<T>(&table) {
            return Err(value_error(&format!(
                "--{}: {}",
                list.get_long().unwrap_or_default(),
                error.message()
            )));
        }
    }
    parse_table(&table).map_err(|error| value_error(&error.message()))
}

/// Returns whether an option takes several values, joined by commas or repeated.
pub(super) fn is_list(arg: &Arg) -> bool {
    arg.get_value_delimiter().is_some()
}

fn given_texts(list: &Arg, matches: &ArgMatches) -> Vec<String> {
    let values = matches
        .get_raw(list.get_id().as_str())
        .into_iter()
        .flatten();
    let texts = values.map(|value| value.to_string_lossy().trim().to_owned());
    texts.collect()
}

fn parse_table<T: Tables>(table: &Table) -> Parsed<T> {
    let text = table.to_string();
    let table = DeTable::parse(&text)?;
    T::read(Source::new(table.span(), table.into_inner()))
}

fn value_error(message: &dyn std::fmt::Display) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n"))
}
