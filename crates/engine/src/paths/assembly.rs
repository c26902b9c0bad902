//! Write-imms that have arrived in part. Each part carries the immediate of the whole, so that the target counts one
//! arrival when as many have come as the whole was cut into.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tonnage_units::{Error, Result};

use crate::{Completion, Lane, Peer};

/// Wholes of one worker that have arrived in part, at most: more means that parts are missing.
const PENDING_MAX: usize = 1 << 20;

/// Wholes for which there is room beyond those that are usually on their way. Completions of the initiator bound
/// nothing here: while one path's sockets are full, another's hold megabytes of parts.
const OVERTAKEN: usize = 1 << 16;

/// Parts that the write-imms of a peer come in.
#[derive(Debug)]
struct Expected {
    peer: Peer,
    bytes: u32,
    parts: u32,
}

/// Parts that have come, by peer and immediate.
type Pending = HashMap<(Peer, u32), u32, BuildHasherDefault<Mix>>;

/// The write-imms of all peers of one worker.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    expected: Vec<Expected>,
    pending: Pending,
    /// The most that `pending` holds: half of its room, because a fuller table allocates when it clears what was
    /// removed.
    usual: usize,
    /// Those that `pending` has no room for: a table for so many is too large to stay in a cache.
    overtaken: Pending,
}

impl Assembly {
    /// Begins to expect write-imms of so many bytes, in so many parts, from a peer; at most `depth` are on their way.
    pub(super) fn begin(&mut self, peer: Peer, bytes: u32, parts: u32, depth: usize) {
        self.expected.retain(|one| one.peer != peer);
        if parts > 1 {
            let one = Expected { peer, bytes, parts };
            self.expected.push(one);
            self.pending.reserve(8 * depth * self.expected.len());
            self.usual = self.pending.capacity() / 2;
            self.overtaken.reserve(2 * OVERTAKEN);
        }
    }

    /// Peers whose write-imms come in parts.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.expected.iter().map(|one| one.peer)
    }

    /// Ends expecting write-imms from a peer.
    ///
    /// # Errors
    /// When some of them have arrived only in part, or parts are left over.
    pub(super) fn end(&mut self, peer: Peer) -> Result<()> {
        let Some(at) = self.expected.iter().position(|one| one.peer == peer) else {
            return Ok(());
        };
        let Expected { parts, .. } = self.expected.swap_remove(at);
        let of_peer =
            |(key, count): (&(Peer, u32), &u32)| (key.0 == peer).then_some((key.1, *count));
        let mut all = self.pending.iter().chain(&self.overtaken);
        let found = all.find_map(of_peer);
        for pending in [&mut self.pending, &mut self.overtaken] {
            pending.retain(|key, _| key.0 != peer);
        }
        match found {
            None => Ok(()),
            Some((imm, count)) => Err(Error::Failed(format!(
                "write-imm {imm} of rank {peer} is left with {count} of {parts} parts: some are missing, or one came twice"
            ))),
        }
    }

    /// Counts a part, and returns the arrival of the whole where it is the last.
    ///
    /// # Errors
    /// When so many wholes are incomplete that parts must be missing.
    #[inline]
    pub(super) fn part(&mut self, part: &Completion) -> Result<Option<Completion>> {
        let whole = match part.lane {
            // Only one peer can be meant.
            Lane::UNNAMED => self.expected.first(),
            Lane(peer) => self.expected.iter().find(|one| one.peer == peer),
        };
        let Some(whole) = whole else {
            return Ok(Some(*part));
        };
        if self.overtaken.len() >= PENDING_MAX {
            return Err(Error::Failed(format!(
                "{PENDING_MAX} write-imms have arrived only in part, the last from rank {}: parts are missing",
                whole.peer
            )));
        }
        let key = (whole.peer, part.imm);
        let (parts, len) = (whole.parts, whole.bytes);
        let pending = self.table_of(key);
        let come = pending.entry(key).or_insert(0);
        *come += 1;
        if *come < parts {
            return Ok(None);
        }
        pending.remove(&key);
        Ok(Some(Completion { len, ..*part }))
    }

    /// The table that a whole is counted in: where it is already, else the small one while there is room.
    #[inline]
    fn table_of(&mut self, key: (Peer, u32)) -> &mut Pending {
        let roomy = self.pending.len() < self.usual;
        if self.overtaken.is_empty() && roomy {
            return &mut self.pending;
        }
        let elsewhere = self.overtaken.contains_key(&key);
        match !elsewhere && (roomy || self.pending.contains_key(&key)) {
            true => &mut self.pending,
            false => &mut self.overtaken,
        }
    }
}

/// A hash of two numbers that are mostly in a row: one multiplication by 2^64 over the golden ratio (Knuth, The Art of
/// Computer Programming, volume 3, section 6.4). Peers choose the immediates, and one that chose badly would only slow
/// down its own target.
#[derive(Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        let mixed =
            (self.0.rotate_left(32) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ending;

    fn part(imm: u32) -> Completion {
        Completion {
            lane: Lane(1),
            imm,
            len: 10,
            ending: Ending::Arrived,
            ..Completion::EMPTY
        }
    }

    #[test]
    fn a_path_may_be_far_ahead_of_another_and_tables_do_not_grow() {
        let mut assembly = Assembly::default();
        assembly.begin(1, 20, 2, 16);
        // What is removed can leave a trace that takes room until the table is cleared of it; only one that grew has
        // more.
        let capacities =
            |assembly: &Assembly| [assembly.pending.capacity(), assembly.overtaken.capacity()];
        let at_first = capacities(&assembly);
        // The second path is so many wholes behind; what it brings ends the oldest.
        for behind in [1, 100, OVERTAKEN as u32] {
            let wholes = 3 * OVERTAKEN as u32;
            let mut ended = 0;
            for imm in 0..wholes + behind {
                if imm < wholes {
                    assert!(assembly.part(&part(imm)).unwrap().is_none());
                }
                if imm >= behind {
                    let whole = assembly.part(&part(imm - behind)).unwrap().unwrap();
                    assert_eq!((whole.imm, whole.len), (imm - behind, 20));
                    ended += 1;
                }
            }
            assert_eq!(ended, wholes);
            let now = capacities(&assembly);
            assert!(
                now <= at_first && now[1] <= at_first[1],
                "{now:?} {at_first:?}"
            );
        }
        assembly.part(&part(5)).unwrap();
        assert!(assembly.end(1).is_err());
    }

    #[test]
    fn parts_that_are_missing_without_end_are_told() {
        let mut assembly = Assembly::default();
        assembly.begin(1, 20, 2, 16);
        let told = (0..2 * PENDING_MAX as u32).find_map(|imm| assembly.part(&part(imm)).err());
        let told = told.unwrap().to_string();
        assert!(told.contains("rank 1: parts are missing"), "{told}");
    }
}
