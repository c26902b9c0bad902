//! Open files that this process inherited, known only by descriptor number.
//!
//! To take ownership of a descriptor, nothing else may close it. This cannot be guaranteed for an inherited number, so
//! these functions copy the descriptor and take ownership of the copy.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::fs::FileType;

/// Copies the open file with this number, without passing the copy on to other programs. The original stays open.
///
/// # Errors
/// If no file with this number is open.
pub fn duplicate(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: fcntl takes any number; with F_DUPFD_CLOEXEC it touches no memory of ours.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened this number for this function, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Whether the open file with this number is a socket; false if no file is open.
pub fn is_socket(number: i32) -> bool {
    let kind = |copy: OwnedFd| {
        let found = rustix::fs::fstat(copy).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    };
    duplicate(number).ok().and_then(kind) == Some(FileType::Socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_copy_is_the_same_file_and_outlives_the_original() {
        let (mut one, other) = UnixStream::pair().unwrap();
        let mut copy = File::from(duplicate(other.as_raw_fd()).unwrap());
        drop(other);
        one.write_all(b"hello").unwrap();
        drop(one);
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn sockets_are_distinguished_from_other_files() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(is_socket(one.as_raw_fd()));
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(!is_socket(pipe.as_raw_fd()));
        assert!(!is_socket(
            File::open("/proc/self/exe").unwrap().as_raw_fd()
        ));
        assert!(!is_socket(-1) && !is_socket(i32::MAX));
    }

    #[test]
    fn a_number_that_is_not_open_is_an_error() {
        assert!(duplicate(-1).is_err());
        assert!(duplicate(i32::MAX).is_err());
    }
}
