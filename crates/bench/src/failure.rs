//! The extent of a failure (a point or the whole run), and how it is recorded.

use std::time::{Duration, Instant};

use crate::deadlines::DEADLINES;
use tonnage_ranks::Rank;
use tonnage_record::Outcome;
use tonnage_units::message::truncate_message;
use tonnage_units::{Error, Result};

/// The extent of a failure.
#[derive(Debug)]
pub enum StepFailure {
    /// The point failed on all ranks. The next point can be measured.
    Point(Error),
    /// The run cannot continue.
    Run(Error),
}

impl From<Error> for StepFailure {
    fn from(error: Error) -> Self {
        Self::Run(error)
    }
}

impl StepFailure {
    /// Classifies a failure that all ranks know of. If the run was stopped, the run failed, otherwise only the point.
    pub fn from_agreed(rank: &Rank, error: Error) -> Self {
        match rank.why_stopped() {
            Some(_) => Self::Run(error),
            None => Self::Point(error),
        }
    }
}

/// Returns this rank's value if every rank has a value. Otherwise every rank gets the failure of the first rank that
/// failed. Afterwards, all ranks continue at the same step.
///
/// # Errors
/// [`StepFailure::Point`] when a rank failed, [`StepFailure::Run`] when the run was stopped.
pub fn agree<T>(
    rank: &mut Rank,
    what: &str,
    mine: Result<T>,
    deadline: Duration,
) -> Result<T, StepFailure> {
    let agreed = all_or_none_within(rank, what, mine, deadline);
    agreed.map_err(|error| StepFailure::from_agreed(rank, error))
}

/// Returns this rank's value if every rank has a value. Otherwise the call fails on all ranks.
pub(crate) fn all_or_none<T>(rank: &mut Rank, what: &str, mine: Result<T>) -> Result<T> {
    all_or_none_within(rank, what, mine, DEADLINES.step)
}

fn all_or_none_within<T>(
    rank: &mut Rank,
    what: &str,
    mine: Result<T>,
    deadline: Duration,
) -> Result<T> {
    let (value, mine) = match mine {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err(error)),
    };
    rank.agree(what, mine, deadline)?;
    value.ok_or_else(|| {
        Error::Failed(format!(
            "{what}: this rank failed, but the other ranks were not informed"
        ))
    })
}

/// Converts the error of a point to an outcome. The outcome is "skipped" if a resource or time was missing, and
/// "failed" for any other error.
pub fn outcome(error: &Error) -> Outcome {
    let why = truncate_message(&error.to_string()).into_owned();
    match error {
        Error::Unavailable { .. } | Error::TimeLimit(_) => Outcome::Skipped { why },
        _ => Outcome::Failed { why },
    }
}

/// Waits briefly for the cause of a failure. If a rank dies, the engines of its peers fail at once. The control channel
/// reports the death a little later, and explains more than an engine's error.
pub fn await_first_cause(rank: &Rank) {
    let since = Instant::now();
    while rank.why_stopped().is_none() && since.elapsed() < DEADLINES.cause {
        std::thread::sleep(Duration::from_millis(5));
    }
}
