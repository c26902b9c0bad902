//! Parts of points that several kinds share, and facts that accompany a point. A point is one cell of a sweep, with
//! every value fixed. Records repeat it word for word, and `--resume` compares it to find out which points are already
//! measured. Points themselves are with their kinds, in [`crate::kinds`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::published::PublishedTable;
use crate::refuse::usage_error;
use tonnage_units::names::quote;
use tonnage_units::{BytesPerSecond, Error, Result};

/// Returns whether a value is the default, which records leave out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Facts for readers of a point's results. They do not change the measurement, so `--resume` does not compare them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PointNotes {
    /// Whether the point is skipped, without failing the run, if the machine lacks something that it needs.
    pub optional: bool,
    /// Published figures for the same options, to compare with. Only phases of files have them.
    pub published: Vec<Published>,
    /// Tables of published figures, for all points of the experiment.
    pub tables: Arc<[PublishedTable]>,
    /// A rank that needs this much longer than the mean is reported as an outlier. `None` chooses the threshold
    /// automatically.
    pub outlier_ns: Option<u64>,
}

tonnage_units::names! {
    /// Traffic pattern between ranks. An initiator posts the operations; for a read the bytes flow towards it.
    pub enum Traffic: "traffic pattern" {
        /// Rank i with rank i + N/2, so that N is even.
        Pair = "pair",
        /// Rank 0 to every other rank at once.
        FanOut = "fan-out",
        /// Rank 0 to every other rank, one after the other.
        InTurn = "in-turn",
        /// Every other rank to rank 0 at once.
        FanIn = "fan-in",
        /// Every rank to every other.
        AllToAll = "all-to-all",
        /// Every rank to the rank K places after it, at once.
        Shift = "shift",
        /// Every rank to every other, pair after pair.
        Matrix = "matrix",
        /// Every pair moves the number of bytes that a file gives.
        File = "file",
    }
}

tonnage_units::names! {
    /// Rounds of a matrix.
    pub enum MatrixRounds: "matrix round", default Alone {
        /// Each ordered pair has a round for itself.
        Alone = "alone",
        /// Pairs that have no rank in common share a round.
        Disjoint = "disjoint",
    }
}

tonnage_units::names! {
    /// One part of an experiment, with its own figures.
    pub enum Phase: "phase" {
        /// All transfers are writes.
        Write = "write",
        /// All transfers are reads.
        Read = "read",
        /// A fixed percentage of the transfers are reads, and the rest are writes.
        Mixed = "mixed",
    }
}

impl Phase {
    /// Returns whether the phase has reads.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Returns whether the phase has writes.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Figures that others measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// Phase that the figures are of.
    pub phase: Phase,
    /// Bandwidth in MiB/s, as IOR prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_mib_per_s: Option<f64>,
    /// Transfers per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations_per_s: Option<f64>,
    /// Number of ranks, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// This figure in percent of an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent_of_earlier: Option<f64>,
    /// The machine and the test that the figures are from.
    pub what: String,
}

/// Choice of the upper bound to compare the bandwidth with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum BoundChoice {
    /// The engine's own bound, measured with the point.
    Auto,
    /// None is measured and utilization is not reported.
    None,
    /// The user states it.
    Stated {
        /// Bytes per second.
        bytes_per_s: f64,
    },
}

impl FromStr for BoundChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => match text.parse() {
                Ok(BytesPerSecond(bytes_per_s)) if bytes_per_s > 0.0 => {
                    Ok(Self::Stated { bytes_per_s })
                }
                _ => usage_error(format!(
                    "{} is not a bound: use auto, none or a bandwidth above 0 such as 12.5GB/s or 100Gb/s",
                    quote(text)
                )),
            },
        }
    }
}

impl fmt::Display for BoundChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Stated { bytes_per_s } => BytesPerSecond(*bytes_per_s).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Refused;

    #[test]
    fn a_bound_reads_back_and_is_above_0() {
        for text in ["auto", "none", "12.5GB/s", "3MB/s"] {
            assert_eq!(text.parse::<BoundChoice>().unwrap().to_string(), text);
        }
        let none = "0GB/s".parse::<BoundChoice>();
        none.refused("use auto, none or a bandwidth above 0");
    }
}
