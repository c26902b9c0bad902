//! The body of a search: every candidate that was tried, and the command line of the winner.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_engine::Verb;
use tonnage_plan::tune::TunePoint;

use crate::body::{KindBody, Part, PointOptions};
use crate::histogram::Latency;
use crate::transfer::TransferBody;

/// A search as it was asked for, and what came out of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneBody {
    /// The point that was asked for.
    pub point: TunePoint,
    /// From the first race to the end.
    pub elapsed_ns: u64,
    /// Candidates in the order of the races.
    pub tried: Vec<TuneTry>,
    /// The end of the search; absent where it did not come to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<TuneWinner>,
}

impl TuneBody {
    /// A point before anything was tried.
    pub fn new(point: TunePoint) -> Self {
        Self {
            point,
            elapsed_ns: 0,
            tried: Vec::new(),
            winner: None,
        }
    }

    /// Returns whether nothing of it could be measured: no candidate did more than be refused.
    pub fn is_refused(&self) -> bool {
        let mut tried = self.tried.iter();
        self.winner.is_none() && tried.all(|it| it.outcome == TuneOutcome::Refused)
    }

    /// The candidate that a part is.
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
    /// Pass over the dimensions, from 1.
    pub pass: u32,
    /// Option whose values competed.
    pub dimension: String,
    /// Its value, as a command line says it; `default` where it says nothing.
    pub value: String,
    /// Trials of it.
    pub rounds: u32,
    /// Figure of the goal in these: bytes per second, operations per second, or nanoseconds. Their geometric mean
    /// without the fifth of them at either end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_mean: Option<f64>,
    /// Comparison with the winner of the race; absent for the winner, and where they had too few rounds in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<TuneGain>,
    /// End of the candidate.
    pub outcome: TuneOutcome,
    /// Reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Parts by which a candidate was better than the winner of its race in the rounds that both had; negative where it was
/// worse.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneGain {
    /// Geometric mean of the ratios without the fifth of them at either end, less 1.
    pub mean: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
}

tonnage_units::names! {
    /// End of a candidate.
    pub enum TuneOutcome: "end of a candidate" {
        /// It won its race.
        Won = "won",
        /// It is worse than the winner.
        Worse = "worse",
        /// It is dearer than the winner, and at most 3 % better.
        AsGood = "as-good",
        /// It may be better than the winner, or as good and cheaper.
        Tied = "not-told-apart",
        /// It was left out early, for it was worse than another value, or as good and dearer; beside the winner it had
        /// too few rounds to tell.
        LeftOut = "left-out",
        /// It could not be measured.
        Refused = "refused",
        /// The search ended before the race did.
        Unfinished = "unfinished",
    }
}

/// The end of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneWinner {
    /// The command line that repeats it.
    pub command: String,
    /// The winner's last run, after the races, with the last visit of each slot checked.
    #[cfg_attr(feature = "schema", schemars(extend("unevaluatedProperties" = false)))]
    pub run: TransferBody,
}

/// The parts of a record are its candidates.
impl KindBody for TuneBody {
    fn options(&self) -> PointOptions<'_> {
        let point = &self.point;
        PointOptions {
            memory: Some(&point.memory),
            ..PointOptions::new(
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
