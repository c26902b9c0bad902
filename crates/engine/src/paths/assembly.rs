//! Write-imms that have arrived in part. Each part carries the immediate of the whole, so that the target counts one
//! arrival when as many have come as the whole was cut into.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tonnage_units::{Error, Result};

use crate::{Completion, Lane, Peer};

/// Wholes of one worker that have arrived in part, at most: more means that parts are missing.
const PENDING_MAX: usize = 1 << 20;

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
}

impl Assembly {
    /// Begins to expect write-imms of so many bytes, in so many parts, from a peer; at most `depth` are on their way.
    pub(super) fn begin(&mut self, peer: Peer, bytes: u32, parts: u32, depth: usize) {
        self.expected.retain(|one| one.peer != peer);
        if parts > 1 {
            let one = Expected { peer, bytes, parts };
            self.expected.push(one);
            self.pending.reserve(4 * depth * self.expected.len());
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
        let found = self.pending.iter().find_map(of_peer);
        self.pending.retain(|key, _| key.0 != peer);
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
        let key = (whole.peer, part.imm);
        if self.pending.len() >= PENDING_MAX {
            return Err(Error::Failed(format!(
                "{PENDING_MAX} write-imms have arrived only in part, the last from rank {}: parts are missing",
                whole.peer
            )));
        }
        let come = self.pending.entry(key).or_insert(0);
        *come += 1;
        if *come < whole.parts {
            return Ok(None);
        }
        self.pending.remove(&key);
        let len = whole.bytes;
        Ok(Some(Completion { len, ..*part }))
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
