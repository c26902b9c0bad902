//! Removing files of this run when it is over or has failed. Only what tonnage wrote is ever removed: a file counts as
//! this run's by what it is, not by its name, and by what it holds (`ours`). Files of earlier runs are in `old`, and
//! what is known of files once their ranks are dead in [`super::ledger`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::ledger::{Inode, Ledger, LedgerEntry, entries};
use super::ours::{self, Content};
use super::storage::directory_of;
use crate::kinds::files::names::{bytes_of_file, number_of, path_of};
use tonnage_loops::files::stamp::STAMP_BYTES;
use tonnage_plan::files::{FileLayout, FilePoint};
use tonnage_units::{Error, Result};

/// Longest time for looking closely after a failure, for all files of a rank. Its process is ended 2 s after the
/// failure and killed after 4 s, and the looks at the begins of files, which always are, take time too.
const LOOKING_MAX: Duration = Duration::from_millis(500);

/// A file that this run makes, as far as it is known.
#[derive(Debug, Clone)]
struct MadeFile {
    /// The number by which its data is keyed.
    number: u32,
    /// Its bytes once everything is written.
    bytes_max: u64,
    /// True when transfers are shorter than stamps, of which it may have none whole while it has holes.
    may_lack_stamps: bool,
    /// Its identity from the moment on when it is open.
    inode: Arc<OnceLock<Inode>>,
    /// Its state when this run had written to it last; `None` while it never has.
    noted: Option<Noted>,
}

/// State of a file, which tells whether anybody wrote to it since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noted {
    inode: Inode,
    bytes: u64,
    modified: (i64, i64),
}

impl Noted {
    fn of(found: &Metadata) -> Self {
        Self {
            inode: Inode::of(found),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// Files and directories that this rank has made in this run, or that are made for it.
#[derive(Debug, Clone, Default)]
pub struct Made {
    files: BTreeMap<PathBuf, MadeFile>,
    /// Files that stay, unless a later experiment of the run is not to keep them.
    kept: BTreeMap<PathBuf, MadeFile>,
    /// Directories with their identity, which is not known of those that others make.
    directories: BTreeMap<PathBuf, Option<Inode>>,
    /// Ledger of this rank, for whoever is left when it is killed.
    ledger: Option<Ledger>,
}

/// Place for the identity of a file that is about to be opened.
#[derive(Debug, Clone)]
pub struct Birth {
    path: PathBuf,
    inode: Arc<OnceLock<Inode>>,
    ledger: Option<Ledger>,
}

impl Birth {
    /// Notes the device and inode of the file that was opened; of what is at its path where the engine does not know.
    pub fn note(&self, opened: Option<Inode>) {
        let Some(inode) = opened.or_else(|| Inode::at(&self.path)) else {
            return;
        };
        if let (Ok(()), Some(ledger)) = (self.inode.set(inode), &self.ledger) {
            ledger.add(&LedgerEntry::Opened(absolute(&self.path), inode));
        }
    }
}

impl Made {
    /// Has what this rank makes noted in a ledger too.
    pub fn keep_ledger(&mut self, ledger: Option<&Ledger>) {
        self.ledger = ledger.cloned();
    }

    /// Makes the directory of a rank.
    pub fn directory(&mut self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir(path)
            .map_err(|error| Error::io(format!("cannot create {}", path.display()), error))?;
        let inode = Inode::at(path);
        self.directories.insert(path.to_owned(), inode);
        if let (Some(ledger), Some(inode)) = (&self.ledger, inode) {
            ledger.add(&LedgerEntry::Directory(absolute(path), inode));
        }
        Ok(())
    }

    /// Remembers the files that a phase is about to make, so that they go even when a neighbour dies.
    pub fn remember(&mut self, point: &FilePoint, rank: u32, trial: u32) {
        let writers = if point.existing {
            vec![rank]
        } else {
            writers_to_clean(point, rank)
        };
        for writer in writers {
            let path = path_of(point, writer, trial);
            // What was there before is not ours to remove.
            if point.existing && fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            let file = MadeFile {
                number: number_of(point, writer),
                bytes_max: bytes_of_file(point),
                may_lack_stamps: point.transfer_bytes < STAMP_BYTES as u64,
                inode: Arc::default(),
                noted: None,
            };
            if point.layout == FileLayout::Shared || writer == rank {
                self.enter(&path, (!point.keep).then_some(&file));
            }
            let (from, into) = if point.keep {
                (&mut self.files, &mut self.kept)
            } else {
                (&mut self.kept, &mut self.files)
            };
            from.remove(&path);
            into.insert(path, file);
        }
    }

    /// Notes which file this is, when a phase has written to it and nobody of this run does any more. Others may be
    /// somebody else's by now, which noting them would hide.
    pub fn note(&mut self, path: &Path) {
        let made = self.files.get_mut(path).or(self.kept.get_mut(path));
        if let (Some(file), Ok(found)) = (made, fs::symlink_metadata(path)) {
            let now = Noted::of(&found);
            if *file.inode.get_or_init(|| now.inode) == now.inode {
                file.noted = Some(now);
            }
        }
    }

    /// Identity of a file that this run has made; `None` where it is not known.
    pub fn identity(&self, path: &Path) -> Option<Inode> {
        self.file(path)?.inode.get().copied()
    }

    /// Place for the identity of a file that this run makes; `None` for one that it found.
    pub fn birth(&self, path: &Path) -> Option<Birth> {
        Some(Birth {
            path: path.to_owned(),
            inode: Arc::clone(&self.file(path)?.inode),
            ledger: self
                .ledger
                .clone()
                .filter(|_| self.files.contains_key(path)),
        })
    }

    /// Returns whether this run makes what is at a path.
    pub fn knows(&self, path: &Path) -> bool {
        self.file(path).is_some()
    }

    fn file(&self, path: &Path) -> Option<&MadeFile> {
        self.files.get(path).or(self.kept.get(path))
    }

    /// Notes in the ledger that a file is about to be made, or that it is none to remove.
    fn enter(&self, path: &Path, file: Option<&MadeFile>) {
        let Some(ledger) = &self.ledger else { return };
        let path = absolute(path);
        ledger.add(&match file {
            None => LedgerEntry::Done(path),
            Some(file) => LedgerEntry::File {
                path,
                number: file.number,
                bytes_max: file.bytes_max,
            },
        });
    }

    /// Remembers the directories that a rank and its neighbours are about to make, so that they go too.
    pub fn expect_directories(&mut self, point: &FilePoint, rank: u32) {
        let to_clean = files_to_clean(point, rank, 0);
        let missing = to_clean
            .iter()
            .map(|path| directory_of(path))
            .filter(|path| !path.exists());
        self.directories.extend(missing.map(|path| (path, None)));
    }

    /// Removes files that this run made, and then the directories that it made for them. Returns a line for each that
    /// was left, because it is somebody else's by now.
    pub fn remove(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> Result<Vec<String>> {
        self.remove_after(paths, None)
    }

    fn remove_after(
        &mut self,
        paths: impl IntoIterator<Item = PathBuf>,
        hurry: Option<Instant>,
    ) -> Result<Vec<String>> {
        let (mut outcome, mut left) = (Ok(()), Vec::new());
        for path in paths {
            let (made, kept) = (self.files.remove(&path), self.kept.remove(&path));
            let Some(file) = made.or(kept) else { continue };
            self.enter(&path, None);
            match file.why_left(&path, hurry) {
                Some(why) => left.push(format!("{} was left: {why}", path.display())),
                None => outcome = outcome.and(remove_file(&path)),
            }
        }
        // One that still holds files stays, and one that is gone may be made again.
        self.directories.retain(|path, made| {
            let is_made = made.is_none_or(|made| Inode::at(path) == Some(made));
            !is_made || fs::remove_dir(path).is_err()
        });
        self.close_ledger();
        outcome.map(|()| left)
    }

    fn close_ledger(&self) {
        if let Some(ledger) = self
            .ledger
            .as_ref()
            .filter(|_| self.files.is_empty() && self.directories.is_empty())
        {
            ledger.clear();
        }
    }

    /// Forgets these files, which are another rank's business.
    pub fn forget(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            if self.files.remove(&path).is_some() {
                self.enter(&path, None);
            }
        }
        self.close_ledger();
    }

    /// Files and directories that the rank of this place on the host had made and not removed when it ended, as its
    /// ledger says.
    fn of_dead_rank(ledgers: &File, place: u32) -> Self {
        let mut made = Self::default();
        made.read(entries(ledgers, place));
        made
    }

    fn read(&mut self, entries: Vec<LedgerEntry>) {
        for entry in entries {
            match entry {
                LedgerEntry::File {
                    path,
                    number,
                    bytes_max,
                } => {
                    let file = MadeFile {
                        number,
                        bytes_max,
                        may_lack_stamps: false,
                        inode: Arc::default(),
                        noted: None,
                    };
                    self.files.insert(path, file);
                }
                LedgerEntry::Opened(path, inode) => {
                    if let Some(file) = self.files.get(&path) {
                        // The first one counts.
                        let _ = file.inode.set(inode);
                    }
                }
                LedgerEntry::Directory(path, inode) => {
                    self.directories.insert(path, Some(inode));
                }
                LedgerEntry::Done(path) => {
                    self.files.remove(&path);
                }
            }
        }
    }

    /// Takes the identities of what neighbours on this host have made from their ledgers.
    fn ask_neighbours(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        let writers: BTreeSet<u32> = self.files.values().map(|file| file.number).collect();
        let mut theirs = Self::default();
        for writer in writers {
            theirs.read(ledger.entries_of(writer));
        }
        for (path, file) in &self.files {
            let known = theirs.files.get(&absolute(path));
            if let Some(inode) = known.and_then(|known| known.inode.get()) {
                // It may be known already.
                let _ = file.inode.set(*inode);
            }
        }
        for (path, inode) in &mut self.directories {
            let known = theirs.directories.get(&absolute(path));
            *inode = inode.or(known.copied().flatten());
        }
    }

    /// Removes what this run made and was not to keep, after a failure. On storage that is slow or busy less is looked
    /// at, so that something is removed at all.
    pub fn remove_all(&mut self) {
        self.remove_until(Instant::now() + LOOKING_MAX);
    }

    /// Removes what these many ranks of this host had made and not removed when they ended, as their ledgers say.
    pub fn remove_of_dead_ranks(ledgers: &File, ranks: u32) {
        // Who waits for the end of the run waits for all of them.
        let end = Instant::now() + LOOKING_MAX;
        (0..ranks).for_each(|place| Self::of_dead_rank(ledgers, place).remove_until(end));
    }

    /// Does so, with close looks until then.
    fn remove_until(&mut self, end: Instant) {
        self.ask_neighbours();
        let all: Vec<_> = self.files.keys().cloned().collect();
        match self.remove_after(all, Some(end)) {
            Ok(left) => left.iter().for_each(|line| log::warn!("{line}")),
            Err(error) => log::warn!("{error}"),
        }
    }
}

impl MadeFile {
    /// Reason why what is at the path is not this run's to remove; `None` where it is, or nothing is there.
    fn why_left(&self, path: &Path, hurry: Option<Instant>) -> Option<String> {
        let found = fs::symlink_metadata(path).ok()?;
        let now = Noted::of(&found);
        if !found.is_file() || self.inode.get().is_some_and(|inode| *inode != now.inode) {
            return Some("it is not the file that this run made there".to_owned());
        }
        if now.bytes > self.bytes_max {
            return Some(format!(
                "it has {} bytes, and this run wrote at most {}: somebody else wrote to it",
                now.bytes, self.bytes_max
            ));
        }
        let is_as_noted = self.noted == Some(now);
        if self.may_lack_stamps && is_as_noted {
            return None;
        }
        // Reading a file that nobody has written to since would take as long as measuring it did.
        let hurry = if is_as_noted {
            Some(Instant::now())
        } else {
            hurry
        };
        match ours::look(path, now.inode, self.number, hurry) {
            Content::Nothing | Content::Ours => None,
            Content::Foreign { offset } => Some(format!(
                "at offset {offset} it holds what this run did not write"
            )),
            Content::Unknown(why) => Some(format!("it {why}")),
        }
    }
}

/// A path as it is from any directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Removes a file that may be gone already.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(
            format!("cannot remove {}", path.display()),
            error,
        )),
        _ => Ok(()),
    }
}

/// The files that a rank looks after when the run has failed: its own, and those of its neighbours, who may be dead.
pub fn files_to_clean(point: &FilePoint, rank: u32, trial: u32) -> Vec<PathBuf> {
    let writers = writers_to_clean(point, rank).into_iter();
    writers
        .map(|writer| path_of(point, writer, trial))
        .collect()
}

fn writers_to_clean(point: &FilePoint, rank: u32) -> Vec<u32> {
    let ranks = point.ranks.max(1);
    match point.layout {
        FileLayout::Shared => vec![0],
        FileLayout::PerProcess => vec![rank, (rank + 1) % ranks, (rank + ranks - 1) % ranks],
    }
}

#[cfg(test)]
pub(super) mod tests;
