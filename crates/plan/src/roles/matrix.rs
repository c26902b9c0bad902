//! Rounds of a matrix. Each ordered pair of ranks is in exactly one round, either alone or together with pairs that
//! share no rank with it. Each rank computes its own part of a round without listing the other pairs.
//!
//! Disjoint rounds are a round-robin tournament by the circle method. Of m players (m even), the last meets player k in
//! meeting k. Two other players meet when the sum of their numbers is 2k modulo m - 1. Each meeting is two rounds, one
//! for each direction. An odd number of ranks gets a dummy player, and the rank that meets the dummy rests.

use crate::point::MatrixRounds;

/// Number of rounds of a matrix of `ranks` ranks, at least 1.
pub(super) fn rounds(kind: MatrixRounds, ranks: u32) -> u32 {
    let rounds = match kind {
        MatrixRounds::Alone => ranks.saturating_mul(ranks.saturating_sub(1)),
        MatrixRounds::Disjoint => 2 * (padded_ranks(ranks) - 1),
    };
    rounds.max(1)
}

/// Returns the pair of a round, if each round has exactly one pair.
pub(super) fn pair_alone(ranks: u32, round: u32) -> Option<(u32, u32)> {
    let others = ranks.checked_sub(1).filter(|&others| others > 0)?;
    let (from, place) = (round / others, round % others);
    (from < ranks).then_some((from, place + u32::from(place >= from)))
}

/// Returns the target of a rank in a round, if the rank initiates.
pub(super) fn target(kind: MatrixRounds, ranks: u32, (rank, round): (u32, u32)) -> Option<u32> {
    match kind {
        MatrixRounds::Alone => {
            let (from, to) = pair_alone(ranks, round)?;
            (from == rank).then_some(to)
        }
        MatrixRounds::Disjoint => {
            let partner = partner(ranks, (rank, round / 2))?;
            let is_first = rank < partner;
            (is_first == round.is_multiple_of(2)).then_some(partner)
        }
    }
}

/// Returns the rank that initiates towards `rank` in a round, if any.
pub(super) fn initiator(kind: MatrixRounds, ranks: u32, (rank, round): (u32, u32)) -> Option<u32> {
    match kind {
        MatrixRounds::Alone => {
            let (from, to) = pair_alone(ranks, round)?;
            (to == rank).then_some(from)
        }
        MatrixRounds::Disjoint => {
            let partner = partner(ranks, (rank, round / 2))?;
            (target(kind, ranks, (partner, round)) == Some(rank)).then_some(partner)
        }
    }
}

/// Number of players of the tournament: even, and at least 2.
fn padded_ranks(ranks: u32) -> u32 {
    ranks.max(2).next_multiple_of(2)
}

/// Returns the rank that `rank` meets; `None` if it rests.
fn partner(ranks: u32, (rank, meeting): (u32, u32)) -> Option<u32> {
    let others = padded_ranks(ranks) - 1;
    let partner = if rank == others {
        meeting
    } else if rank == meeting {
        others
    } else {
        let sum = u64::from(meeting) * 2 + u64::from(others) - u64::from(rank);
        (sum % u64::from(others)) as u32
    };
    (partner < ranks).then_some(partner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_ordered_pair_has_one_round_and_disjoint_ones_share_it() {
        for ranks in 2..18 {
            for (kind, expected) in [
                (MatrixRounds::Alone, ranks * (ranks - 1)),
                (
                    MatrixRounds::Disjoint,
                    if ranks % 2 == 0 {
                        2 * (ranks - 1)
                    } else {
                        2 * ranks
                    },
                ),
            ] {
                assert_eq!(rounds(kind, ranks), expected);
                let mut all = BTreeSet::new();
                for round in 0..expected {
                    let mut busy = BTreeSet::new();
                    for rank in 0..ranks {
                        let Some(to) = target(kind, ranks, (rank, round)) else {
                            continue;
                        };
                        assert_eq!(initiator(kind, ranks, (to, round)), Some(rank));
                        assert!(busy.insert(rank) && busy.insert(to), "{ranks} {round}");
                        assert!(all.insert((rank, to)), "{rank} to {to} again");
                    }
                    let pairs = match kind {
                        MatrixRounds::Alone => 1,
                        MatrixRounds::Disjoint => ranks / 2,
                    };
                    assert_eq!(busy.len() as u32, 2 * pairs);
                }
                assert_eq!(all.len() as u32, ranks * (ranks - 1));
            }
        }
    }
}
