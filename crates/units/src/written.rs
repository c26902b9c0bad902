//! Values in a plan file. Each is a string or a number and goes through the command line's parser, so that both report
//! the same error.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::quantity::{Bytes, BytesPerSecond, Count, Fraction, Nanos, PerSecond};

/// The text of one value; a number becomes its digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueText(pub String);

/// One value, values joined by commas, or a list of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueTexts(pub Vec<ValueText>);

/// Parses a value from its text.
///
/// # Errors
/// The error of the value's own parser.
pub fn deserialize_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    let ValueText(text) = ValueText::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}

/// Serializes a number as an integer if the format's integers can hold it, and as text otherwise. Both parse back to
/// the same value.
///
/// # Errors
/// The serializer's error.
pub fn write_count<S: Serializer>(count: u64, serializer: S) -> Result<S::Ok, S::Error> {
    // TOML's integers are signed, so a count above `i64::MAX` does not fit.
    match i64::try_from(count) {
        Ok(count) => serializer.serialize_i64(count),
        Err(_) => serializer.collect_str(&count),
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = ValueText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<ValueText, E> {
        Ok(ValueText(value.to_owned()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<ValueText, E> {
        Ok(ValueText(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<ValueText, E> {
        Ok(ValueText(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<ValueText, E> {
        Ok(ValueText(value.to_string()))
    }
}

impl<'de> Deserialize<'de> for ValueText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = ValueTexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number or a list of them")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<ValueTexts, E> {
        let parts = value
            .split(',')
            .map(|part| ValueText(part.trim().to_owned()));
        Ok(ValueTexts(parts.collect()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<ValueTexts, E> {
        TextVisitor
            .visit_i64(value)
            .map(|text| ValueTexts(vec![text]))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<ValueTexts, E> {
        TextVisitor
            .visit_u64(value)
            .map(|text| ValueTexts(vec![text]))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<ValueTexts, E> {
        TextVisitor
            .visit_f64(value)
            .map(|text| ValueTexts(vec![text]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ValueTexts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = items.next_element()? {
            texts.push(text);
        }
        Ok(ValueTexts(texts))
    }
}

impl<'de> Deserialize<'de> for ValueTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

macro_rules! written {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserialize_text(deserializer)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}

written!(Bytes, Nanos, PerSecond, BytesPerSecond, Fraction);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_count(self.0, serializer)
    }
}
