//! This host as the ranks of a run see it: its CPUs, and which ranks have to share them.
//!
//! Which ranks are on one machine is known in [`tonnage_ranks::hosts`]; but its ranks may have been bound to different
//! CPUs by their launcher. So each rank says which CPUs it may use, and those that may use the same ones take turns.

use std::sync::Arc;

use crate::deadlines::DEADLINES;
use tonnage_machine::Topology;
use tonnage_ranks::Rank;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// A rank's host.
pub struct RankHost {
    /// Its CPUs.
    pub topology: Arc<Topology>,
    /// This rank's place among those that it shares CPUs with, and how many they are, itself included.
    pub neighbours: (u32, u32),
    /// The ranks of its machine, ascending, itself included, with the CPUs that each may use.
    pub ranks: Vec<(u32, Vec<u32>)>,
}

impl RankHost {
    /// Exchanges with the other ranks which CPUs each may use.
    pub fn look(rank: &mut Rank, topology: &Arc<Topology>) -> Result<Self> {
        let mine = number_list::format(&topology.allowed).into_bytes();
        // Only those of this machine share its CPUs.
        let beside = rank.hosts().ranks_of_machine(rank.id());
        let told = beside.iter().map(|&to| (to, mine.clone())).collect();
        let heard = rank.exchange("which CPUs ranks may use", told, DEADLINES.step)?;
        let lists: Vec<(u32, &str)> = heard
            .iter()
            .map(|(from, bytes)| match std::str::from_utf8(bytes) {
                Ok(list) => Ok((*from, list)),
                Err(_) => Err(Error::Failed(format!(
                    "rank {from} said unreadably which CPUs it may use"
                ))),
            })
            .collect::<Result<_>>()?;
        let neighbours = neighbours(&lists, rank.id())?;
        let ranks = lists.iter().map(|(rank, list)| Ok((*rank, read(list)?)));
        Ok(Self {
            ranks: ranks.collect::<Result<_>>()?,
            topology: Arc::clone(topology),
            neighbours,
        })
    }
}

/// The place of `rank` among the ranks of its machine that share CPUs with it, and how many they are.
fn neighbours(cpus: &[(u32, &str)], rank: u32) -> Result<(u32, u32)> {
    let own_text = cpus.iter().find(|(other, _)| *other == rank);
    let own_text = own_text.map_or("", |(_, text)| text);
    let own = read(own_text)?;
    let (mut place, mut count) = (0, 1);
    for (other, text) in cpus.iter().filter(|(other, _)| *other != rank) {
        let shared = *text == own_text || read(text)?.iter().any(|cpu| own.contains(cpu));
        place += u32::from(shared && *other < rank);
        count += u32::from(shared);
    }
    Ok((place, count))
}

fn read(list: &str) -> Result<Vec<u32>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    number_list::parse(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_ranks::testing::rank_info;
    use tonnage_ranks::{Hosts, RankInfo};

    fn info(rank: u32, host: &str, boot_id: &str) -> RankInfo {
        RankInfo {
            boot_id: boot_id.into(),
            ..rank_info(rank, host)
        }
    }

    fn all(infos: &[RankInfo], cpus: &[&str]) -> Vec<(u32, u32)> {
        let hosts = Hosts::of(infos);
        let place = |info: &RankInfo| {
            let beside = hosts.ranks_of_machine(info.rank).into_iter();
            let lists: Vec<_> = beside.map(|rank| (rank, cpus[rank as usize])).collect();
            neighbours(&lists, info.rank).unwrap()
        };
        infos.iter().map(place).collect()
    }

    #[test]
    fn hosts_of_one_machine_share_its_cpus() {
        let infos = [info(0, "h0", "a"), info(1, "h1", "a"), info(2, "h2", "b")];
        let cpus = ["0-1", "0-1", "0-1"];
        assert_eq!(all(&infos, &cpus), [(0, 2), (1, 2), (0, 1)]);
        let unknown = [info(0, "h0", ""), info(1, "h1", ""), info(2, "h1", "")];
        assert_eq!(all(&unknown, &cpus), [(0, 1), (0, 2), (1, 2)]);
    }

    #[test]
    fn ranks_that_a_launcher_bound_apart_share_nothing() {
        let infos = [info(0, "h", "a"), info(1, "h", "a"), info(2, "h", "a")];
        assert_eq!(all(&infos, &["0", "1", "2"]), [(0, 1); 3]);
        assert_eq!(
            all(&infos, &["0-1", "0-1", "2-3"]),
            [(0, 2), (1, 2), (0, 1)]
        );
        assert_eq!(all(&infos, &["0-3", "3", "2"]), [(0, 3), (1, 2), (1, 2)]);
        assert_eq!(all(&infos, &["", "", ""]), [(0, 3), (1, 3), (2, 3)]);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(neighbours(&[(0, "0"), (1, "x")], 0).is_err());
    }
}
