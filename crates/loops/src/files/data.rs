//! Content of files. Every sector identifies the file and offset it belongs to.
//!
//! Each 512-byte sector begins with two little-endian words: the seed of the data, and a mix of (seed, file, offset).
//! The other bytes come from a 4 MiB pool generated from the seed, indexed by the file offset. No two sectors of a run
//! are therefore equal, and a sector from another offset, another file or an earlier run can be recognized. A reader
//! needs only the file, because it contains the seed. Preparing a transfer costs two stores per sector, because the
//! pool is filled before the clock starts.
//!
//! The pool repeats after 4 MiB, so a compressor finds repetition only if its window is larger than that.

use tonnage_sys::mapping::Arena;

use super::differences::{CandidateFiles, DataDifferences};
use super::stamp::{FileKey, SECTOR_BYTES};
use crate::permutation::mix_bits;
use tonnage_units::{Error, Result};

/// Size of the pool. Content repeats after this.
pub const POOL_BYTES: u64 = 4 << 20;
/// Page size of compressible data. Each page has its zeros at the end.
const PAGE_BYTES: usize = 4096;
const CHUNK: usize = 4096;

/// Source of the bytes that follow the stamp in each sector.
pub struct ContentPool {
    bytes: Vec<u8>,
}

impl ContentPool {
    /// Generates the pool of a seed, with `zeros_percent` percent of zeros.
    pub fn new(seed: u64, zeros_percent: u32) -> Self {
        let mut bytes = vec![0; POOL_BYTES as usize];
        for (index, word) in (0u64..).zip(bytes.chunks_exact_mut(8)) {
            word.copy_from_slice(&mix_bits(seed ^ mix_bits(!index)).to_le_bytes());
        }
        if zeros_percent > 0 {
            let zeros = zeros_of_page(zeros_percent);
            for page in bytes.chunks_exact_mut(PAGE_BYTES) {
                page[PAGE_BYTES - zeros..].fill(0);
            }
        }
        Self { bytes }
    }

    /// Copies the pool bytes for file offsets from `offset` on into memory, without stamps.
    pub fn copy_into(&self, arena: &Arena, local: u64, offset: u64, len: u64) -> Result<()> {
        let mut done = 0;
        while done < len {
            let at = ((offset + done) % POOL_BYTES) as usize;
            let piece = &self.bytes[at..];
            let piece = &piece[..piece.len().min((len - done) as usize)];
            arena
                .write(local + done, piece)
                .map_err(|error| Error::Failed(format!("filling a buffer: {error}")))?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// Fills `expected` with the correct file content from `offset` on.
    fn fill_expected(&self, key: FileKey, offset: u64, expected: &mut [u8]) {
        let mut rest = &mut *expected;
        let mut at = (offset % POOL_BYTES) as usize;
        while !rest.is_empty() {
            let piece = rest.len().min(self.bytes.len() - at);
            let (front, back) = rest.split_at_mut(piece);
            front.copy_from_slice(&self.bytes[at..at + piece]);
            (rest, at) = (back, 0);
        }
        let end = offset + expected.len() as u64;
        let mut sector = offset - offset % SECTOR_BYTES;
        while sector < end {
            for (at, byte) in (sector..).zip(key.stamp(sector)) {
                if (offset..end).contains(&at) {
                    expected[(at - offset) as usize] = byte;
                }
            }
            sector += SECTOR_BYTES;
        }
    }

    /// Compares `len` bytes in memory with the correct file content at `offset`.
    pub fn check(
        &self,
        arena: &Arena,
        local: u64,
        key: FileKey,
        place: (&CandidateFiles<'_>, u64),
        len: u64,
        found: &mut DataDifferences,
    ) -> Result<()> {
        let (files, offset) = place;
        let (mut is, mut should) = ([0; CHUNK], [0; CHUNK]);
        let mut done = 0;
        while done < len {
            // Chunks end at sector boundaries, so that a wrong sector is inspected as a whole.
            let at = offset + done;
            let room = CHUNK as u64 - at % SECTOR_BYTES;
            let piece = room.min(len - done) as usize;
            let (is, should) = (&mut is[..piece], &mut should[..piece]);
            arena
                .read(local + done, is)
                .map_err(|error| Error::Failed(format!("checking a transfer: {error}")))?;
            self.fill_expected(key, at, should);
            found.checked_bytes += piece as u64;
            if is != should {
                found.compare(files, key, at, is, should);
            }
            done += piece as u64;
        }
        Ok(())
    }
}

/// Returns the number of zeros at the end of each page for a percentage of compressible bytes. Stamps overwrite some
/// zeros and don't compress, so extra zeros make up for the stamps.
fn zeros_of_page(percent: u32) -> usize {
    let wanted = PAGE_BYTES * percent as usize / 100;
    let mut zeros = wanted;
    while zeros < PAGE_BYTES && zeros - stamps_in_last(zeros) < wanted {
        zeros += 1;
    }
    zeros
}

/// Returns the incompressible stamp bytes among the last bytes of a page: 8 per sector. The seeds don't count, because
/// all stamps have the same seed.
fn stamps_in_last(bytes: usize) -> usize {
    bytes / SECTOR_BYTES as usize * 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tonnage_sys::mapping::{Pages, Sharing};

    const LEN: u64 = 64 << 10;

    fn arena() -> Arena {
        Arena::allocate(1 << 20, Pages::Normal, Sharing::Private, None).unwrap()
    }

    fn written(key: FileKey, offset: u64, len: u64) -> (ContentPool, Arena) {
        let (pool, arena) = (ContentPool::new(key.seed(), 0), arena());
        write(&pool, &arena, key, offset, len);
        (pool, arena)
    }

    fn write(pool: &ContentPool, arena: &Arena, key: FileKey, offset: u64, len: u64) {
        pool.copy_into(arena, 0, offset, len).unwrap();
        key.stamp_all(arena, 0, offset, len).unwrap();
    }

    fn check(
        pool: &ContentPool,
        arena: &Arena,
        key: FileKey,
        offset: u64,
        len: u64,
    ) -> DataDifferences {
        let files = CandidateFiles {
            path: Path::new("/data/t"),
            count: 4,
            bytes: 1 << 30,
        };
        let mut found = DataDifferences::default();
        pool.check(arena, 0, key, (&files, offset), len, &mut found)
            .unwrap();
        found
    }

    #[test]
    fn written_data_is_correct_wherever_transfers_begin() {
        for (offset, len) in [
            (0, LEN),
            (512, 1024),
            (1000, 1000),
            (POOL_BYTES - 3, 5000),
            (7, 3),
            (505, 9),
        ] {
            let key = FileKey::new(99, 3);
            let (pool, arena) = written(key, offset, len);
            let found = check(&pool, &arena, key, offset, len);
            assert_eq!(
                (found.wrong_bytes, found.checked_bytes),
                (0, len),
                "{offset} {found:?}"
            );
        }
    }

    #[test]
    fn a_transfer_in_pieces_is_the_same_as_one() {
        let key = FileKey::new(5, 0);
        let (pool, arena) = written(key, 0, 4096);
        let mut expected = vec![0; 4096];
        arena.read(0, &mut expected).unwrap();
        for piece in [1, 7, 100, 513] {
            for offset in (0..4096).step_by(piece) {
                let len = (4096 - offset).min(piece as u64);
                write(&pool, &arena, key, offset, len);
                let mut is = vec![0; len as usize];
                arena.read(0, &mut is).unwrap();
                assert_eq!(
                    is,
                    expected[offset as usize..][..len as usize],
                    "{piece} {offset}"
                );
            }
        }
    }

    #[test]
    fn the_origin_of_wrong_sectors_is_reported() {
        let key = FileKey::new(1, 2);
        let (pool, arena) = written(key, 8192, LEN);
        let told = |found: &DataDifferences, part: &str| {
            assert!(found.first[0].contains(part), "{part}: {found:?}");
        };
        let swapped = check(&pool, &arena, key, 0, LEN);
        assert_eq!(swapped.wrong_sectors, LEN / 512);
        told(&swapped, "/data/t at offset 8: expected");
        told(&swapped, "belong to offset 8192 of this file");
        let other = check(&pool, &arena, FileKey::new(1, 0), 8192, LEN);
        told(&other, "offset 8192 of the file of rank 2");
        let other_pool = ContentPool::new(7, 0);
        let stale = check(&other_pool, &arena, FileKey::new(7, 2), 8192, LEN);
        told(&stale, "stale: data of seed 1");
        arena.write(5000, &[0xff]).unwrap();
        let flipped = check(&pool, &arena, key, 8192, LEN);
        assert_eq!((flipped.wrong_bytes, flipped.wrong_sectors), (1, 1));
        told(&flipped, "at offset 13192");
        told(&flipped, "but damaged");
        arena.write(0, &vec![0; 512]).unwrap();
        told(&check(&pool, &arena, key, 8192, 512), "never written");
    }

    #[test]
    fn a_reader_finds_the_seed_in_the_file() {
        let key = FileKey::new(0xfeed, 3);
        assert_eq!(FileKey::of_stamp(key.stamp(1024), 3, 1024), Some(key));
        assert_eq!(FileKey::of_stamp(key.stamp(1024), 2, 1024), None);
        assert_eq!(FileKey::of_stamp([0; 16], 0, 0), None);
    }

    /// Uses compressors that know nothing about how the data is generated.
    #[test]
    fn data_compresses_as_much_as_requested() {
        for (kind, least, most) in [(0, 0.99, 1.02), (30, 0.68, 0.72), (80, 0.18, 0.23)] {
            let key = FileKey::new(3, 0);
            let pool = ContentPool::new(3, kind);
            let arena = arena();
            let mut all = Vec::new();
            for block in 0..16u64 {
                let mut bytes = vec![0; 1 << 20];
                pool.copy_into(&arena, 0, block << 20, 1 << 20).unwrap();
                key.stamp_all(&arena, 0, block << 20, 1 << 20).unwrap();
                arena.read(0, &mut bytes).unwrap();
                all.extend(bytes);
            }
            for (program, level) in [("gzip", "-6"), ("zstd", "-1"), ("xz", "-0")] {
                let Some(compressed) = compressed_bytes(program, level, &all) else {
                    println!("skip: no {program} here");
                    continue;
                };
                let ratio = compressed as f64 / all.len() as f64;
                assert!(
                    (least..most).contains(&ratio),
                    "{kind:?} by {program}: {ratio}"
                );
            }
        }
    }

    fn compressed_bytes(program: &str, level: &str, bytes: &[u8]) -> Option<usize> {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let child = Command::new(program)
            .args([level, "-c"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.ok()?;
        let (mut input, bytes) = (child.stdin.take()?, bytes.to_vec());
        let writer = std::thread::spawn(move || input.write_all(&bytes));
        let output = child.wait_with_output().ok()?;
        writer.join().ok()?.ok()?;
        Some(output.stdout.len())
    }

    #[test]
    fn zeros_of_a_page_make_up_for_the_keys_among_them() {
        for (percent, zeros) in [(0, 0), (1, 40), (30, 1244), (80, 3324), (100, 4096)] {
            assert_eq!(zeros_of_page(percent), zeros, "{percent}");
        }
    }

    #[test]
    fn placed_data_stays_within_its_transfer() {
        let (pool, arena) = (ContentPool::new(3, 0), arena());
        pool.copy_into(&arena, 4096, POOL_BYTES - 3, 5000).unwrap();
        let mut bytes = vec![0; 16384];
        arena.read(0, &mut bytes).unwrap();
        let others = bytes[..4096].iter().chain(&bytes[4096 + 5000..]);
        assert!(others.copied().all(|byte| byte == 0));
    }

    /// Later versions must be able to verify files that earlier versions wrote.
    #[test]
    fn the_content_of_files_does_not_change_between_versions() {
        let key = FileKey::new(1, 2);
        let (_, arena) = written(key, 0, 1024);
        // Another program computed these words: the seed, the stamp's second word `mix(1 ^ mix(3)) ^ GOLDEN`, and the
        // pool's word at this offset, `mix(1 ^ mix(!66))`.
        let words = [1, 0x2cad_4269_11a7_d3fd, 0xc90d_0214_131d_4bf8];
        for (at, expected) in [512, 520, 528].into_iter().zip(words) {
            let mut word = [0; 8];
            arena.read(at, &mut word).unwrap();
            assert_eq!(u64::from_le_bytes(word), expected, "{at}");
        }
    }
}
