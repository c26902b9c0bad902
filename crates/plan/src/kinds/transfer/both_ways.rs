//! Pairs that move bytes in both directions at once: what `bidirectional` can be used with.

use super::options::{OperationOptions, Transfer};
use crate::point::Traffic;
use crate::refuse::usage;
use crate::roles::Roles;
use tonnage_units::Result;

/// The roles with both directions, where they were asked for.
///
/// # Errors
/// `Usage` for traffic that is not of pairs.
pub(super) fn both_ways(what: &OperationOptions, roles: Roles) -> Result<Roles> {
    if what.bidirectional && roles.traffic != Traffic::Pair {
        let name = roles.traffic.name();
        return usage(match roles.traffic {
            Traffic::AllToAll => format!(
                "bidirectional and traffic {name} contradict each other, for every rank initiates to every other already: \
                 leave bidirectional out, or use traffic pair"
            ),
            _ => format!(
                "bidirectional is about pairs, and traffic {name} has none: use traffic pair, or traffic all-to-all, in \
                 which every rank initiates"
            ),
        });
    }
    Ok(Roles {
        bidirectional: what.bidirectional,
        ..roles
    })
}

/// Refuses both directions under ping-pong, whose round trips use one direction at a time.
///
/// # Errors
/// `Usage`, with the pacings that can.
pub(super) fn check_ping_pong(transfer: &Transfer) -> Result<()> {
    if !(transfer.what.bidirectional && transfer.pacing.ping_pong) {
        return Ok(());
    }
    usage(
        "bidirectional and ping-pong contradict each other, for a round trip has one direction at a time: use window 1 or \
         batch 1, or leave bidirectional out"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::PacingOptions;

    #[test]
    fn only_pairs_have_two_directions() {
        let what = OperationOptions {
            bidirectional: true,
            ..OperationOptions::default()
        };
        for (traffic, said) in [
            (
                Traffic::AllToAll,
                "leave bidirectional out, or use traffic pair",
            ),
            (
                Traffic::FanOut,
                "traffic fan-out has none: use traffic pair",
            ),
            (Traffic::InTurn, "traffic in-turn has none"),
            (Traffic::FanIn, "traffic fan-in has none"),
        ] {
            let message = both_ways(&what, Roles::new(traffic, 4))
                .unwrap_err()
                .to_string();
            assert!(message.contains(said), "{message}");
            let without = both_ways(&OperationOptions::default(), Roles::new(traffic, 4));
            assert_eq!(without.unwrap(), Roles::new(traffic, 4));
        }
        assert!(
            both_ways(&what, Roles::new(Traffic::Pair, 4))
                .unwrap()
                .bidirectional
        );
    }

    #[test]
    fn a_round_trip_has_one_direction_at_a_time() {
        let with = |bidirectional, ping_pong| Transfer {
            what: OperationOptions {
                bidirectional,
                ..OperationOptions::default()
            },
            pacing: PacingOptions {
                ping_pong,
                ..PacingOptions::default()
            },
            ..Transfer::default()
        };
        let refused = check_ping_pong(&with(true, true)).unwrap_err().to_string();
        assert!(refused.contains("use window 1 or batch 1"), "{refused}");
        for (bidirectional, ping_pong) in [(true, false), (false, true), (false, false)] {
            assert!(check_ping_pong(&with(bidirectional, ping_pong)).is_ok());
        }
    }
}
