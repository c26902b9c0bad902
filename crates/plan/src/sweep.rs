//! Sweeps: the values that one option takes, one after the other.
//!
//! | text | values |
//! | --- | --- |
//! | `4096` | one value |
//! | `8..1M` | 8, 16, 32, … while at most 1 MiB |
//! | `1M..32M+1M` | 1 MiB, 2 MiB, … while at most 32 MiB |
//! | `1..1000*10` | 1, 10, 100, 1000 |
//! | `8..64,100,1k` | several of these, joined by commas |
//!
//! Numbers are sizes as in [`Bytes`]: `k` is 1024, even in a sweep over a depth or a batch. A sweep is always finite
//! and short. When the plan is expanded, each option checks its values.

use std::fmt;
use std::str::FromStr;

use crate::refuse::usage_error;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use tonnage_units::Bytes;
use tonnage_units::names::quote;
use tonnage_units::written::{ValueText, ValueTexts};
use tonnage_units::{Error, Result};

/// Maximum number of values of one sweep. Each value is a point that takes about a second.
pub const VALUES_MAX: usize = 4096;

/// The values of one option, and the text that they came from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sweep {
    text: String,
    values: Vec<u64>,
}

impl Sweep {
    /// A sweep of one value.
    pub fn single(value: u64) -> Self {
        Self {
            text: Bytes(value).to_string(),
            values: vec![value],
        }
    }

    /// The values in the order in which they were written. Never empty for a sweep that was parsed.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Returns the requested values, or the default.
    pub(crate) fn values_or(asked: &Option<Self>, default: u64) -> Vec<u64> {
        asked
            .as_ref()
            .map_or_else(|| vec![default], |sweep| sweep.values.clone())
    }

    /// A sweep over these values.
    pub fn from_values(values: &[u64]) -> Result<Self> {
        let texts: Vec<_> = values
            .iter()
            .map(|&value| Bytes(value).to_string())
            .collect();
        texts.join(",").parse()
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Writes a single value as an integer if its text is the plain number, and everything else as text.
impl Serialize for Sweep {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.text.parse::<i64>() {
            Ok(value) if value.to_string() == self.text => serializer.serialize_i64(value),
            _ => serializer.serialize_str(&self.text),
        }
    }
}

/// Accepts `"8..1M"`, `4096` or `[64, "4k"]`.
impl<'de> Deserialize<'de> for Sweep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let ValueTexts(texts) = ValueTexts::deserialize(deserializer)?;
        let texts: Vec<_> = texts.into_iter().map(|ValueText(text)| text).collect();
        texts.join(",").parse().map_err(de::Error::custom)
    }
}

impl FromStr for Sweep {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut values = Vec::new();
        for part in text.split(',') {
            let values_max = VALUES_MAX - values.len();
            part_values(&text, part, values_max, &mut values)?;
        }
        let mut sorted = values.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let value = Bytes(twice[0]);
            return usage_error(format!(
                "the sweep {} has {value} twice: leave one of them out",
                quote(&text)
            ));
        }
        Ok(Self { text, values })
    }
}

/// Step of a range from one value to the next.
#[derive(Debug, Clone, Copy)]
enum RangeStep {
    Add(u64),
    Multiply(u64),
}

impl RangeStep {
    fn next_value(self, value: u64) -> Option<u64> {
        match self {
            Self::Add(step) => value.checked_add(step),
            Self::Multiply(factor) => value.checked_mul(factor),
        }
    }
}

/// Appends the values of one comma-separated part, at most `values_max`.
fn part_values(text: &str, part: &str, values_max: usize, values: &mut Vec<u64>) -> Result<()> {
    let Some((first, rest)) = part.split_once("..") else {
        if part.is_empty() {
            return Err(empty_part(text));
        }
        if values_max == 0 {
            return Err(too_many(text));
        }
        values.push(part.parse::<Bytes>()?.0);
        return Ok(());
    };
    let (first, last, step) = range(part, first, rest)?;
    let mut next = Some(first);
    let start = values.len();
    while let Some(value) = next.filter(|&value| value <= last) {
        if values.len() - start == values_max {
            return Err(too_many_in_range(text, part, first, last, step));
        }
        values.push(value);
        next = step.next_value(value);
    }
    Ok(())
}

/// Returns the first value, last value and step of `first..rest`, after checking that the range ends.
fn range(part: &str, first: &str, rest: &str) -> Result<(u64, u64, RangeStep)> {
    let (last, sign, step) = match rest.find(['+', '*']) {
        Some(at) => (&rest[..at], &rest[at..=at], &rest[at + 1..]),
        None => (rest, "*", "2"),
    };
    if first.is_empty() || last.is_empty() || step.is_empty() {
        return usage_error(format!(
            "the range {} is not complete: e.g. 8..1M, 1M..32M+1M or 1..1000*10",
            quote(part)
        ));
    }
    let first = first.parse::<Bytes>()?;
    let last = last.parse::<Bytes>()?;
    let step = step.parse::<Bytes>()?.0;
    let step = if sign == "+" {
        RangeStep::Add(step)
    } else {
        RangeStep::Multiply(step)
    };
    let endless = |why: String, instead: String| {
        usage_error(format!("the range {} {why}: use {instead}", quote(part)))
    };
    if last < first {
        let why = format!("never reaches its end, because {last} is less than {first}");
        return endless(why, format!("{last}..{first}"));
    }
    match step {
        RangeStep::Add(0) => {
            let step = Bytes(first.0.max(1));
            endless(
                "never ends, because its step is 0".into(),
                format!("{first}..{last}+{step}"),
            )
        }
        RangeStep::Multiply(factor) if factor < 2 => {
            let first = Bytes(first.0.max(1));
            let last = last.max(first);
            endless(
                format!("never ends, because its factor is {factor}"),
                format!("{first}..{last}*2"),
            )
        }
        RangeStep::Multiply(_) if first.0 == 0 => {
            let last = last.max(Bytes(1));
            endless(
                "never ends, because 0 multiplied stays 0".into(),
                format!("1..{last}"),
            )
        }
        step => Ok((first.0, last.0, step)),
    }
}

fn empty_part(text: &str) -> Error {
    Error::Usage(if text.is_empty() {
        "a sweep needs at least one value, and one on each side of a comma: e.g. 8..1M, 1M..32M+1M, 1..1000*10 or \
         64,4096"
            .into()
    } else {
        format!(
            "the sweep {} has a comma without a value next to it: e.g. 64,4096",
            quote(text)
        )
    })
}

fn too_many(text: &str) -> Error {
    Error::Usage(format!(
        "the sweep {} has more than {VALUES_MAX} values: leave some out",
        quote(text)
    ))
}

/// Error for a range with too many values. Suggests a larger step that fits.
fn too_many_in_range(text: &str, part: &str, first: u64, last: u64, step: RangeStep) -> Error {
    if part != text || matches!(step, RangeStep::Multiply(_)) {
        return too_many(text);
    }
    let step = (last - first).div_ceil(VALUES_MAX as u64 - 1);
    Error::Usage(format!(
        "the sweep {} has more than {VALUES_MAX} values: use {}..{}+{} or a larger step",
        quote(text),
        Bytes(first),
        Bytes(last),
        Bytes(step)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Holds;

    use proptest::prelude::*;

    fn values(text: &str) -> Vec<u64> {
        text.parse::<Sweep>().unwrap().values().to_vec()
    }

    fn message(text: &str) -> String {
        text.parse::<Sweep>().unwrap_err().to_string()
    }

    #[test]
    fn the_grammar_of_the_module_head() {
        assert_eq!(values("4096"), [4096]);
        assert_eq!(values("8..64"), [8, 16, 32, 64]);
        assert_eq!(values("8..100"), [8, 16, 32, 64]);
        assert_eq!(values("8..1M").len(), 18);
        assert_eq!(values("1M..32M+1M").len(), 32);
        assert_eq!(values("1..1000*10"), [1, 10, 100, 1000]);
        assert_eq!(values("8..64,100,1k"), [8, 16, 32, 64, 100, 1024]);
        assert_eq!(values("64, 4096"), [64, 4096]);
        assert_eq!(values("1..32768").len(), 16);
        assert_eq!(values("7..7"), [7]);
        assert_eq!(values("0..4+2"), [0, 2, 4]);
        assert_eq!(values("1..18446744073709551615").len(), 64);
        assert_eq!(values("100MB"), [100_000_000]);
        let printed = "8..64, 1k".parse::<Sweep>().unwrap().to_string();
        assert_eq!(printed, "8..64,1k");
    }

    #[test]
    fn an_invalid_sweep_is_refused_with_the_nearest_valid_one() {
        for (text, part) in [
            ("8..64+0", "never ends, because its step is 0: use 8..64+8"),
            (
                "8..64*1",
                "never ends, because its factor is 1: use 8..64*2",
            ),
            ("0..8", "never ends, because 0 multiplied stays 0: use 1..8"),
            (
                "1M..8",
                "never reaches its end, because 8 is less than 1M: use 8..1M",
            ),
            ("0..0*0", "use 1..1*2"),
            (
                "1..1M+1",
                "has more than 4096 values: use 1..1M+257 or a larger step",
            ),
            (
                "1..4096+1,5000",
                "has more than 4096 values: leave some out",
            ),
            ("1..3000+1,4000..8000+1", "values: leave some out"),
            ("1..18446744073709551615+1", "has more than 4096 values"),
            ("", "on each side of a comma: e.g. 8..1M"),
            (
                "64,,4096",
                "has a comma without a value next to it: e.g. 64,4096",
            ),
            ("8...64", "e.g. 8, 4k"),
            ("8..64..128", "e.g. 8, 4k"),
            ("8..=64", "e.g. 8, 4k"),
            ("eight", "\"eight\" is not a number of bytes"),
            (
                "8..64,64",
                "the sweep \"8..64,64\" has 64 twice: leave one of them out",
            ),
        ] {
            message(text).holds(part);
        }
        for text in ["8..", "..8", "..", "8..64+", "8..64*", "8..+1"] {
            message(text).holds("is not complete: e.g. 8..1M");
        }
        assert_eq!(values("1..1M+257").len(), 4081);
        assert_eq!(values("1..4096+1").len(), 4096);
    }

    /// Checks what must hold for every text that parses as a sweep.
    fn check(text: &str) -> std::result::Result<(), TestCaseError> {
        let Ok(sweep) = text.parse::<Sweep>() else {
            return Ok(());
        };
        prop_assert!(!sweep.values().is_empty());
        prop_assert!(sweep.values().len() <= VALUES_MAX);
        prop_assert_eq!(&sweep.to_string().parse::<Sweep>().unwrap(), &sweep);
        if !sweep.to_string().contains(',') {
            prop_assert!(sweep.values().windows(2).all(|pair| pair[0] < pair[1]));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            check(&text)?;
        }

        #[test]
        fn near_sweeps_are_bounded_and_ascending(
            text in "[0-9]{1,4}[kM]?(\\.\\.[0-9]{1,20}[kMG]?([+*][0-9]{1,3}k?)?)?(,[0-9]{1,3}){0,3}"
        ) {
            check(&text)?;
        }

        #[test]
        fn a_linear_sweep_is_what_it_says(first in 0u64..1000, step in 1u64..100, count in 1u64..50) {
            let text = format!("{first}..{}+{step}", first + step * (count - 1));
            let expected: Vec<_> = (0..count).map(|index| first + step * index).collect();
            prop_assert_eq!(values(&text), expected);
        }
    }
}
