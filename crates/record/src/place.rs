//! The place of a file of records: its name, and the file that had it when it was opened. Writing there is in
//! [`super::writer`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A name that has to go on meaning one file. Looking at it needs no writer, so that a file system that hangs keeps
/// nobody else.
pub struct RecordPlace {
    path: PathBuf,
    /// Device and number of the file.
    file: (u64, u64),
}

impl RecordPlace {
    /// The place of a file that was opened by this name; `None` where it cannot be seen.
    pub(super) fn of(path: &Path, file: &File) -> Option<Self> {
        let opened = file.metadata().ok()?;
        Some(Self {
            path: path.to_owned(),
            file: (opened.dev(), opened.ino()),
        })
    }

    /// Words for what has become of the name where it no longer means the file. A file system that does not answer, as
    /// during a fail-over, says nothing about it.
    pub fn objection(&self) -> Option<String> {
        let what = became(&self.path, self.file).ok()??;
        Some(format!("{} {what}", self.path.display()))
    }
}

/// Words for what has become of a name that meant the file with this device and number; `None` where it still does.
///
/// # Errors
/// When the file system does not tell.
pub(super) fn became(path: &Path, file: (u64, u64)) -> io::Result<Option<&'static str>> {
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
    fn a_name_that_means_another_file_or_none_is_noticed_and_an_outage_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("d");
        fs::create_dir(&sub).unwrap();
        let [path, aside] = ["r.jsonl", "aside"].map(|name| sub.join(name));
        let writer = RecordWriter::create(&path).unwrap();
        let place = writer.place().unwrap();
        assert_eq!(place.objection(), None);
        fs::rename(&path, &aside).unwrap();
        assert!(place.objection().unwrap().ends_with("removed or renamed"));
        fs::write(&path, "").unwrap();
        assert!(place.objection().unwrap().ends_with("by another file"));
        fs::rename(&aside, &path).unwrap();
        assert_eq!(place.objection(), None);
        // What stands where the directory was answers otherwise than that the name is gone.
        fs::rename(&sub, dir.path().join("away")).unwrap();
        fs::write(&sub, "").unwrap();
        assert_eq!(place.objection(), None);
    }
}
