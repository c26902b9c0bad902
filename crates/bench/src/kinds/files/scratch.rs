//! A file of our own beside the user's, for finding out what the storage can do. It has no name, so that it is gone
//! when its owner is, however that ends.

use std::fs::File;
use std::path::Path;

use rustix::fs::OFlags;
use tonnage_sys::files::open::{OpenFlags, open};

use tonnage_units::{Error, Result};

/// Makes a file without a name in a directory, open for reading and writing. File systems that have no such files give
/// it a name for a moment.
pub fn create(directory: &Path, what: &str, direct: bool) -> Result<File> {
    let nameless = OpenFlags {
        custom: OFlags::TMPFILE.bits().cast_signed(),
        ..flags(direct)
    };
    match open(directory, &nameless) {
        Ok(file) => Ok(file),
        // NFS and Lustre have none, each with an error of its own; what else is wrong is wrong with a name too.
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
    // Direct I/O may be refused to a file that was made all the same.
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
    fn neither_way_leaves_a_name() {
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
    fn a_directory_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = create(&directory.path().join("no"), "test", false).unwrap_err();
        assert!(error.to_string().contains("/no/.tonnage-test-"), "{error}");
    }
}
