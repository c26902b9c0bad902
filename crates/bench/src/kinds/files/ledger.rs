//! The ledger of a rank: files and directories that it makes, kept where it outlives the rank, so that whoever is left
//! on the host can remove them when all ranks of a run have been killed. [`super::clean`] decides what is removed.
//!
//! All ledgers of a host are in one file in memory, which the process that starts the ranks makes. A rank adds to its
//! own area; a NUL ends it.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Bytes of one rank's area. Memory is taken for what is written only; a rank that needs more is not noted further.
const AREA_BYTES: u64 = 16 << 20;

/// Step in which areas are read.
const STEP_BYTES: usize = 64 << 10;

/// Identity of a file or a directory on its host, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub number: u64,
}

impl Inode {
    /// The identity in what the system says of something.
    pub fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            number: found.ino(),
        }
    }

    /// Identity of what is at a path now, links not followed; `None` where there is nothing.
    pub fn at(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path);
        found.ok().map(|found| Self::of(&found))
    }
}

/// Entry of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LedgerEntry {
    /// A file that is about to be made.
    File {
        /// Its absolute path.
        path: PathBuf,
        /// The number by which its data is keyed.
        number: u32,
        /// Its bytes once everything is written.
        bytes_max: u64,
    },
    /// The identity of a file that was opened.
    Opened(PathBuf, Inode),
    /// A directory that was made.
    Directory(PathBuf, Inode),
    /// A file that is no longer to be removed, or is removed.
    Done(PathBuf),
}

/// A rank's ledger, and its sight of those of its neighbours.
#[derive(Debug, Clone)]
pub struct Ledger {
    file: Arc<File>,
    rank: u32,
    /// Bytes of the area that are used.
    used: Arc<AtomicU64>,
}

impl Ledger {
    /// The empty ledger of a rank in the file of its host, which was opened for reading and writing.
    pub fn new(file: File, rank: u32) -> Self {
        Self {
            file: Arc::new(file),
            rank,
            used: Arc::default(),
        }
    }

    /// Adds an entry. The run does not depend on it: one that cannot be kept is lost.
    pub fn add(&self, entry: &LedgerEntry) {
        let Ok(mut line) = serde_json::to_vec(entry) else {
            return;
        };
        line.extend(*b"\n\0");
        let bytes = line.len() as u64;
        // The next entry takes the place of the NUL.
        let at = self.used.fetch_add(bytes - 1, Ordering::SeqCst);
        if at + bytes > AREA_BYTES {
            log::debug!("rank {}: its ledger of files is full", self.rank);
            return;
        }
        if let Err(error) = self.file.write_all_at(&line, self.begin() + at) {
            log::debug!(
                "rank {}: no entry in its ledger of files: {error}",
                self.rank
            );
        }
    }

    /// Empties it.
    pub fn clear(&self) {
        self.used.store(0, Ordering::SeqCst);
        if let Err(error) = self.file.write_all_at(b"\0", self.begin()) {
            log::debug!("rank {}: its ledger of files stays: {error}", self.rank);
        }
    }

    /// Entries of a rank of this host; none where it is on another one.
    pub fn entries_of(&self, rank: u32) -> Vec<LedgerEntry> {
        entries(&self.file, rank)
    }

    fn begin(&self) -> u64 {
        begin(self.rank)
    }
}

fn begin(rank: u32) -> u64 {
    u64::from(rank) * AREA_BYTES
}

/// Entries of a rank in the file of a host, up to one that was cut short.
pub fn entries(file: &File, rank: u32) -> Vec<LedgerEntry> {
    let mut text = Vec::new();
    let mut step = vec![0; STEP_BYTES];
    while (text.len() as u64) < AREA_BYTES {
        let Ok(count @ 1..) = file.read_at(&mut step, begin(rank) + text.len() as u64) else {
            break;
        };
        let end = step[..count].iter().position(|&byte| byte == 0);
        text.extend_from_slice(&step[..end.unwrap_or(count)]);
        if end.is_some() {
            break;
        }
    }
    let lines = text.split(|&byte| byte == b'\n');
    lines
        .map_while(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(name: &str) -> LedgerEntry {
        LedgerEntry::Done(PathBuf::from(name))
    }

    #[test]
    fn each_rank_has_its_own() {
        let file = tempfile::tempfile().unwrap();
        let ledgers = [0, 1].map(|rank| Ledger::new(file.try_clone().unwrap(), rank));
        let long = done(&"x".repeat(STEP_BYTES));
        for entry in [&done("a\nb"), &long, &done("c")] {
            ledgers[0].add(entry);
        }
        ledgers[1].add(&done("of 1"));
        assert_eq!(entries(&file, 0), [done("a\nb"), long, done("c")]);
        assert_eq!(ledgers[0].entries_of(1), [done("of 1")]);
        assert_eq!(entries(&file, 7), []);
        // What was there before is not read behind what is there now.
        ledgers[0].clear();
        assert_eq!(entries(&file, 0), []);
        ledgers[0].add(&done("d"));
        assert_eq!(entries(&file, 0), [done("d")]);
        assert_eq!(entries(&file, 1), [done("of 1")]);
    }

    #[test]
    fn what_was_cut_short_is_no_entry_and_a_full_one_ends() {
        let file = tempfile::tempfile().unwrap();
        let ledger = Ledger::new(file.try_clone().unwrap(), 0);
        ledger.add(&done("a"));
        file.write_all_at(b"{\"Done\":\"b", ledger.used.load(Ordering::SeqCst))
            .unwrap();
        assert_eq!(entries(&file, 0), [done("a")]);
        ledger.used.store(AREA_BYTES - 3, Ordering::SeqCst);
        ledger.add(&done("b"));
        assert_eq!(entries(&file, 1), []);
    }
}
