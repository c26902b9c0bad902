//! Write-imms that have arrived in part. Each part carries the immediate of the whole write-imm. The target reports one
//! arrival after all parts with that immediate have arrived.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tonnage_units::{Error, Result};

use crate::{Completion, Lane, Peer};

/// Limit on the incomplete write-imms of one worker. If there are more, parts must be missing.
const INCOMPLETE_MAX: usize = 1 << 20;

/// Room for incomplete write-imms beyond the usual number in flight. The initiator's depth does not limit their number:
/// while one path's sockets are full, another path's sockets hold megabytes of parts.
const OVERFLOW_ENTRIES: usize = 1 << 16;

/// The number of parts in each write-imm of one peer.
#[derive(Debug)]
struct ExpectedParts {
    peer: Peer,
    bytes: u32,
    parts: u32,
}

/// Number of parts that have arrived, by peer and immediate.
type PendingParts = HashMap<(Peer, u32), u32, BuildHasherDefault<PairHasher>>;

/// Incomplete write-imms from all peers of one worker.
#[derive(Debug, Default)]
pub(super) struct PartAssembly {
    expected: Vec<ExpectedParts>,
    pending: PendingParts,
    /// The most entries that `pending` may hold. It is half of the capacity, because a fuller table allocates memory
    /// when it cleans up removed entries.
    pending_max: usize,
    /// Entries for which `pending` has no room. One table for all entries would not fit in a cache.
    overflow: PendingParts,
}

impl PartAssembly {
    /// Starts expecting write-imms of `bytes` bytes in `parts` parts from a peer, at most `depth` in flight.
    pub(super) fn expect(&mut self, peer: Peer, bytes: u32, parts: u32, depth: usize) {
        self.expected.retain(|one| one.peer != peer);
        if parts > 1 {
            let one = ExpectedParts { peer, bytes, parts };
            self.expected.push(one);
            self.pending.reserve(8 * depth * self.expected.len());
            self.pending_max = self.pending.capacity() / 2;
            self.overflow.reserve(2 * OVERFLOW_ENTRIES);
        }
    }

    /// Peers that send their write-imms in parts.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.expected.iter().map(|one| one.peer)
    }

    /// Stops expecting that a peer's write-imms arrive in parts.
    ///
    /// # Errors
    /// If some write-imms have arrived only in part, or if there are parts left over.
    pub(super) fn finish(&mut self, peer: Peer) -> Result<()> {
        let Some(at) = self.expected.iter().position(|one| one.peer == peer) else {
            return Ok(());
        };
        let ExpectedParts { parts, .. } = self.expected.swap_remove(at);
        let of_peer =
            |(key, count): (&(Peer, u32), &u32)| (key.0 == peer).then_some((key.1, *count));
        let mut all = self.pending.iter().chain(&self.overflow);
        let found = all.find_map(of_peer);
        for pending in [&mut self.pending, &mut self.overflow] {
            pending.retain(|key, _| key.0 != peer);
        }
        match found {
            None => Ok(()),
            Some((imm, count)) => Err(Error::Failed(format!(
                "write-imm {imm} from rank {peer} has {count} of {parts} parts: some are missing, or one arrived twice"
            ))),
        }
    }

    /// Counts a part, and returns the arrival of the whole write-imm if this was its last part.
    ///
    /// # Errors
    /// If parts must be missing, because too many write-imms are incomplete.
    #[inline]
    pub(super) fn add_part(&mut self, part: &Completion) -> Result<Option<Completion>> {
        let whole = match part.lane {
            // Arrivals are unnamed only if there is a single peer.
            Lane::UNNAMED => self.expected.first(),
            Lane(peer) => self.expected.iter().find(|one| one.peer == peer),
        };
        let Some(whole) = whole else {
            return Ok(Some(*part));
        };
        if self.overflow.len() >= INCOMPLETE_MAX {
            return Err(Error::Failed(format!(
                "{INCOMPLETE_MAX} write-imms are incomplete, the last from rank {}: parts are missing",
                whole.peer
            )));
        }
        let key = (whole.peer, part.imm);
        let (parts, len) = (whole.parts, whole.bytes);
        let pending = self.table_for(key);
        let arrived = pending.entry(key).or_insert(0);
        *arrived += 1;
        if *arrived < parts {
            return Ok(None);
        }
        pending.remove(&key);
        Ok(Some(Completion { len, ..*part }))
    }

    /// The table that counts the parts of a write-imm: the table that already contains it, else `pending` while it has
    /// room.
    #[inline]
    fn table_for(&mut self, key: (Peer, u32)) -> &mut PendingParts {
        let has_room = self.pending.len() < self.pending_max;
        if self.overflow.is_empty() && has_room {
            return &mut self.pending;
        }
        let in_overflow = self.overflow.contains_key(&key);
        match !in_overflow && (has_room || self.pending.contains_key(&key)) {
            true => &mut self.pending,
            false => &mut self.overflow,
        }
    }
}

/// A hash of two numbers that are mostly consecutive: one multiplication by 2^64 over the golden ratio (Knuth, The Art
/// of Computer Programming, volume 3, section 6.4). It need not resist attacks: peers choose the immediates, but a bad
/// choice only slows down their own target.
#[derive(Debug, Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
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
    fn tables_do_not_grow_when_one_path_is_far_ahead_of_another() {
        let mut assembly = PartAssembly::default();
        assembly.expect(1, 20, 2, 16);
        // A removed entry can leave a tombstone that occupies room until the table is cleaned up. The capacity
        // increases only if the table grows.
        let capacities =
            |assembly: &PartAssembly| [assembly.pending.capacity(), assembly.overflow.capacity()];
        let at_first = capacities(&assembly);
        // The second path lags behind the first by this many write-imms. Each part that arrives on the second path
        // completes the oldest incomplete write-imm.
        for behind in [1, 100, OVERFLOW_ENTRIES as u32] {
            let wholes = 3 * OVERFLOW_ENTRIES as u32;
            let mut ended = 0;
            for imm in 0..wholes + behind {
                if imm < wholes {
                    assert!(assembly.add_part(&part(imm)).unwrap().is_none());
                }
                if imm >= behind {
                    let whole = assembly.add_part(&part(imm - behind)).unwrap().unwrap();
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
        assembly.add_part(&part(5)).unwrap();
        assert!(assembly.finish(1).is_err());
    }

    #[test]
    fn too_many_missing_parts_are_an_error() {
        let mut assembly = PartAssembly::default();
        assembly.expect(1, 20, 2, 16);
        let error =
            (0..2 * INCOMPLETE_MAX as u32).find_map(|imm| assembly.add_part(&part(imm)).err());
        let error = error.unwrap().to_string();
        assert!(error.contains("rank 1: parts are missing"), "{error}");
    }
}
