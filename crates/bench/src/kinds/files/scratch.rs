//! Temporary files next to the user's files, for probing the storage. They have no name, so nothing remains of them if
//! the process is killed.

use std::fs::File;
use std::path::Path;

use rustix::fs::OFlags;
use tonnage_sys::files::open::{OpenFlags, open};

use tonnage_units::{Error, Result};

/// Creates a file without a name in a directory, open for reading and writing. If the file system does not support
/// this, the file has a name for a moment.
pub fn create(directory: &Path, what: &str, direct: bool) -> Result<File> {
    let nameless = OpenFlags {
        custom: OFlags::TMPFILE.bits().cast_signed(),
        ..flags(direct)
    };
    match open(directory, &nameless) {
        Ok(file) => Ok(file),
        // NFS and Lustre don't support files without names, and return different errors. Any other error occurs again
        // with a named file.
        Err(_) => create_and_unlink(directory, what, direct),
    }
}

fn create_and_unlink(directory: &Path, what: &str, direct: bool) -> Result<File> {
    let number = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
    let path = directory.join(format!(".tonnage-{what}-{number:016x}"));
    let cannot = |error| Error::io(format!("cannot create {}", path.display()), error);
    let named = OpenFlags {
        create: true,
        ..flags(direct)
    };
    let made = open(&path, &named);
    // Removes the file even after an error: some file systems create the file, and then refuse direct I/O.
    let unlinked = std::fs::remove_file(&path);
    let file = made.map_err(cannot)?;
    unlinked.map_err(|error| Error::io(format!("cannot remove {}", path.display()), error))?;
    Ok(file)
}

fn flags(direct: bool) -> OpenFlags {
    OpenFlags {
        read: true,
        write: true,
        direct,
        ..OpenFlags::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn no_scratch_file_leaves_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let makes = |way: u32| match way {
            0 => create(directory.path(), "test", false),
            _ => create_and_unlink(directory.path(), "test", false),
        };
        for way in 0..2 {
            let mut file = makes(way).unwrap();
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
            file.write_all(b"tonnage").unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "tonnage");
        }
    }

    #[test]
    fn a_missing_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = create(&directory.path().join("no"), "test", false).unwrap_err();
        assert!(error.to_string().contains("/no/.tonnage-test-"), "{error}");
    }
}
