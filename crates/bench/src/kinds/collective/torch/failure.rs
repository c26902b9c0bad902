//! Failures of workers. One failure causes others. If a worker is killed, the calls of all other workers fail. If it
//! hangs, their calls hang too. Every rank reports the failure that is closest to the cause.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_ranks::Rank;
use tonnage_units::{Error, Reduce, Result};

/// How close a failure is to the original cause. The closest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CauseDistance {
    /// The run was stopped.
    Run,
    /// The process ended, or a signal stopped it (SIGSTOP).
    Ended,
    /// A call raised an exception, or a system call failed.
    Raised,
    /// The worker did not complete an order in time.
    Overdue,
    /// A requirement is not installed.
    Missing,
}

/// A failure of this rank's worker.
#[derive(Debug)]
pub struct WorkerFailure {
    pub nearness: CauseDistance,
    /// The error, which does not name the rank.
    pub error: Error,
}

impl WorkerFailure {
    pub(super) fn new(nearness: CauseDistance, error: Error) -> Self {
        Self { nearness, error }
    }
}

impl From<Error> for WorkerFailure {
    /// Classifies an error of the rank itself.
    fn from(error: Error) -> Self {
        let nearness = match error {
            Error::Unavailable { .. } => CauseDistance::Missing,
            _ => CauseDistance::Raised,
        };
        Self { nearness, error }
    }
}

impl From<WorkerFailure> for Error {
    fn from(failure: WorkerFailure) -> Self {
        failure.error
    }
}

/// A rank's failure, as it is sent to all other ranks. The failure closest to the cause wins.
#[derive(Debug, Serialize, Deserialize)]
struct RankFailure {
    nearness: CauseDistance,
    rank: u32,
}

impl Reduce for RankFailure {
    fn merge(&mut self, other: Self) {
        if (other.nearness, other.rank) < (self.nearness, self.rank) {
            *self = other;
        }
    }
}

/// Gives every rank the failure that is closest to the cause. If several are equally close, the lowest rank's failure
/// wins. Afterwards, all ranks continue at the same step. `deadline` must exceed the time that the slowest rank may
/// take.
pub fn agree<T>(
    rank: &mut Rank,
    what: &str,
    mine: Result<T, WorkerFailure>,
    deadline: Duration,
) -> Result<T> {
    let failure = mine.as_ref().err().map(|failure| RankFailure {
        nearness: failure.nearness,
        rank: rank.id(),
    });
    // First the ranks determine whose failure is closest. Then only that rank sends its message text.
    let first = rank.reduce(what, failure, deadline)?;
    let reporting_rank = first.map(|failure| failure.rank);
    let (value, outcome) = match mine {
        Ok(value) => (Some(value), Ok(())),
        Err(failure) if reporting_rank == Some(rank.id()) => (None, Err(failure.error)),
        Err(_) => (None, Ok(())),
    };
    rank.agree(what, outcome, deadline)?;
    value.ok_or_else(|| Error::Failed(format!("\"{what}\" failed, but no rank reported the cause")))
}
