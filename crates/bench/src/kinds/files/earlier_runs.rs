//! Files of an earlier run of tonnage, left behind or kept, at the paths of new files.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::clean::remove_file;
use super::ledger::Inode;
use super::stamp_scan::{self, Content};
use crate::kinds::files::names::number_of;
use serde::{Deserialize, Serialize};
use tonnage_plan::files::FilePoint;
use tonnage_sys::files::open::kind_name;
use tonnage_units::reduce::Reduce;
use tonnage_units::{Error, Result};

/// Maximum number of files that a remark lists.
const NAMED_MAX: usize = 4;

/// Files of earlier runs that one rank or all ranks removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedFiles {
    count: u64,
    /// Names of the first files, in alphabetical order.
    named: BTreeSet<String>,
    /// Whether these files were in directories that an earlier run had created for its ranks.
    in_directories: bool,
}

impl RemovedFiles {
    /// Adds a file. `in_directory` is whether the file was in a directory of its rank.
    pub fn add(&mut self, path: &Path, in_directory: bool) {
        self.merge(Self {
            count: 1,
            named: BTreeSet::from([path.display().to_string()]),
            in_directories: in_directory,
        });
    }

    /// Returns the remark for the record; `None` if no files were removed.
    pub fn remark(&self) -> Option<String> {
        let named: Vec<_> = self.named.iter().map(String::as_str).collect();
        let named = named.join(", ");
        let stay = if self.in_directories {
            "; directories of ranks were there as well, and stay"
        } else {
            ""
        };
        match self.count {
            0 => None,
            1 => Some(format!(
                "{named}, which an earlier run of tonnage had left or kept, was removed before it was written anew{stay}"
            )),
            count => Some(format!(
                "{count} files that an earlier run of tonnage had left or kept were removed before they were written anew, \
                 such as {named}{stay}"
            )),
        }
    }
}

impl Reduce for RemovedFiles {
    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.named.extend(other.named);
        while self.named.len() > NAMED_MAX {
            self.named.pop_last();
        }
        self.in_directories |= other.in_directories;
    }
}

/// Removes a file at the path of a new one, if the file is empty or tonnage wrote it. Returns whether the file had
/// data.
pub fn remove_if_ours(point: &FilePoint, path: &Path, writer: u32) -> Result<bool> {
    let shown = path.display();
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io(format!("cannot look at {shown}"), error)),
        Ok(found) => found,
    };
    if !found.is_file() {
        return Err(Error::Failed(format!(
            "{shown} is {}, not a regular file: name another path",
            kind_name(&found)
        )));
    }
    let inode = Inode::from_metadata(&found);
    let why = match stamp_scan::scan(path, inode, number_of(point, writer), None) {
        Content::Ours => return remove_file(path).map(|()| true),
        Content::Nothing if found.len() == 0 => {
            return remove_file(path).map(|()| false);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use crate::kinds::files::clean::tests::stamped;
    use crate::kinds::files::testing::point;
    use tonnage_loops::files::stamp::{FileKey, SECTOR_BYTES};

    #[test]
    fn only_files_of_tonnage_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let point = point(1);
        assert!(!remove_if_ours(&point, &path, 0).unwrap());
        fs::write(&path, "somebody's letters").unwrap();
        let refused = remove_if_ours(&point, &path, 0).unwrap_err().to_string();
        assert!(refused.contains("not written by tonnage"), "{refused}");
        let mut zeros = vec![0; 4096];
        zeros.extend(b"a disk image begins with zeros");
        fs::write(&path, zeros).unwrap();
        assert!(remove_if_ours(&point, &path, 0).is_err());
        fs::write(&path, FileKey::new(5, 0).stamp(0)).unwrap();
        assert!(remove_if_ours(&point, &path, 0).unwrap());
        assert!(!path.exists());
        let hole = File::create(&path).unwrap();
        let mut sector = FileKey::new(5, 0).stamp(1 << 20).to_vec();
        sector.resize(512, 7);
        hole.write_all_at(&sector, 1 << 20).unwrap();
        remove_if_ours(&point, &path, 0).unwrap();
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        assert!(!remove_if_ours(&point, &path, 0).unwrap());
        fs::create_dir(&path).unwrap();
        assert!(remove_if_ours(&point, &path, 0).is_err());
    }

    #[test]
    fn the_remark_does_not_depend_on_the_order() {
        let of = |names: &[&str]| {
            let mut removed = RemovedFiles::default();
            let mut add = |name: &&str| removed.add(Path::new(name), name.contains('/'));
            names.iter().for_each(&mut add);
            removed
        };
        assert_eq!(of(&[]).remark(), None);
        let one = of(&["t"]).remark().unwrap();
        assert!(
            one.starts_with("t, which") && !one.contains("stay"),
            "{one}"
        );
        let (mut all, mut back) = (of(&["5/t", "0/t", "4/t"]), of(&["1/t", "3/t", "2/t"]));
        all.merge(of(&["1/t", "3/t", "2/t"]));
        back.merge(of(&["0/t", "4/t", "5/t"]));
        assert_eq!(all, back);
        let many = all.remark().unwrap();
        for part in ["6 files", "such as 0/t, 1/t, 2/t, 3/t;", "and stay"] {
            assert!(many.contains(part), "{many}");
        }
    }

    #[test]
    fn zeros_at_the_beginning_prove_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let point = point(2);
        let refused = |path: &Path| remove_if_ours(&point, path, 1).is_err();
        // Resembles the beginning of a file-system image.
        let mut image = vec![0; 1 << 20];
        image[1024..2048].fill(7);
        fs::write(&path, &image).unwrap();
        assert!(refused(&path));
        fs::write(&path, vec![0; 5000]).unwrap();
        assert!(refused(&path));
        File::create(&path).unwrap().set_len(5 << 20).unwrap();
        assert!(refused(&path));
        // Resembles a file of transfers of 1000 bytes, written in a shuffled order that was cut short.
        let mut holes = vec![0; 5_000_000];
        holes[4_000_000..4_001_000].fill(9);
        for sector in [4_000_256, 4_000_768] {
            let stamp = FileKey::new(5, 0).stamp(sector as u64);
            holes[sector..sector + 16].copy_from_slice(&stamp);
        }
        assert_eq!(4_000_256 % SECTOR_BYTES, 0);
        fs::write(&path, &holes).unwrap();
        assert!(remove_if_ours(&point, &path, 1).is_ok() && !path.exists());
    }

    #[test]
    fn an_old_file_with_foreign_data_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let point = point(1);
        for at in [0, 100 * SECTOR_BYTES, 8000 * SECTOR_BYTES] {
            fs::write(&path, stamped(0, 8000)).unwrap();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(b"somebody's letters", at).unwrap();
            let refused = remove_if_ours(&point, &path, 0).unwrap_err().to_string();
            assert!(refused.contains("is there and"), "{refused}");
            assert!(path.exists());
        }
        fs::write(&path, stamped(0, 8000)).unwrap();
        remove_if_ours(&point, &path, 0).unwrap();
        // Only parts of a large file are read. They include the end, so an appended byte is found.
        for grown in [0, 1] {
            let mut file = File::create(&path).unwrap();
            file.write_all(&stamped(0, 80_000)).unwrap();
            file.write_all(&b"a"[..grown]).unwrap();
            assert_eq!(remove_if_ours(&point, &path, 0).is_err(), grown == 1);
        }
    }
}
