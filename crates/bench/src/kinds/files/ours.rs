//! Content of a file that may be of tonnage: told by the stamps that its sectors begin with.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use tonnage_sys::files::open::open;

use super::before::READ;
use super::ledger::Inode;
use tonnage_loops::files::stamp::{FileKey, SECTOR_BYTES, STAMP_BYTES};

/// A file is looked at in chunks of this size.
const CHUNK_BYTES: u64 = 256 << 10;

/// Of a file with more chunks, so many are looked at.
const CHUNKS: u64 = 64;

/// Content of a file, as far as it was looked at.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Holes and zeros only.
    Nothing,
    /// Sectors of tonnage, and nothing else.
    Ours,
    /// Something else too.
    Foreign {
        /// Offset of the first sector that tonnage did not write.
        offset: u64,
    },
    /// Reason why nobody can tell.
    Unknown(String),
}

/// Looks at the stamps of a file that should hold data of this number, and be this very file: at all of a file of up to
/// 16 MiB, of a larger one at its begin, its end, and chunks in between at equal distances. From `hurry` on only at the
/// first chunk that holds anything.
pub fn look(path: &Path, inode: Inode, number: u32, hurry: Option<Instant>) -> Content {
    let mut found = Found {
        number,
        ..Found::default()
    };
    let read = open(path, &READ).and_then(|file| {
        let status = file.metadata()?;
        if Inode::of(&status) != inode {
            return Err(std::io::Error::other(
                "another process has just replaced it",
            ));
        }
        let bytes = status.len();
        let mut chunk = vec![0; CHUNK_BYTES as usize];
        for at in chunks(&file, bytes) {
            let len = CHUNK_BYTES.min(bytes - at) as usize;
            file.read_exact_at(&mut chunk[..len], at)?;
            found.judge(&chunk[..len], at);
            let hurries = hurry.is_some_and(|hurry| Instant::now() >= hurry);
            if found.foreign.is_some() || found.ours && hurries {
                break;
            }
        }
        Ok(())
    });
    match (read, found.foreign, found.ours, found.other) {
        (Err(error), ..) => Content::Unknown(format!("cannot be read: {error}")),
        (_, Some(offset), ..) | (_, None, false, Some(offset)) => Content::Foreign { offset },
        (_, None, true, _) => Content::Ours,
        (_, None, false, None) => Content::Nothing,
    }
}

/// Offsets of the chunks to look at, in rising order.
fn chunks(file: &File, bytes: u64) -> Vec<u64> {
    let all = bytes.div_ceil(CHUNK_BYTES);
    if all <= CHUNKS {
        return (0..all).map(|chunk| chunk * CHUNK_BYTES).collect();
    }
    // A shuffled order that was cut short leaves holes, between which an even distance may find nothing. File systems
    // that cannot tell where data begins say that it is at 0.
    let data = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)).unwrap_or(0);
    let first = (data / CHUNK_BYTES).min(all - 1);
    let spread = (0..CHUNKS).map(|part| (all - 1) * part / (CHUNKS - 1));
    let mut chunks: Vec<u64> = spread.chain([first]).collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks.iter().map(|chunk| chunk * CHUNK_BYTES).collect()
}

/// Findings so far.
#[derive(Default)]
struct Found {
    number: u32,
    /// The key of a stamp that was right.
    key: Option<FileKey>,
    /// True when a stamp was right: by chance none is.
    ours: bool,
    /// The first sector whose stamp is wrong.
    foreign: Option<u64>,
    /// The first sector that holds anything without a stamp.
    other: Option<u64>,
}

impl Found {
    /// Looks at a chunk, which begins with a sector.
    fn judge(&mut self, chunk: &[u8], offset: u64) {
        let sectors = || {
            (offset..)
                .step_by(SECTOR_BYTES as usize)
                .zip(chunk.chunks(SECTOR_BYTES as usize))
        };
        for (at, sector) in sectors() {
            if let Some(key) = self.key_of(sector, at) {
                (self.key, self.ours) = (Some(key), true);
                break;
            }
        }
        for (at, sector) in sectors().filter(|(_, sector)| sector.iter().any(|&byte| byte != 0)) {
            if self.key_of(sector, at).is_some() {
                continue;
            }
            self.other = self.other.or(Some(at));
            if !self.may_be_cut(sector, at) {
                self.foreign = self.foreign.or(Some(at));
            }
        }
    }

    fn key_of(&self, sector: &[u8], at: u64) -> Option<FileKey> {
        let stamp = sector.first_chunk::<STAMP_BYTES>()?;
        FileKey::of_stamp(*stamp, self.number, at).filter(|_| *stamp != [0; STAMP_BYTES])
    }

    /// Returns whether a sector may be one of tonnage of which a transfer, or the file's end, has cut the stamp: what
    /// is there of it is right, the rest is zeros.
    fn may_be_cut(&self, sector: &[u8], at: u64) -> bool {
        let stamp = &sector[..sector.len().min(STAMP_BYTES)];
        let Some(key) = self.key else {
            return stamp.iter().all(|&byte| byte == 0);
        };
        let right = key.stamp(at);
        let mut bytes = stamp.iter().zip(right);
        bytes.all(|(&byte, right)| byte == 0 || byte == right)
    }
}
