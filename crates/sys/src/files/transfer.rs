//! Moves bytes between a file and an [`Arena`], one system call each. The caller handles short transfers; Linux moves
//! at most 2 GiB less a page at a time.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::mapping::Arena;

/// Reads up to `len` bytes at `offset` of the file to `local` of the arena, and returns the number of bytes read; 0 at
/// the end of the file.
///
/// # Errors
/// If `local` and `len` do not lie inside the arena; or the system's error.
#[inline]
pub fn read_at(
    file: BorrowedFd<'_>,
    arena: &Arena,
    local: u64,
    offset: u64,
    len: u64,
) -> io::Result<usize> {
    let target = inside(arena, local, len)?;
    until_moved(|| {
        // SAFETY: the arena has `len` bytes at `target`, and stays mapped while it is borrowed. No reference to them
        // exists, because none is ever formed over an arena.
        unsafe {
            libc::pread64(
                file.as_raw_fd(),
                target.cast(),
                len as usize,
                offset.cast_signed(),
            )
        }
    })
}

/// Writes up to `len` bytes at `local` of the arena to `offset` of the file, and returns the number of bytes written.
///
/// # Errors
/// As for [`read_at`].
#[inline]
pub fn write_at(
    file: BorrowedFd<'_>,
    arena: &Arena,
    local: u64,
    offset: u64,
    len: u64,
) -> io::Result<usize> {
    let source = inside(arena, local, len)?;
    until_moved(|| {
        // SAFETY: as for reading. A concurrent writer of these bytes changes only the data that is stored.
        unsafe {
            libc::pwrite64(
                file.as_raw_fd(),
                source.cast(),
                len as usize,
                offset.cast_signed(),
            )
        }
    })
}

#[inline]
fn until_moved(call: impl Fn() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => unless_interrupted()?,
        }
    }
}

#[inline]
fn inside(arena: &Arena, local: u64, len: u64) -> io::Result<*mut u8> {
    arena
        .pointer(local, len)
        .map_err(|outside| io::Error::new(io::ErrorKind::InvalidInput, outside))
}

/// Returns `Ok` if a signal interrupted the call before any byte was moved, so that the call is retried. Otherwise
/// returns the system's error.
#[cold]
fn unless_interrupted() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        Ok(())
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use crate::mapping::{Pages, Sharing};
    use std::fs::File;
    use std::os::fd::AsFd;

    fn arena() -> Arena {
        Arena::allocate(1 << 16, Pages::Normal, Sharing::Private, None).unwrap()
    }

    #[test]
    fn bytes_go_where_they_should_and_nowhere_else() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(b"");
        let arena = arena();
        arena.write(1000, b"tonnage").unwrap();
        assert_eq!(write_at(file.as_fd(), &arena, 1000, 5000, 7).unwrap(), 7);
        let content = std::fs::read(scratch.path()).unwrap();
        assert_eq!(content.len(), 5007);
        assert_eq!(&content[5000..], b"tonnage");
        assert!(content[..5000].iter().all(|&byte| byte == 0));
        assert_eq!(read_at(file.as_fd(), &arena, 41, 4999, 8).unwrap(), 8);
        let mut bytes = [0xee; 10];
        arena.read(40, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0tonnage\0");
    }

    #[test]
    fn a_read_across_the_end_is_short_and_behind_it_empty() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(b"four");
        let arena = arena();
        assert_eq!(read_at(file.as_fd(), &arena, 0, 2, 4096).unwrap(), 2);
        assert_eq!(read_at(file.as_fd(), &arena, 0, 4, 4096).unwrap(), 0);
        assert_eq!(read_at(file.as_fd(), &arena, 0, 1 << 40, 1).unwrap(), 0);
    }

    #[test]
    fn ranges_outside_the_arena_are_refused_and_move_nothing() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(b"");
        let arena = arena();
        let size = arena.len() as u64;
        for (local, len) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (0, u64::MAX)] {
            for transfer in [read_at, write_at] {
                let refused = transfer(file.as_fd(), &arena, local, 0, len).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{local} {len}");
            }
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn system_errors_are_returned() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(b"");
        let arena = arena();
        let folder = File::open("/").unwrap();
        let read_only = File::open(scratch.path()).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        for (result, code) in [
            (read_at(file.as_fd(), &arena, 0, u64::MAX, 1), libc::EINVAL),
            (read_at(folder.as_fd(), &arena, 0, 0, 1), libc::EISDIR),
            (write_at(read_only.as_fd(), &arena, 0, 0, 1), libc::EBADF),
            (write_at(full.as_fd(), &arena, 0, 0, 1), libc::ENOSPC),
        ] {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(code));
        }
    }
}
