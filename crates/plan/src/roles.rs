//! Traffic patterns: which ranks initiate towards which targets, and in which rounds. The operations themselves are
//! described by the points of [`crate::kinds`]. Rounds of a matrix are in `matrix`. With a traffic file, all ranks move
//! their bytes in round 0, and each pair later has a round of its own.

mod matrix;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::point::{MatrixRounds, Traffic, is_default};
use tonnage_engine::pattern::{GOLDEN, mix_bits};

/// A traffic pattern among the ranks of a run. From it, every rank can compute its own part and the parts of all other
/// ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Roles {
    /// Traffic pattern.
    pub traffic: Traffic,
    /// Ranks of the run.
    pub ranks: u32,
    /// Number of initiating ranks, if requested: the first ranks of pairs, or those after rank 0 of a fan-in. Other
    /// patterns have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiators: Option<u32>,
    /// Places by which the targets of pairs are rotated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub target_shift: u32,
    /// Places from a rank to its target in shifted traffic: 1 to ranks - 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub shift: u32,
    /// Rounds of a matrix.
    #[serde(default, skip_serializing_if = "is_default")]
    pub matrix: MatrixRounds,
    /// True when the targets of pairs initiate towards their initiators at the same time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bidirectional: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

fn one() -> u32 {
    1
}

impl Roles {
    /// Returns the default roles of a pattern.
    pub const fn new(traffic: Traffic, ranks: u32) -> Self {
        Self {
            traffic,
            ranks,
            initiators: None,
            target_shift: 0,
            bidirectional: false,
            shift: 1,
            matrix: MatrixRounds::Alone,
        }
    }

    /// Returns the numbers of initiators and targets of pairs. The first ranks are the initiators, and the targets
    /// follow.
    pub(crate) fn pair_sides(self) -> (u32, u32) {
        let half = self.ranks / 2;
        match self.initiators {
            Some(initiators) => (initiators, self.ranks.saturating_sub(initiators)),
            None => (half, half),
        }
    }

    /// Returns the target of an initiator of pairs; `None` if the rank is not an initiator.
    fn partner(self, rank: u32) -> Option<u32> {
        let (initiators, targets) = self.pair_sides();
        let shifted = u64::from(rank) + u64::from(self.target_shift);
        let place = shifted.checked_rem(targets.into())? as u32;
        (rank < initiators).then_some(initiators + place)
    }

    /// Returns the initiators of a target of pairs, without checking every rank.
    fn partners_of(self, rank: u32) -> Vec<u32> {
        let (initiators, targets) = self.pair_sides();
        let Some(place) = rank
            .checked_sub(initiators)
            .filter(|&place| place < targets)
        else {
            return Vec::new();
        };
        let first = (place + targets - self.target_shift % targets) % targets;
        (first..initiators).step_by(targets as usize).collect()
    }

    /// Number of clients of a fan-in.
    fn fan_in_clients(self) -> u32 {
        let others = self.ranks.saturating_sub(1);
        self.initiators.unwrap_or(others).min(others)
    }

    fn all_other_ranks(self, rank: u32) -> Vec<u32> {
        (0..self.ranks).filter(|&other| other != rank).collect()
    }

    /// Returns the targets of `rank`, ascending. The list is empty for a rank that only serves or takes no part.
    pub fn targets(self, rank: u32) -> Vec<u32> {
        match self.traffic {
            Traffic::Pair => match self.partner(rank) {
                Some(partner) => vec![partner],
                None if self.bidirectional => self.partners_of(rank),
                None => Vec::new(),
            },
            Traffic::FanOut | Traffic::InTurn if rank == 0 => self.all_other_ranks(0),
            Traffic::FanIn if (1..=self.fan_in_clients()).contains(&rank) => vec![0],
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => self.all_other_ranks(rank),
            Traffic::Shift => vec![self.shifted_rank(rank, self.shift)],
            Traffic::FanOut | Traffic::InTurn | Traffic::FanIn => Vec::new(),
        }
    }

    /// The rank `places` positions after another; rank 0 follows the last rank.
    fn shifted_rank(self, rank: u32, places: u32) -> u32 {
        let place = u64::from(rank) + u64::from(places);
        (place % u64::from(self.ranks.max(1))) as u32
    }

    /// The ranks that initiate towards `rank`, ascending.
    pub fn initiators_of(self, rank: u32) -> Vec<u32> {
        match self.traffic {
            Traffic::Pair => match self.partner(rank).filter(|_| self.bidirectional) {
                Some(partner) => vec![partner],
                None => self.partners_of(rank),
            },
            Traffic::FanOut | Traffic::InTurn if rank != 0 => vec![0],
            Traffic::FanIn if rank == 0 => (1..=self.fan_in_clients()).collect(),
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => self.all_other_ranks(rank),
            Traffic::Shift => vec![self.shifted_rank(rank, self.ranks.saturating_sub(self.shift))],
            Traffic::FanOut | Traffic::InTurn | Traffic::FanIn => Vec::new(),
        }
    }

    /// Returns the number of initiating ranks, and the largest number of targets that one of them has. Computes both
    /// without listing the ranks, because there may be very many.
    pub fn initiating_ranks(self) -> (u32, u32) {
        let others = self.ranks.saturating_sub(1);
        match self.traffic {
            Traffic::Pair if self.bidirectional => {
                let (initiators, targets) = self.pair_sides();
                let served = initiators.min(targets);
                (initiators + served, initiators.div_ceil(targets.max(1)))
            }
            Traffic::Pair => (self.pair_sides().0, 1),
            Traffic::FanOut | Traffic::InTurn => (1, others),
            Traffic::FanIn => (self.fan_in_clients(), 1),
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => (self.ranks, others),
            Traffic::Shift => (self.ranks, 1),
        }
    }

    /// Average number of ranks that initiate in a round, rounded down.
    pub fn initiating_at_once(self) -> u32 {
        match self.traffic {
            Traffic::Matrix => (self.flow_count() / u64::from(self.round_count())) as u32,
            _ => self.initiating_ranks().0,
        }
    }

    /// Number of flows of all rounds together. A flow is an initiating rank and one of its targets.
    pub fn flow_count(self) -> u64 {
        let (initiators, targets) = self.initiating_ranks();
        match self.traffic {
            Traffic::Pair if self.bidirectional => 2 * u64::from(self.pair_sides().0),
            _ => u64::from(initiators) * u64::from(targets),
        }
    }

    /// Returns whether a rank is on the side of the targets, which follow the initiators. If bytes move both ways,
    /// these ranks also initiate.
    pub fn is_target_side(self, rank: u32) -> bool {
        if self.bidirectional {
            rank >= self.pair_sides().0
        } else {
            !self.initiates(rank)
        }
    }

    /// Number of rounds of one trial, at least 1. Rounds follow one another, and the flows within a round run at once.
    pub fn round_count(self) -> u32 {
        match self.traffic {
            Traffic::InTurn => self.ranks.saturating_sub(1).max(1),
            Traffic::Matrix => matrix::rounds(self.matrix, self.ranks),
            _ => 1,
        }
    }

    /// Returns the targets of `rank` in a round, as indices into its list of all targets.
    pub fn flows_in_round(self, rank: u32, round: u32) -> Range<usize> {
        let all = 0..self.targets(rank).len();
        match self.traffic {
            Traffic::InTurn => {
                let at = (round as usize).min(all.end);
                at..(at + 1).min(all.end)
            }
            Traffic::Matrix => {
                place_among_others(rank, matrix::target(self.matrix, self.ranks, (rank, round)))
            }
            Traffic::File if round > 0 => {
                let pair = self.pair_of_round(round).filter(|(from, _)| *from == rank);
                place_among_others(rank, pair.map(|(_, to)| to))
            }
            _ => all,
        }
    }

    /// The ranks that initiate towards `rank` in a round, ascending.
    pub fn initiators_in_round(self, rank: u32, round: u32) -> Vec<u32> {
        if self.traffic == Traffic::Matrix {
            let initiator = matrix::initiator(self.matrix, self.ranks, (rank, round));
            return initiator.into_iter().collect();
        }
        if let (Traffic::File, Some((from, to))) = (self.traffic, self.pair_of_round(round)) {
            return (to == rank).then_some(from).into_iter().collect();
        }
        let mut initiators = self.initiators_of(rank);
        initiators.retain(|&from| {
            let targets = self.targets(from);
            targets[self.flows_in_round(from, round)].contains(&rank)
        });
        initiators
    }

    /// Maximum number of targets of a rank at a time.
    pub fn targets_at_once(self) -> u32 {
        let (_, targets) = self.initiating_ranks();
        match self.traffic {
            Traffic::InTurn | Traffic::Matrix => targets.min(1),
            _ => targets,
        }
    }

    /// Returns the pair of a round, if each round has exactly one pair.
    pub fn pair_of_round(self, round: u32) -> Option<(u32, u32)> {
        match (self.traffic, self.matrix) {
            (Traffic::InTurn, _) => Some((0, round + 1)),
            (Traffic::Matrix, MatrixRounds::Alone) => matrix::pair_alone(self.ranks, round),
            (Traffic::File, _) => matrix::pair_alone(self.ranks, round.checked_sub(1)?),
            _ => None,
        }
    }

    /// Returns the pairs of a round. Empty if a rank can have two targets or two initiators in that round.
    pub fn pairs_of_round(self, round: u32) -> Vec<(u32, u32)> {
        match (self.traffic, self.matrix) {
            (Traffic::Matrix, MatrixRounds::Disjoint) => {
                let target = |rank| matrix::target(self.matrix, self.ranks, (rank, round));
                let pairs = (0..self.ranks).filter_map(|rank| Some((rank, target(rank)?)));
                pairs.collect()
            }
            _ => self.pair_of_round(round).into_iter().collect(),
        }
    }

    /// Returns the round, outside the trials, in which a pair of a traffic file has the path to itself.
    pub fn round_of_pair_alone(self, pair: (u32, u32)) -> u32 {
        let (from, to) = pair;
        1 + from * self.ranks.saturating_sub(1) + to - u32::from(to > from)
    }

    /// Returns whether there are rounds in which each rank has at most one target and one initiator. Each pair then has
    /// its own figures.
    pub fn has_pairs_in_rounds(self) -> bool {
        matches!(
            self.traffic,
            Traffic::InTurn | Traffic::Matrix | Traffic::File
        )
    }

    /// Whether every rank initiates.
    pub fn all_initiate(self) -> bool {
        matches!(
            self.traffic,
            Traffic::AllToAll | Traffic::Shift | Traffic::Matrix | Traffic::File
        )
    }

    /// Maximum number of ranks that initiate towards one rank.
    pub fn initiators_max(self) -> u32 {
        match self.traffic {
            Traffic::Pair => {
                let (initiators, targets) = self.pair_sides();
                initiators.div_ceil(targets.max(1))
            }
            Traffic::FanOut | Traffic::InTurn | Traffic::Shift => 1,
            Traffic::FanIn => self.fan_in_clients(),
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => self.ranks.saturating_sub(1),
        }
    }

    /// Maximum number of ranks that one rank initiates towards, or that initiate towards one rank.
    pub fn peers_max(self) -> u32 {
        let (_, targets) = self.initiating_ranks();
        targets.max(self.initiators_max())
    }

    /// Whether a rank initiates. Called for every rank, so it builds no long lists.
    pub fn initiates(self, rank: u32) -> bool {
        match self.traffic {
            Traffic::FanOut | Traffic::InTurn => rank == 0 && self.ranks > 1,
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => self.ranks > 1,
            // The lists of these patterns are short, or only few ranks have long ones.
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

    /// Returns all rounds, or at most `most` of them: a random round from each of `most` equal parts. Rounds at a fixed
    /// distance could all have the same targets.
    pub fn sampled_rounds(self, most: u32) -> impl Iterator<Item = u32> {
        let all = u64::from(self.round_count());
        let count = all.min(most.max(1).into());
        let of_part = move |at: u64| {
            let (first, end) = (at * all / count, (at + 1) * all / count);
            first + mix_bits((at + 1).wrapping_mul(GOLDEN)) % (end - first)
        };
        (0..count).map(move |at| of_part(at) as u32)
    }

    /// Whether this rank's copies count towards the measured bound. All initiators count; in a matrix, only as many
    /// ranks count as initiate at once.
    pub fn counts_for_bound(self, rank: u32) -> bool {
        match self.traffic {
            Traffic::Matrix => rank < self.initiating_at_once(),
            _ => self.initiates(rank),
        }
    }

    /// Describes the pattern for the title of a table. Leaves out a requested number of initiators, because it has a
    /// column.
    pub fn title(self) -> String {
        let (ranks, others) = (self.ranks, self.ranks.saturating_sub(1));
        let shifted = match self.target_shift {
            0 => String::new(),
            shift => format!(", targets shifted by {shift}"),
        };
        let ways = if self.bidirectional {
            ", both ways"
        } else {
            ""
        };
        match (self.traffic, self.initiators) {
            (Traffic::Pair, Some(_)) => format!("pairs among {ranks} ranks at once{ways}{shifted}"),
            (Traffic::Pair, None) if ranks == 2 => format!("one pair of ranks{ways}{shifted}"),
            (Traffic::Pair, None) => format!("{} pairs of ranks at once{ways}{shifted}", ranks / 2),
            (Traffic::InTurn, _) => format!("rank 0 to {others} others, one after the other"),
            (Traffic::FanOut, _) => format!("fan-out from rank 0 to {others} others"),
            (Traffic::FanIn, Some(_)) => format!("fan-in to rank 0 of {ranks} ranks"),
            (Traffic::FanIn, None) => format!("fan-in from {others} ranks to rank 0"),
            (Traffic::AllToAll, _) => format!("all-to-all among {ranks} ranks"),
            (Traffic::Shift, _) => match self.shift {
                1 => format!("each of {ranks} ranks to the next one at once"),
                shift => {
                    format!(
                        "each rank r of {ranks} to rank r + {shift} at once, the last ones to the first"
                    )
                }
            },
            (Traffic::File, _) => format!("pairs of {ranks} ranks with the loads of a file"),
            (Traffic::Matrix, _) => {
                let rounds = self.round_count();
                match self.matrix {
                    MatrixRounds::Alone => {
                        format!(
                            "matrix of {ranks} ranks, {rounds} ordered pairs one after the other"
                        )
                    }
                    MatrixRounds::Disjoint => {
                        format!("matrix of {ranks} ranks, {rounds} rounds of disjoint pairs")
                    }
                }
            }
        }
    }
}

/// Returns the position of a target in the list of all ranks other than `rank`.
fn place_among_others(rank: u32, target: Option<u32>) -> Range<usize> {
    let place = target.map(|target| (target - u32::from(target > rank)) as usize);
    place.map_or(0..0, |place| place..place + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn both(roles: Roles) -> Roles {
        Roles {
            bidirectional: true,
            ..roles
        }
    }

    /// Returns every pattern, with every possible number of initiators.
    fn all() -> Vec<Roles> {
        let mut all: Vec<Roles> = Vec::new();
        for (traffic, ranks) in Traffic::ALL.into_iter().flat_map(|traffic| {
            let ranks = match traffic {
                Traffic::Matrix => [2, 5, 10],
                _ => [2, 4, 10],
            };
            ranks.into_iter().map(move |ranks| (traffic, ranks))
        }) {
            let own = Roles::new(traffic, ranks);
            all.push(own);
            if traffic == Traffic::Pair {
                all.push(both(own));
            }
            for initiators in (1..ranks).map(Some) {
                match traffic {
                    Traffic::Pair => {
                        for target_shift in [0, 1, 13] {
                            let shifted = Roles {
                                initiators,
                                target_shift,
                                ..own
                            };
                            all.extend([shifted, both(shifted)]);
                        }
                    }
                    Traffic::FanIn => all.push(Roles { initiators, ..own }),
                    Traffic::Shift => all.push(Roles {
                        shift: initiators.unwrap_or(1),
                        ..own
                    }),
                    Traffic::Matrix => all.push(Roles {
                        matrix: MatrixRounds::Disjoint,
                        ..own
                    }),
                    Traffic::FanOut | Traffic::InTurn | Traffic::AllToAll | Traffic::File => {}
                }
            }
        }
        all
    }

    #[test]
    fn ranks_are_counted_as_the_roles_list_them() {
        for roles in all() {
            let lists = (0..roles.ranks).map(|rank| roles.targets(rank));
            let lists: Vec<_> = lists.filter(|targets| !targets.is_empty()).collect();
            let (initiating, targets_of_each) = roles.initiating_ranks();
            assert_eq!(lists.len(), initiating as usize, "{roles:?}");
            let most_targets = lists.iter().map(Vec::len).max().unwrap();
            assert_eq!(most_targets, targets_of_each as usize, "{roles:?}");
            let flows: usize = lists.iter().map(Vec::len).sum();
            assert_eq!(flows as u64, roles.flow_count(), "{roles:?}");
            let ranks = 0..roles.ranks;
            let ends = ranks.flat_map(|rank| [roles.targets(rank), roles.initiators_of(rank)]);
            let most = ends.map(|peers| peers.len()).max().unwrap();
            assert_eq!(most, roles.peers_max() as usize, "{roles:?}");
        }
    }

    #[test]
    fn every_flow_is_in_one_round() {
        for roles in all() {
            for rank in 0..roles.ranks {
                let targets = roles.targets(rank);
                let rounds =
                    (0..roles.round_count()).map(|round| roles.flows_in_round(rank, round));
                let mut in_rounds: Vec<u32> =
                    rounds.flat_map(|range| targets[range].to_vec()).collect();
                in_rounds.sort_unstable();
                assert_eq!(in_rounds, targets, "{roles:?} {rank}");
                let most = (0..roles.round_count())
                    .map(|round| roles.flows_in_round(rank, round).len())
                    .max();
                assert!(most.unwrap() as u32 <= roles.targets_at_once(), "{roles:?}");
            }
        }
        let in_turn = Roles::new(Traffic::InTurn, 4);
        let round = |round| (0..4).map(move |rank| in_turn.initiators_in_round(rank, round));
        assert!(round(1).eq([vec![], vec![], vec![0], vec![]]));
        assert_eq!(in_turn.pair_of_round(2), Some((0, 3)));
    }

    #[test]
    fn initiators_and_targets_name_each_other() {
        for roles in all() {
            for rank in 0..roles.ranks {
                let mut listed = roles.initiators_of(rank);
                let found = (0..roles.ranks).filter(|&from| roles.targets(from).contains(&rank));
                assert_eq!(listed, found.collect::<Vec<_>>(), "{roles:?} {rank}");
                listed.dedup();
                assert!(
                    listed.is_sorted() && !listed.contains(&rank),
                    "{roles:?} {rank}"
                );
            }
        }
    }

    #[test]
    fn initiators_of_pairs_go_round_the_targets_behind_them() {
        let roles = |initiators, target_shift| Roles {
            initiators: Some(initiators),
            target_shift,
            ..Roles::new(Traffic::Pair, 5)
        };
        let partners = |roles: Roles| (0..5).map(|rank| roles.targets(rank)).collect::<Vec<_>>();
        assert_eq!(
            partners(roles(3, 0)),
            [vec![3], vec![4], vec![3], vec![], vec![]]
        );
        assert_eq!(
            partners(roles(3, 1)),
            [vec![4], vec![3], vec![4], vec![], vec![]]
        );
        assert_eq!(
            partners(roles(1, 6)),
            [vec![3], vec![], vec![], vec![], vec![]]
        );
    }

    /// Each flow must have a flow in the opposite direction. A target rank stays on the target side even if it
    /// initiates.
    #[test]
    fn pairs_both_ways_go_exactly_back() {
        for one_way in all() {
            if one_way.traffic != Traffic::Pair || one_way.bidirectional {
                continue;
            }
            let roles = both(one_way);
            for rank in 0..roles.ranks {
                let mut expected = [one_way.targets(rank), one_way.initiators_of(rank)].concat();
                expected.sort_unstable();
                assert_eq!(roles.targets(rank), expected, "{roles:?} {rank}");
                assert_eq!(roles.initiators_of(rank), expected, "{roles:?} {rank}");
                assert_eq!(
                    roles.is_target_side(rank),
                    one_way.is_target_side(rank),
                    "{roles:?} {rank}"
                );
            }
        }
        let roles = Roles {
            initiators: Some(3),
            ..both(Roles::new(Traffic::Pair, 5))
        };
        let targets: Vec<_> = (0..5).map(|rank| roles.targets(rank)).collect();
        assert_eq!(targets, [vec![3], vec![4], vec![3], vec![0, 2], vec![1]]);
    }

    #[test]
    fn a_fan_in_of_a_few_clients_leaves_the_others_out() {
        let roles = Roles {
            initiators: Some(2),
            ..Roles::new(Traffic::FanIn, 5)
        };
        assert_eq!(roles.initiators_of(0), [1, 2]);
        let idle = |rank| roles.targets(rank).is_empty() && roles.initiators_of(rank).is_empty();
        assert!(idle(3) && idle(4) && !idle(2));
    }

    #[test]
    fn each_pair_of_a_file_also_has_a_round_alone() {
        let roles = Roles::new(Traffic::File, 4);
        let mut rounds = Vec::new();
        for (from, to) in
            (0..4).flat_map(|from| roles.targets(from).into_iter().map(move |to| (from, to)))
        {
            let round = roles.round_of_pair_alone((from, to));
            rounds.push(round);
            assert_eq!(roles.pair_of_round(round), Some((from, to)));
            assert_eq!(roles.targets(from)[roles.flows_in_round(from, round)], [to]);
            assert_eq!(roles.flows_in_round(to, round), 0..0);
        }
        rounds.sort_unstable();
        assert!(rounds.into_iter().eq(1..13));
        assert_eq!(
            (roles.pair_of_round(0), roles.pair_of_round(13)),
            (None, None)
        );
    }

    #[test]
    fn initiators_have_targets() {
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
                for round in 0..roles.round_count() {
                    let members = roles.members_of_round(round);
                    let has_flow = |rank: &u32| {
                        !roles.flows_in_round(*rank, round).is_empty()
                            || !roles.initiators_in_round(*rank, round).is_empty()
                    };
                    match roles.round_count() {
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
        assert_eq!(
            file.members_of_round(file.round_of_pair_alone((3, 1))),
            [1, 3]
        );
    }

    #[test]
    fn a_sample_has_many_targets_initiators_and_both_directions() {
        for ranks in (2..200).chain([256, 512, 1000, 1024]) {
            for matrix in MatrixRounds::ALL {
                let roles = Roles {
                    matrix,
                    ..Roles::new(Traffic::Matrix, ranks)
                };
                let rounds: Vec<u32> = roles.sampled_rounds(32).collect();
                assert_eq!(rounds.len() as u32, roles.round_count().min(32));
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
    fn few_rounds_are_all_sampled_and_the_ranks_that_count_are_those_at_once() {
        let in_turn = Roles::new(Traffic::InTurn, 5);
        assert!(in_turn.sampled_rounds(32).eq(0..4));
        let copiers = |roles: Roles| {
            let ranks = 0..roles.ranks;
            ranks.filter(|&rank| roles.counts_for_bound(rank)).count()
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
            assert_eq!(
                copiers(roles) as u32,
                roles.initiating_ranks().0,
                "{traffic:?}"
            );
        }
    }
}
