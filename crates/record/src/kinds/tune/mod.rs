//! The body of a search: all candidates that were tried, and the winner's command line.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_engine::Verb;
use tonnage_plan::tune::TunePoint;

use crate::body::{CommonOptions, KindBody, Part};
use crate::histogram::Latency;
use crate::transfer::TransferBody;

/// A search: the point and its results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneBody {
    /// The requested point.
    pub point: TunePoint,
    /// Time from the start of the first race to the end of the search.
    pub elapsed_ns: u64,
    /// Candidates, in the order of the races.
    pub tried: Vec<TuneTry>,
    /// The result of the search; absent if it did not finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<TuneWinner>,
}

impl TuneBody {
    /// Creates the body of a point before any candidate is tried.
    pub fn new(point: TunePoint) -> Self {
        Self {
            point,
            elapsed_ns: 0,
            tried: Vec::new(),
            winner: None,
        }
    }

    /// Returns whether every candidate was refused, so that nothing could be measured.
    pub fn is_refused(&self) -> bool {
        let mut tried = self.tried.iter();
        self.winner.is_none() && tried.all(|it| it.outcome == TuneOutcome::Refused)
    }

    /// Returns the candidate of a part.
    pub fn candidate(&self, part: Part) -> Option<&TuneTry> {
        match part {
            Part::Nth(at) => self.tried.get(at),
            Part::Whole | Part::Inside(..) => None,
        }
    }
}

/// One candidate of one race.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneTry {
    /// Number of the pass in which the race took place, starting at 1. Each pass goes over all options.
    pub pass: u32,
    /// The option that was varied.
    pub dimension: String,
    /// Value of the option, as on a command line; `default` if the option is not given.
    pub value: String,
    /// Number of trials of the candidate.
    pub rounds: u32,
    /// Mean of the search's goal in these trials: bytes per second, operations per second, or nanoseconds. It is a
    /// geometric mean without the lowest and the highest fifth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_mean: Option<f64>,
    /// Comparison with the winner of the race. Absent for the winner itself, and if both have too few rounds in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<TuneGain>,
    /// Outcome of the candidate.
    pub outcome: TuneOutcome,
    /// Reason for a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Relative improvement of a candidate over the winner of its race, in the rounds that both took part in. Negative if
/// the candidate is worse.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneGain {
    /// Geometric mean of the ratios, without the lowest and the highest fifth, minus 1.
    pub mean: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end of the 95 % confidence interval.
    pub high: f64,
}

tonnage_units::names! {
    /// Outcome of a candidate.
    pub enum TuneOutcome: "end of a candidate" {
        /// The candidate won its race.
        Won = "won",
        /// The candidate is worse than the winner.
        Worse = "worse",
        /// The candidate is costlier than the winner, and at most 3 % better.
        AsGood = "as-good",
        /// The candidate may be better than the winner, or as good and cheaper.
        Tied = "not-told-apart",
        /// The candidate was left out early, because it was worse than another value, or as good and costlier. Its
        /// rounds were too few for a comparison with the winner.
        LeftOut = "left-out",
        /// The candidate could not be measured.
        Refused = "refused",
        /// The search ended before the end of the race.
        Unfinished = "unfinished",
    }
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneWinner {
    /// The command line that repeats the winner's run.
    pub command: String,
    /// Results of the winner's last run, after the races. The last visit of each slot was verified.
    #[cfg_attr(feature = "schema", schemars(extend("unevaluatedProperties" = false)))]
    pub run: TransferBody,
}

/// The parts of a record are its candidates.
impl KindBody for TuneBody {
    fn options(&self) -> CommonOptions<'_> {
        let point = &self.point;
        CommonOptions {
            memory: Some(&point.memory),
            ..CommonOptions::new(
                &point.label,
                &point.engine,
                &point.engine_options,
                point.ranks,
            )
        }
    }

    fn verb(&self, _: Part) -> Option<Verb> {
        Some(self.point.op)
    }

    fn parts(&self) -> Vec<Part> {
        match self.tried.len() {
            0 => vec![Part::Whole],
            tried => (0..tried).map(Part::Nth).collect(),
        }
    }

    fn measured_ns(&self, _: Part) -> u64 {
        self.elapsed_ns
    }

    fn trials(&self, _: Part) -> Option<u32> {
        None
    }

    fn latency(&self, _: Part) -> Option<&Latency> {
        None
    }
}
