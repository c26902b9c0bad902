//! Deserializing what people write: each value is a number or a text in a plan file, and is read by the same parser
//! as on the command line, so that both say the same when it is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::sweep::Sweep;
use tonnage_units::Count;
use tonnage_units::Error;

/// The text of one value, a number turned into its digits.
struct Text(String);

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Text, E> {
        Ok(Text(value.to_owned()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

/// One value or a list of them.
struct Texts(Vec<Text>);

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number or a list of them")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Texts, E> {
        Ok(Texts(
            value
                .split(',')
                .map(|part| Text(part.trim().to_owned()))
                .collect(),
        ))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Texts, E> {
        Ok(Texts(vec![Text(value.to_string())]))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Texts, E> {
        Ok(Texts(vec![Text(value.to_string())]))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Texts, E> {
        Ok(Texts(vec![Text(value.to_string())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = items.next_element()? {
            texts.push(text);
        }
        Ok(Texts(texts))
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

/// A value that may be absent, by way of `#[serde(default)]`.
pub(super) fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = Error>,
{
    let Text(text) = Text::deserialize(deserializer)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

/// A count that may be absent and fits a `u32`.
pub(super) fn optional_u32<'de, D>(deserializer: D) -> Result<Option<u32>, D::Error>
where
    D: Deserializer<'de>,
{
    let count: Option<Count> = optional(deserializer)?;
    let narrow = |count: Count| {
        u32::try_from(count.0).map_err(|_| de::Error::custom(format!("{count} is far too many")))
    };
    count.map(narrow).transpose()
}

/// A list: `"shm"`, `"null,shm"` or `["null", "shm"]`.
pub(super) fn one_or_many<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    let Texts(texts) = Texts::deserialize(deserializer)?;
    texts
        .iter()
        .map(|Text(text)| text.parse().map_err(de::Error::custom))
        .collect()
}

/// A sweep: `"8..1M"`, `4096` or `[64, "4k"]`.
pub(super) fn sweep<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sweep, D::Error> {
    let Texts(texts) = Texts::deserialize(deserializer)?;
    let texts: Vec<_> = texts.into_iter().map(|Text(text)| text).collect();
    texts.join(",").parse().map_err(de::Error::custom)
}

/// A sweep that may be absent, by way of `#[serde(default)]`.
pub(super) fn optional_sweep<'de, D>(deserializer: D) -> Result<Option<Sweep>, D::Error>
where
    D: Deserializer<'de>,
{
    sweep(deserializer).map(Some)
}

/// Texts that may hold commas: `"a"` or `["a", "b"]`.
pub(super) fn whole_texts<'de, D>(deserializer: D) -> Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(WholeTextsVisitor)
}

struct WholeTextsVisitor;

impl<'de> Visitor<'de> for WholeTextsVisitor {
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

/// A table of values by name, numbers turned into their digits.
pub(super) fn by_name<'de, D>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    let values = BTreeMap::<String, Text>::deserialize(deserializer)?;
    let plain = values.into_iter().map(|(name, Text(value))| (name, value));
    Ok(plain.collect())
}
