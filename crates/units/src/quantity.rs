//! Sizes, rates and times: parsed from user input, and printed so that they parse back unchanged.
//!
//! One type for each kind of quantity. `FromStr` reads user input, the same on the command line and in a plan.
//! `Display` prints the shortest text that parses back to exactly the same value. Text for tables, rounded to three
//! digits, is in [`human`]. `tonnage_plan` decides which values an option accepts.
//!
//! | kind | accepted | remark |
//! | --- | --- | --- |
//! | size | `8`, `4k`, `1M`, `1.5GiB`, `100MB` | a bare `k`, `M`, `G`, `T` and `KiB` … are powers of two; `kB`, `MB`, `GB`, `TB` are decimal |
//! | count | `128`, `200k`, `1M` | decimal: `k` is 1000, because counts of things are not addresses |
//! | duration | `10ns`, `1us`, `200ms`, `5s`, `2m`, `1h` | a unit is required, except for 0 |
//! | rate | `200000`, `200k`, `1.5M/s` | decimal, per second |
//! | bandwidth | `12.5GB/s`, `100Gb/s`, `10GiB/s` | `B` is bytes and `b` is bits |
//! | percentage | `2%` | held as a fraction |

pub mod human;
mod number;

use std::fmt;
use std::str::FromStr;

use crate::names::quote;
use crate::{Error, Result};
use number::{WholeError, scaled, split, whole};

/// A number of bytes. `k`, `K`, `M`, `G`, `T` are powers of two; `kB`, `MB`, `GB`, `TB` are decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A number of things. `k`, `M`, `G` are decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(pub u64);

/// A length of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// Operations per second. `k`, `M`, `G` are decimal.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct PerSecond(pub f64);

/// Bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct BytesPerSecond(pub f64);

/// A fraction, where 1.0 is the whole. Printed in percent.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Fraction(pub f64);

/// Unit names and their factors.
type Units = [(&'static [&'static str], u64)];

const SIZE_UNITS: &Units = &[
    (&["", "B"], 1),
    (&["k", "K", "KiB", "kiB", "Ki"], 1 << 10),
    (&["m", "M", "MiB", "Mi"], 1 << 20),
    (&["g", "G", "GiB", "Gi"], 1 << 30),
    (&["t", "T", "TiB", "Ti"], 1 << 40),
    (&["kB", "KB"], 1_000),
    (&["MB"], 1_000_000),
    (&["GB"], 1_000_000_000),
    (&["TB"], 1_000_000_000_000),
];

const COUNT_UNITS: &Units = &[
    (&[""], 1),
    (&["k", "K"], 1_000),
    (&["M"], 1_000_000),
    (&["G"], 1_000_000_000),
];

const TIME_UNITS: &Units = &[
    (&["ns"], 1),
    (&["us", "µs"], 1_000),
    (&["ms"], 1_000_000),
    (&["s"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h"], 3_600_000_000_000),
];

/// Parses a whole number that is followed by one of `units`. `what` and `examples` are for error messages.
fn parse_whole(text: &str, what: &str, examples: &str, units: &Units) -> Result<u64> {
    let wrong = |why: &str| Err(Error::Usage(format!("{} {why}: {examples}", quote(text))));
    let Some((number, unit)) = split(text) else {
        return wrong(&format!("is not a {what}"));
    };
    let Some(&(_, factor)) = units.iter().find(|(names, _)| names.contains(&unit)) else {
        let unknown = if unit.is_empty() { "no" } else { "an unknown" };
        return wrong(&format!("has {unknown} unit"));
    };
    match whole(number, factor) {
        Ok(value) => Ok(value),
        Err(WholeError::Fraction) => wrong(&format!("is not a whole {what}")),
        Err(WholeError::TooLarge) => wrong(&format!("is too large for a {what}")),
    }
}

impl FromStr for Bytes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let examples = "e.g. 8, 4k (4096), 1M, 1.5GiB or 100MB (decimal)";
        parse_whole(text, "number of bytes", examples, SIZE_UNITS).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, shift) in [("T", 40), ("G", 30), ("M", 20), ("k", 10)] {
            if self.0 != 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{name}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl FromStr for Count {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let examples = "e.g. 128, 200k (200000) or 1M (decimal)";
        parse_whole(text, "number", examples, COUNT_UNITS).map(Self)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Nanos {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // Zero is the same in every unit, and users turn warmup off with `--warmup 0`.
        if text.trim() == "0" {
            return Ok(Self(0));
        }
        let examples = "e.g. 10ns, 1us, 200ms, 5s or 2m";
        parse_whole(text, "number of nanoseconds", examples, TIME_UNITS).map(Self)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, factor): &&(_, u64)| self.0 != 0 && self.0.is_multiple_of(*factor);
        let unit = TIME_UNITS.iter().rev().find(whole);
        let (names, factor) = unit.unwrap_or(&TIME_UNITS[0]);
        write!(f, "{}{}", self.0 / factor, names[0])
    }
}

/// Parses a real number: `read` gets the number and its unit.
fn parse_real(
    text: &str,
    read: impl FnOnce(&str, &str) -> Option<f64>,
    wrong: &str,
) -> Result<f64> {
    split(text)
        .and_then(|(number, unit)| read(number, unit))
        .ok_or_else(|| Error::Usage(format!("{} {wrong}", quote(text))))
}

impl FromStr for PerSecond {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let rate = |number: &str, unit: &str| {
            let exponent = match unit.strip_suffix("/s").unwrap_or(unit) {
                "" => 0,
                "k" | "K" => 3,
                "M" => 6,
                "G" => 9,
                _ => return None,
            };
            scaled(number, exponent)
        };
        let wrong = "is not a rate: e.g. 200000, 200k or 1.5M operations per second (decimal)";
        parse_real(text, rate, wrong).map(Self)
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&number::shifted(self.0, 0))
    }
}

impl FromStr for BytesPerSecond {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = "is not a bandwidth: e.g. 12.5GB/s, 100Gb/s or 10GiB/s";
        parse_real(text, bandwidth, wrong).map(Self)
    }
}

/// Converts a number with a unit such as `GB/s` to bytes per second. `None` if the unit is unknown or the result is out
/// of range.
fn bandwidth(number: &str, unit: &str) -> Option<f64> {
    let unit = unit.strip_suffix("/s")?;
    let (prefix, per_byte) = match (unit.strip_suffix('B'), unit.strip_suffix('b')) {
        (Some(prefix), _) => (prefix, 1.0),
        (None, Some(prefix)) => (prefix, 8.0),
        (None, None) => return None,
    };
    let (exponent, factor) = match prefix {
        "" => (0, 1.0),
        "k" | "K" => (3, 1.0),
        "M" => (6, 1.0),
        "G" => (9, 1.0),
        "T" => (12, 1.0),
        "Ki" => (0, 1024.0),
        "Mi" => (0, 1024.0 * 1024.0),
        "Gi" => (0, 1024.0 * 1024.0 * 1024.0),
        _ => return None,
    };
    let value = scaled(number, exponent)? * factor / per_byte;
    value.is_finite().then_some(value)
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, exponent) = match self.0 {
            value if value >= 1e9 => ("GB/s", 9),
            value if value >= 1e6 => ("MB/s", 6),
            _ => ("B/s", 0),
        };
        write!(f, "{}{name}", number::shifted(self.0, exponent))
    }
}

impl FromStr for Fraction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let percent = |number: &str, unit: &str| scaled(number, -2).filter(|_| unit == "%");
        let wrong = "is not a percentage: e.g. 2% or 0.5%";
        parse_real(text, percent, wrong).map(Self)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", number::shifted(self.0, -2))
    }
}

#[cfg(test)]
mod tests;
