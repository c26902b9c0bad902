//! Chooses CPUs for the workers on a machine, depending on which of them exchange bytes. Also checks the resulting
//! sockets.

use crate::host::RankHost;
use crate::settings::Settings;
use tonnage_machine::{
    CpuChoice, MachineRank, Placement, Workers, place_automatically, place_pairs, place_workers,
};
use tonnage_plan::roles::Roles;
use tonnage_ranks::{Hosts, Rank};
use tonnage_record::Placed;
use tonnage_units::{Error, PairPlace, Result};

/// Ranks that exchange bytes with each other, and their requested placement on sockets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommunicatingPairs {
    pub(crate) roles: Roles,
    pub(crate) asked: Option<PairPlace>,
}

impl CommunicatingPairs {
    /// Returns the CPUs for this rank's workers.
    pub(crate) fn placement(
        &self,
        rank: &Rank,
        workers: Workers,
        settings: &Settings,
        host: &RankHost,
    ) -> Result<Placement> {
        let (topology, (index, count)) = (&host.topology, host.neighbours);
        let alone = || place_workers(topology, index, count, workers, &settings.cpus);
        if settings.cpus != CpuChoice::Auto {
            return alone();
        }
        let (ranks, asked) = (self.of_machine(host), self.asked);
        let placed = match asked {
            Some(place) => {
                self.check_hosts(rank.hosts(), rank.id())?;
                place_pairs(topology, &ranks, workers, place)?
            }
            None if are_bound_equally(&ranks) => place_automatically(topology, &ranks, workers)?,
            // A launcher that bound ranks to different CPUs has thereby determined their distance.
            None => return alone(),
        };
        let own = host.ranks.iter().position(|(other, _)| *other == rank.id());
        let none = || Error::Failed("this rank is not among those of its machine".into());
        own.and_then(|own| placed.into_iter().nth(own))
            .ok_or_else(none)
    }

    /// Returns the ranks on a machine, each with its peers on the same machine.
    fn of_machine(&self, host: &RankHost) -> Vec<MachineRank> {
        let place_of = |rank: u32| host.ranks.binary_search_by_key(&rank, |(rank, _)| *rank);
        let of = |(rank, allowed): &(u32, Vec<u32>)| {
            let mut peers = self.peers(*rank);
            // Peers are sorted, so that the order is the same on all ranks.
            peers.sort_unstable();
            peers.dedup();
            MachineRank {
                rank: *rank,
                allowed: allowed.clone(),
                peers: peers
                    .into_iter()
                    .filter_map(|peer| place_of(peer).ok())
                    .collect(),
            }
        };
        host.ranks.iter().map(of).collect()
    }

    pub(super) fn peers(&self, rank: u32) -> Vec<u32> {
        let mut peers = self.roles.targets(rank);
        peers.extend(self.roles.initiators_of(rank));
        peers
    }

    /// A placement refers to the sockets of one machine, so it is rejected if a peer is on another machine.
    fn check_hosts(&self, hosts: &Hosts, rank: u32) -> Result<()> {
        let elsewhere = |peer: &u32| !hosts.share_machine(rank, *peer);
        match (self.asked, self.peers(rank).into_iter().find(elsewhere)) {
            (Some(place), Some(peer)) => Err(Error::Unavailable {
                what: format!("--place {place}"),
                why: format!(
                    "ranks {rank} and {peer} exchange bytes and are on different hosts, but a placement refers to the \
                     sockets of one"
                ),
                how: "Leave --place out, or start all ranks on one host".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the placement of workers that exchange bytes, from the sockets of all ranks. `None` if a pair is on
    /// different machines, or a socket is unknown.
    pub(crate) fn placed(&self, hosts: &Hosts, sockets: &[&[Option<u32>]]) -> Option<Placed> {
        let mut placed = None;
        for initiator in 0..self.roles.ranks {
            for target in self.roles.targets(initiator) {
                if !hosts.share_machine(initiator, target) {
                    return None;
                }
                let of = |rank: u32| sockets.get(rank as usize).copied();
                for (one, other) in of(initiator)?.iter().zip(of(target)?) {
                    let this = match (*one)? == (*other)? {
                        true => Placed::Near,
                        false => Placed::Far,
                    };
                    placed = match placed {
                        None => Some(this),
                        Some(before) if before == this => placed,
                        Some(_) => Some(Placed::Mixed),
                    };
                }
            }
        }
        placed
    }

    /// Rejects a placement that is not the requested one. The result is the same on all ranks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the placement that was found.
    pub(crate) fn check(&self, placed: Option<Placed>) -> Result<()> {
        let Some(asked) = self
            .asked
            .filter(|asked| !placed.is_some_and(|had| had.matches(*asked)))
        else {
            return Ok(());
        };
        Err(Error::Unavailable {
            what: format!("--place {asked}"),
            why: match placed {
                Some(had) => format!("the threads were placed otherwise: {}", had.describe()),
                None => "it is not known which sockets the threads are on".to_owned(),
            },
            how: "Leave --place out, and --cpus where it is given".to_owned(),
        })
    }
}

/// Returns whether all ranks may use the same CPUs.
fn are_bound_equally(ranks: &[MachineRank]) -> bool {
    ranks
        .windows(2)
        .all(|pair| pair[0].allowed == pair[1].allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::openings::tests::hosts;
    use tonnage_plan::point::Traffic;

    const PAIRS: CommunicatingPairs = CommunicatingPairs {
        roles: Roles::new(Traffic::Pair, 4),
        asked: Some(PairPlace::Far),
    };

    #[test]
    fn the_placement_follows_from_the_sockets() {
        let one = hosts(&["a"; 4]);
        let placed = |sockets: [&[Option<u32>]; 4]| PAIRS.placed(&one, &sockets);
        let (s0, s1): (&[_], &[_]) = (&[Some(0)], &[Some(1)]);
        assert_eq!(placed([s0, s1, s0, s1]), Some(Placed::Near));
        assert_eq!(placed([s0, s0, s1, s1]), Some(Placed::Far));
        assert_eq!(placed([s0, s1, s1, s1]), Some(Placed::Mixed));
        assert_eq!(placed([s0, s1, s0, &[None]]), None);
        let two = hosts(&["a", "a", "b", "b"]);
        assert_eq!(PAIRS.placed(&two, &[s0, s0, s1, s1]), None);
    }

    #[test]
    fn a_placement_other_than_requested_is_rejected() {
        assert!(PAIRS.check(Some(Placed::Far)).is_ok());
        let had = PAIRS.check(Some(Placed::Mixed)).unwrap_err().to_string();
        assert!(
            had.contains("some peers on one socket, some on two"),
            "{had}"
        );
        assert!(matches!(PAIRS.check(None), Err(Error::Unavailable { .. })));
        let any = CommunicatingPairs {
            asked: None,
            ..PAIRS
        };
        assert!(any.check(None).is_ok());
    }

    #[test]
    fn pairs_on_different_hosts_are_neither_near_nor_far() {
        let two = hosts(&["a", "a", "b", "b"]);
        let message = PAIRS.check_hosts(&two, 1).unwrap_err().to_string();
        assert!(
            message.starts_with("--place far cannot be used here: ranks 1 and 3 exchange bytes and are on different hosts"),
            "{message}"
        );
        assert!(PAIRS.check_hosts(&hosts(&["a", "b", "a", "b"]), 1).is_ok());
    }

    #[test]
    fn peers_are_indices_into_the_machines_ranks() {
        let host = RankHost {
            topology: tonnage_machine::Topology::read().into(),
            neighbours: (0, 2),
            ranks: vec![(1, vec![0]), (3, vec![0, 1])],
        };
        let ranks = PAIRS.of_machine(&host);
        assert_eq!((ranks[0].rank, &ranks[0].peers), (1, &vec![1]));
        assert_eq!((ranks[1].rank, &ranks[1].peers), (3, &vec![0]));
        assert!(!are_bound_equally(&ranks));
        let fan = CommunicatingPairs {
            roles: Roles::new(Traffic::FanIn, 4),
            ..PAIRS
        };
        // The only peer of these ranks is on another machine, so they have no peers here.
        assert!(
            fan.of_machine(&host)
                .iter()
                .all(|rank| rank.peers.is_empty())
        );
    }
}
