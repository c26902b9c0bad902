//! Ranks that initiate towards each other: a traffic pattern among so many ranks. What each of them does then is in the
//! points of [`crate::kinds`]. Rounds beside the trials are in `beside`, those that stand for all in `sample`.

mod beside;
mod matrix;
mod members;
mod sample;

use std::ops::Range;

use crate::point::{MatrixRounds, Traffic};

/// A traffic pattern among the ranks of a run, from which every rank knows its own part and those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Pattern.
    pub traffic: Traffic,
    /// Ranks of the run.
    pub ranks: u32,
    /// Ranks that initiate, where they are fewer or more than the pattern's own: of pairs the first ones, of a fan-in
    /// those after rank 0. Other patterns have none.
    pub initiators: Option<u32>,
    /// Places by which the targets of pairs are turned.
    pub target_shift: u32,
    /// Targets of pairs initiate towards their initiators at the same time.
    pub bidirectional: bool,
    /// Places from a rank to its target, where traffic is shifted: 1 to ranks - 1.
    pub shift: u32,
    /// Rounds of a matrix.
    pub matrix: MatrixRounds,
}

impl Roles {
    /// The pattern's own roles.
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

    /// Initiators and targets of pairs: the first ranks, and the ones behind them.
    pub(crate) fn sides(self) -> (u32, u32) {
        let half = self.ranks / 2;
        match self.initiators {
            Some(initiators) => (initiators, self.ranks.saturating_sub(initiators)),
            None => (half, half),
        }
    }

    /// The target of an initiator of pairs; `None` for a rank that is none.
    fn partner(self, rank: u32) -> Option<u32> {
        let (initiators, targets) = self.sides();
        let shifted = u64::from(rank) + u64::from(self.target_shift);
        let place = shifted.checked_rem(targets.into())? as u32;
        (rank < initiators).then_some(initiators + place)
    }

    /// The initiators of a target of pairs, found without asking each of them.
    fn partners_of(self, rank: u32) -> Vec<u32> {
        let (initiators, targets) = self.sides();
        let Some(place) = rank
            .checked_sub(initiators)
            .filter(|&place| place < targets)
        else {
            return Vec::new();
        };
        let first = (place + targets - self.target_shift % targets) % targets;
        (first..initiators).step_by(targets as usize).collect()
    }

    /// Clients of a fan-in.
    fn clients(self) -> u32 {
        let others = self.ranks.saturating_sub(1);
        self.initiators.unwrap_or(others).min(others)
    }

    fn others(self, rank: u32) -> Vec<u32> {
        (0..self.ranks).filter(|&other| other != rank).collect()
    }

    /// The targets of `rank`, ascending. Empty when it only serves, or takes no part.
    pub fn targets(self, rank: u32) -> Vec<u32> {
        match self.traffic {
            Traffic::Pair => match self.partner(rank) {
                Some(partner) => vec![partner],
                None if self.bidirectional => self.partners_of(rank),
                None => Vec::new(),
            },
            Traffic::FanOut | Traffic::InTurn if rank == 0 => self.others(0),
            Traffic::FanIn if (1..=self.clients()).contains(&rank) => vec![0],
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => self.others(rank),
            Traffic::Shift => vec![self.shifted(rank, self.shift)],
            Traffic::FanOut | Traffic::InTurn | Traffic::FanIn => Vec::new(),
        }
    }

    /// The rank that many places behind another, the first one behind the last.
    fn shifted(self, rank: u32, places: u32) -> u32 {
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
            Traffic::FanIn if rank == 0 => (1..=self.clients()).collect(),
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => self.others(rank),
            Traffic::Shift => vec![self.shifted(rank, self.ranks.saturating_sub(self.shift))],
            Traffic::FanOut | Traffic::InTurn | Traffic::FanIn => Vec::new(),
        }
    }

    /// Ranks that initiate, and the most targets that one of them has; counted without listing them, because there may
    /// be any number.
    pub fn initiating(self) -> (u32, u32) {
        let others = self.ranks.saturating_sub(1);
        match self.traffic {
            Traffic::Pair if self.bidirectional => {
                let (initiators, targets) = self.sides();
                let served = initiators.min(targets);
                (initiators + served, initiators.div_ceil(targets.max(1)))
            }
            Traffic::Pair => (self.sides().0, 1),
            Traffic::FanOut | Traffic::InTurn => (1, others),
            Traffic::FanIn => (self.clients(), 1),
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => (self.ranks, others),
            Traffic::Shift => (self.ranks, 1),
        }
    }

    /// Ranks that initiate in a round, on average rounded down.
    pub fn initiating_at_once(self) -> u32 {
        match self.traffic {
            Traffic::Matrix => (self.flows() / u64::from(self.rounds())) as u32,
            _ => self.initiating().0,
        }
    }

    /// Flows of all rounds together: pairs of an initiating rank and one of its targets.
    pub fn flows(self) -> u64 {
        let (initiators, targets) = self.initiating();
        match self.traffic {
            Traffic::Pair if self.bidirectional => 2 * u64::from(self.sides().0),
            _ => u64::from(initiators) * u64::from(targets),
        }
    }

    /// Returns whether a rank is behind those that initiate. Where bytes move both ways it initiates too, towards
    /// these.
    pub fn is_behind(self, rank: u32) -> bool {
        match self.bidirectional {
            true => rank >= self.sides().0,
            false => !self.initiates(rank),
        }
    }

    /// Rounds of one trial, one after the other; the flows of a round run at once. At least 1.
    pub fn rounds(self) -> u32 {
        match self.traffic {
            Traffic::InTurn => self.ranks.saturating_sub(1).max(1),
            Traffic::Matrix => matrix::rounds(self.matrix, self.ranks),
            _ => 1,
        }
    }

    /// The places, among the targets of `rank`, of those that a round is towards.
    pub fn in_round(self, rank: u32, round: u32) -> Range<usize> {
        let all = 0..self.targets(rank).len();
        match self.traffic {
            Traffic::InTurn => {
                let at = (round as usize).min(all.end);
                at..(at + 1).min(all.end)
            }
            Traffic::Matrix => {
                let target = matrix::target(self.matrix, self.ranks, (rank, round));
                beside::place_among_others(rank, target)
            }
            Traffic::File if round > 0 => beside::place(self.ranks, (rank, round)),
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
            targets[self.in_round(from, round)].contains(&rank)
        });
        initiators
    }

    /// The most targets of a rank at a time.
    pub fn targets_at_once(self) -> u32 {
        let (_, targets) = self.initiating();
        match self.traffic {
            Traffic::InTurn | Traffic::Matrix => targets.min(1),
            _ => targets,
        }
    }

    /// The one pair of a round, where each round has one.
    pub fn pair_of_round(self, round: u32) -> Option<(u32, u32)> {
        match (self.traffic, self.matrix) {
            (Traffic::InTurn, _) => Some((0, round + 1)),
            (Traffic::Matrix, MatrixRounds::Alone) => matrix::alone(self.ranks, round),
            (Traffic::File, _) => beside::pair(self.ranks, round),
            _ => None,
        }
    }

    /// Pairs of a round, where no rank has two targets or two initiators in it.
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

    /// The round beside the trials in which a pair of a traffic file has the path for itself.
    pub fn round_alone(self, pair: (u32, u32)) -> u32 {
        beside::round(self.ranks, pair)
    }

    /// Returns whether there are rounds in which no rank has two targets or two initiators, so that pairs have figures
    /// of their own.
    pub fn has_pairs_in_rounds(self) -> bool {
        matches!(
            self.traffic,
            Traffic::InTurn | Traffic::Matrix | Traffic::File
        )
    }

    /// Returns whether no rank only serves.
    pub fn all_initiate(self) -> bool {
        matches!(
            self.traffic,
            Traffic::AllToAll | Traffic::Shift | Traffic::Matrix | Traffic::File
        )
    }

    /// The most ranks that initiate to one rank.
    pub fn initiators_max(self) -> u32 {
        match self.traffic {
            Traffic::Pair => {
                let (initiators, targets) = self.sides();
                initiators.div_ceil(targets.max(1))
            }
            Traffic::FanOut | Traffic::InTurn | Traffic::Shift => 1,
            Traffic::FanIn => self.clients(),
            Traffic::AllToAll | Traffic::Matrix | Traffic::File => self.ranks.saturating_sub(1),
        }
    }

    /// The most ranks that one rank initiates to, or that initiate to one rank.
    pub fn peers_max(self) -> u32 {
        let (_, targets) = self.initiating();
        targets.max(self.initiators_max())
    }

    /// Describes it for the title of a table, without the number of initiators where that was asked for: it is a column
    /// then.
    pub fn title(self) -> String {
        let (ranks, others) = (self.ranks, self.ranks.saturating_sub(1));
        let shifted = match self.target_shift {
            0 => String::new(),
            shift => format!(", targets shifted by {shift}"),
        };
        let ways = match self.bidirectional {
            true => ", both ways",
            false => "",
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
                let rounds = self.rounds();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn both(roles: Roles) -> Roles {
        Roles {
            bidirectional: true,
            ..roles
        }
    }

    /// Every pattern, with every number of initiators that it may have.
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
            let (initiating, targets_of_each) = roles.initiating();
            assert_eq!(lists.len(), initiating as usize, "{roles:?}");
            let most_targets = lists.iter().map(Vec::len).max().unwrap();
            assert_eq!(most_targets, targets_of_each as usize, "{roles:?}");
            let flows: usize = lists.iter().map(Vec::len).sum();
            assert_eq!(flows as u64, roles.flows(), "{roles:?}");
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
                let rounds = (0..roles.rounds()).map(|round| roles.in_round(rank, round));
                let mut in_rounds: Vec<u32> =
                    rounds.flat_map(|range| targets[range].to_vec()).collect();
                in_rounds.sort_unstable();
                assert_eq!(in_rounds, targets, "{roles:?} {rank}");
                let most = (0..roles.rounds())
                    .map(|round| roles.in_round(rank, round).len())
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
    fn initiators_of_pairs_take_turns_with_the_targets_behind_them() {
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

    /// Each flow has one back to where it came from, and a rank is behind whether or not it initiates.
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
                    roles.is_behind(rank),
                    one_way.is_behind(rank),
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
}
