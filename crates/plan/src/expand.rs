//! The points of a plan. Everything that can be known to be wrong is refused here, before a rank starts, in one
//! sentence that names the nearest valid choice. How one experiment expands is with its kind.

use std::collections::HashSet;

use crate::point::{Planned, Point, Reading};
use crate::{Experiment, Plan, connect, files, transfer};
use tonnage_engine::Lists;
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

/// The most points of one plan: more than a day at a second each.
pub const POINTS_MAX: usize = 100_000;

/// The most ranks of one run.
pub const RANKS_MAX: u32 = 65_536;

/// The most workers of one rank.
pub const WORKERS_MAX: u32 = 1024;

impl Plan {
    /// The points of the plan for a run of `ranks` ranks with these engines and memories, in the order in which they are measured:
    /// experiments as they are written. The same plan always expands to the same points.
    ///
    /// # Errors
    /// `Usage` for everything that can be found wrong without starting a rank.
    pub fn points(&self, ranks: u32, lists: &Lists) -> Result<Vec<Planned>> {
        if self.experiments.is_empty() {
            return Err(Error::Usage(
                "the plan has no experiment: add a [[transfer]] or a [[file]] table".to_owned(),
            ));
        }
        let mut planned = Vec::new();
        let mut seen = HashSet::new();
        for (index, experiment) in self.experiments.iter().enumerate() {
            let room = POINTS_MAX - planned.len();
            let expanded = experiment.points(ranks, lists, room);
            let (points, reading) = expanded.map_err(|error| self.located(index, error))?;
            for point in points {
                let text = serde_json::to_string(&point)
                    .map_err(|error| Error::Failed(format!("a point has no JSON form: {error}")))?;
                if !seen.insert(text) {
                    return Err(self.located(index, point.twice()));
                }
                let reading = reading.clone();
                planned.push(Planned { point, reading });
            }
        }
        Ok(planned)
    }

    /// Says which experiment of its kind an error is about, unless there is only one in the plan.
    fn located(&self, index: usize, error: Error) -> Error {
        match (error, self.experiments.get(index)) {
            (Error::Usage(message), Some(experiment)) if self.experiments.len() > 1 => {
                let kind = experiment.kind();
                let before = self.experiments.iter().take(index);
                let number = before.filter(|other| other.kind() == kind).count() + 1;
                let label = experiment.label();
                let label = label
                    .map(|label| format!(" ({})", quote(label)))
                    .unwrap_or_default();
                Error::Usage(format!("{kind} {number}{label}: {message}"))
            }
            (other, _) => other,
        }
    }
}

impl Experiment {
    /// Its points, at most `room`, and what stands beside the results of all of them.
    fn points(&self, ranks: u32, lists: &Lists, room: usize) -> Result<(Vec<Point>, Reading)> {
        match self {
            Self::Transfer(transfer) => {
                let points = transfer::expand::expand(transfer, ranks, lists, room)?;
                let points = points.into_iter().map(Point::Transfer).collect();
                Ok((points, Reading::default()))
            }
            Self::File(job) => {
                let (points, reading) = files::expand(job, ranks, lists, room)?;
                Ok((points.into_iter().map(Point::File).collect(), reading))
            }
            Self::Connect(connect) => {
                let points = connect::expand::expand(connect, ranks, lists, room)?;
                let points = points.into_iter().map(Point::Connect).collect();
                Ok((points, Reading::default()))
            }
        }
    }
}

impl Point {
    /// Refuses a point that is there already.
    fn twice(&self) -> Error {
        match self {
            Self::Transfer(point) => transfer::expand::twice(point),
            Self::File(point) => files::twice(point),
            Self::Connect(point) => connect::expand::twice(point),
        }
    }
}
