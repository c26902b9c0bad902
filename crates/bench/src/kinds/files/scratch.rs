//! A file of our own beside the user's, for finding out what the storage can do. It is gone when its owner is.

use std::fs::File;
use std::path::{Path, PathBuf};

use tonnage_sys::files::open::{OpenFlags, open};

use tonnage_units::{Error, Result};

/// The name of a file that is removed when this is dropped.
pub struct ScratchFile {
    path: PathBuf,
}

impl ScratchFile {
    /// A name in a directory that nobody else uses.
    pub fn new(directory: &Path, what: &str) -> Self {
        let number = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
        Self {
            path: directory.join(format!(".tonnage-{what}-{number:016x}")),
        }
    }

    /// Makes and opens it for reading and writing.
    ///
    /// # Errors
    /// The system's refusal, with the path.
    pub fn create(&self, direct: bool) -> Result<File> {
        let flags = OpenFlags {
            read: true,
            write: true,
            create: true,
            direct,
            ..OpenFlags::default()
        };
        open(&self.path, &flags)
            .map_err(|error| Error::io(format!("cannot create {}", self.path.display()), error))
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // It may never have been made.
        drop(std::fs::remove_file(&self.path));
    }
}
