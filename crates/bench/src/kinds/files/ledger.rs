//! The ledger of a rank: files and directories that it makes, kept where it outlives the rank, so that whoever is left
//! on the host can remove them when all ranks of a run have been killed. [`super::clean`] decides what is removed.
//!
//! All ledgers of a host are in one file in memory, which the process that starts the ranks makes. A rank adds to its
//! own area; a NUL ends it. Areas are small, since a limit on the size of files (`ulimit -f`) holds for memory too, and
//! an area that is full is written anew without what is over.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Bytes of one rank's area, which is room for the files of a hundred trials at once.
const AREA_BYTES: u64 = 64 << 10;

/// Step in which areas are read.
const STEP_BYTES: usize = 8 << 10;

/// Identity of a file or a directory on its host, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
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
    /// First rank of this host.
    first: u32,
    state: Arc<Mutex<LedgerState>>,
}

#[derive(Debug, Default)]
struct LedgerState {
    /// Bytes of the area that are used, the NUL excepted.
    used: u64,
    /// It was said that an entry is lost.
    is_told: bool,
}

impl Ledger {
    /// The empty ledger of a rank in the file of its host, which was opened for reading and writing. Ranks of the host
    /// follow each other from `first` on.
    pub fn new(file: File, rank: u32, first: u32) -> Self {
        Self {
            file: Arc::new(file),
            rank,
            first,
            state: Arc::default(),
        }
    }

    /// Adds an entry. The run does not depend on it: one that cannot be kept is lost, which is said once.
    pub fn add(&self, entry: &LedgerEntry) {
        self.change(|state| self.append(state, entry));
    }

    /// Empties it.
    pub fn clear(&self) {
        self.change(|state| self.replace(state, &[]));
    }

    /// Entries of a rank of this host; none where it is on another one.
    pub fn entries_of(&self, rank: u32) -> Vec<LedgerEntry> {
        let place = rank.checked_sub(self.first);
        place.map_or_else(Vec::new, |place| entries(&self.file, place))
    }

    fn change(&self, change: impl FnOnce(&mut LedgerState) -> Result<()>) {
        let mut state = lock(&self.state);
        if let Err(error) = change(&mut state)
            && !std::mem::replace(&mut state.is_told, true)
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

    /// Writes the area anew.
    fn replace(&self, state: &mut LedgerState, entries: &[LedgerEntry]) -> Result<()> {
        let lines: Result<Vec<_>> = entries.iter().map(line).collect();
        state.used = 0;
        self.write(state, lines?.concat())
    }

    /// Writes behind what is used, over the NUL that is there.
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

/// Entries but for those of files that are no longer to be removed.
fn still_valid(entries: Vec<LedgerEntry>) -> Vec<LedgerEntry> {
    let mut over: BTreeSet<PathBuf> = BTreeSet::new();
    let mut kept = Vec::new();
    // A file that was done may be made again later.
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

/// Entries of the rank of this place among those of a host, up to one that was cut short.
pub fn entries(file: &File, place: u32) -> Vec<LedgerEntry> {
    let mut text = Vec::new();
    let mut step = vec![0; STEP_BYTES];
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
    fn each_rank_has_its_own() {
        let file = tempfile::tempfile().unwrap();
        let ledgers = [0, 1].map(|rank| Ledger::new(file.try_clone().unwrap(), rank, 0));
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
    fn what_was_cut_short_is_no_entry() {
        let file = tempfile::tempfile().unwrap();
        let ledger = Ledger::new(file.try_clone().unwrap(), 0, 0);
        ledger.add(&done("a"));
        let used = lock(&ledger.state).used;
        file.write_all_at(b"{\"Done\":\"b", used).unwrap();
        assert_eq!(entries(&file, 0), [done("a")]);
    }

    #[test]
    fn a_full_one_is_written_anew_and_says_once_what_is_lost() {
        let file = tempfile::tempfile().unwrap();
        let ledgers = [0, 1].map(|rank| Ledger::new(file.try_clone().unwrap(), rank, 0));
        let made = |name: &str| LedgerEntry::File {
            path: PathBuf::from(name),
            number: 0,
            bytes_max: 1,
        };
        ledgers[1].add(&made("of 1"));
        ledgers[0].add(&made("first"));
        // Made, removed and made again, many times what fits.
        for _ in 0..2000 {
            ledgers[0].add(&made("again"));
            ledgers[0].add(&done("again"));
        }
        ledgers[0].add(&made("again"));
        let kept = still_valid(entries(&file, 0));
        assert_eq!(kept, [made("first"), made("again")]);
        assert!(!lock(&ledgers[0].state).is_told);
        for number in 0..2000 {
            ledgers[0].add(&made(&format!("{number}")));
        }
        assert!(lock(&ledgers[0].state).is_told);
        let kept = entries(&file, 0);
        assert!(kept.starts_with(&[made("first"), made("again"), made("0")]));
        assert_eq!(entries(&file, 1), [made("of 1")]);
    }

    #[test]
    fn memory_that_refuses_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ledger = Ledger::new(File::open(file.path()).unwrap(), 0, 0);
        ledger.add(&done("a"));
        assert!(lock(&ledger.state).is_told);
    }
}
