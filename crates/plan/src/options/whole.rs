//! Texts that may hold commas, by `#[serde(with = "whole")]`: `"a"` or `["a", "b"]` in a plan, repeated on the command
//! line.

use std::fmt;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// Writes one text, or a list.
///
/// # Errors
/// What the format says.
pub fn serialize<S: Serializer>(texts: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    match texts {
        [one] => serializer.serialize_str(one),
        many => many.serialize(serializer),
    }
}

/// Reads one text, or a list.
///
/// # Errors
/// For anything else.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_any(WholeVisitor)
}

struct WholeVisitor;

impl<'de> Visitor<'de> for WholeVisitor {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Vec<String>, E> {
        Ok(vec![value.to_owned()])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<String>, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = items.next_element()? {
            texts.push(text);
        }
        Ok(texts)
    }
}
