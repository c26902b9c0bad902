//! Rounds and ranks that stand for all of them, where a limit cannot be measured in each.

use super::Roles;
use crate::point::Traffic;
use tonnage_engine::pattern::{GOLDEN, mix};

impl Roles {
    /// All rounds, or one at random of each of so many equal parts: every so many rounds would meet the same targets
    /// again.
    pub fn sampled_rounds(self, most: u32) -> impl Iterator<Item = u32> {
        let all = u64::from(self.rounds());
        let count = all.min(most.max(1).into());
        let of_part = move |at: u64| {
            let (first, end) = (at * all / count, (at + 1) * all / count);
            first + mix((at + 1).wrapping_mul(GOLDEN)) % (end - first)
        };
        (0..count).map(move |at| of_part(at) as u32)
    }

    /// Returns whether a rank is one of those whose copies add up to a limit: all that initiate, and of those that take
    /// turns as many as initiate at once.
    pub fn stands_for_a_round(self, rank: u32) -> bool {
        match self.traffic {
            Traffic::Matrix => rank < self.initiating_at_once(),
            _ => self.initiates(rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::point::MatrixRounds;

    #[test]
    fn a_sample_has_many_targets_initiators_and_both_directions() {
        for ranks in (2..200).chain([256, 512, 1000, 1024]) {
            for matrix in MatrixRounds::ALL {
                let roles = Roles {
                    matrix,
                    ..Roles::new(Traffic::Matrix, ranks)
                };
                let rounds: Vec<u32> = roles.sampled_rounds(32).collect();
                assert_eq!(rounds.len() as u32, roles.rounds().min(32));
                let pairs: Vec<_> = rounds
                    .iter()
                    .flat_map(|&round| roles.pairs_of_round(round))
                    .collect();
                let several = |of: fn(&(u32, u32)) -> u32| {
                    let known: BTreeSet<u32> = pairs.iter().map(of).collect();
                    known.len() as u32 >= ranks.min(16) * 3 / 4
                };
                assert!(several(|pair| pair.0), "{ranks} {matrix:?}");
                assert!(several(|pair| pair.1), "{ranks} {matrix:?}");
                let upwards = pairs.iter().filter(|(from, to)| from < to).count();
                let part = upwards as f64 / pairs.len() as f64;
                assert!((0.25..=0.75).contains(&part), "{ranks} {matrix:?}: {part}");
            }
        }
    }

    #[test]
    fn few_rounds_are_all_measured_and_those_who_copy_are_those_at_once() {
        let in_turn = Roles::new(Traffic::InTurn, 5);
        assert!(in_turn.sampled_rounds(32).eq(0..4));
        let copiers = |roles: Roles| {
            let ranks = 0..roles.ranks;
            ranks.filter(|&rank| roles.stands_for_a_round(rank)).count()
        };
        let alone = Roles::new(Traffic::Matrix, 6);
        let disjoint = Roles {
            matrix: MatrixRounds::Disjoint,
            ..alone
        };
        assert_eq!((copiers(alone), copiers(disjoint)), (1, 3));
        let odd = Roles {
            ranks: 7,
            ..disjoint
        };
        assert_eq!(copiers(odd), 3);
        for traffic in Traffic::ALL.into_iter().filter(|&it| it != Traffic::Matrix) {
            let roles = Roles::new(traffic, 6);
            assert_eq!(copiers(roles) as u32, roles.initiating().0, "{traffic:?}");
        }
    }
}
