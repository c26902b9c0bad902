//! Placements of thread pairs on sockets, as an experiment requests them.

use crate::options::Many;
use crate::point::Traffic;
use crate::refuse::usage_error;
use crate::roles::Roles;
use tonnage_units::{PairPlace, Result};

/// Returns the placements to measure. Each of them has its own points. `None` leaves the placement to the ranks.
pub(crate) fn places(
    asked: &Option<Many<PairPlace>>,
    roles: &[Roles],
) -> Result<Vec<Option<PairPlace>>> {
    let asked = Many::all(asked);
    if asked.contains(&PairPlace::Far)
        && let Some(Roles { traffic, ranks, .. }) = roles.iter().find(|roles| !can_be_far(roles))
    {
        let how = match traffic {
            Traffic::Shift => "go round in a ring of an odd number",
            _ => "all exchange bytes with each other",
        };
        return usage_error(format!(
            "--place far and --traffic {} are mutually exclusive, because {ranks} ranks that {how} cannot all have \
             their peers on the other one of two sockets: use --traffic pair, --traffic fan-out or --traffic \
             fan-in, or --place near",
            traffic.name()
        ));
    }
    if asked.is_empty() {
        return Ok(vec![None]);
    }
    Ok(asked.iter().copied().map(Some).collect())
}

/// Returns whether the ranks can be split between two sockets so that no rank shares a socket with a peer.
fn can_be_far(roles: &Roles) -> bool {
    match roles.traffic {
        Traffic::AllToAll | Traffic::Matrix | Traffic::File => roles.ranks <= 2,
        Traffic::Shift => {
            // A shift divides the ranks into rings. A ring has as many ranks as it takes steps to return to the start.
            let steps =
                (1..=roles.ranks).find(|steps| (steps * roles.shift).is_multiple_of(roles.ranks));
            steps.is_some_and(|steps| steps % 2 == 0)
        }
        Traffic::Pair | Traffic::FanOut | Traffic::FanIn | Traffic::InTurn => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_on_two_sockets_only_where_ranks_fall_into_two_sides() {
        let far = Some(Many(vec![PairPlace::Far]));
        let is_refused = |traffic, ranks, shift| {
            let roles = Roles {
                shift,
                ..Roles::new(traffic, ranks)
            };
            places(&far, &[roles]).is_err()
        };
        for traffic in [Traffic::AllToAll, Traffic::Matrix] {
            assert!(!is_refused(traffic, 2, 1) && is_refused(traffic, 3, 1));
        }
        for (ranks, shift, refused) in [(4, 1, false), (5, 1, true), (6, 2, true), (6, 3, false)] {
            assert_eq!(
                is_refused(Traffic::Shift, ranks, shift),
                refused,
                "{ranks} {shift}"
            );
        }
        for traffic in [
            Traffic::Pair,
            Traffic::FanOut,
            Traffic::FanIn,
            Traffic::InTurn,
        ] {
            assert!(!is_refused(traffic, 6, 1));
        }
    }
}
