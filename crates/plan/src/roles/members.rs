//! Ranks that take part: those that initiate, and those of a round, through which the others may sleep.

use super::Roles;
use crate::point::Traffic;

impl Roles {
    /// Returns whether a rank initiates, which is asked of every rank: nothing is listed.
    pub fn initiates(self, rank: u32) -> bool {
        match self.traffic {
            Traffic::FanOut | Traffic::InTurn => rank == 0 && self.ranks > 1,
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => self.ranks > 1,
            // Their lists are short, or those of few ranks.
            Traffic::Pair | Traffic::FanIn | Traffic::Shift => !self.targets(rank).is_empty(),
        }
    }

    /// The ranks that take part in a round, ascending: those of its pairs, or all.
    pub fn members_of_round(self, round: u32) -> Vec<u32> {
        let pairs = self.pairs_of_round(round);
        if pairs.is_empty() {
            return (0..self.ranks).collect();
        }
        let ends = pairs.into_iter().flat_map(|(from, to)| [from, to]);
        let mut members: Vec<u32> = ends.collect();
        members.sort_unstable();
        members.dedup();
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::MatrixRounds;

    #[test]
    fn who_initiates_has_targets() {
        for traffic in Traffic::ALL {
            for (ranks, bidirectional) in [1, 2, 5].map(|n| [(n, false), (n, true)]).concat() {
                let roles = Roles {
                    bidirectional,
                    ..Roles::new(traffic, ranks)
                };
                for rank in 0..ranks {
                    let has_targets = !roles.targets(rank).is_empty();
                    assert_eq!(roles.initiates(rank), has_targets, "{roles:?} {rank}");
                }
            }
        }
    }

    #[test]
    fn members_are_at_the_ends_of_flows_of_the_round() {
        for traffic in Traffic::ALL {
            for (ranks, matrix) in [4, 5, 10]
                .map(|ranks| MatrixRounds::ALL.map(|of| (ranks, of)))
                .concat()
            {
                let roles = Roles {
                    matrix,
                    ..Roles::new(traffic, ranks)
                };
                for round in 0..roles.rounds() {
                    let members = roles.members_of_round(round);
                    let has_flow = |rank: &u32| {
                        !roles.in_round(*rank, round).is_empty()
                            || !roles.initiators_in_round(*rank, round).is_empty()
                    };
                    match roles.rounds() {
                        1 => assert_eq!(members.len(), ranks as usize, "{roles:?}"),
                        _ => assert!(
                            members.into_iter().eq((0..ranks).filter(has_flow)),
                            "{roles:?} {round}"
                        ),
                    }
                }
            }
        }
        let file = Roles::new(Traffic::File, 4);
        assert_eq!(file.members_of_round(file.round_alone((3, 1))), [1, 3]);
    }
}
