//! Failure of a rank to join.

use tonnage_units::Error;

/// Reason why a rank could not join.
#[derive(Debug)]
pub(crate) struct JoinFailure {
    /// The reason.
    pub(crate) error: Error,
    /// True where rank 0 was started by a supervisor and is no more: the supervisor says of what.
    pub(crate) deserted: bool,
}

impl JoinFailure {
    /// Failure because rank 0 is no more.
    pub(crate) fn of_deserted(error: Error) -> Self {
        Self {
            error,
            deserted: true,
        }
    }
}

impl From<Error> for JoinFailure {
    fn from(error: Error) -> Self {
        Self {
            error,
            deserted: false,
        }
    }
}
