//! Removes the files of this run after its end or failure. Only files that tonnage wrote are ever removed: identity and
//! content (`stamp_scan`) decide whether a file belongs to this run, not its name. `earlier_runs` handles files of
//! earlier runs. [`super::ledger`] has the lists of files that outlive dead ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::ledger::{Inode, Ledger, LedgerEntry, entries};
use super::stamp_scan::{self, Content};
use super::storage::directory_of;
use crate::kinds::files::names::{bytes_of_file, number_of, path_of};
use tonnage_loops::files::stamp::STAMP_BYTES;
use tonnage_plan::files::{FileLayout, FilePoint};
use tonnage_units::{Error, Result};

/// Longest time for full checks of a rank's files after a failure. It is short, because a process is ended 2 s after
/// the failure and killed after 4 s. Shorter checks, of only the beginnings of files, follow and also take time.
const CHECKING_MAX: Duration = Duration::from_millis(500);

/// A file that this run creates.
#[derive(Debug, Clone)]
struct CreatedFile {
    /// The file's number, which is part of the key of its data.
    number: u32,
    /// Size of the file after all data are written.
    bytes_max: u64,
    /// Whether transfers are shorter than stamps. A file with holes then may not contain a single complete stamp.
    may_lack_stamps: bool,
    /// Identity of the file; empty until the file was opened.
    inode: Arc<OnceLock<Inode>>,
    /// State of the file after this run's last write; `None` before the first.
    noted: Option<FileState>,
}

/// State of a file. If the state is unchanged, no one has written to the file since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    inode: Inode,
    bytes: u64,
    modified: (i64, i64),
}

impl FileState {
    fn new(found: &Metadata) -> Self {
        Self {
            inode: Inode::from_metadata(found),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// Files and directories that this rank creates in this run, or that other ranks create for it.
#[derive(Debug, Clone, Default)]
pub struct CreatedFiles {
    files: BTreeMap<PathBuf, CreatedFile>,
    /// Files to keep, unless a later experiment of the run removes them.
    kept: BTreeMap<PathBuf, CreatedFile>,
    /// Directories with their identities. A directory's identity is unknown if another rank created it.
    directories: BTreeMap<PathBuf, Option<Inode>>,
    /// Ledger of this rank. If the rank is killed, other processes read it to remove the rank's files.
    ledger: Option<Ledger>,
}

/// Stores the identity of a file when the file is opened.
#[derive(Debug, Clone)]
pub struct PendingFileId {
    path: PathBuf,
    inode: Arc<OnceLock<Inode>>,
    ledger: Option<Ledger>,
}

impl PendingFileId {
    /// Stores device and inode of the opened file. If the engine does not know them, uses those of the file at the
    /// path.
    pub fn set(&self, opened: Option<Inode>) {
        let Some(inode) = opened.or_else(|| Inode::at(&self.path)) else {
            return;
        };
        if let (Ok(()), Some(ledger)) = (self.inode.set(inode), &self.ledger) {
            ledger.add(&LedgerEntry::Opened(absolute(&self.path), inode));
        }
    }
}

impl CreatedFiles {
    /// From now on, also records this rank's files in a ledger.
    pub fn keep_ledger(&mut self, ledger: Option<&Ledger>) {
        self.ledger = ledger.cloned();
    }

    /// Creates the directory of a rank, and records that this run created it.
    pub fn create_directory(&mut self, path: &Path) -> Result<()> {
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

    /// Records the files that a phase is about to create. Files of neighbours are included, in case a neighbour dies.
    pub fn record_planned(&mut self, point: &FilePoint, rank: u32, trial: u32) {
        let writers = if point.existing {
            vec![rank]
        } else {
            writers_to_clean(point, rank)
        };
        for writer in writers {
            let path = path_of(point, writer, trial);
            // A file that existed before this run must not be removed.
            if point.existing && fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            let file = CreatedFile {
                number: number_of(point, writer),
                bytes_max: bytes_of_file(point),
                may_lack_stamps: point.transfer_bytes < STAMP_BYTES as u64,
                inode: Arc::default(),
                noted: None,
            };
            if point.layout == FileLayout::Shared || writer == rank {
                self.record(&path, (!point.keep).then_some(&file));
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

    /// Records the state of a file after a phase, when no rank of this run writes any more. A file with another
    /// identity is ignored. Recording its state would hide that this run did not write it.
    pub fn record_written(&mut self, path: &Path) {
        let made = self.files.get_mut(path).or(self.kept.get_mut(path));
        if let (Some(file), Ok(found)) = (made, fs::symlink_metadata(path)) {
            let now = FileState::new(&found);
            if *file.inode.get_or_init(|| now.inode) == now.inode {
                file.noted = Some(now);
            }
        }
    }

    /// Returns the identity of a file that this run created; `None` if the identity is unknown.
    pub fn identity(&self, path: &Path) -> Option<Inode> {
        self.file(path)?.inode.get().copied()
    }

    /// Returns where to store the identity of a file that this run creates; `None` for a file that existed before.
    pub fn pending_id(&self, path: &Path) -> Option<PendingFileId> {
        Some(PendingFileId {
            path: path.to_owned(),
            inode: Arc::clone(&self.file(path)?.inode),
            ledger: self
                .ledger
                .clone()
                .filter(|_| self.files.contains_key(path)),
        })
    }

    /// Returns whether this run creates the file at a path.
    pub fn contains(&self, path: &Path) -> bool {
        self.file(path).is_some()
    }

    fn file(&self, path: &Path) -> Option<&CreatedFile> {
        self.files.get(path).or(self.kept.get(path))
    }

    /// Records in the ledger that a file is about to be created. `None` records that the file must no longer be
    /// removed.
    fn record(&self, path: &Path, file: Option<&CreatedFile>) {
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

    /// Records the directories that this rank and its neighbours are about to create, so that they can be removed
    /// later.
    pub fn expect_directories(&mut self, point: &FilePoint, rank: u32) {
        let to_clean = files_to_clean(point, rank, 0);
        let missing = to_clean
            .iter()
            .map(|path| directory_of(path))
            .filter(|path| !path.exists());
        self.directories.extend(missing.map(|path| (path, None)));
    }

    /// Removes files that this run created, and then the directories that it created for them. Returns a line for each
    /// file that stays because it is no longer this run's.
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
            self.record(&path, None);
            match file.why_not_removable(&path, hurry) {
                Some(why) => left.push(format!("{} was left: {why}", path.display())),
                None => outcome = outcome.and(remove_file(&path)),
            }
        }
        // Forgets directories that are removed or replaced. A directory that still contains files stays in the list.
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

    /// Forgets these files, because another rank will remove them.
    pub fn forget(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            if self.files.remove(&path).is_some() {
                self.record(&path, None);
            }
        }
        self.close_ledger();
    }

    /// Reads from a dead rank's ledger which files and directories it had created and not removed. `place` is the
    /// rank's index on the host.
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
                    let file = CreatedFile {
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
                        // Only the first recorded identity of a file counts, so a later one is ignored.
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

    /// Reads the identities of files and directories that neighbours on this host created, from their ledgers.
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
                // Ignored if the identity is known already.
                let _ = file.inode.set(*inode);
            }
        }
        for (path, inode) in &mut self.directories {
            let known = theirs.directories.get(&absolute(path));
            *inode = inode.or(known.copied().flatten());
        }
    }

    /// After a failure, removes everything that this run created and need not keep. On slow or busy storage, files are
    /// checked less thoroughly, so that they can be removed in time.
    pub fn remove_all(&mut self) {
        self.remove_until(Instant::now() + CHECKING_MAX);
    }

    /// Reads the ledgers of `ranks` dead ranks on this host, and removes files that these ranks had not removed.
    pub fn remove_of_dead_ranks(ledgers: &File, ranks: u32) {
        // All ranks together have one deadline, because the run ends only after the removal.
        let end = Instant::now() + CHECKING_MAX;
        (0..ranks).for_each(|place| Self::of_dead_rank(ledgers, place).remove_until(end));
    }

    /// Removes everything. Files are checked completely until `end`, and only at their beginnings afterwards.
    fn remove_until(&mut self, end: Instant) {
        self.ask_neighbours();
        let all: Vec<_> = self.files.keys().cloned().collect();
        match self.remove_after(all, Some(end)) {
            Ok(left) => left.iter().for_each(|line| log::warn!("{line}")),
            Err(error) => log::warn!("{error}"),
        }
    }
}

impl CreatedFile {
    /// Returns why the file at the path must not be removed; `None` if it may be removed or does not exist. After
    /// `hurry`, only its beginning is checked.
    fn why_not_removable(&self, path: &Path, hurry: Option<Instant>) -> Option<String> {
        let found = fs::symlink_metadata(path).ok()?;
        let now = FileState::new(&found);
        if !found.is_file() || self.inode.get().is_some_and(|inode| *inode != now.inode) {
            return Some("it is not the file that this run made there".to_owned());
        }
        if now.bytes > self.bytes_max {
            return Some(format!(
                "it has {} bytes, and this run wrote at most {}: another process wrote to it",
                now.bytes, self.bytes_max
            ));
        }
        let is_as_noted = self.noted == Some(now);
        if self.may_lack_stamps && is_as_noted {
            return None;
        }
        // The file is unchanged since its state was recorded, so its beginning suffices. Reading all of it would take
        // as long as the measurement.
        let hurry = if is_as_noted {
            Some(Instant::now())
        } else {
            hurry
        };
        match stamp_scan::scan(path, now.inode, self.number, hurry) {
            Content::Nothing | Content::Ours => None,
            Content::Foreign { offset } => Some(format!(
                "at offset {offset} it holds what this run did not write"
            )),
            Content::Unknown(why) => Some(format!("it {why}")),
        }
    }
}

/// Returns the path in absolute form.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Removes a file. A missing file is not an error.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(
            format!("cannot remove {}", path.display()),
            error,
        )),
        _ => Ok(()),
    }
}

/// Returns the files that a rank removes after a failure: its own files, and those of its neighbours, because a
/// neighbour may be dead.
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
