//! Values of file experiments that are written as one word.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::point::{DataKind, Phase};
use crate::options::Many;
use crate::refuse::usage_error;
use tonnage_units::names::quote;
use tonnage_units::written;
use tonnage_units::{Count, Fraction};
use tonnage_units::{Error, Result};

/// Phases after which bytes are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verify {
    /// After the last phase.
    Last,
    /// After each of these.
    After(Vec<Phase>),
}

/// Number of storage targets over which new files are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StripeCount {
    /// All targets of the file system.
    All,
    /// This many targets.
    Targets(u32),
}

/// Distance from a reading rank to the rank that wrote its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadShift {
    /// This many ranks.
    Ranks(u64),
    /// This many nodes. When the ranks have joined, they agree on the number of ranks per node.
    Nodes(u64),
}

/// Reads `random` or `compressible=30%`.
impl FromStr for DataKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "random" {
            return Ok(Self::Random);
        }
        let part = text.strip_prefix("compressible=");
        let Some(Ok(Fraction(part))) = part.map(str::parse) else {
            return usage_error(format!(
                "{} is not a kind of data: use random, or compressible=30%",
                quote(text)
            ));
        };
        let percent = (part * 100.0).round();
        if !(1.0..=99.0).contains(&percent) || (part * 100.0 - percent).abs() > 1e-9 {
            return usage_error(format!(
                "--data {} makes no sense: use compressible=1% to compressible=99% in whole percent, or random",
                quote(text)
            ));
        }
        Ok(Self::Compressible {
            percent: percent as u32,
        })
    }
}

impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Compressible { percent } => write!(f, "compressible={percent}%"),
        }
    }
}

impl FromStr for StripeCount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "all" {
            return Ok(Self::All);
        }
        let targets = text.parse().ok().and_then(|Count(count)| {
            let narrow = u32::try_from(count).ok();
            narrow.filter(|&targets| targets > 0)
        });
        targets.map(Self::Targets).ok_or_else(|| {
            Error::Usage(format!(
                "{} is not a stripe count: use a number from 1, or all",
                quote(text)
            ))
        })
    }
}

impl fmt::Display for StripeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Targets(targets) => write!(f, "{targets}"),
        }
    }
}

/// Reads a number of ranks, `node`, or `nodes=2`.
impl FromStr for ReadShift {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Usage(format!(
                "{} is not a read shift: use a number of ranks such as 1, node, or nodes=2",
                quote(text)
            ))
        };
        if text == "node" {
            return Ok(Self::Nodes(1));
        }
        match text.strip_prefix("nodes=") {
            None => text
                .parse()
                .map(|Count(ranks)| Self::Ranks(ranks))
                .map_err(|_| wrong()),
            Some(nodes) => match nodes.parse() {
                Ok(Count(nodes)) if nodes > 0 => Ok(Self::Nodes(nodes)),
                _ => Err(wrong()),
            },
        }
    }
}

impl fmt::Display for ReadShift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks(ranks) => Count(*ranks).fmt(f),
            Self::Nodes(1) => f.write_str("node"),
            Self::Nodes(nodes) => write!(f, "nodes={}", Count(*nodes)),
        }
    }
}

/// Writes a number of ranks as a number, and nodes as text.
impl Serialize for ReadShift {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Ranks(ranks) => written::write_count(*ranks, serializer),
            Self::Nodes(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for ReadShift {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        written::deserialize_text(deserializer)
    }
}

impl Serialize for Verify {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Last => serializer.serialize_bool(true),
            Self::After(phases) => Many::from(phases.clone()).serialize(serializer),
        }
    }
}

/// Reads `last`, or phases joined by commas.
impl FromStr for Verify {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "last" {
            return Ok(Self::Last);
        }
        let phases = text.split(',').map(|phase| phase.trim().parse());
        phases.collect::<Result<_>>().map(Self::After)
    }
}

/// Reads `verify = true`, or the phases after which to verify, as a text or a list.
pub(super) fn verify<'de, D>(deserializer: D) -> std::result::Result<Option<Verify>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(VerifyVisitor)
}

struct VerifyVisitor;

impl<'de> Visitor<'de> for VerifyVisitor {
    type Value = Option<Verify>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or the phases after which bytes are checked")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<Self::Value, E> {
        Ok(value.then_some(Verify::Last))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<Self::Value, E> {
        value.parse().map(Some).map_err(de::Error::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut items: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut phases = Vec::new();
        while let Some(phase) = items.next_element::<Phase>()? {
            phases.push(phase);
        }
        match phases.is_empty() {
            true => Err(de::Error::custom(
                "--verify needs a phase: use true, or a phase such as \"write\"",
            )),
            false => Ok(Some(Verify::After(phases))),
        }
    }
}
