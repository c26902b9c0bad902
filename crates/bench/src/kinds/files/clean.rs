//! Removing files: old ones before they are written anew, and those of this run when it is over. Only what tonnage
//! wrote is ever removed: a file counts as this run's by what it is, not by its name, and by what it holds (`ours`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::ours::{self, Content, Much};
use super::storage::directory_of;
use crate::kinds::files::names::{bytes_of_file, number_of, path_of};
use tonnage_plan::files::{FileLayout, FilePoint};
use tonnage_units::{Error, Result};

/// A file that this run makes, as far as it is known.
#[derive(Debug, Clone)]
struct MadeFile {
    /// The number by which its data is keyed.
    number: u32,
    /// Its bytes once everything is written.
    bytes_max: u64,
    /// Its state when this run had written to it last; `None` while it never has.
    noted: Option<Noted>,
}

/// Identity and state of a file: which one it is, and whether anybody wrote to it since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noted {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
}

impl Noted {
    fn of(found: &Metadata) -> Self {
        Self {
            file: (found.dev(), found.ino()),
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
    directories: BTreeSet<PathBuf>,
}

impl Made {
    /// Makes the directory of a rank.
    ///
    /// # Errors
    /// The system's refusal, with the path.
    pub fn directory(&mut self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir(path)
            .map_err(|error| Error::io(format!("cannot create {}", path.display()), error))?;
        self.directories.insert(path.to_owned());
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
            if point.existing && path.exists() {
                continue;
            }
            let file = MadeFile {
                number: number_of(point, writer),
                bytes_max: bytes_of_file(point),
                noted: None,
            };
            let (from, into) = match point.keep {
                true => (&mut self.files, &mut self.kept),
                false => (&mut self.kept, &mut self.files),
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
            file.noted = Some(Noted::of(&found));
        }
    }

    /// Remembers the directories that a rank and its neighbours are about to make, so that they go too.
    pub fn expect_directories(&mut self, point: &FilePoint, rank: u32) {
        let to_clean = files_to_clean(point, rank, 0);
        let missing = to_clean
            .iter()
            .map(|path| directory_of(path))
            .filter(|path| !path.exists());
        self.directories.extend(missing);
    }

    /// Removes files that this run made, and then the directories that it made for them. Returns a line for each that
    /// was left, because it is somebody else's by now.
    ///
    /// # Errors
    /// The first that could not be removed; the others are tried all the same.
    pub fn remove(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> Result<Vec<String>> {
        self.remove_after(paths, Much::Sample)
    }

    /// Removes files of which so much is looked at where they have changed.
    fn remove_after(
        &mut self,
        paths: impl IntoIterator<Item = PathBuf>,
        much: Much,
    ) -> Result<Vec<String>> {
        let (mut outcome, mut left) = (Ok(()), Vec::new());
        for path in paths {
            let (made, kept) = (self.files.remove(&path), self.kept.remove(&path));
            let Some(file) = made.or(kept) else { continue };
            match file.why_left(&path, much) {
                Some(why) => left.push(format!("{} was left: {why}", path.display())),
                None => outcome = outcome.and(remove_file(&path)),
            }
        }
        // One that still holds files stays, and one that is gone may be made again.
        self.directories
            .retain(|path| fs::remove_dir(path).is_err());
        outcome.map(|()| left)
    }

    /// Forgets these files, which are another rank's business.
    pub fn forget(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            self.files.remove(&path);
        }
    }

    /// Removes what this run made and was not to keep, after a failure.
    pub fn remove_all(&mut self) {
        let all: Vec<_> = self.files.keys().cloned().collect();
        // The run failed and its processes are about to be ended: there is no time to read much.
        match self.remove_after(all, Much::Begin) {
            Ok(left) => left.iter().for_each(|line| log::warn!("{line}")),
            Err(error) => log::warn!("{error}"),
        }
    }
}

impl MadeFile {
    /// Reason why what is at the path is not this run's to remove; `None` where it is, or nothing is there.
    fn why_left(&self, path: &Path, much: Much) -> Option<String> {
        let found = fs::symlink_metadata(path).ok()?;
        let now = Noted::of(&found);
        if !found.is_file() || self.noted.is_some_and(|noted| noted.file != now.file) {
            return Some("it is not the file that this run made there".to_owned());
        }
        if now.bytes > self.bytes_max {
            return Some(format!(
                "it has {} bytes, and this run wrote at most {}: somebody else wrote to it",
                now.bytes, self.bytes_max
            ));
        }
        // Reading a file that nobody has written to since would take as long as measuring it did.
        let much = match self.noted == Some(now) {
            true => Much::Begin,
            false => much,
        };
        match ours::look(path, self.number, much) {
            Content::Nothing | Content::Ours => None,
            Content::Foreign { offset } => Some(format!(
                "at offset {offset} it holds what this run did not write"
            )),
            Content::Unknown(why) => Some(format!("it {why}")),
        }
    }
}

/// Removes a file that is in the way of a new one, if it may be: it is empty or tonnage wrote it.
///
/// # Errors
/// When it is something else, or cannot be removed.
pub fn remove_old(point: &FilePoint, path: &Path, writer: u32) -> Result<()> {
    let shown = path.display();
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(format!("cannot look at {shown}"), error)),
        Ok(found) => found,
    };
    if !found.is_file() {
        return Err(Error::Failed(format!(
            "{shown} is there and is no regular file: name another path"
        )));
    }
    let why = match ours::look(path, number_of(point, writer), Much::Sample) {
        Content::Ours => return remove_file(path),
        Content::Nothing if found.len() == 0 => return remove_file(path),
        Content::Foreign {
            offset: offset @ 1..,
        } => format!("was not written by tonnage from offset {offset} on"),
        Content::Foreign { .. } | Content::Nothing => "was not written by tonnage".to_owned(),
        Content::Unknown(why) => why,
    };
    Err(Error::Failed(format!(
        "{shown} is there and {why}: remove it yourself, name another path, or have it written into as it is \
             (--existing, -E of tonnage ior)"
    )))
}

fn remove_file(path: &Path) -> Result<()> {
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
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use crate::kinds::files::sequence::tests::point;
    use crate::kinds::files::stamp::{FileKey, SECTOR_BYTES};

    /// Content of a file of so many sectors, as tonnage writes it.
    fn stamped(number: u32, sectors: u64) -> Vec<u8> {
        let sector = |index: u64| {
            let mut bytes = FileKey::new(5, number).stamp(index * SECTOR_BYTES).to_vec();
            bytes.resize(SECTOR_BYTES as usize, 7);
            bytes
        };
        (0..sectors).flat_map(sector).collect()
    }

    #[test]
    fn only_what_tonnage_wrote_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let point = point(1);
        assert!(remove_old(&point, &path, 0).is_ok());
        fs::write(&path, "somebody's letters").unwrap();
        let refused = remove_old(&point, &path, 0).unwrap_err().to_string();
        assert!(refused.contains("not written by tonnage"), "{refused}");
        let mut zeros = vec![0; 4096];
        zeros.extend(b"a disk image begins with zeros");
        fs::write(&path, zeros).unwrap();
        assert!(remove_old(&point, &path, 0).is_err());
        fs::write(&path, FileKey::new(5, 0).stamp(0)).unwrap();
        remove_old(&point, &path, 0).unwrap();
        assert!(!path.exists());
        let hole = File::create(&path).unwrap();
        let mut sector = FileKey::new(5, 0).stamp(1 << 20).to_vec();
        sector.resize(512, 7);
        hole.write_all_at(&sector, 1 << 20).unwrap();
        remove_old(&point, &path, 0).unwrap();
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        remove_old(&point, &path, 0).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(remove_old(&point, &path, 0).is_err());
    }

    #[test]
    fn zeros_at_the_begin_are_no_proof() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let point = point(2);
        let refused = |path: &Path| remove_old(&point, path, 1).is_err();
        // The begin of a file system in a file.
        let mut image = vec![0; 1 << 20];
        image[1024..2048].fill(7);
        fs::write(&path, &image).unwrap();
        assert!(refused(&path));
        fs::write(&path, vec![0; 5000]).unwrap();
        assert!(refused(&path));
        File::create(&path).unwrap().set_len(5 << 20).unwrap();
        assert!(refused(&path));
        // A shuffled order that was cut short, in transfers of 1000 bytes.
        let mut holes = vec![0; 5_000_000];
        holes[4_000_000..4_001_000].fill(9);
        for sector in [4_000_256, 4_000_768] {
            let stamp = FileKey::new(5, 0).stamp(sector as u64);
            holes[sector..sector + 16].copy_from_slice(&stamp);
        }
        assert_eq!(4_000_256 % SECTOR_BYTES, 0);
        fs::write(&path, &holes).unwrap();
        assert!(remove_old(&point, &path, 1).is_ok() && !path.exists());
    }

    #[test]
    fn what_somebody_added_to_an_old_file_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let point = point(1);
        for at in [0, 100 * SECTOR_BYTES, 8000 * SECTOR_BYTES] {
            fs::write(&path, stamped(0, 8000)).unwrap();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(b"somebody's letters", at).unwrap();
            let refused = remove_old(&point, &path, 0).unwrap_err().to_string();
            assert!(refused.contains("is there and"), "{refused}");
            assert!(path.exists());
        }
        fs::write(&path, stamped(0, 8000)).unwrap();
        remove_old(&point, &path, 0).unwrap();
        // Of a large file some parts are looked at, the end always.
        for grown in [0, 1] {
            let mut file = File::create(&path).unwrap();
            file.write_all(&stamped(0, 80_000)).unwrap();
            file.write_all(&b"a"[..grown]).unwrap();
            assert_eq!(remove_old(&point, &path, 0).is_err(), grown == 1);
        }
    }

    /// A point of one rank with a file of 4 KiB, and what is remembered of its file.
    fn made(directory: &Path, keep: bool) -> (FilePoint, Made, PathBuf) {
        let mut point = point(1);
        (point.block_bytes, point.segments, point.keep) = (4096, 1, keep);
        point.paths = vec![directory.join("7/a").display().to_string()];
        let mut made = Made::default();
        made.directory(&directory.join("7")).unwrap();
        made.remember(&point, 0, 0);
        let path = path_of(&point, 0, 0);
        (point, made, path)
    }

    #[test]
    fn what_the_run_made_goes_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (_, mut all, own) = made(directory.path(), false);
        let other = directory.path().join("b");
        fs::write(&own, stamped(0, 8)).unwrap();
        fs::write(&other, stamped(0, 8)).unwrap();
        let left = all.remove([own.clone(), other.clone()]).unwrap();
        assert!(left.is_empty() && other.exists());
        assert!(!own.exists() && !directory.path().join("7").exists());
        let (_, mut all, own) = made(directory.path(), true);
        fs::write(&own, stamped(0, 8)).unwrap();
        all.note(&own);
        all.remove_all();
        assert!(own.exists());
        all.remove([own.clone()]).unwrap();
        assert!(!own.exists());
    }

    #[test]
    fn what_became_somebody_elses_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let left = |change: &dyn Fn(&Path), noted: bool| {
            let (_, mut all, own) = made(directory.path(), false);
            fs::write(&own, stamped(0, 8)).unwrap();
            if noted {
                all.note(&own);
            }
            change(&own);
            let left = all.remove([own.clone()]).unwrap();
            assert_eq!(left.len(), usize::from(own.exists()), "{left:?}");
            let _ = fs::remove_file(&own);
            left.concat()
        };
        for noted in [false, true] {
            let letters = |path: &Path| {
                let other = path.with_file_name("letters");
                fs::write(&other, "somebody's letters").unwrap();
                fs::rename(other, path).unwrap();
            };
            assert!(left(&letters, noted).contains("was left"));
            let append = |path: &Path| {
                let file = OpenOptions::new().append(true).open(path);
                file.unwrap().write_all(b"notes").unwrap();
            };
            assert!(left(&append, noted).contains("4101 bytes"));
            let overwrite = |path: &Path| {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(b"notes", 512).unwrap();
            };
            assert!(left(&overwrite, noted).contains("offset 512"));
            assert_eq!(left(&|_| (), noted), "");
            // Holes of an order that was cut short, or nothing at all.
            let cut = |path: &Path| fs::write(path, vec![0; 4096]).unwrap();
            assert_eq!(left(&cut, noted), "");
        }
        // A copy of our own that somebody put in place of it is theirs.
        let copy = |path: &Path| {
            let other = path.with_file_name("copy");
            fs::copy(path, &other).unwrap();
            fs::rename(other, path).unwrap();
        };
        assert!(left(&copy, true).contains("not the file that this run made"));
    }
}
