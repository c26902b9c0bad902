//! Messages of workers to their peers before they are connected: how to reach them, and their memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tonnage_engine::{Card, Descriptor, Locality, Neighbor, Peer};
use tonnage_ranks::{Rank, pack, unpack};
use tonnage_units::{Error, Result};

/// A worker's message to one of its peers: how to reach it, and its memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Introduction {
    /// Its address for this peer.
    pub card: Card,
    /// Its memory, as peers name it.
    pub memory: Descriptor,
    /// The place where this peer tells how many of its messages it took; `None` where completions say so.
    pub credits: Option<CreditPlace>,
}

/// A place in a worker's memory for the count of one peer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreditPlace {
    /// The memory, as peers name it.
    pub memory: Descriptor,
    /// Offset of the count.
    pub offset: u64,
}

/// Messages of one worker to its peers.
pub type Introductions = Vec<(Peer, Introduction)>;

/// A peer's message to a worker, and the peer's place.
#[derive(Debug, Clone)]
pub struct Introduced {
    /// Its address and its place.
    pub neighbor: Neighbor,
    /// As in its [`Introduction`].
    pub memory: Descriptor,
    /// As in its [`Introduction`].
    pub credits: Option<CreditPlace>,
}

/// One message of this rank to each peer, from those of its workers, which all have the same peers.
///
/// # Errors
/// When an engine made a card that is too long.
pub(crate) fn packed(workers: Vec<Introductions>) -> Result<Vec<(Peer, Vec<u8>)>> {
    let mut told: BTreeMap<Peer, Vec<Introduction>> = BTreeMap::new();
    for (peer, introduction) in workers.into_iter().flatten() {
        let bytes = introduction.card.0.len();
        if bytes > Card::BYTES_MAX {
            return Err(Error::Failed(format!(
                "the engine makes a card of {bytes} bytes, at most {} are allowed",
                Card::BYTES_MAX
            )));
        }
        told.entry(peer).or_default().push(introduction);
    }
    let pack = |(peer, introductions)| Ok((peer, pack(&introductions)?));
    told.into_iter().map(pack).collect()
}

/// Messages of these peers to each of this rank's `count` workers; `locality` gives a peer's place.
///
/// # Errors
/// When a peer said nothing, its message cannot be read, or it has fewer workers.
pub(crate) fn unpacked(
    heard: &[(Peer, Vec<u8>)],
    peers: &[Peer],
    count: usize,
    locality: impl Fn(Peer) -> Locality,
) -> Result<Vec<Vec<Introduced>>> {
    let mut of_workers = vec![Vec::new(); count];
    for from in peers {
        let message = heard.iter().find(|(rank, _)| rank == from);
        let nothing = || Error::Failed(format!("rank {from} did not introduce itself"));
        let (_, bytes) = message.ok_or_else(nothing)?;
        let all: Vec<Introduction> = unpack(bytes).map_err(|error| {
            Error::Failed(format!("rank {from} introduced itself unreadably: {error}"))
        })?;
        if all.len() < count {
            let missing = all.len();
            return Err(Error::Failed(format!(
                "rank {from} has no worker {missing} to connect to"
            )));
        }
        let locality = locality(*from);
        for (of_worker, introduction) in of_workers.iter_mut().zip(all) {
            let Introduction {
                card,
                memory,
                credits,
            } = introduction;
            let neighbor = Neighbor {
                peer: *from,
                card,
                locality,
            };
            of_worker.push(Introduced {
                neighbor,
                memory,
                credits,
            });
        }
    }
    Ok(of_workers)
}

/// Place of a peer, as the ranks know it.
pub(crate) fn locality(rank: &Rank, peer: Peer) -> Locality {
    let hosts = rank.hosts();
    if hosts.share_processes(rank.id(), peer) {
        Locality::SameContainer
    } else if hosts.share_machine(rank.id(), peer) {
        Locality::SameMachine
    } else {
        Locality::OtherMachine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(bytes: usize) -> Introduction {
        Introduction {
            card: Card(vec![7; bytes]),
            memory: Descriptor(vec![1, 2]),
            credits: None,
        }
    }

    #[test]
    fn every_worker_hears_its_own_peers() {
        let worker = |bytes| vec![(4, introduction(bytes)), (1, introduction(bytes))];
        let told = packed(vec![worker(3), worker(5)]).unwrap();
        assert_eq!(
            told.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(),
            [1, 4]
        );
        let place = |peer| match peer {
            1 => Locality::SameContainer,
            _ => Locality::OtherMachine,
        };
        let heard = unpacked(&told, &[1, 4], 2, place).unwrap();
        let lens = |introduced: &Vec<Introduced>| -> Vec<usize> {
            let all = introduced.iter();
            all.map(|one| one.neighbor.card.0.len()).collect()
        };
        assert_eq!(heard.iter().map(lens).collect::<Vec<_>>(), [[3, 3], [5, 5]]);
        let places = heard[1].iter().map(|one| one.neighbor.locality);
        assert!(places.eq([Locality::SameContainer, Locality::OtherMachine]));
        let silent = unpacked(&told, &[1, 2], 2, place).unwrap_err().to_string();
        assert!(
            silent.contains("rank 2 did not introduce itself"),
            "{silent}"
        );
        let missing = unpacked(&told, &[1], 3, place).unwrap_err().to_string();
        assert!(missing.contains("rank 1 has no worker 2"), "{missing}");
        let torn = unpacked(&[(1, b"xx".to_vec())], &[1], 1, place)
            .unwrap_err()
            .to_string();
        assert!(
            torn.contains("rank 1 introduced itself unreadably"),
            "{torn}"
        );
    }

    #[test]
    fn a_card_has_a_bound() {
        let long = packed(vec![vec![(1, introduction(Card::BYTES_MAX + 1))]]);
        assert!(long.unwrap_err().to_string().contains("65536 are allowed"));
    }
}
