//! Ranks that take part in a round. The others may sleep through it.

use super::Roles;

impl Roles {
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
    use crate::point::{MatrixRounds, Traffic};

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
