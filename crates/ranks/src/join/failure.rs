//! Failure of a rank to join.

use tonnage_units::Error;

/// Reason why a rank could not join.
#[derive(Debug)]
pub(crate) struct JoinFailure {
    /// The reason.
    pub(crate) error: Error,
    /// True where it is said: by rank 0, before it tells all that are joining, or by the supervisor of a rank 0 that is
    /// no more.
    pub(crate) is_told: bool,
}

impl JoinFailure {
    /// Failure that is said, or will be by the supervisor.
    pub(crate) fn told(error: Error) -> Self {
        Self {
            error,
            is_told: true,
        }
    }

    /// Failure that rank 0 has told the rank `me` of. One that is about this rank alone rank 0 says only where the run
    /// fails by it, and not to who comes too late.
    pub(crate) fn heard(error: Error, me: u32) -> Self {
        let is_own = matches!(&error, Error::Rank { rank, .. } if *rank == me);
        Self {
            error,
            is_told: !is_own,
        }
    }
}

impl From<Error> for JoinFailure {
    fn from(error: Error) -> Self {
        Self {
            error,
            is_told: false,
        }
    }
}
