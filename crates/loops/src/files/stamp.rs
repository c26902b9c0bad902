//! Stamps of sectors: a seed, and a word computed from the seed, the file number and the sector's offset. A stamp
//! identifies the file and offset of its sector.
//!
//! [`super::data`] has the content that follows a stamp in its sector.

use tonnage_sys::mapping::Arena;

use crate::permutation::{GOLDEN, mix_bits};
use tonnage_units::{Error, Result};

/// Size of a sector. Each sector begins with one stamp.
pub const SECTOR_BYTES: u64 = 512;
/// Size of a stamp: the seed and the word of the file and offset, 8 bytes each.
pub const STAMP_BYTES: usize = 16;

/// The inverse of `GOLDEN` modulo 2^64.
const GOLDEN_INVERSE: u64 = 0xf1de_83e1_9937_733d;

/// Key of the data of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileKey {
    seed: u64,
    base: u64,
}

impl FileKey {
    /// Returns the key of file number `file` for a seed. Files are numbered by rank.
    pub fn new(seed: u64, file: u32) -> Self {
        Self {
            seed,
            base: mix_bits(seed ^ mix_bits(u64::from(file) + 1)),
        }
    }

    /// Returns the key of a file from the stamp of one of its sectors; `None` if the stamp doesn't fit this file number
    /// and offset.
    pub fn of_stamp(stamp: [u8; STAMP_BYTES], file: u32, offset: u64) -> Option<Self> {
        let (seed, _) = words(&stamp);
        let key = Self::new(seed, file);
        (key.stamp(offset) == stamp).then_some(key)
    }

    pub fn seed(self) -> u64 {
        self.seed
    }

    #[inline]
    fn word(self, sector_offset: u64) -> u64 {
        self.base ^ (sector_offset / SECTOR_BYTES).wrapping_mul(GOLDEN)
    }

    /// Converts a stamp's second word to the sector's offset in this file. `None` if the offset is not below `bytes`.
    pub fn place(self, word: u64, bytes: u64) -> Option<u64> {
        let index = (word ^ self.base).wrapping_mul(GOLDEN_INVERSE);
        let offset = index.checked_mul(SECTOR_BYTES)?;
        (offset < bytes).then_some(offset)
    }

    /// Returns the stamp of the sector at an offset.
    pub fn stamp(self, sector_offset: u64) -> [u8; STAMP_BYTES] {
        let mut stamp = [0; STAMP_BYTES];
        stamp[..8].copy_from_slice(&self.seed.to_le_bytes());
        stamp[8..].copy_from_slice(&self.word(sector_offset).to_le_bytes());
        stamp
    }

    /// Stamps the sectors of a transfer of `len` bytes at file offset `offset`. The data are at `local` in memory.
    #[inline]
    pub fn stamp_all(self, arena: &Arena, local: u64, offset: u64, len: u64) -> Result<()> {
        let mut sector = offset - offset % SECTOR_BYTES;
        while sector < offset + len {
            let whole = sector >= offset && sector + STAMP_BYTES as u64 <= offset + len;
            let at = (local + sector).wrapping_sub(offset);
            match (whole, arena.word(at), arena.word(at.wrapping_add(8))) {
                (true, Some(seed), Some(word)) => {
                    // No other thread accesses this memory until the transfer is made, so relaxed ordering suffices.
                    seed.store(self.seed, std::sync::atomic::Ordering::Relaxed);
                    word.store(self.word(sector), std::sync::atomic::Ordering::Relaxed);
                }
                _ => self.stamp_part(arena, local, offset, len, sector)?,
            }
            sector += SECTOR_BYTES;
        }
        Ok(())
    }

    /// Writes the part of a stamp that lies within the transfer. Also handles stamps that are not aligned in memory.
    #[cold]
    fn stamp_part(
        self,
        arena: &Arena,
        local: u64,
        offset: u64,
        len: u64,
        sector: u64,
    ) -> Result<()> {
        let stamp = self.stamp(sector);
        let begin = sector.max(offset);
        let end = (sector + STAMP_BYTES as u64).min(offset + len);
        if begin >= end {
            return Ok(());
        }
        let part = &stamp[(begin - sector) as usize..(end - sector) as usize];
        let written = arena.write(local + (begin - offset), part);
        written.map_err(|error| Error::Failed(format!("stamping a transfer: {error}")))
    }
}

/// Returns the seed and second word of a stamp.
pub fn words(stamp: &[u8]) -> (u64, u64) {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&stamp[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    (word(0), word(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_sys::mapping::{Pages, Sharing};

    #[test]
    fn a_place_lies_within_the_file() {
        let key = FileKey::new(7, 1);
        let (_, word) = words(&key.stamp(1024));
        assert_eq!(key.place(word, 1025), Some(1024));
        assert_eq!(key.place(word, 1024), None);
    }

    /// Memory before and after a transfer must not be written.
    #[test]
    fn stamps_stay_within_their_transfer() {
        let key = FileKey::new(7, 1);
        for (offset, len) in [(0, 8), (8, 16), (8, 504), (512, 8), (520, 512), (3, 700)] {
            let arena = Arena::allocate(8192, Pages::Normal, Sharing::Private, None).unwrap();
            key.stamp_all(&arena, 4096, offset, len).unwrap();
            let mut bytes = vec![0; 8192];
            arena.read(0, &mut bytes).unwrap();
            let end = 4096 + len as usize;
            let others = bytes[..4096].iter().chain(&bytes[end..]);
            assert!(others.copied().all(|byte| byte == 0), "{offset} {len}");
        }
    }
}
