//! Measures how much of a phase's files is in the page cache, and drops these files from the page cache.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_sys::files::advice::drop_cached;
use tonnage_sys::files::open::open;
use tonnage_sys::files::residency::{SystemCall, resident_bytes};

use super::checks::READ;
use tonnage_loops::files::sequence::{FilePiece, FilePieces};

use tonnage_record::files::CacheState;
use tonnage_units::Reduce;
use tonnage_units::{Error, Result};

/// Maximum number of pieces of a file that one rank queries. Scattered transfers are separate pieces, and each takes a
/// system call of about a microsecond. Of more pieces, an evenly spaced sample is queried.
const PIECES_MAX: u64 = 1 << 16;

/// Cache state of the data that ranks will read, added up over the ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedBytes {
    bytes: u64,
    resident_bytes: u64,
    how: String,
    unknown: bool,
}

impl Reduce for CachedBytes {
    fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.resident_bytes += other.resident_bytes;
        // If the state is unknown on any rank, the reason is more important than the name of a system call.
        if self.how.is_empty() || (other.unknown && !self.unknown) {
            self.how = other.how;
        }
        self.unknown |= other.unknown;
    }
}

impl CachedBytes {
    /// Measures how much of the data to read is in this host's page cache.
    pub fn measure(path: &Path, reads: &FilePieces) -> Self {
        Self::sample(path, reads, PIECES_MAX)
    }

    /// Does the same as [`Self::measure`], but queries at most `pieces_max` pieces.
    fn sample(path: &Path, reads: &FilePieces, pieces_max: u64) -> Self {
        let bytes = reads.bytes();
        let count = reads.count().min(pieces_max);
        let pieces = (0..count).map(|piece| reads.at(scale_to(reads.count(), piece, count)));
        match open(path, &READ).and_then(|file| resident(&file, pieces)) {
            Ok(seen) => Self {
                bytes,
                resident_bytes: scale_to(bytes, seen.resident_bytes, seen.bytes),
                how: match (seen.how, count < reads.count()) {
                    (SystemCall::Cachestat, false) => "cachestat",
                    (SystemCall::Mincore, false) => "mincore",
                    (SystemCall::Cachestat, true) => "cachestat of a sample",
                    (SystemCall::Mincore, true) => "mincore of a sample",
                }
                .into(),
                unknown: false,
            },
            Err(error) => Self {
                bytes,
                resident_bytes: 0,
                how: format!("not known: {error}"),
                unknown: true,
            },
        }
    }

    /// Converts these numbers for the record.
    pub fn record(self, dropped: bool, direct: bool) -> CacheState {
        CacheState {
            bytes: self.bytes,
            resident_bytes: self.resident_bytes,
            how: self.how,
            known: !self.unknown,
            dropped,
            direct,
        }
    }
}

/// Numbers of bytes, added up over pieces of a file.
struct Residency {
    bytes: u64,
    resident_bytes: u64,
    how: SystemCall,
}

fn resident(file: &File, pieces: impl Iterator<Item = FilePiece>) -> io::Result<Residency> {
    // This query of no bytes shows which system call exists and is permitted.
    let mut seen = Residency {
        bytes: 0,
        resident_bytes: 0,
        how: resident_bytes(file, 0, 0)?.how,
    };
    for piece in pieces {
        let resident = resident_bytes(file, piece.offset, piece.bytes)?;
        seen.bytes += piece.bytes;
        seen.resident_bytes += resident.bytes;
        seen.how = resident.how;
    }
    Ok(seen)
}

/// Returns `all * part / of`, rounded down. Returns 0 if `of` is 0.
fn scale_to(all: u64, part: u64, of: u64) -> u64 {
    let share = u128::from(all) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Writes a file's bytes to storage, and drops them from this host's page cache.
pub fn drop_file(path: &Path) -> Result<()> {
    let what = || format!("cannot drop {} from the page cache", path.display());
    let cannot = |error| Error::io(what(), error);
    // Opened for reading only: on Linux, syncing needs no write permission.
    let file = open(path, &READ).map_err(cannot)?;
    drop_cached(&file).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::files::testing::point;
    use crate::loop_parameters::file_pattern;
    use tonnage_loops::files::sequence::Sequence;
    use tonnage_plan::files::{FileOrder, FilePoint, Phase};

    #[test]
    fn a_state_unknown_on_one_rank_is_unknown() {
        let known = |resident_bytes| CachedBytes {
            bytes: 100,
            resident_bytes,
            how: "cachestat".into(),
            unknown: false,
        };
        let mut all = CachedBytes::default();
        all.merge(known(10));
        all.merge(known(20));
        assert_eq!(
            (all.bytes, all.resident_bytes, all.how.as_str()),
            (200, 30, "cachestat")
        );
        // If hosts use different system calls, the record names the first one.
        all.merge(CachedBytes {
            how: "mincore".into(),
            ..known(0)
        });
        assert_eq!(all.how, "cachestat");
        let missing = CachedBytes::measure(Path::new("/no/such/file"), &FilePieces::whole(100));
        let assert_unknown = |all: &CachedBytes| {
            let record = all.clone().record(true, false);
            assert!(
                !record.known && record.how.contains("not known"),
                "{record:?}"
            );
        };
        all.merge(missing.clone());
        assert_unknown(&all);
        // Merging two unknown states must not give a known one.
        all.merge(missing);
        assert_unknown(&all);
    }

    /// Creates a file of four blocks of 64 KiB, and reads its first half into the page cache. Returns `None` if the
    /// file system ignores requests to drop pages, as tmpfs does.
    fn half_cached(path: &Path) -> Option<()> {
        std::fs::write(path, vec![7; 256 << 10]).unwrap();
        let file = std::fs::File::open(path).unwrap();
        let cached = || resident_bytes(&file, 0, 256 << 10).unwrap().bytes;
        drop_file(path).unwrap();
        if cached() > 0 {
            drop_cached(&file).unwrap();
            assert!(cached() > 0, "drop_file keeps pages that the system drops");
            println!("skip: the temporary directory's file system ignores requests to drop pages");
            return None;
        }
        // Without this advice, the kernel would cache more than the range that is read.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut [0; 128 << 10], 0).unwrap();
        Some(())
    }

    #[test]
    fn a_rank_queries_only_the_data_that_it_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        if half_cached(&path).is_none() {
            return;
        }
        let mut point = point(2);
        (point.block_bytes, point.transfer_bytes) = (64 << 10, 4 << 10);
        let look = |point: &FilePoint, part, quota, pieces_max| {
            let reads = Sequence::new(&file_pattern(point, Phase::Read), part).pieces(quota);
            let seen = CachedBytes::sample(&path, &reads, pieces_max);
            assert!(!seen.unknown);
            (seen.bytes >> 10, seen.resident_bytes >> 10, seen.how)
        };
        for part in 0..2 {
            // Each rank reads one cached block and one block that is not cached.
            let (bytes, resident, how) = look(&point, part, 32, PIECES_MAX);
            assert_eq!((bytes, resident), (128, 64), "{how}");
            // With half of the transfers, a rank reads only its cached block, as after a stonewall.
            assert_eq!(look(&point, part, 16, PIECES_MAX).1, 64);
        }
        point.order = FileOrder::Shuffled;
        let (both, how) = (0..2)
            .map(|part| look(&point, part, 32, PIECES_MAX))
            .fold((0, String::new()), |sum, seen| (sum.0 + seen.1, seen.2));
        assert!(both == 128 && !how.contains("sample"), "{both} by {how}");
        let (bytes, _, how) = look(&point, 0, 32, 8);
        assert!(bytes == 128 && how.ends_with("of a sample"), "{how}");
    }
}
