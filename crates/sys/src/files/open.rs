//! Opens regular files, and closes them without losing the system's error.
//!
//! The directory may be writable for other users, who can place a link, a FIFO or a device at a name between a check
//! and its use. So this module never follows a link at the end of a path, never waits for the other end of a FIFO, and
//! returns only regular files. When it creates a file, nothing may exist at the path.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FileType, OFlags, fcntl_setfl};

use crate::library::outcome;

/// Flags that a file is opened with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Creates the file; `AlreadyExists` if anything has its name. Needs `write`.
    pub create: bool,
    /// Truncates an existing file. Needs `write`.
    pub truncate: bool,
    /// Bypasses the page cache (`O_DIRECT`). A system that accepts the flag may ignore it: see [`super::direct`].
    pub direct: bool,
    /// Reads do not change the access time (`O_NOATIME`). Only for the file's owner, `EPERM` for others.
    pub keep_access_time: bool,
    /// Additional flags of open(2), such as [`super::lustre::DELAY_CREATE`].
    pub custom: i32,
}

/// Opens a regular file, without passing it on to other programs.
///
/// # Errors
/// The system's error. With `direct`, `EINVAL` means that this file system does not support direct I/O. `InvalidInput`
/// with the kind for anything but a regular file.
pub fn open(path: &Path, flags: &OpenFlags) -> io::Result<File> {
    let direct = if flags.direct { libc::O_DIRECT } else { 0 };
    let keep_access_time = if flags.keep_access_time {
        libc::O_NOATIME
    } else {
        0
    };
    let stays = direct | keep_access_time | flags.custom;
    // Without `O_NONBLOCK`, opening a FIFO waits for its other end. A new file cannot be a FIFO.
    let is_new = flags.create || flags.custom & libc::O_TMPFILE == libc::O_TMPFILE;
    let for_opening = if is_new { 0 } else { libc::O_NONBLOCK };
    let file = OpenOptions::new()
        .read(flags.read)
        .write(flags.write)
        .create_new(flags.create)
        .truncate(flags.truncate && !flags.create)
        .custom_flags(stays | libc::O_NOFOLLOW | for_opening)
        .open(path)
        .map_err(|error| named(path, error))?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(not_regular(kind_of(&found)));
    }
    if for_opening != 0 {
        // Clear `O_NONBLOCK`, because io_uring would not wait for transfers otherwise.
        fcntl_setfl(&file, OFlags::from_bits_retain(stays.cast_unsigned()))?;
    }
    Ok(file)
}

/// Returns the kind of something that is not a regular file, for messages.
pub fn kind_name(found: &Metadata) -> &'static str {
    name_of(kind_of(found))
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

fn kind_of(found: &Metadata) -> FileType {
    FileType::from_raw_mode(found.mode())
}

pub(super) fn not_regular(kind: FileType) -> io::Error {
    let text = format!("it is {}, not a regular file", name_of(kind));
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// If the kind of the file at the path caused the error, returns an error that names the kind.
fn named(path: &Path, error: io::Error) -> io::Error {
    let is_about_kind = matches!(
        error.raw_os_error(),
        Some(libc::ELOOP | libc::ENXIO | libc::EISDIR)
    );
    match std::fs::symlink_metadata(path) {
        Ok(found) if is_about_kind && !found.is_file() => not_regular(kind_of(&found)),
        _ => error,
    }
}

/// Closes a file and returns the system's error. Dropping the file would lose that error, and some network file systems
/// report only on closing that bytes could not be stored.
///
/// # Errors
/// The system's error. The descriptor is closed nevertheless.
pub fn close(file: impl Into<OwnedFd>) -> io::Result<()> {
    let number = file.into().into_raw_fd();
    // SAFETY: the descriptor was owned and has just been given up, so nothing else closes or uses it. The call is never
    // repeated: Linux has released the descriptor even if it returns an error.
    outcome(unsafe { libc::close(number) })
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::{AsRawFd, FromRawFd};

    const NEW: OpenFlags = OpenFlags {
        read: true,
        write: true,
        create: true,
        truncate: false,
        direct: false,
        keep_access_time: false,
        custom: 0,
    };

    #[test]
    fn a_file_is_created_kept_or_truncated_as_requested() {
        let scratch = Scratch::on_disk();
        let only_existing = OpenFlags {
            create: false,
            ..NEW
        };
        let missing = open(scratch.path(), &only_existing).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
        let mut file = open(scratch.path(), &NEW).unwrap();
        file.write_all(b"tonnage").unwrap();
        close(file).unwrap();
        let mut text = String::new();
        let mut file = open(scratch.path(), &only_existing).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "tonnage");
        let again = open(scratch.path(), &NEW).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let emptied = OpenFlags {
            truncate: true,
            ..only_existing
        };
        let emptied = open(scratch.path(), &emptied).unwrap();
        assert_eq!(emptied.metadata().unwrap().len(), 0);
    }

    /// If another user has placed a link, FIFO or device at the path, opening fails at once and changes nothing.
    #[test]
    fn only_regular_files_are_opened() {
        let folder = Scratch::on_disk();
        let folder = folder.path();
        std::fs::create_dir(folder).unwrap();
        let victim = folder.join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let at = |name: &str| folder.join(name);
        std::os::unix::fs::symlink(&victim, at("link")).unwrap();
        std::os::unix::fs::symlink(folder.join("new"), at("dangling")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let fifo = rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        );
        fifo.unwrap();
        for (name, kind) in [
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
            ("directory", "a directory"),
            ("socket", "a socket"),
            ("fifo", "a FIFO"),
            ("/dev/null", "a device"),
        ] {
            for (read, write, truncate) in [
                (true, false, false),
                (false, true, false),
                (true, true, true),
            ] {
                let flags = OpenFlags {
                    read,
                    write,
                    truncate,
                    ..OpenFlags::default()
                };
                let error = open(&at(name), &flags).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    format!("it is {kind}, not a regular file"),
                    "{flags:?}"
                );
            }
            let error = open(&at(name), &NEW).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!folder.join("new").exists());
        drop(socket);
    }

    #[test]
    fn the_flag_for_opening_is_cleared() {
        let scratch = Scratch::on_disk();
        drop(scratch.holding(b"x"));
        let flags = OpenFlags {
            read: true,
            keep_access_time: true,
            ..OpenFlags::default()
        };
        let file = open(scratch.path(), &flags).unwrap();
        let flags = rustix::fs::fcntl_getfl(&file).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK) && flags.contains(OFlags::NOATIME));
    }

    #[test]
    fn flags_reach_the_system() {
        let scratch = Scratch::on_disk();
        let direct = OpenFlags {
            direct: true,
            ..NEW
        };
        let file = match open(scratch.path(), &direct) {
            Ok(file) => file,
            Err(error) => return println!("skip: no direct I/O in the build folder ({error})"),
        };
        let flags = rustix::fs::fcntl_getfl(&file).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::DIRECT));
    }

    #[test]
    fn closing_returns_the_systems_error() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(b"x");
        // New files get the lowest free number, so a number from 900 on stays unused after closing.
        let copy = rustix::io::fcntl_dupfd_cloexec(&file, 900).unwrap();
        let gone = copy.as_raw_fd();
        assert!(close(copy).is_ok());
        // SAFETY: the number was closed above and stays unused; closing it again touches nothing.
        let twice = unsafe { OwnedFd::from_raw_fd(gone) };
        assert_eq!(close(twice).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(close(file).is_ok());
    }
}
