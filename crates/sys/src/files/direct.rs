//! Direct I/O: reads and writes of a file that bypass the page cache, and their alignment.
//!
//! A successful `open` with `O_DIRECT` proves nothing: tmpfs accepts the flag and ignores it. Only the answer of
//! statx(2) to `STATX_DIOALIGN` (since Linux 6.1) counts.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// Alignment of direct transfers; both are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment in memory.
    pub memory_bytes: u32,
    /// Alignment in the file, of offset and length.
    pub offset_bytes: u32,
}

/// The kernel's answer about direct transfers of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIo {
    /// Direct I/O works, with this alignment.
    Supported(Alignment),
    /// The file system does not support direct I/O, or not for this file (for example, a compressed or encrypted one).
    NotSupported,
    /// Unknown: the kernel is older than 6.1, or the file system does not answer (tmpfs, network file systems).
    Unknown,
}

impl Alignment {
    /// Whether the kernel accepts a transfer with this address, offset and length.
    #[inline]
    pub fn fits(&self, address: u64, offset: u64, len: u64) -> bool {
        let misfit = |position: u64, unit: u32| position & (u64::from(unit).wrapping_sub(1));
        misfit(address, self.memory_bytes) | misfit(offset | len, self.offset_bytes) == 0
    }

    /// Describes the first misaligned part of a transfer; `None` if it fits.
    pub fn misfit(&self, address: u64, offset: u64, len: u64) -> Option<String> {
        let (memory, unit) = (self.memory_bytes, self.offset_bytes);
        let what = if !self.fits(address, 0, 0) {
            format!("memory at {address:#x} is not aligned to {memory} bytes")
        } else if !self.fits(0, offset, 0) {
            format!("offset {offset} is not a multiple of {unit} bytes")
        } else if !self.fits(0, 0, len) {
            format!("a length of {len} bytes is not a multiple of {unit}")
        } else {
            return None;
        };
        Some(what)
    }
}

/// Asks the kernel whether direct I/O works on an open file. The result for directories is `Unknown`.
///
/// # Errors
/// If the file cannot be queried, or the answer is invalid.
pub fn direct_io(file: impl AsFd) -> io::Result<DirectIo> {
    let answer = match statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(answer) => answer,
        // Kernels before 4.11 have no statx.
        Err(rustix::io::Errno::NOSYS) => return Ok(DirectIo::Unknown),
        Err(error) => return Err(error.into()),
    };
    let said = StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN);
    let power_of_two = |unit: u32| unit == 0 || unit.is_power_of_two();
    if !power_of_two(answer.stx_dio_mem_align) || !power_of_two(answer.stx_dio_offset_align) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the kernel reports alignments that are not powers of two: memory {}, offset {}",
                answer.stx_dio_mem_align, answer.stx_dio_offset_align
            ),
        ));
    }
    Ok(
        match (said, answer.stx_dio_mem_align, answer.stx_dio_offset_align) {
            (false, ..) => DirectIo::Unknown,
            (true, 0, _) | (true, _, 0) => DirectIo::NotSupported,
            (true, memory_bytes, offset_bytes) => DirectIo::Supported(Alignment {
                memory_bytes,
                offset_bytes,
            }),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::open::{OpenFlags, open};
    use super::super::scratch::Scratch;
    use super::super::{residency, transfer};
    use super::*;
    use crate::mapping::{Arena, Pages, Sharing};
    use std::fs::File;

    #[test]
    fn a_transfer_with_the_reported_alignment_bypasses_the_cache() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(&vec![7; 1 << 20]);
        let alignment = match direct_io(&file).unwrap() {
            DirectIo::Supported(alignment) => alignment,
            other => return println!("skip: direct I/O in the build folder is {other:?}"),
        };
        assert!(
            alignment.memory_bytes.is_power_of_two() && alignment.offset_bytes.is_power_of_two()
        );
        super::super::advice::drop_cached(&file).unwrap();
        let flags = OpenFlags {
            read: true,
            write: true,
            direct: true,
            ..OpenFlags::default()
        };
        let direct = open(scratch.path(), &flags).unwrap();
        let arena = Arena::allocate(1 << 20, Pages::Normal, Sharing::Private, None).unwrap();
        let (local, offset) = (
            u64::from(alignment.memory_bytes),
            u64::from(alignment.offset_bytes),
        );
        let len = alignment.offset_bytes;
        assert_eq!(
            alignment.misfit(arena.address() + local, offset, u64::from(len)),
            None
        );
        let count = transfer::read_at(direct.as_fd(), &arena, local, offset, len.into()).unwrap();
        assert_eq!(count, len as usize);
        assert_eq!(arena.load_byte(local), Ok(7));
        let count = transfer::write_at(direct.as_fd(), &arena, local, 0, len.into()).unwrap();
        assert_eq!(count, len as usize);
        assert_eq!(
            residency::resident_bytes(&file, 0, 1 << 20).unwrap().bytes,
            0
        );
        let odd = transfer::read_at(direct.as_fd(), &arena, local, 1, len.into()).unwrap_err();
        assert_eq!(odd.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn tmpfs_accepts_the_flag_but_is_not_trusted() {
        let Some(scratch) = Scratch::in_memory() else {
            return;
        };
        let file = scratch.holding(b"x");
        assert_eq!(direct_io(&file).unwrap(), DirectIo::Unknown);
        assert_eq!(
            direct_io(File::open("/").unwrap()).unwrap(),
            DirectIo::Unknown
        );
    }

    #[test]
    fn misaligned_parts_are_named() {
        let alignment = Alignment {
            memory_bytes: 4,
            offset_bytes: 512,
        };
        let misfit =
            |address, offset, len| alignment.misfit(address, offset, len).unwrap_or_default();
        assert_eq!(misfit(4, 512, 1024), "");
        assert!(alignment.fits(4, 512, 1024) && alignment.fits(0, 0, 0));
        assert!(!alignment.fits(2, 512, 512) && !alignment.fits(4, 100, 512));
        assert!(!alignment.fits(4, 512, 100));
        assert!(misfit(2, 512, 512).contains("aligned to 4"));
        assert!(misfit(4, 100, 512).contains("offset 100"));
        assert!(misfit(4, 512, 100).contains("length of 100"));
    }
}
