//! Files that are written whole: what a reader sees is all of the old text or all of the new one.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tonnage_units::{Error, Result};

/// Says that a file is there which nobody allowed to replace.
///
/// # Errors
/// `Usage` for such a file.
pub fn refuse_existing(path: &Path, force: bool) -> Result<()> {
    match path.exists() && !force {
        true => Err(exists(path)),
        false => Ok(()),
    }
}

fn exists(path: &Path) -> Error {
    Error::Usage(format!(
        "{} is there already: name another file, or replace it with --force",
        path.display()
    ))
}

/// Writes a text to a new file beside this one, and gives it this name. What a link points to is replaced, not the
/// link; what is no regular file is written as it is.
///
/// # Errors
/// `Usage` for a name that is taken without `force`; `Io` when it cannot be written:
/// then the old file is as it was, and the new one is gone.
pub fn replace(path: &Path, text: &str, force: bool) -> Result<()> {
    refuse_existing(path, force)?;
    let failed = |error| Error::io(format!("cannot write {}", path.display()), error);
    if path.exists() && !path.is_file() {
        // A pipe or a terminal has a reader of its own, and its name stays.
        return fs::write(path, text).map_err(failed);
    }
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let beside = beside(path)?;
    let written = write(&beside, text).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        // One that another process has under this name is not ours.
        if error.kind() != ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&beside);
        }
        failed(error)
    })
}

/// Name of the new file: no collector of files takes one with such an end.
fn beside(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        Error::Usage(format!(
            "{} is no name of a file: name one for --output",
            path.display()
        ))
    })?;
    let mut new = std::ffi::OsString::from(".");
    new.push(name);
    new.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(new))
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_and_only_if_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.prom");
        replace(&path, "one\n", false).unwrap();
        let error = replace(&path, "two\n", false).unwrap_err();
        assert!(
            error.exit_code() == 2 && error.to_string().contains("--force"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
        // Whoever reads it meanwhile has all of the old text.
        let old = fs::File::open(&path).unwrap();
        replace(&path, "two\n", true).unwrap();
        assert_eq!(std::io::read_to_string(old).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(names(folder.path()), ["a.prom"]);
    }

    #[test]
    fn links_stay_and_devices_stay_devices() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["a", "link"].map(|name| folder.path().join(name));
        fs::write(&path, "one").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, "two", true).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        replace(Path::new("/dev/null"), "x", true).unwrap();
        assert!(!Path::new("/dev/null").is_file());
        for bad in [folder.path().to_owned(), folder.path().join("none/a")] {
            let error = replace(&bad, "x", true).unwrap_err();
            assert_eq!(error.exit_code(), 1, "{error}");
        }
        assert_eq!(names(folder.path()), ["a", "link"]);
    }
}
