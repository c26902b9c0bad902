//! Writes an experiment as arguments of its command. The names and values come from the experiment's plan table.

use clap::{Arg, ArgAction, Args, Command};
use toml::Value;

use super::table::Tables;
use tonnage_units::{Error, Result};

/// Returns the arguments of `tonnage` that request an experiment, beginning with the command. Only given options
/// appear.
pub fn arguments<T: Tables + Args>(experiment: &T) -> Result<Vec<String>> {
    let cannot = |what: &dyn std::fmt::Display| {
        Error::Failed(format!("no command line asks for this experiment: {what}"))
    };
    let table = experiment.write().map_err(|error| cannot(&error))?;
    let mut command = T::augment_args(Command::new(T::KEY));
    command.build();
    let mut words = vec![T::KEY.to_owned()];
    for (key, value) in table {
        let long = |name: &str| {
            let mut known = command.get_arguments();
            known.find(|arg| arg.get_long() == Some(name))
        };
        // In a plan, the key of a repeated option may be its plural.
        let arg = long(&key).or_else(|| long(key.strip_suffix('s')?));
        let arg = arg.ok_or_else(|| cannot(&key))?;
        let option = format!("--{}", arg.get_long().unwrap_or_default());
        match value {
            Value::Boolean(true) if is_switch(arg) => words.push(option),
            Value::Boolean(false) if is_switch(arg) => {}
            Value::Boolean(is_on) => {
                words.extend([option, if is_on { "on" } else { "off" }.to_owned()]);
            }
            Value::Array(values) => {
                for value in values {
                    words.extend([option.clone(), text(value)]);
                }
            }
            Value::Table(pairs) => {
                for (name, value) in pairs {
                    words.extend([option.clone(), format!("{name}={}", text(value))]);
                }
            }
            value if arg.is_require_equals_set() => {
                words.push(format!("{option}={}", text(value)));
            }
            value => words.extend([option, text(value)]),
        }
    }
    Ok(words)
}

/// Returns whether an option takes no value.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
        || arg
            .get_num_args()
            .is_some_and(|args| args.min_values() == 0)
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Returns words quoted for a shell.
pub fn quoted(words: &[String]) -> String {
    let plain = |word: &str| {
        let harmless = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
        !word.is_empty() && word.chars().all(harmless)
    };
    let quote = |word: &String| {
        if plain(word) {
            return word.clone();
        }
        format!("'{}'", word.replace('\'', "'\\''"))
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::Transfer;

    #[test]
    fn a_command_line_repeats_the_requested_experiment() {
        let line = "transfer --engine shm,fabric:tcp --engine-option a=b --op write,read --sizes 8..64 --ping-pong \
                    --latency off --verify=each --trials 2";
        let matches = Transfer::augment_args(Command::new("transfer"))
            .try_get_matches_from(line.split_whitespace())
            .unwrap();
        let asked: Transfer = crate::options::from_command_line(&matches).unwrap();
        let words = arguments(&asked).unwrap();
        let matches = Transfer::augment_args(Command::new("transfer"))
            .try_get_matches_from(&words)
            .unwrap();
        let again: Transfer = crate::options::from_command_line(&matches).unwrap();
        assert_eq!(again, asked, "{words:?}");
        let words = words.join(" ");
        assert!(
            words.contains("--latency off") && words.contains("--verify=each"),
            "{words}"
        );
    }

    #[test]
    fn a_shell_reads_the_words_back() {
        let words = ["fabric:tcp;ofi_rxm", "it's", "", "a=b"].map(str::to_owned);
        assert_eq!(quoted(&words), "'fabric:tcp;ofi_rxm' 'it'\\''s' '' a=b");
    }
}
