//! The pattern that is written into memory for verification. It makes bytes that have arrived differ from bytes that
//! have not.
//!
//! The 64-bit word at offset `o` of a flow is a mix of (seed, trial, flow, o / 8). So bytes differ from the pattern if
//! they never arrive, arrive at a wrong offset, or belong to another trial or flow. The mixing function is the
//! finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). It
//! is a bijection, so two different offsets of a flow never have the same word.

use tonnage_sys::mapping::Arena;

use tonnage_units::{Error, Result};

/// Bytes that are generated or compared at a time, in a buffer on the stack.
const CHUNK: usize = 4096;

/// Identifies the data of one flow in one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    base: u64,
    inverted: u64,
    /// Distance between a byte's offset in memory and its offset in the flow's data.
    ahead: u64,
}

impl Key {
    /// The key of one flow's data in one trial.
    pub fn new(seed: u64, trial: u64, initiator: u32, target: u32) -> Self {
        let flow = u64::from(initiator) << 32 | u64::from(target);
        Self {
            base: mix_bits(seed ^ mix_bits(trial ^ mix_bits(flow))),
            inverted: 0,
            ahead: 0,
        }
    }

    /// The key for a location to which bytes were moved from another slot. The source is `bytes` after the location in
    /// the flow's data. A wrapped negative number means that the source is before it.
    pub fn ahead(self, bytes: u64) -> Self {
        Self {
            ahead: self.ahead.wrapping_add(bytes),
            ..self
        }
    }

    /// The key of filler for a location that this key's data will overwrite. No filler byte equals the data byte, so
    /// even one byte that was not overwritten is found.
    pub fn poison(self) -> Self {
        Self {
            inverted: !self.inverted,
            ..self
        }
    }

    /// Parameters from which a device can compute the pattern itself, for data starting at `offset`. `origin` is the
    /// memory offset that corresponds to the key's offset 0.
    ///
    /// # Errors
    /// If the offset lies before `origin`.
    pub fn numbers(self, origin: u64, offset: u64) -> Result<KeyNumbers> {
        let place = offset
            .checked_sub(origin)
            .ok_or_else(|| out_of_range_error(origin, offset, 0))?;
        Ok(KeyNumbers {
            place: place.wrapping_add(self.ahead),
            base: self.base,
            inverted: self.inverted,
        })
    }

    #[inline]
    fn word(self, index: u64) -> u64 {
        mix_bits(self.base ^ index.wrapping_mul(GOLDEN)) ^ self.inverted
    }
}

/// Parameters for computing part of the pattern. Byte `place + i` is in the word `mix_bits(base ^ ((place + i) / 8 *
/// GOLDEN)) ^ inverted`, counted from the least significant byte. The sum and the product wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyNumbers {
    /// Position of the first byte in the flow's data.
    pub place: u64,
    /// Mixed into every word.
    pub base: u64,
    /// XOR mask of every word.
    pub inverted: u64,
}

/// The increment of SplitMix64.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64.
#[inline]
pub fn mix_bits(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The first differences that a check found, and the number of bytes compared.
#[derive(Debug, Default)]
pub struct Mismatches {
    /// Bytes compared.
    pub checked_bytes: u64,
    /// Bytes that differ.
    pub wrong_bytes: u64,
    /// The first few ranges that differ.
    pub first: Vec<Mismatch>,
}

/// A range of at most 8 bytes that differs from the expected data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Offset of the first wrong byte, counted from the start of the flow's data.
    pub offset: u64,
    /// Expected bytes, starting at the first wrong one.
    pub expected: Vec<u8>,
    /// Bytes found there.
    pub found: Vec<u8>,
}

impl Mismatches {
    /// Number of ranges that are kept.
    const KEPT: usize = 4;

    /// Whether all compared bytes were right.
    pub fn is_clean(&self) -> bool {
        self.wrong_bytes == 0
    }

    /// One readable line: count, first offsets, expected and found bytes in hex.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "{} of {} bytes are wrong",
            self.wrong_bytes, self.checked_bytes
        );
        for mismatch in &self.first {
            text += &format!(
                "; at offset {}: expected {}, found {}",
                mismatch.offset,
                hex(&mismatch.expected),
                hex(&mismatch.found)
            );
        }
        text
    }

    fn compare(&mut self, offset: u64, expected: &[u8], found: &[u8]) {
        self.checked_bytes += expected.len() as u64;
        if found != expected {
            self.add(offset, expected, found);
        }
    }

    fn add(&mut self, offset: u64, expected: &[u8], found: &[u8]) {
        let mut at = 0;
        while let Some(skip) = expected[at..]
            .iter()
            .zip(&found[at..])
            .position(|(a, b)| a != b)
        {
            let from = at + skip;
            let to = (from + 8).min(expected.len());
            self.wrong_bytes += expected[from..to]
                .iter()
                .zip(&found[from..to])
                .filter(|(a, b)| a != b)
                .count() as u64;
            if self.first.len() < Self::KEPT {
                self.first.push(Mismatch {
                    offset: offset + from as u64,
                    expected: expected[from..to].to_vec(),
                    found: found[from..to].to_vec(),
                });
            }
            at = to;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the key's data to `offset..offset + len` of the arena. The flow's offset 0 is at `origin`.
///
/// # Errors
/// If the range lies outside the arena or before `origin`.
pub fn fill(arena: &Arena, origin: u64, offset: u64, len: u64, key: Key) -> Result<()> {
    each_chunk(origin, offset, len, key, |at, expected| {
        arena
            .write(at, expected)
            .map_err(|error| Error::Failed(error.to_string()))
    })
}

/// Compares the range with the data that [`fill`] writes, and adds differences to `found`.
///
/// # Errors
/// If the range lies outside the arena or before `origin`.
pub fn verify(
    arena: &Arena,
    origin: u64,
    offset: u64,
    len: u64,
    key: Key,
    found: &mut Mismatches,
) -> Result<()> {
    let mut buffer = [0; CHUNK];
    each_chunk(origin, offset, len, key, |at, expected| {
        let actual = &mut buffer[..expected.len()];
        arena
            .read(at, actual)
            .map_err(|error| Error::Failed(error.to_string()))?;
        found.compare(at - origin, expected, actual);
        Ok(())
    })
}

/// Bytes of each copy except the first and the last.
const PIECE: u64 = 256 * CHUNK as u64;

/// Like [`fill`], for memory that is reachable only through `write`.
///
/// # Errors
/// If the range lies before `origin`, or if `write` fails.
pub fn fill_by(
    origin: u64,
    offset: u64,
    len: u64,
    key: Key,
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut bytes = Vec::new();
    each_piece(origin, offset, len, key, |at, len| {
        bytes.clear();
        each_chunk(origin, at, len, key, |_, chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        write(at, &bytes)
    })
}

/// Like [`verify`], for memory that is reachable only through `read`.
///
/// # Errors
/// If the range lies before `origin`, or if `read` fails.
pub fn verify_by(
    origin: u64,
    offset: u64,
    len: u64,
    key: Key,
    found: &mut Mismatches,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut bytes = Vec::new();
    each_piece(origin, offset, len, key, |start, len| {
        bytes.resize(len as usize, 0);
        read(start, &mut bytes)?;
        each_chunk(origin, start, len, key, |at, expected| {
            let actual = &bytes[(at - start) as usize..][..expected.len()];
            found.compare(at - origin, expected, actual);
            Ok(())
        })
    })
}

/// Start of the comparison chunk that contains a byte, if a range that starts at `offset` is checked. A check that
/// starts there finds the same mismatches as a check of the whole range.
///
/// # Errors
/// If the range lies before `origin`.
pub fn chunk_start(origin: u64, offset: u64, byte: u64, key: Key) -> Result<u64> {
    let skip = key.numbers(origin, offset)?.place % 8;
    let into = byte.saturating_sub(offset) + skip;
    Ok((offset + into - into % CHUNK as u64)
        .saturating_sub(skip)
        .max(offset))
}

/// Splits a range into pieces that end at chunk boundaries.
fn each_piece(
    origin: u64,
    offset: u64,
    len: u64,
    key: Key,
    mut visit: impl FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let end = offset
        .checked_add(len)
        .ok_or_else(|| out_of_range_error(origin, offset, len))?;
    let skip = key.numbers(origin, offset)?.place % 8;
    let (mut at, mut piece) = (offset, PIECE - skip);
    while at < end {
        let take = piece.min(end - at);
        visit(at, take)?;
        at += take;
        piece = PIECE;
    }
    Ok(())
}

fn out_of_range_error(origin: u64, offset: u64, len: u64) -> Error {
    Error::Failed(format!(
        "{len} bytes at offset {offset} lie outside the flow that starts at {origin}"
    ))
}

fn each_chunk(
    origin: u64,
    offset: u64,
    len: u64,
    key: Key,
    mut visit: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let outside = || out_of_range_error(origin, offset, len);
    let end = offset.checked_add(len).ok_or_else(outside)?;
    let mut at = offset;
    let mut words = [0; CHUNK];
    while at < end {
        let place = at.checked_sub(origin).ok_or_else(outside)?;
        let own = place.wrapping_add(key.ahead);
        let skip = (own % 8) as usize;
        let take = ((end - at) as usize).min(CHUNK - skip);
        for (index, word) in words[..(skip + take).next_multiple_of(8)]
            .chunks_exact_mut(8)
            .enumerate()
        {
            word.copy_from_slice(&key.word(own / 8 + index as u64).to_le_bytes());
        }
        visit(at, &words[skip..skip + take])?;
        at += take as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tonnage_sys::mapping::{Pages, Sharing};

    const SIZE: u64 = 20_480;

    fn arena() -> Arena {
        Arena::allocate(SIZE as usize, Pages::Normal, Sharing::Private, None).unwrap()
    }

    fn check(arena: &Arena, origin: u64, offset: u64, len: u64, key: Key) -> Mismatches {
        let mut found = Mismatches::default();
        verify(arena, origin, offset, len, key, &mut found).unwrap();
        found
    }

    #[test]
    fn swapped_stale_foreign_and_unmoved_blocks_are_found() {
        let (arena, key) = (arena(), Key::new(1, 7, 0, 1));
        fill(&arena, 0, 0, SIZE, key).unwrap();
        assert!(check(&arena, 0, 0, SIZE, key).is_clean());
        let (mut a, mut b) = ([0; 64], [0; 64]);
        arena.read(64, &mut a).unwrap();
        arena.read(128, &mut b).unwrap();
        arena.write(64, &b).unwrap();
        arena.write(128, &a).unwrap();
        let swapped = check(&arena, 0, 0, SIZE, key);
        assert_eq!(swapped.first[0].offset, 64);
        assert!(swapped.wrong_bytes > 100 && swapped.wrong_bytes <= 128);
        for other in [
            Key::new(1, 6, 0, 1),
            Key::new(2, 7, 0, 1),
            Key::new(1, 7, 1, 0),
            key.poison(),
        ] {
            assert!(check(&arena, 0, 4096, 64, other).wrong_bytes > 48);
        }
    }

    #[test]
    fn one_flipped_bit_is_reported_with_offset_and_bytes() {
        let (arena, key) = (arena(), Key::new(3, 0, 0, 1));
        fill(&arena, 100, 100, 5000, key).unwrap();
        let mut byte = [0];
        arena.read(4321, &mut byte).unwrap();
        arena.write(4321, &[byte[0] ^ 1]).unwrap();
        let found = check(&arena, 100, 100, 5000, key);
        assert_eq!((found.wrong_bytes, found.checked_bytes), (1, 5000));
        assert_eq!(found.first[0].offset, 4221);
        assert_eq!(found.first[0].expected[0], byte[0]);
        assert!(
            found
                .describe()
                .starts_with("1 of 5000 bytes are wrong; at offset 4221: expected ")
        );
    }

    #[test]
    fn moved_bytes_match_a_key_shifted_by_the_distance() {
        let (arena, key) = (arena(), Key::new(3, 0, 0, 1));
        // Data is moved towards the start and towards the end, by distances that are not whole words.
        for (from, to) in [(4099u64, 37u64), (37, 4099)] {
            let mut bytes = [0; 21];
            fill(&arena, 64, 64, 8192, key).unwrap();
            arena.read(64 + from, &mut bytes).unwrap();
            arena.write(64 + to, &bytes).unwrap();
            let key = key.ahead(from.wrapping_sub(to));
            assert!(check(&arena, 64, 64 + to, 21, key).is_clean());
            assert!(check(&arena, 64, 64 + to, 21, key.ahead(1)).wrong_bytes > 10);
            assert!(check(&arena, 64, 64 + to, 21, key.poison()).wrong_bytes == 21);
        }
    }

    /// Compares two ways of filling and verifying: in an arena, and by copies. The ranges span several pieces and start
    /// at odd offsets.
    #[test]
    fn memory_reached_by_copies_gives_the_same_results() {
        const BYTES: u64 = 3 << 20;
        let private = Sharing::Private;
        let arena = Arena::allocate(BYTES as usize, Pages::Normal, private, None).unwrap();
        let outside = |error| Error::Failed(format!("{error}"));
        for (origin, offset, len, ahead) in [
            (0, 0, BYTES, 0),
            (5, 12, BYTES - 13, 3),
            (1, 1, (1 << 20) + 1, 7),
            (64, 100, 0, 0),
        ] {
            let key = Key::new(1, 2, 3, 4).ahead(ahead);
            let (mut bytes, mut pieces) = (vec![0; BYTES as usize], Vec::new());
            fill_by(origin, offset, len, key, |at, piece| {
                pieces.push(piece.len() as u64);
                bytes[at as usize..][..piece.len()].copy_from_slice(piece);
                Ok(())
            })
            .unwrap();
            assert!(
                pieces.iter().sum::<u64>() == len && pieces.iter().all(|&piece| piece <= PIECE)
            );
            arena.write(0, &bytes).unwrap();
            assert!(check(&arena, origin, offset, len, key).is_clean());
            for at in [
                offset,
                offset + len / 3,
                offset + len / 3 + 5,
                (offset + len).max(1) - 1,
            ] {
                arena.write(at, &[!bytes[at as usize]]).unwrap();
            }
            let expected = check(&arena, origin, offset, len, key);
            let verify_from = |from: u64| {
                let mut found = Mismatches::default();
                let len = offset + len - from;
                verify_by(origin, from, len, key, &mut found, |at, piece| {
                    arena.read(at, piece).map_err(outside)
                })
                .unwrap();
                found
            };
            let whole = verify_from(offset);
            assert_eq!(whole.checked_bytes, expected.checked_bytes);
            for first in [offset, offset + len / 3] {
                let start = chunk_start(origin, offset, first, key).unwrap();
                assert!((offset..=first).contains(&start) && first - start <= CHUNK as u64);
                let found = verify_from(start);
                let behind = |one: &&Mismatch| one.offset + origin >= start;
                let of: Vec<_> = expected.first.iter().filter(behind).collect();
                assert_eq!(
                    found.first.iter().collect::<Vec<_>>(),
                    of,
                    "{origin} {offset} {len}"
                );
            }
            assert_eq!(
                (whole.wrong_bytes, whole.first),
                (expected.wrong_bytes, expected.first)
            );
        }
        let nothing = |_: u64, _: &[u8]| Ok(());
        assert!(fill_by(8, 0, 1, Key::new(0, 0, 0, 0), nothing).is_err());
    }

    #[test]
    fn ranges_outside_the_arena_are_errors() {
        let arena = arena();
        let key = Key::new(0, 0, 0, 0);
        assert!(fill(&arena, 0, SIZE, 1, key).is_err());
        assert!(fill(&arena, 8, 0, 1, key).is_err());
        assert!(fill(&arena, 0, u64::MAX, 2, key).is_err());
    }

    proptest! {
        #[test]
        fn pieces_make_the_same_whole(cuts in proptest::collection::vec(1u64..700, 1..20), origin in 0u64..100) {
            let (arena, key) = (arena(), Key::new(9, 9, 9, 9));
            let mut at = origin;
            for cut in cuts {
                fill(&arena, origin, at, cut, key).unwrap();
                at += cut;
            }
            prop_assert!(check(&arena, origin, origin, at - origin, key).is_clean());
        }
    }
}
