//! The ledger of a rank: a list of the files and directories that the rank creates. It outlives the rank, so that
//! another process of the host can remove them after all ranks were killed. [`super::clean`] decides which of them to
//! remove.
//!
//! The process that starts a host's ranks creates one memory file for their ledgers. Each rank appends to its own area
//! of this file, and a NUL marks the end of the used part. Areas are small, because `ulimit -f` also limits the size of
//! memory files. When an area is full, the rank rewrites it without obsolete entries.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Size of one rank's area. It has room for the files of a hundred trials at the same time.
const AREA_BYTES: u64 = 64 << 10;

/// Number of bytes per read of an area.
const READ_BYTES: usize = 8 << 10;

/// Identity of a file or a directory on its host, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    pub device: u64,
    /// Inode number on this device.
    pub number: u64,
}

impl Inode {
    /// Returns the identity in a file's metadata.
    pub fn from_metadata(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            number: found.ino(),
        }
    }

    /// Returns the identity of the file at a path; `None` if there is no file. Links are not followed.
    pub fn at(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path);
        found.ok().map(|found| Self::from_metadata(&found))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LedgerEntry {
    /// A file that is about to be created.
    File {
        /// Absolute path of the file.
        path: PathBuf,
        /// The file's number, which is part of the key of its data.
        number: u32,
        /// Size of the file after all data are written.
        bytes_max: u64,
    },
    /// The identity of a file that was opened.
    Opened(PathBuf, Inode),
    /// A directory that was created.
    Directory(PathBuf, Inode),
    /// A file that is already removed, or must no longer be removed.
    Done(PathBuf),
}

/// A rank's ledger, which can also read the ledgers of neighbours.
#[derive(Debug, Clone)]
pub struct Ledger {
    file: Arc<File>,
    rank: u32,
    /// Lowest rank on this host.
    first: u32,
    state: Arc<Mutex<LedgerState>>,
}

#[derive(Debug, Default)]
struct LedgerState {
    /// Number of bytes in the used part of the area, without the NUL.
    used: u64,
    /// Whether a warning about a lost entry was already printed.
    has_warned: bool,
}

impl Ledger {
    /// Creates the empty ledger of a rank in its host's memory file, which must be open for reading and writing. The
    /// ranks on a host are numbered consecutively from `first`.
    pub fn new(file: File, rank: u32, first: u32) -> Self {
        Self {
            file: Arc::new(file),
            rank,
            first,
            state: Arc::default(),
        }
    }

    /// Adds an entry. A run also works without its ledger: if an entry cannot be stored, it is lost, and only the first
    /// loss is reported.
    pub fn add(&self, entry: &LedgerEntry) {
        self.change(|state| self.append(state, entry));
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.change(|state| self.replace(state, &[]));
    }

    /// Returns the entries of a rank on this host. For a rank of another host, there are none.
    pub fn entries_of(&self, rank: u32) -> Vec<LedgerEntry> {
        let place = rank.checked_sub(self.first);
        place.map_or_else(Vec::new, |place| entries(&self.file, place))
    }

    fn change(&self, change: impl FnOnce(&mut LedgerState) -> Result<()>) {
        let mut state = lock(&self.state);
        if let Err(error) = change(&mut state)
            && !std::mem::replace(&mut state.has_warned, true)
        {
            log::warn!(
                "rank {}: its ledger of files is not complete ({error}): files may stay if all ranks are killed at once",
                self.rank
            );
        }
    }

    fn append(&self, state: &mut LedgerState, entry: &LedgerEntry) -> Result<()> {
        let line = line(entry)?;
        if state.used + line.len() as u64 >= AREA_BYTES {
            let kept = still_valid(self.entries_of(self.rank));
            self.replace(state, &kept)?;
        }
        self.write(state, line)
    }

    /// Replaces the content of the area by these entries.
    fn replace(&self, state: &mut LedgerState, entries: &[LedgerEntry]) -> Result<()> {
        let lines: Result<Vec<_>> = entries.iter().map(line).collect();
        state.used = 0;
        self.write(state, lines?.concat())
    }

    /// Appends to the used part, and thus overwrites the NUL.
    fn write(&self, state: &mut LedgerState, mut text: Vec<u8>) -> Result<()> {
        let bytes = text.len() as u64;
        if state.used + bytes >= AREA_BYTES {
            return Err(Error::Failed("it is full".to_owned()));
        }
        text.push(0);
        let begin = begin(self.rank.saturating_sub(self.first));
        let written = self.file.write_all_at(&text, begin + state.used);
        written.map_err(|error| Error::io("cannot write to its memory", error))?;
        state.used += bytes;
        Ok(())
    }
}

fn line(entry: &LedgerEntry) -> Result<Vec<u8>> {
    let text = serde_json::to_vec(entry);
    let mut text = text.map_err(|error| Error::Failed(format!("an entry has no text: {error}")))?;
    text.push(b'\n');
    Ok(text)
}

/// Returns the entries without those for files that need no longer be removed.
fn still_valid(entries: Vec<LedgerEntry>) -> Vec<LedgerEntry> {
    let mut over: BTreeSet<PathBuf> = BTreeSet::new();
    let mut kept = Vec::new();
    // Iterates backwards, because a file that was removed may have been created again.
    for entry in entries.into_iter().rev() {
        let is_kept = match &entry {
            LedgerEntry::Done(path) => {
                over.insert(path.clone());
                false
            }
            LedgerEntry::File { path, .. } | LedgerEntry::Opened(path, _) => !over.contains(path),
            LedgerEntry::Directory(..) => true,
        };
        kept.extend(is_kept.then_some(entry));
    }
    kept.reverse();
    kept
}

fn begin(place: u32) -> u64 {
    u64::from(place) * AREA_BYTES
}

/// Returns the entries of a rank, up to the first incomplete entry. `place` is the rank's index on its host.
pub fn entries(file: &File, place: u32) -> Vec<LedgerEntry> {
    let mut text = Vec::new();
    let mut step = vec![0; READ_BYTES];
    while (text.len() as u64) < AREA_BYTES {
        let Ok(count @ 1..) = file.read_at(&mut step, begin(place) + text.len() as u64) else {
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
    fn each_rank_has_its_own_entries() {
        let file = tempfile::tempfile().unwrap();
        let ledgers = [0, 1].map(|rank| Ledger::new(file.try_clone().unwrap(), rank, 0));
        let long = done(&"x".repeat(READ_BYTES));
        for entry in [&done("a\nb"), &long, &done("c")] {
            ledgers[0].add(entry);
        }
        ledgers[1].add(&done("of 1"));
        assert_eq!(entries(&file, 0), [done("a\nb"), long, done("c")]);
        assert_eq!(ledgers[0].entries_of(1), [done("of 1")]);
        assert_eq!(entries(&file, 7), []);
        // Entries from before the clearing must not reappear behind new entries.
        ledgers[0].clear();
        assert_eq!(entries(&file, 0), []);
        ledgers[0].add(&done("d"));
        assert_eq!(entries(&file, 0), [done("d")]);
        assert_eq!(entries(&file, 1), [done("of 1")]);
    }

    #[test]
    fn ranks_of_a_later_host_begin_at_its_first_area() {
        let file = tempfile::tempfile().unwrap();
        let ledger = Ledger::new(file.try_clone().unwrap(), 4001, 4000);
        ledger.add(&done("a"));
        assert_eq!(entries(&file, 1), [done("a")]);
        assert_eq!(ledger.entries_of(4001), [done("a")]);
        assert_eq!(ledger.entries_of(1), []);
        assert!(file.metadata().unwrap().len() <= 2 * AREA_BYTES);
    }

    #[test]
    fn an_incomplete_entry_is_ignored() {
        let file = tempfile::tempfile().unwrap();
        let ledger = Ledger::new(file.try_clone().unwrap(), 0, 0);
        ledger.add(&done("a"));
        let used = lock(&ledger.state).used;
        file.write_all_at(b"{\"Done\":\"b", used).unwrap();
        assert_eq!(entries(&file, 0), [done("a")]);
    }

    #[test]
    fn a_full_ledger_is_compacted_and_warns_once() {
        let file = tempfile::tempfile().unwrap();
        let ledgers = [0, 1].map(|rank| Ledger::new(file.try_clone().unwrap(), rank, 0));
        let made = |name: &str| LedgerEntry::File {
            path: PathBuf::from(name),
            number: 0,
            bytes_max: 1,
        };
        ledgers[1].add(&made("of 1"));
        ledgers[0].add(&made("first"));
        // Creates and removes a file so often that the entries don't fit into the area.
        for _ in 0..2000 {
            ledgers[0].add(&made("again"));
            ledgers[0].add(&done("again"));
        }
        ledgers[0].add(&made("again"));
        let kept = still_valid(entries(&file, 0));
        assert_eq!(kept, [made("first"), made("again")]);
        assert!(!lock(&ledgers[0].state).has_warned);
        for number in 0..2000 {
            ledgers[0].add(&made(&format!("{number}")));
        }
        assert!(lock(&ledgers[0].state).has_warned);
        let kept = entries(&file, 0);
        assert!(kept.starts_with(&[made("first"), made("again"), made("0")]));
        assert_eq!(entries(&file, 1), [made("of 1")]);
    }

    #[test]
    fn a_failed_write_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ledger = Ledger::new(File::open(file.path()).unwrap(), 0, 0);
        ledger.add(&done("a"));
        assert!(lock(&ledger.state).has_warned);
    }
}
