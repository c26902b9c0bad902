//! The part of a phase's files that lies in the page cache, and dropping it from there.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_sys::files::advice::drop_cached;
use tonnage_sys::files::open::open;
use tonnage_sys::files::residency::{SystemCall, resident_bytes};

use super::before::READ;
use tonnage_loops::files::sequence::{Piece, Pieces};

use tonnage_record::files::CacheState;
use tonnage_units::Reduce;
use tonnage_units::{Error, Result};

/// Pieces of a file that one rank asks about. Scattered transfers are as many pieces, each a system call of about a
/// microsecond, so that of more than these an even sample is asked about.
const PIECES_MAX: u64 = 1 << 16;

/// Answers of ranks about what each of them will read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    bytes: u64,
    resident_bytes: u64,
    how: String,
    unknown: bool,
}

impl Reduce for Cached {
    fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.resident_bytes += other.resident_bytes;
        // Why something is not known says more than how the rest is.
        if self.how.is_empty() || (other.unknown && !self.unknown) {
            self.how = other.how;
        }
        self.unknown |= other.unknown;
    }
}

impl Cached {
    /// Part of what is to be read of a file that lies in this host's page cache.
    pub fn look(path: &Path, reads: &Pieces) -> Self {
        Self::sample(path, reads, PIECES_MAX)
    }

    /// Looks at so many pieces at most.
    fn sample(path: &Path, reads: &Pieces, pieces_max: u64) -> Self {
        let bytes = reads.bytes();
        let count = reads.count().min(pieces_max);
        let pieces = (0..count).map(|piece| reads.at(share_of(reads.count(), piece, count)));
        match open(path, &READ).and_then(|file| resident(&file, pieces)) {
            Ok(seen) => Self {
                bytes,
                resident_bytes: share_of(bytes, seen.resident_bytes, seen.bytes),
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

    /// The record's words.
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

/// Sum over pieces of a file.
struct Seen {
    bytes: u64,
    resident_bytes: u64,
    how: SystemCall,
}

fn resident(file: &File, pieces: impl Iterator<Item = Piece>) -> io::Result<Seen> {
    // Asking about nothing tells which call there is, and whether it may be used.
    let mut seen = Seen {
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

/// `part / of` of something, rounded down; nothing of nothing.
fn share_of(all: u64, part: u64, of: u64) -> u64 {
    let share = u128::from(all) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Drops a file's bytes from this host's page cache, once they are stored.
pub fn drop_file(path: &Path) -> Result<()> {
    let what = || format!("cannot drop {} from the page cache", path.display());
    let cannot = |error| Error::io(what(), error);
    // Storing needs no right to write on Linux.
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
    fn what_is_not_known_on_one_rank_is_not_known() {
        let known = |resident_bytes| Cached {
            bytes: 100,
            resident_bytes,
            how: "cachestat".into(),
            unknown: false,
        };
        let mut all = Cached::default();
        all.merge(known(10));
        all.merge(known(20));
        assert_eq!(
            (all.bytes, all.resident_bytes, all.how.as_str()),
            (200, 30, "cachestat")
        );
        // Hosts whose kernels know different calls: the first is named.
        all.merge(Cached {
            how: "mincore".into(),
            ..known(0)
        });
        assert_eq!(all.how, "cachestat");
        let missing = Cached::look(Path::new("/no/such/file"), &Pieces::whole(100));
        let is_told = |all: &Cached| {
            let record = all.clone().record(true, false);
            assert!(
                !record.known && record.how.contains("not known"),
                "{record:?}"
            );
        };
        all.merge(missing.clone());
        is_told(&all);
        // Of two that do not know, neither makes up for the other.
        all.merge(missing);
        is_told(&all);
    }

    /// A file of four blocks of 64 KiB, of which the first half is in the page cache; `None` where the system does not
    /// drop what it is asked to, as tmpfs does not.
    fn half_cached(path: &Path) -> Option<()> {
        std::fs::write(path, vec![7; 256 << 10]).unwrap();
        let file = std::fs::File::open(path).unwrap();
        let cached = || resident_bytes(&file, 0, 256 << 10).unwrap().bytes;
        drop_file(path).unwrap();
        if cached() > 0 {
            drop_cached(&file).unwrap();
            assert!(cached() > 0, "drop_file keeps what the system drops");
            println!("skip: the temporary directory's file system keeps what it is asked to drop");
            return None;
        }
        // Read ahead would bring more than what is read.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut [0; 128 << 10], 0).unwrap();
        Some(())
    }

    #[test]
    fn a_rank_looks_at_what_it_reads_itself() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        if half_cached(&path).is_none() {
            return;
        }
        let mut point = point(2);
        (point.block_bytes, point.transfer_bytes) = (64 << 10, 4 << 10);
        let look = |point: &FilePoint, part, quota, pieces_max| {
            let reads = Sequence::new(&file_pattern(point, Phase::Read), part).pieces(quota);
            let seen = Cached::sample(&path, &reads, pieces_max);
            assert!(!seen.unknown);
            (seen.bytes >> 10, seen.resident_bytes >> 10, seen.how)
        };
        for part in 0..2 {
            // A block of the first half, one of the second.
            let (bytes, resident, how) = look(&point, part, 32, PIECES_MAX);
            assert_eq!((bytes, resident), (128, 64), "{how}");
            // A stonewall cut it short.
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
