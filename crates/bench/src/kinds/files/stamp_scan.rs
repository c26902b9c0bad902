//! Determines whether tonnage wrote a file, from the stamps at the beginnings of its sectors.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use tonnage_sys::files::open::open;

use super::checks::READ;
use super::ledger::Inode;
use tonnage_loops::files::stamp::{FileKey, SECTOR_BYTES, STAMP_BYTES};

/// Number of bytes that are read at a time.
const CHUNK_BYTES: u64 = 256 << 10;

/// Maximum number of chunks that are read from a file.
const CHUNKS: u64 = 64;

/// Content of a file, as far as the file was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// The file contains only holes and zeros.
    Nothing,
    /// The file contains only sectors that tonnage wrote, besides holes and zeros.
    Ours,
    /// The file contains data that tonnage did not write.
    Foreign {
        /// Offset of the first sector that tonnage did not write.
        offset: u64,
    },
    /// The content could not be determined; contains the reason.
    Unknown(String),
}

/// Checks the stamps of a file. Its identity must be `inode`, and its data must be keyed by `number`. Files of up to 16
/// MiB are read completely. In larger files, the beginning, the end, and evenly spaced chunks in between are read.
/// After `hurry`, reading ends with the first chunk that has a valid stamp.
pub fn scan(path: &Path, inode: Inode, number: u32, hurry: Option<Instant>) -> Content {
    let mut found = StampFindings {
        number,
        ..StampFindings::default()
    };
    let read = open(path, &READ).and_then(|file| {
        let status = file.metadata()?;
        if Inode::from_metadata(&status) != inode {
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

/// Returns the offsets of the chunks to read, in ascending order.
fn chunks(file: &File, bytes: u64) -> Vec<u64> {
    let all = bytes.div_ceil(CHUNK_BYTES);
    if all <= CHUNKS {
        return (0..all).map(|chunk| chunk * CHUNK_BYTES).collect();
    }
    // A shuffled order that was cut short leaves holes, and all evenly spaced chunks might be holes. Therefore the
    // beginning of the data is included. File systems that don't track holes report 0.
    let data = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)).unwrap_or(0);
    let first = (data / CHUNK_BYTES).min(all - 1);
    let spread = (0..CHUNKS).map(|part| (all - 1) * part / (CHUNKS - 1));
    let mut chunks: Vec<u64> = spread.chain([first]).collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks.iter().map(|chunk| chunk * CHUNK_BYTES).collect()
}

/// Findings in the chunks read so far.
#[derive(Default)]
struct StampFindings {
    number: u32,
    /// The key of a valid stamp; `None` before one is found.
    key: Option<FileKey>,
    /// Whether there was a valid stamp. Stamps are long enough that none is valid by chance.
    ours: bool,
    /// Offset of the first sector with data that tonnage cannot have written.
    foreign: Option<u64>,
    /// Offset of the first sector with data but without a complete valid stamp.
    other: Option<u64>,
}

impl StampFindings {
    /// Checks a chunk, which begins at a sector boundary.
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

    /// Returns whether a sector may hold a stamp that was cut short by the end of a transfer or of the file. Each byte
    /// of the sector is then either zero or equal to that of the stamp.
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
