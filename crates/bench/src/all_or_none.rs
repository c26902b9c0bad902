//! A value that a rank has made for itself, once all ranks have made theirs.

use crate::deadlines::DEADLINES;
use tonnage_ranks::Rank;
use tonnage_units::{Error, Result};

/// Returns this rank's value where every rank has one; otherwise all ranks stop alike.
///
/// # Errors
/// The first failing rank's reason.
pub(crate) fn all_or_none<T>(rank: &mut Rank, what: &str, mine: Result<T>) -> Result<T> {
    match mine {
        Ok(value) => rank.agree(what, Ok(()), DEADLINES.step).map(|()| value),
        Err(error) => match rank.agree(what, Err(error), DEADLINES.step) {
            Err(error) => Err(error),
            Ok(()) => Err(Error::Failed(format!(
                "{what}: this rank failed and the others did not hear of it"
            ))),
        },
    }
}
