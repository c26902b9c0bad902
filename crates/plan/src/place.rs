//! Places of pairs that an experiment is measured in.

use crate::options::Many;
use crate::point::Traffic;
use crate::refuse::usage;
use crate::roles::Roles;
use tonnage_units::{PairPlace, Result};

/// The places to measure in, each with points of its own; `None` leaves it to the ranks.
///
/// # Errors
/// `Usage` for far pairs among ranks that are no pairs.
pub(crate) fn places(
    asked: &Option<Many<PairPlace>>,
    roles: &[Roles],
) -> Result<Vec<Option<PairPlace>>> {
    let asked = asked.as_ref().map_or(&[][..], Many::values);
    let triangle = |roles: &&Roles| roles.traffic == Traffic::AllToAll && roles.ranks > 2;
    if asked.contains(&PairPlace::Far)
        && let Some(Roles { ranks, .. }) = roles.iter().find(triangle)
    {
        return usage(format!(
            "place far and traffic all-to-all contradict each other, for {ranks} ranks that all exchange bytes with each \
             other cannot be on two sockets: use traffic pair, fan-out or fan-in, or place near"
        ));
    }
    if asked.is_empty() {
        return Ok(vec![None]);
    }
    Ok(asked.iter().copied().map(Some).collect())
}
