//! Removing files: old ones before they are written anew, and those of this run when it is over. Only what tonnage
//! wrote is ever removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::storage::directory_of;
use crate::kinds::files::names::{number_of, path_of};
use crate::kinds::files::stamp::{FileKey, SECTOR_BYTES, STAMP_BYTES};
use tonnage_plan::files::{FileLayout, FilePoint};
use tonnage_units::{Error, Result};

/// A file is looked at in pieces of this size.
const LOOK_BYTES: u64 = 1 << 20;

/// Length of zeros that is skipped where the file system does not tell where data begins.
const LOOK_BYTES_MAX: u64 = 64 << 20;

/// Files and directories that this rank has made in this run, or that are made for it.
#[derive(Debug, Default)]
pub struct Made {
    files: BTreeSet<PathBuf>,
    /// Files that stay, unless a later experiment of the run is not to keep them.
    kept: BTreeSet<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Made {
    /// Remembers a file that is about to be made.
    pub fn add(&mut self, path: &Path) {
        self.files.insert(path.to_owned());
    }

    /// All that goes when the run fails.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.iter().cloned().collect()
    }

    /// Returns whether this run made it.
    pub fn has(&self, path: &Path) -> bool {
        self.files.contains(path) || self.kept.contains(path)
    }

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
        let mut paths = if point.existing {
            vec![path_of(point, rank, trial)]
        } else {
            files_to_clean(point, rank, trial)
        };
        // What was there before is not ours to remove.
        paths.retain(|path| !point.existing || !path.exists());
        for path in &paths {
            self.add(path);
        }
        if point.keep {
            self.keep(paths);
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

    /// Removes files that this run made, and then the directories that it made for them.
    ///
    /// # Errors
    /// The first that could not be removed; the others are tried all the same.
    pub fn remove(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> Result<()> {
        let mut outcome = Ok(());
        for path in paths {
            let ours = self.files.remove(&path) | self.kept.remove(&path);
            if ours && let Err(error) = remove_file(&path) {
                outcome = outcome.and(Err(error));
            }
        }
        // One that still holds files stays, and one that is gone may be made again.
        self.directories
            .retain(|path| fs::remove_dir(path).is_err());
        outcome
    }

    /// These stay, also when the run fails later.
    pub fn keep(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            self.files.remove(&path);
            self.kept.insert(path);
        }
    }

    /// Forgets these files, which are another rank's business.
    pub fn forget(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            self.files.remove(&path);
        }
    }

    /// Removes what this run made and was not to keep, after a failure.
    pub fn remove_all(&mut self) {
        let all: Vec<_> = self.files.iter().cloned().collect();
        if let Err(error) = self.remove(all) {
            log::warn!("{error}");
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
    if found.len() > 0 && !is_ours(path, number_of(point, writer)) {
        return Err(Error::Failed(format!(
            "{shown} is there and was not written by tonnage: remove it yourself, name another path, or have it written into \
             as it is (--existing, -E of tonnage ior)"
        )));
    }
    remove_file(path)
}

/// Returns whether the beginning of a file is of tonnage. A shuffled order that was cut short leaves holes, so that the
/// first sectors that hold anything are looked at; a file of nothing but holes may be anybody's.
fn is_ours(path: &Path, number: u32) -> bool {
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    // File systems that cannot tell where data begins say that it is at 0.
    let begin = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap_or(0);
    let first = begin - begin % SECTOR_BYTES;
    let mut chunk = vec![0; LOOK_BYTES as usize];
    for at in (first..first + LOOK_BYTES_MAX).step_by(LOOK_BYTES as usize) {
        let read = file
            .seek(SeekFrom::Start(at))
            .and_then(|_| read_up_to(&mut file, &mut chunk));
        let Ok(bytes @ 1..) = read else { return false };
        let found = &chunk[..bytes];
        if found.iter().any(|&byte| byte != 0) {
            return holds_a_stamp(found, number, at);
        }
    }
    false
}

/// Returns whether a sector begins as it must at its place in that file. The first that is not zero may have been cut
/// by a transfer's begin, so that the others are looked at too; by chance none is right.
fn holds_a_stamp(bytes: &[u8], number: u32, offset: u64) -> bool {
    let mut sectors = (offset..)
        .step_by(SECTOR_BYTES as usize)
        .zip(bytes.chunks(SECTOR_BYTES as usize));
    sectors.any(|(at, sector)| {
        let stamp = sector.first_chunk::<STAMP_BYTES>();
        stamp.is_some_and(|stamp| {
            *stamp != [0; STAMP_BYTES] && FileKey::of_stamp(*stamp, number, at).is_some()
        })
    })
}

fn read_up_to(file: &mut File, into: &mut [u8]) -> std::io::Result<usize> {
    let mut bytes = 0;
    while bytes < into.len() {
        match file.read(&mut into[bytes..])? {
            0 => break,
            read => bytes += read,
        }
    }
    Ok(bytes)
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
    let ranks = point.ranks.max(1);
    let writers = match point.layout {
        FileLayout::Shared => vec![0],
        FileLayout::PerProcess => vec![rank, (rank + 1) % ranks, (rank + ranks - 1) % ranks],
    };
    writers
        .into_iter()
        .map(|writer| path_of(point, writer, trial))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    use crate::kinds::files::sequence::tests::point;

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
        holes[4_000_256..4_000_272].copy_from_slice(&FileKey::new(5, 0).stamp(4_000_256));
        assert_eq!(4_000_256 % SECTOR_BYTES, 0);
        fs::write(&path, &holes).unwrap();
        assert!(remove_old(&point, &path, 1).is_ok() && !path.exists());
    }

    #[test]
    fn what_the_run_made_goes_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (own, other) = (directory.path().join("7/a"), directory.path().join("b"));
        let mut made = Made::default();
        made.directory(&directory.path().join("7")).unwrap();
        made.add(&own);
        fs::write(&own, "x").unwrap();
        fs::write(&other, "y").unwrap();
        made.remove([own.clone(), other.clone()]).unwrap();
        assert!(!own.exists() && !directory.path().join("7").exists() && other.exists());
        made.add(&own);
        made.keep([own.clone()]);
        fs::create_dir(own.parent().unwrap()).unwrap();
        fs::write(&own, "x").unwrap();
        made.remove_all();
        assert!(made.has(&own) && own.exists());
        made.remove([own.clone()]).unwrap();
        assert!(!own.exists());
    }
}
