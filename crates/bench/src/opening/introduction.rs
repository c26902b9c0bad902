//! Messages of workers to their peers before they are connected: how to reach them, and their memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tonnage_engine::{Card, Descriptor, Locality, Neighbor, Peer};
use tonnage_loops::each::PlaceInMemory;
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
    pub credits: Option<PlaceInMemory>,
    /// The place where this peer writes about single operations; `None` where these are not compared.
    pub messages: Option<PlaceInMemory>,
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
    pub credits: Option<PlaceInMemory>,
    /// As in its [`Introduction`].
    pub messages: Option<PlaceInMemory>,
}

/// Words of this rank's workers to each peer.
#[derive(Debug)]
pub(crate) struct Spoken(BTreeMap<Peer, Vec<Introduction>>);

/// A rank's message to a peer.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// Its group of the proof of path.
    group: Option<u32>,
    introductions: Vec<Introduction>,
}

/// Words of this rank to each peer, from those of its workers, which all have the same peers.
///
/// # Errors
/// When an engine made a card that is too long.
pub(crate) fn spoken(workers: Vec<Introductions>) -> Result<Spoken> {
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
    Ok(Spoken(told))
}

impl Spoken {
    /// One message to each peer, with this rank's group of the proof of path.
    pub(crate) fn packed(self, group: Option<u32>) -> Result<Vec<(Peer, Vec<u8>)>> {
        let pack = |(peer, introductions)| {
            let greeting = Greeting {
                group,
                introductions,
            };
            Ok((peer, pack(&greeting)?))
        };
        self.0.into_iter().map(pack).collect()
    }
}

/// Messages of these peers to each of this rank's `count` workers, from what was heard in the order of the ranks;
/// `locality` gives a peer's place, and `meet` is told its group.
///
/// # Errors
/// When a peer said nothing, its message cannot be read, or it has fewer workers.
pub(crate) fn heard_by(
    count: usize,
    (peers, heard): (&[Peer], &[(Peer, Vec<u8>)]),
    locality: impl Fn(Peer) -> Locality,
    mut meet: impl FnMut(Peer, Option<u32>),
) -> Result<Vec<Vec<Introduced>>> {
    let mut of_workers = vec![Vec::new(); count];
    for from in peers {
        let place = heard.binary_search_by_key(from, |(rank, _)| *rank);
        let nothing = || Error::Failed(format!("rank {from} did not introduce itself"));
        let message = place.ok().and_then(|place| heard.get(place));
        let (_, bytes) = message.ok_or_else(nothing)?;
        let Greeting {
            group,
            introductions,
        } = unpack(bytes).map_err(|error| {
            Error::Failed(format!("rank {from} introduced itself unreadably: {error}"))
        })?;
        if introductions.len() < count {
            let missing = introductions.len();
            return Err(Error::Failed(format!(
                "rank {from} has no worker {missing} to connect to"
            )));
        }
        meet(*from, group);
        let locality = locality(*from);
        for (of_worker, introduction) in of_workers.iter_mut().zip(introductions) {
            of_worker.push(Introduced {
                neighbor: Neighbor {
                    peer: *from,
                    card: introduction.card,
                    locality,
                },
                memory: introduction.memory,
                credits: introduction.credits,
                messages: introduction.messages,
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
            messages: None,
        }
    }

    #[test]
    fn every_worker_hears_its_own_peers() {
        let worker = |bytes| vec![(4, introduction(bytes)), (1, introduction(bytes))];
        let told = spoken(vec![worker(3), worker(5)]).unwrap();
        let told = told.packed(Some(7)).unwrap();
        assert_eq!(
            told.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(),
            [1, 4]
        );
        let place = |peer| match peer {
            1 => Locality::SameContainer,
            _ => Locality::OtherMachine,
        };
        let mut groups = Vec::new();
        let meet = |peer, group| groups.push((peer, group));
        let heard = heard_by(2, (&[1, 4], &told), place, meet).unwrap();
        assert_eq!(groups, [(1, Some(7)), (4, Some(7))]);
        let lens = |introduced: &Vec<Introduced>| -> Vec<usize> {
            let all = introduced.iter();
            all.map(|one| one.neighbor.card.0.len()).collect()
        };
        assert_eq!(heard.iter().map(lens).collect::<Vec<_>>(), [[3, 3], [5, 5]]);
        let places = heard[1].iter().map(|one| one.neighbor.locality);
        assert!(places.eq([Locality::SameContainer, Locality::OtherMachine]));
        let refused = |count, peers: &[Peer], told: &[(Peer, Vec<u8>)]| {
            let heard = heard_by(count, (peers, told), place, |_, _| {});
            heard.unwrap_err().to_string()
        };
        let silent = refused(2, &[1, 2], &told);
        assert!(
            silent.contains("rank 2 did not introduce itself"),
            "{silent}"
        );
        let missing = refused(3, &[1], &told);
        assert!(missing.contains("rank 1 has no worker 2"), "{missing}");
        let torn = refused(1, &[1], &[(1, b"xx".to_vec())]);
        assert!(
            torn.contains("rank 1 introduced itself unreadably"),
            "{torn}"
        );
    }

    #[test]
    fn a_card_has_a_bound() {
        let long = spoken(vec![vec![(1, introduction(Card::BYTES_MAX + 1))]]);
        assert!(long.unwrap_err().to_string().contains("65536 are allowed"));
    }
}
