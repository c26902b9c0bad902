//! Rounds beside those of the trials: of the ranks of a traffic file, which all move their bytes in round 0, each pair
//! has a round for itself too.

use std::ops::Range;

use super::matrix;

/// The round of a pair.
pub(super) fn round(ranks: u32, (from, to): (u32, u32)) -> u32 {
    let others = ranks.saturating_sub(1);
    1 + from * others + to - u32::from(to > from)
}

/// The pair of such a round.
pub(super) fn pair(ranks: u32, round: u32) -> Option<(u32, u32)> {
    matrix::alone(ranks, round.checked_sub(1)?)
}

/// The place, among the targets of a rank, of the one that such a round is towards.
pub(super) fn place(ranks: u32, (rank, round): (u32, u32)) -> Range<usize> {
    let target = pair(ranks, round).filter(|(from, _)| *from == rank);
    place_among_others(rank, target.map(|(_, to)| to))
}

/// The place of a target among the others of a rank.
pub(super) fn place_among_others(rank: u32, target: Option<u32>) -> Range<usize> {
    let place = target.map(|target| (target - u32::from(target > rank)) as usize);
    place.map_or(0..0, |place| place..place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_a_round_beside_that_of_all() {
        let (ranks, mut rounds) = (4, Vec::new());
        for from in 0..ranks {
            let targets: Vec<u32> = (0..ranks).filter(|&to| to != from).collect();
            for &to in &targets {
                let round = round(ranks, (from, to));
                rounds.push(round);
                assert_eq!(pair(ranks, round), Some((from, to)));
                assert_eq!(targets[place(ranks, (from, round))], [to]);
                assert_eq!(place(ranks, (to, round)), 0..0);
            }
        }
        rounds.sort_unstable();
        assert!(rounds.into_iter().eq(1..13));
        assert_eq!((pair(ranks, 0), pair(ranks, 13)), (None, None));
    }
}
