//! Which ranks initiate: the combined meaning of `traffic`, `initiators`, `target-shift` and `bidirectional`.

use super::options::{OperationOptions, TRAFFIC_DEFAULT};
use super::point::{Pacing, TransferPoint};
use crate::bounds::RANKS_MAX;
use crate::conflicts::Conflict;
use crate::point::{MatrixRounds, Traffic};
use crate::refuse::usage_error;
use crate::roles::Roles;
use crate::sweep::Sweep;
use tonnage_units::{Count, Result};

/// Returns the roles to measure, one for each number of initiators. Each role has its own points.
pub(super) fn roles(what: &OperationOptions, ranks: u32) -> Result<Vec<Roles>> {
    let traffic = match what.traffic_file {
        Some(_) => Traffic::File,
        None => what.traffic.unwrap_or(TRAFFIC_DEFAULT),
    };
    let own = Roles::new(traffic, ranks);
    check_ranks(ranks)?;
    let own = with_matrix_rounds(what, with_shift(what, with_both_directions(what, own)?)?)?;
    let Some(asked) = &what.initiators else {
        check_even(own)?;
        return Ok(vec![with_target_shift(what, own)?]);
    };
    let with = |&asked: &u64| {
        let initiators = Some(initiators(own, asked)?);
        with_target_shift(what, Roles { initiators, ..own })
    };
    asked.values().iter().map(with).collect()
}

/// Reduces the initiators and the target shift of a plan that was written for more ranks.
pub(super) fn fit_to_ranks(what: &mut OperationOptions, ranks: u32) {
    let Some(asked) = &what.initiators else {
        return;
    };
    let most = u64::from(ranks.saturating_sub(1).max(1));
    let mut fitting: Vec<u64> = asked
        .values()
        .iter()
        .map(|&count| count.min(most))
        .collect();
    fitting.dedup();
    let fewest_targets = fitting
        .iter()
        .map(|&count| u64::from(ranks).saturating_sub(count))
        .min();
    if let (Some(Count(shift)), Some(targets)) = (what.target_shift, fewest_targets) {
        let turned = shift.min(targets.saturating_sub(1));
        what.target_shift = (turned > 0).then_some(Count(turned));
    }
    // A list of valid values stays valid.
    what.initiators = Sweep::from_values(&fitting)
        .ok()
        .or_else(|| what.initiators.take());
}

fn check_ranks(ranks: u32) -> Result<()> {
    if ranks < 2 {
        let has = if ranks == 1 {
            "there is one"
        } else {
            "there are none"
        };
        return usage_error(format!(
            "a transfer needs two ranks and {has}: use --ranks 2"
        ));
    }
    if ranks > RANKS_MAX {
        return usage_error(format!(
            "{ranks} ranks are too many: the most is --ranks {RANKS_MAX}"
        ));
    }
    Ok(())
}

/// Maximum number of ranks of a matrix with one round per pair. There are then about a million rounds.
const ALONE_RANKS_MAX: u32 = 1024;

/// Returns the roles with the requested shift.
fn with_shift(what: &OperationOptions, roles: Roles) -> Result<Roles> {
    let Some(Count(shift)) = what.shift else {
        return Ok(roles);
    };
    if roles.traffic != Traffic::Shift {
        return usage_error(format!(
            "--shift {shift} applies to --traffic shift, and --traffic is {}: leave --shift out, or use --traffic \
             shift",
            roles.traffic.name()
        ));
    }
    match u32::try_from(shift) {
        Ok(narrow) if (1..roles.ranks).contains(&narrow) => Ok(Roles {
            shift: narrow,
            ..roles
        }),
        _ => {
            let ranks = u64::from(roles.ranks);
            let near = match shift % ranks {
                0 => 1,
                near => near,
            };
            let why = match shift % ranks {
                0 => "brings each rank to itself",
                _ => "goes round",
            };
            usage_error(format!(
                "--shift {shift} among {ranks} ranks {why}: use a shift from 1 to {}, such as --shift {near}",
                ranks - 1
            ))
        }
    }
}

/// Returns the roles with the requested rounds of a matrix.
fn with_matrix_rounds(what: &OperationOptions, roles: Roles) -> Result<Roles> {
    let is_matrix = roles.traffic == Traffic::Matrix;
    if let Some(rounds) = what.matrix.filter(|_| !is_matrix) {
        return usage_error(format!(
            "--matrix {} applies to --traffic matrix, and --traffic is {}: leave --matrix out, or use --traffic \
             matrix",
            rounds.name(),
            roles.traffic.name()
        ));
    }
    let matrix = what.matrix.unwrap_or(MatrixRounds::Alone);
    if is_matrix && matrix == MatrixRounds::Alone && roles.ranks > ALONE_RANKS_MAX {
        return usage_error(format!(
            "a matrix of {} ranks would have {} rounds of one pair each: use --matrix disjoint, or --ranks \
             {ALONE_RANKS_MAX} at most",
            roles.ranks,
            roles.round_count()
        ));
    }
    Ok(Roles { matrix, ..roles })
}

/// Refuses pairs among an odd number of ranks, which would leave one out.
fn check_even(roles: Roles) -> Result<()> {
    let Roles { traffic, ranks, .. } = roles;
    if traffic != Traffic::Pair || ranks.is_multiple_of(2) {
        return Ok(());
    }
    usage_error(format!(
        "--traffic pair needs an even number of ranks and there are {ranks}: use --ranks {}, --initiators {}, or \
         another pattern such as --traffic fan-out",
        ranks + 1,
        ranks / 2
    ))
}

/// Returns the requested number of initiators. Refuses a number that leaves no rank as a target.
fn initiators(roles: Roles, asked: u64) -> Result<u32> {
    let Roles { traffic, ranks, .. } = roles;
    if !matches!(traffic, Traffic::Pair | Traffic::FanIn) {
        return usage_error(format!(
            "--initiators {asked} and --traffic {name} are mutually exclusive, because {who}: leave --initiators \
             out, or use --traffic pair, or --traffic fan-in",
            name = traffic.name(),
            who = match traffic {
                Traffic::FanOut | Traffic::InTurn => "rank 0 alone initiates",
                _ => "every rank initiates",
            }
        ));
    }
    match u32::try_from(asked) {
        Ok(0) => usage_error("--initiators 0 would move nothing: the fewest is --initiators 1"),
        Ok(narrow) if narrow < ranks => Ok(narrow),
        _ => usage_error(format!(
            "--initiators {asked} leave none of {ranks} ranks to be their target: use --initiators {} or less, or \
             use --ranks {}",
            ranks - 1,
            asked.saturating_add(1)
        )),
    }
}

/// Returns the roles with their targets rotated as requested. Refuses a rotation by the number of targets or more.
fn with_target_shift(what: &OperationOptions, roles: Roles) -> Result<Roles> {
    let Some(Count(shift)) = what.target_shift else {
        return Ok(roles);
    };
    if roles.traffic != Traffic::Pair {
        return usage_error(format!(
            "--target-shift {shift} turns the targets of pairs, and --traffic {} has none: leave --target-shift \
             out, or use --traffic pair",
            roles.traffic.name()
        ));
    }
    let (initiators, targets) = roles.pair_sides();
    match u32::try_from(shift) {
        Ok(target_shift) if target_shift < targets => Ok(Roles {
            target_shift,
            ..roles
        }),
        _ if targets == 1 => usage_error(format!(
            "--target-shift {shift} changes nothing if {initiators} initiators have one target: leave \
             --target-shift out, or use --ranks {}",
            roles.ranks + 1
        )),
        _ => usage_error(format!(
            "--target-shift {shift} wraps around among {targets} targets: use --target-shift {} or less",
            targets - 1
        )),
    }
}

/// Refuses ranks that would have two roles. In a ping-pong, one side begins and the other answers, so no rank can do
/// both. A ping-pong of reads has no answers.
pub(super) fn check_sides(point: &TransferPoint) -> Result<()> {
    let (op, traffic) = (point.op, point.roles.traffic);
    if point.pacing == Pacing::PingPong && !op.returns_bytes() && point.roles.all_initiate() {
        return usage_error(format!(
            "--ping-pong with --op {op} and --traffic {traffic} are mutually exclusive, because every rank would \
             both begin and answer: use --traffic pair, --traffic fan-out or --traffic fan-in, or --op read, which \
             needs no answer"
        ));
    }
    Ok(())
}

/// Returns the roles with both directions if these were requested.
pub(super) fn with_both_directions(what: &OperationOptions, roles: Roles) -> Result<Roles> {
    if what.bidirectional && roles.traffic != Traffic::Pair {
        let name = roles.traffic.name();
        return usage_error(match roles.traffic {
            Traffic::AllToAll => format!(
                "--bidirectional and --traffic {name} are mutually exclusive, because every rank already initiates \
                 to every other: leave --bidirectional out, or use --traffic pair"
            ),
            _ => format!(
                "--bidirectional is about pairs, and --traffic {name} has none: use --traffic pair, or --traffic \
                 all-to-all, in which every rank initiates"
            ),
        });
    }
    Ok(Roles {
        bidirectional: what.bidirectional,
        ..roles
    })
}

pub(super) const CONFLICTS: &[Conflict] = &[Conflict::both(
    "bidirectional",
    "ping-pong",
    "a round trip has one direction at a time",
    "use --depth 1 in place of --ping-pong, or leave --bidirectional out",
)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options};

    #[test]
    fn each_number_of_initiators_has_roles_of_its_own() {
        let found = |lines, ranks| roles(&options(lines), ranks).unwrap();
        let fan_in = found("traffic = 'fan-in'\ninitiators = '1,4,8'", 9);
        let numbers: Vec<_> = fan_in
            .iter()
            .map(|roles| roles.initiating_ranks().0)
            .collect();
        assert_eq!(numbers, [1, 4, 8]);
        let shifted = found("initiators = 2\ntarget-shift = 1", 4)[0];
        assert_eq!((shifted.initiators, shifted.target_shift), (Some(2), 1));
        assert_eq!(found("", 4), [Roles::new(Traffic::Pair, 4)]);
        assert!(found("bidirectional = true", 4)[0].bidirectional);
    }

    #[test]
    fn impossible_numbers_are_refused_with_the_nearest_choice() {
        for (lines, part) in cases([
            "initiators = 0 => the fewest is --initiators 1",
            "initiators = '1,4' => use --initiators 3 or less, or use --ranks 5",
            "initiators = '8T' => leave none of 4 ranks",
            "traffic = 'fan-in'; initiators = 4 => use --initiators 3 or less",
            "traffic = 'fan-out'; initiators = 1 => rank 0 alone initiates",
            "traffic = 'all-to-all'; initiators = 1 => every rank initiates",
            "traffic = 'fan-in'; initiators = 1; target-shift = 1 => leave --target-shift out",
            "initiators = 1; target-shift = 3 => among 3 targets: use --target-shift 2 or less",
            "target-shift = 2 => use --target-shift 1 or less",
            "initiators = '1,3'; target-shift = 1 => 3 initiators have one target",
            "traffic = 'all-to-all'; bidirectional = true => leave --bidirectional out, or use --traffic pair",
            "traffic = 'fan-out'; bidirectional = true => --traffic fan-out has none: use --traffic pair",
            "traffic = 'in-turn'; bidirectional = true => traffic in-turn has none",
            "traffic = 'fan-in'; bidirectional = true => traffic fan-in has none",
        ]) {
            roles(&options(lines), 4).refused(part);
        }
    }
}
