//! `NAME=VALUE` options: repeated on the command line, one table in a plan, by `#[serde(with = "pairs")]`.

use std::collections::BTreeMap;

use crate::refuse::usage_error;
use serde::de::{Deserialize, Deserializer};
use serde::ser::Serializer;
use tonnage_units::Error;
use tonnage_units::names::quote;
use tonnage_units::written::ValueText;

/// A name and its value.
pub type Pair = (String, String);

/// Reads one option of an engine. Expansion of the plan checks whether the engine has this option.
pub fn engine_option(text: &str) -> Result<Pair, Error> {
    pair(text, "is not an option of an engine: use NAME=VALUE")
}

/// Reads one option of a memory. Expansion of the plan checks whether the memory has this option.
pub fn memory_option(text: &str) -> Result<Pair, Error> {
    pair(text, "is not an option of a memory: use NAME=VALUE")
}

/// Reads one hint. The name is not checked, because only the library knows which hints exist.
pub fn hint(text: &str) -> Result<Pair, Error> {
    pair(
        text,
        "is not a hint: use NAME=VALUE, such as romio_cb_write=disable",
    )
}

fn pair(text: &str, wrong: &str) -> Result<Pair, Error> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => usage_error(format!("{} {wrong}", quote(text))),
    }
}

/// Returns the values by name. If a name is repeated, its last value counts.
pub fn map(pairs: &[Pair]) -> BTreeMap<String, String> {
    pairs.iter().cloned().collect()
}

/// Writes pairs as a table.
pub fn serialize<S: Serializer>(pairs: &[Pair], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map(pairs))
}

/// Reads pairs from a table, with numbers converted to text.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Pair>, D::Error> {
    let values = BTreeMap::<String, ValueText>::deserialize(deserializer)?;
    let plain = values
        .into_iter()
        .map(|(name, ValueText(value))| (name, value));
    Ok(plain.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_two_sides() {
        assert_eq!(hint("a=b=c").unwrap(), ("a".to_owned(), "b=c".to_owned()));
        for wrong in ["", "a", "a=", "=b"] {
            let message = engine_option(wrong).unwrap_err().to_string();
            assert!(message.ends_with("use NAME=VALUE"), "{message}");
            let message = memory_option(wrong).unwrap_err().to_string();
            assert!(message.contains("not an option of a memory"), "{message}");
            let message = hint(wrong).unwrap_err().to_string();
            assert!(message.contains("romio_cb_write=disable"), "{message}");
        }
    }
}
