//! Options that are text in plans, by `#[serde(with = "text")]`, although records store their values in another form.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Deserializer;
use serde::ser::Serializer;
use tonnage_units::written;

/// Writes the value as text, which reads back as the same value.
pub fn serialize<S: Serializer, T: Display>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// Reads a text or a number.
pub fn deserialize<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: Display,
{
    written::deserialize_text(deserializer).map(Some)
}
