//! Opening a file, and closing it with the system's answer.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Flags that a file is opened with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Made if it is not there; needs `write`.
    pub create: bool,
    /// Emptied if it is there; needs `write`.
    pub truncate: bool,
    /// Past the page cache (`O_DIRECT`). A system that takes the flag need not honour it: see [`super::direct`].
    pub direct: bool,
    /// Reads leave the time of last access alone (`O_NOATIME`); for those who own the file, `EPERM` for others.
    pub keep_access_time: bool,
    /// Further flags of open(2), such as [`super::lustre::DELAY_CREATE`].
    pub custom: i32,
}

/// Opens a file; it is not passed on to other programs.
///
/// # Errors
/// The system's refusal. `EINVAL` with `direct` means that this file system has no direct I/O.
pub fn open(path: &Path, flags: &OpenFlags) -> io::Result<File> {
    let direct = if flags.direct { libc::O_DIRECT } else { 0 };
    let keep_access_time = if flags.keep_access_time {
        libc::O_NOATIME
    } else {
        0
    };
    OpenOptions::new()
        .read(flags.read)
        .write(flags.write)
        .create(flags.create)
        .truncate(flags.truncate)
        .custom_flags(direct | keep_access_time | flags.custom)
        .open(path)
}

/// Closes a file and returns what the system says to it, which dropping would not. Network file systems say only here
/// that bytes could not be stored.
///
/// # Errors
/// The system's answer. The descriptor is gone all the same.
pub fn close(file: impl Into<OwnedFd>) -> io::Result<()> {
    let number = file.into().into_raw_fd();
    // SAFETY: the descriptor was owned and has just been given up, so that nobody else closes or uses it. It is never
    // tried again: Linux has released it even when the answer is an error.
    if unsafe { libc::close(number) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
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
        truncate: true,
        direct: false,
        keep_access_time: false,
        custom: 0,
    };

    #[test]
    fn a_file_is_made_kept_and_emptied_as_asked() {
        let scratch = Scratch::on_disk();
        let only_existing = OpenFlags {
            create: false,
            truncate: false,
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
        let emptied = open(scratch.path(), &NEW).unwrap();
        assert_eq!(emptied.metadata().unwrap().len(), 0);
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
    fn closing_says_what_the_system_says() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(b"x");
        // New files get the lowest free number, so that nobody else comes to own this one meanwhile.
        let copy = rustix::io::fcntl_dupfd_cloexec(&file, 900).unwrap();
        let gone = copy.as_raw_fd();
        assert!(close(copy).is_ok());
        // SAFETY: the number is not open, as said above; closing it touches nothing.
        let twice = unsafe { OwnedFd::from_raw_fd(gone) };
        assert_eq!(close(twice).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(close(file).is_ok());
    }
}
