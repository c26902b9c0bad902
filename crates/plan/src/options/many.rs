//! Lists of values.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use tonnage_units::written::{ValueText, ValueTexts};

use crate::refuse::usage_error;

/// Several values of one option: `a,b` on the command line; `"a"`, `"a,b"` or `["a", "b"]` in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Many<T>(pub Vec<T>);

impl<T> Many<T> {
    /// The values, in the order in which they were written.
    pub fn values(&self) -> &[T] {
        &self.0
    }

    /// Returns the values of an optional list. The result is empty if the option is not given.
    pub fn all(asked: &Option<Self>) -> &[T] {
        asked.as_ref().map_or(&[], Self::values)
    }
}

/// Returns the values of a list; `None` if the option is not given. Refuses an empty list; `such` is an example value
/// for the message.
pub(crate) fn several<'a, T>(
    option: &str,
    asked: &'a Option<Many<T>>,
    such: &str,
) -> tonnage_units::Result<Option<&'a [T]>> {
    match asked.as_ref().map(Many::values) {
        Some([]) => usage_error(format!(
            "--{option} is empty: leave it out, or use --{option} {such}"
        )),
        asked => Ok(asked),
    }
}

impl<T> From<Vec<T>> for Many<T> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T: FromStr> FromStr for Many<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.split(',').map(|part| part.trim().parse()).collect()
    }
}

impl<T> FromIterator<T> for Many<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<T: fmt::Display> Serialize for Many<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.values() {
            [one] => serializer.collect_str(one),
            many => serializer.collect_seq(many.iter().map(T::to_string)),
        }
    }
}

impl<'de, T> Deserialize<'de> for Many<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ValueTexts(texts) = ValueTexts::deserialize(deserializer)?;
        // A list with one text is printed as that text. Both forms must therefore mean the same: values joined by
        // commas.
        let lists = texts.iter().map(|ValueText(text)| text.parse());
        let lists: Vec<Self> = lists.collect::<Result<_, _>>().map_err(de::Error::custom)?;
        Ok(lists.into_iter().flat_map(|Self(values)| values).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, to_string};

    #[test]
    fn printed_lists_read_back_in_every_form() {
        for text in [
            r#""a""#,
            r#""a, b""#,
            r#"["a", "b"]"#,
            r#"["a,b"]"#,
            r#"[" a"]"#,
            r#"["a,b", "c"]"#,
            "[]",
        ] {
            let many: Many<String> = from_str(text).unwrap();
            let printed = to_string(&many).unwrap();
            assert_eq!(from_str::<Many<String>>(&printed).unwrap(), many, "{text}");
        }
        let many: Many<String> = from_str(r#"["a,b", " c"]"#).unwrap();
        assert_eq!(many.values(), ["a", "b", "c"]);
    }
}
