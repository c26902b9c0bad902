//! Identity of a file of records: its name, and the file that had this name when it was opened. [`super::writer`]
//! writes the file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file's name, with the identity of the file to which this name must keep referring. Any thread can check this
/// without the writer. If the file system hangs, only the checking thread is blocked.
pub struct RecordPlace {
    path: PathBuf,
    /// Device and inode number of the file.
    file: (u64, u64),
}

impl RecordPlace {
    /// Captures the identity of `file`, which was opened by the name `path`. `None` if its metadata cannot be read.
    pub(super) fn from_opened(path: &Path, file: &File) -> Option<Self> {
        let opened = file.metadata().ok()?;
        Some(Self {
            path: path.to_owned(),
            file: (opened.dev(), opened.ino()),
        })
    }

    /// Describes the change if the name no longer refers to the file. If the file system doesn't answer, for example
    /// during a fail-over, this does not count as a change.
    pub fn why_not_same(&self) -> Option<String> {
        let what = describe_change(&self.path, self.file).ok()??;
        Some(format!("{} {what}", self.path.display()))
    }
}

/// Describes the change if a name no longer refers to the file with this device and inode number. `None` if nothing
/// changed.
///
/// # Errors
/// If the file system does not answer.
pub(super) fn describe_change(path: &Path, file: (u64, u64)) -> io::Result<Option<&'static str>> {
    match fs::metadata(path) {
        Ok(found) if (found.dev(), found.ino()) == file => Ok(None),
        Ok(_) => Ok(Some("was replaced by another file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some("was removed or renamed")),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::RecordWriter;

    #[test]
    fn a_replaced_or_removed_file_is_noticed_but_an_outage_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("d");
        fs::create_dir(&sub).unwrap();
        let [path, aside] = ["r.jsonl", "aside"].map(|name| sub.join(name));
        let writer = RecordWriter::create(&path).unwrap();
        let place = writer.place().unwrap();
        assert_eq!(place.why_not_same(), None);
        fs::rename(&path, &aside).unwrap();
        assert!(
            place
                .why_not_same()
                .unwrap()
                .ends_with("removed or renamed")
        );
        fs::write(&path, "").unwrap();
        assert!(place.why_not_same().unwrap().ends_with("by another file"));
        fs::rename(&aside, &path).unwrap();
        assert_eq!(place.why_not_same(), None);
        // If the parent is no longer a directory, the system returns a different error than for a removed file.
        fs::rename(&sub, dir.path().join("away")).unwrap();
        fs::write(&sub, "").unwrap();
        assert_eq!(place.why_not_same(), None);
    }
}
