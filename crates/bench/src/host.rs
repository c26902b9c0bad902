//! This rank's host: its CPUs, and the ranks that share them.
//!
//! [`tonnage_ranks::hosts`] knows which ranks are on one machine, but their launcher may have bound them to different
//! CPUs. Therefore each rank sends the list of CPUs that it may use. Ranks with common CPUs share them.

use std::sync::Arc;

use crate::deadlines::DEADLINES;
use tonnage_machine::Topology;
use tonnage_ranks::Rank;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// A rank's host.
pub struct RankHost {
    /// The host's CPUs and devices.
    pub topology: Arc<Topology>,
    /// Index of this rank among the ranks that share CPUs with it, and the number of these ranks. Both count this rank.
    pub neighbours: (u32, u32),
    /// All ranks of this machine in ascending order, including this one, with the CPUs that each of them may use.
    pub ranks: Vec<(u32, Vec<u32>)>,
}

impl RankHost {
    /// Exchanges the lists of usable CPUs with the other ranks of this machine.
    pub fn gather(rank: &mut Rank, topology: &Arc<Topology>) -> Result<Self> {
        let mine = number_list::format(&topology.allowed).into_bytes();
        // Only ranks on this machine can share its CPUs.
        let local = rank.hosts().ranks_of_machine(rank.id());
        let messages = local.iter().map(|&to| (to, mine.clone())).collect();
        let replies = rank.exchange("which CPUs ranks may use", messages, DEADLINES.step)?;
        let lists: Vec<(u32, &str)> = replies
            .iter()
            .map(|(from, bytes)| match std::str::from_utf8(bytes) {
                Ok(list) => Ok((*from, list)),
                Err(_) => Err(Error::Failed(format!(
                    "cannot decode the list of CPUs that rank {from} may use"
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

/// Returns the index of `rank` among the ranks that share CPUs with it, and the number of these ranks.
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
        let hosts = Hosts::from_infos(infos);
        let place = |info: &RankInfo| {
            let local = hosts.ranks_of_machine(info.rank).into_iter();
            let lists: Vec<_> = local.map(|rank| (rank, cpus[rank as usize])).collect();
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
    fn an_invalid_list_is_an_error() {
        assert!(neighbours(&[(0, "0"), (1, "x")], 0).is_err());
    }
}
