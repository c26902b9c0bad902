//! Writes files atomically: a reader sees either the whole old text or the whole new text.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tonnage_record::links::resolve_links;
use tonnage_units::{Error, Result};

/// Refuses an existing file, unless `force` allows replacing it.
pub fn refuse_existing(path: &Path, force: bool) -> Result<()> {
    if is_there(path) && !force {
        Err(exists(path))
    } else {
        Ok(())
    }
}

fn exists(path: &Path) -> Error {
    Error::Usage(format!(
        "{} already exists: name another file, or replace it with --force",
        path.display()
    ))
}

/// Writes a text to a temporary file in the same folder, and renames it to `path`.
///
/// If `path` is a link, the linked file is replaced, unless the link belongs to another user. A path that is not a
/// regular file is written in place. If another process creates the file meanwhile, that file is kept, unless `force`
/// is true.
pub fn replace(path: &Path, text: &str, force: bool) -> Result<()> {
    refuse_existing(path, force)?;
    let failed = |error| Error::io(format!("cannot write {}", path.display()), error);
    let path = &resolve_links(path).map_err(failed)?;
    if path.exists() && !path.is_file() {
        return write_through(path, text).map_err(failed);
    }
    let temporary = temporary_path(path)?;
    let written = write(&temporary, text).and_then(|()| {
        if force {
            fs::rename(&temporary, path)
        } else {
            rename_new(&temporary, path)
        }
    });
    written.map_err(|error| {
        // The temporary file must not be removed if another process has created a file with this name.
        match error.kind() {
            ErrorKind::AlreadyExists if !force && is_there(path) => {
                let _ = fs::remove_file(&temporary);
                return exists(path);
            }
            ErrorKind::AlreadyExists => {}
            _ => drop(fs::remove_file(&temporary)),
        }
        failed(error)
    })
}

/// Writes to a pipe or a terminal in place. The reader has already opened the pipe and would not notice a new file.
fn write_through(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.is_file() {
        Err(std::io::Error::other("another process has replaced it"))
    } else {
        file.write_all(text.as_bytes())
    }
}

/// Renames a file. Fails if the new name exists.
fn rename_new(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Network file systems may not support the flag.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(from, to).and_then(|()| fs::remove_file(from))
        }
        renamed => Ok(renamed?),
    }
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Returns the name of the temporary file. Its extension prevents file collectors from reading it.
fn temporary_path(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        Error::Usage(format!(
            "{} does not name a file: name one for --output",
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
        // A reader that has already opened the file still sees the whole old text.
        let old = fs::File::open(&path).unwrap();
        replace(&path, "two\n", true).unwrap();
        assert_eq!(std::io::read_to_string(old).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(names(folder.path()), ["a.prom"]);
    }

    /// Covers the case that another process creates the path between the check and the rename.
    #[test]
    fn a_file_that_another_process_creates_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [victim, from, to] = ["victim", "from", "to"].map(|name| folder.path().join(name));
        fs::write(&victim, "precious").unwrap();
        let [file, hard, soft, dangling]: [&dyn Fn(); 4] = [
            &|| fs::write(&to, "other").unwrap(),
            &|| fs::hard_link(&victim, &to).unwrap(),
            &|| std::os::unix::fs::symlink(&victim, &to).unwrap(),
            &|| std::os::unix::fs::symlink("nowhere", &to).unwrap(),
        ];
        for put in [file, hard, soft, dangling] {
            put();
            fs::write(&from, "new").unwrap();
            let error = rename_new(&from, &to).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            let error = replace(&to, "new", false).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            fs::remove_file(&to).unwrap();
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!folder.path().join("nowhere").exists());
        rename_new(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "new");
        let error = write_through(&victim, "new").unwrap_err().to_string();
        assert!(error.contains("replaced"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        if rustix::process::geteuid().is_root() {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&victim, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(12_345), None).unwrap();
            let error = replace(&link, "new", true).unwrap_err().to_string();
            assert!(error.contains("belongs to another user"), "{error}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        } else {
            println!("skip: only root can make a link of another user");
        }
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
