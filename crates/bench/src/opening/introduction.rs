//! Messages that workers send to their peers before they connect. They contain addresses and memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tonnage_engine::{Descriptor, EndpointAddress, Locality, Peer, PeerEndpoint};
use tonnage_loops::each::PlaceInMemory;
use tonnage_ranks::{Rank, pack, unpack};
use tonnage_units::{Error, Result};

/// A worker's message to one of its peers: its endpoint address and memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Introduction {
    /// The worker's endpoint address for this peer.
    pub address: EndpointAddress,
    /// Descriptor of the worker's memory, which the peer can access.
    pub memory: Descriptor,
    /// Where this peer, as a receiver, writes how many of the worker's messages it has taken. `None` if completions
    /// already show this.
    pub credits: Option<PlaceInMemory>,
    /// Where this peer writes messages about single operations; `None` if operations are not compared.
    pub messages: Option<PlaceInMemory>,
}

/// Messages of one worker to all its peers.
pub type Introductions = Vec<(Peer, Introduction)>;

/// A peer's message to a worker, with the locality of the peer.
#[derive(Debug, Clone)]
pub struct PeerIntroduction {
    /// The peer's endpoint address and locality.
    pub neighbor: PeerEndpoint,
    /// See [`Introduction`].
    pub memory: Descriptor,
    /// See [`Introduction`].
    pub credits: Option<PlaceInMemory>,
    /// See [`Introduction`].
    pub messages: Option<PlaceInMemory>,
}

/// Introductions of all this rank's workers, grouped by peer.
#[derive(Debug)]
pub(crate) struct PeerMessages(BTreeMap<Peer, Vec<Introduction>>);

/// A rank's message to another rank.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// Number of the sender's group in the proof of path.
    group: Option<u32>,
    introductions: Vec<Introduction>,
}

impl PeerMessages {
    /// Groups the introductions of this rank's workers by peer. All workers must have the same peers.
    ///
    /// # Errors
    /// If an engine made an endpoint address that is too long.
    pub(crate) fn new(workers: Vec<Introductions>) -> Result<Self> {
        let mut by_peer: BTreeMap<Peer, Vec<Introduction>> = BTreeMap::new();
        for (peer, introduction) in workers.into_iter().flatten() {
            let bytes = introduction.address.0.len();
            if bytes > EndpointAddress::BYTES_MAX {
                return Err(Error::Failed(format!(
                    "the engine makes a card of {bytes} bytes, at most {} are allowed",
                    EndpointAddress::BYTES_MAX
                )));
            }
            by_peer.entry(peer).or_default().push(introduction);
        }
        Ok(Self(by_peer))
    }

    /// Encodes one message per peer. `group` is this rank's group in the proof of path.
    pub(crate) fn encode(self, group: Option<u32>) -> Result<Vec<(Peer, Vec<u8>)>> {
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

/// Decodes the introductions of `peers` for each of this rank's `count` workers. `messages` must be in rank order.
/// `locality` returns the locality of a peer; `note_group` gets the group of a peer.
///
/// # Errors
/// If a peer sent no message, if its message cannot be decoded, or if the peer has fewer workers.
pub(crate) fn introductions_of(
    count: usize,
    (peers, messages): (&[Peer], &[(Peer, Vec<u8>)]),
    locality: impl Fn(Peer) -> Locality,
    mut note_group: impl FnMut(Peer, Option<u32>),
) -> Result<Vec<Vec<PeerIntroduction>>> {
    let mut of_workers = vec![Vec::new(); count];
    for from in peers {
        let place = messages.binary_search_by_key(from, |(rank, _)| *rank);
        let nothing = || Error::Failed(format!("rank {from} did not introduce itself"));
        let message = place.ok().and_then(|place| messages.get(place));
        let (_, bytes) = message.ok_or_else(nothing)?;
        let Greeting {
            group,
            introductions,
        } = unpack(bytes).map_err(|error| {
            Error::Failed(format!(
                "cannot decode the introduction of rank {from}: {error}"
            ))
        })?;
        if introductions.len() < count {
            let missing = introductions.len();
            return Err(Error::Failed(format!(
                "rank {from} has no thread {missing} to connect to"
            )));
        }
        note_group(*from, group);
        let locality = locality(*from);
        for (of_worker, introduction) in of_workers.iter_mut().zip(introductions) {
            of_worker.push(PeerIntroduction {
                neighbor: PeerEndpoint {
                    peer: *from,
                    address: introduction.address,
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

/// Returns the locality of a peer.
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
            address: EndpointAddress(vec![7; bytes]),
            memory: Descriptor(vec![1, 2]),
            credits: None,
            messages: None,
        }
    }

    #[test]
    fn every_worker_gets_its_own_introductions() {
        let worker = |bytes| vec![(4, introduction(bytes)), (1, introduction(bytes))];
        let messages = PeerMessages::new(vec![worker(3), worker(5)]).unwrap();
        let messages = messages.encode(Some(7)).unwrap();
        assert_eq!(
            messages.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(),
            [1, 4]
        );
        let place = |peer| match peer {
            1 => Locality::SameContainer,
            _ => Locality::OtherMachine,
        };
        let mut groups = Vec::new();
        let note_group = |peer, group| groups.push((peer, group));
        let introduced = introductions_of(2, (&[1, 4], &messages), place, note_group).unwrap();
        assert_eq!(groups, [(1, Some(7)), (4, Some(7))]);
        let lens = |introduced: &Vec<PeerIntroduction>| -> Vec<usize> {
            let all = introduced.iter();
            all.map(|one| one.neighbor.address.0.len()).collect()
        };
        assert_eq!(
            introduced.iter().map(lens).collect::<Vec<_>>(),
            [[3, 3], [5, 5]]
        );
        let places = introduced[1].iter().map(|one| one.neighbor.locality);
        assert!(places.eq([Locality::SameContainer, Locality::OtherMachine]));
        let refused = |count, peers: &[Peer], messages: &[(Peer, Vec<u8>)]| {
            let introduced = introductions_of(count, (peers, messages), place, |_, _| {});
            introduced.unwrap_err().to_string()
        };
        let silent = refused(2, &[1, 2], &messages);
        assert!(
            silent.contains("rank 2 did not introduce itself"),
            "{silent}"
        );
        let missing = refused(3, &[1], &messages);
        assert!(missing.contains("rank 1 has no thread 2"), "{missing}");
        let torn = refused(1, &[1], &[(1, b"xx".to_vec())]);
        assert!(
            torn.contains("cannot decode the introduction of rank 1"),
            "{torn}"
        );
    }

    #[test]
    fn an_address_has_a_length_limit() {
        let long = PeerMessages::new(vec![vec![(
            1,
            introduction(EndpointAddress::BYTES_MAX + 1),
        )]]);
        assert!(long.unwrap_err().to_string().contains("65536 are allowed"));
    }
}
