//! Failures of workers. One failure has others behind it: a worker that is killed makes the calls of all others fail,
//! and one that hangs makes them hang. All ranks are told the first.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_ranks::Rank;
use tonnage_units::{Error, Reduce, Result};

/// Distance of a failure from the cause, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Nearness {
    /// The run was ended.
    Run,
    /// The process ended or was stopped.
    Ended,
    /// A call raised an exception, or the system refused something.
    Raised,
    /// An order was not done in time.
    Overdue,
    /// Something is not installed.
    Missing,
}

/// Failure of this rank's worker.
#[derive(Debug)]
pub struct WorkerFailure {
    /// Its place among those of all ranks.
    pub nearness: Nearness,
    /// The failure, without the rank.
    pub error: Error,
}

impl WorkerFailure {
    pub(super) fn new(nearness: Nearness, error: Error) -> Self {
        Self { nearness, error }
    }
}

impl From<Error> for WorkerFailure {
    /// Whatever the rank itself failed at.
    fn from(error: Error) -> Self {
        let nearness = match error {
            Error::Unavailable { .. } => Nearness::Missing,
            _ => Nearness::Raised,
        };
        Self { nearness, error }
    }
}

impl From<WorkerFailure> for Error {
    fn from(failure: WorkerFailure) -> Self {
        failure.error
    }
}

/// A rank's failure on its way to all others.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    nearness: Nearness,
    rank: u32,
}

impl Reduce for Told {
    fn merge(&mut self, other: Self) {
        if (other.nearness, other.rank) < (self.nearness, self.rank) {
            *self = other;
        }
    }
}

/// Gives every rank the failure that is nearest to the cause, of the lowest rank that has one; all are in step
/// afterwards. `deadline` has to be longer than what the slowest rank may take.
pub fn agree<T>(
    rank: &mut Rank,
    what: &str,
    mine: Result<T, WorkerFailure>,
    deadline: Duration,
) -> Result<T> {
    let told = mine.as_ref().err().map(|failure| Told {
        nearness: failure.nearness,
        rank: rank.id(),
    });
    // Two steps, so that only the text that is needed travels.
    let first = rank.reduce(what, told, deadline)?;
    let speaks = first.map(|told| told.rank);
    let (value, said) = match mine {
        Ok(value) => (Some(value), Ok(())),
        Err(failure) if speaks == Some(rank.id()) => (None, Err(failure.error)),
        Err(_) => (None, Ok(())),
    };
    rank.agree(what, said, deadline)?;
    value.ok_or_else(|| Error::Failed(format!("\"{what}\" failed, and no rank says why")))
}
