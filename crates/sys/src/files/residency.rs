//! Reports which part of a file is in memory, to distinguish cold reads from warm ones.
//!
//! Only this machine's page cache counts: clean and dirty pages, and those being written back. No system call reports
//! the memory of a server or of the disk itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use rustix::fs::{Access, AtFlags, CWD, accessat, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::library::outcome;

/// Number of cachestat on all architectures except alpha, since Linux 6.5. The libc crate defines it for few
/// architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// Size of the windows to map if the kernel lacks cachestat; mincore needs one byte per page.
const WINDOW_BYTES: u64 = 1 << 30;

/// The system call that reported the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCall {
    /// By cachestat(2).
    Cachestat,
    /// By mincore(2) over mapped windows, on kernels before 6.5.
    Mincore,
}

/// The part of a range that is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Size in bytes: whole pages, but never more than the range.
    pub bytes: u64,
    /// The system call that reported it.
    pub how: SystemCall,
}

/// Returns the part of `len` bytes at `offset` that is in this machine's page cache.
///
/// # Errors
/// The system's error: `EPERM` for users who neither own the file nor may write it.
pub fn resident_bytes(file: impl AsFd, offset: u64, len: u64) -> io::Result<Resident> {
    let file = file.as_fd();
    match by_cachestat(file, offset, len) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => {
            let how = SystemCall::Mincore;
            by_mincore(file, offset, len, WINDOW_BYTES).map(|bytes| Resident { bytes, how })
        }
        answer => {
            let how = SystemCall::Cachestat;
            answer.map(|bytes| Resident { bytes, how })
        }
    }
}

/// `struct cachestat_range` of linux/mman.h.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// `struct cachestat` of linux/mman.h. All fields count pages.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

fn by_cachestat(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    if len == 0 {
        // For the kernel, 0 means "to the end of the file".
        return Ok(0);
    }
    let range = Range { offset, len };
    let mut pages = Pages::default();
    // SAFETY: both structures have the kernel's layout and outlive the call; the kernel writes only the second.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut pages,
            0,
        )
    };
    outcome(result)?;
    // Dirty pages and pages being written back are included in the cached ones.
    Ok(pages
        .cached
        .saturating_mul(rustix::param::page_size() as u64)
        .min(len))
}

fn by_mincore(file: BorrowedFd<'_>, offset: u64, len: u64, window_bytes: u64) -> io::Result<u64> {
    let status = fstat(file)?;
    may_know(file, status.st_uid)?;
    let page = rustix::param::page_size() as u64;
    let size = u64::try_from(status.st_size).unwrap_or(0);
    let end = offset.saturating_add(len).min(size);
    let mut at = offset - offset % page;
    let mut bytes = 0u64;
    let mut pages = Vec::new();
    while at < end {
        let length = (end - at).min(window_bytes);
        pages.clear();
        pages.resize(length.div_ceil(page) as usize, 0u8);
        query_pages(file, at, length as usize, &mut pages)?;
        let resident = pages.iter().filter(|&&page| page & 1 != 0).count();
        bytes = bytes.saturating_add((resident as u64).saturating_mul(page));
        at += length;
    }
    Ok(bytes.min(len))
}

/// Fails for a user without permission, because mincore would report all pages as resident instead of failing.
fn may_know(file: BorrowedFd<'_>, owner: u32) -> io::Result<()> {
    let user = rustix::process::geteuid();
    if user.is_root() || user.as_raw() == owner {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => Ok(()),
        Err(_) => Err(rustix::io::Errno::PERM.into()),
    }
}

/// Records for each page of a window whether it is in memory. The call touches no page, so the check does not change
/// the result.
fn query_pages(file: BorrowedFd<'_>, at: u64, len: usize, pages: &mut [u8]) -> io::Result<()> {
    let len = len.min(pages.len() * rustix::param::page_size());
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing that exists.
    let window = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, at)? };
    // SAFETY: the window is mapped for `len` bytes, and `pages` has a byte for each of its pages, because `len` was
    // limited to that. The kernel writes nothing else.
    let looked = outcome(unsafe { libc::mincore(window, len, pages.as_mut_ptr()) });
    // SAFETY: the window is this function's own, and nothing refers to it any more.
    unsafe { munmap(window, len)? };
    looked
}

#[cfg(test)]
mod tests {
    use super::super::advice::drop_cached;
    use super::super::file_system::of_file;
    use super::super::scratch::Scratch;
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_structures_have_the_kernel_s_sizes() {
        assert_eq!((size_of::<Range>(), size_of::<Pages>()), (16, 40));
    }

    /// Returns the results of [`resident_bytes`], of mincore, and of mincore with windows that do not divide the file
    /// evenly.
    fn both(file: &std::fs::File, offset: u64, len: u64) -> Vec<u64> {
        let page = rustix::param::page_size() as u64;
        let found = resident_bytes(file, offset, len).unwrap();
        if found.how == SystemCall::Mincore {
            println!("skip: this kernel has no cachestat, only mincore was asked");
        }
        vec![
            found.bytes,
            by_mincore(file.as_fd(), offset, len, WINDOW_BYTES).unwrap(),
            by_mincore(file.as_fd(), offset, len, 3 * page).unwrap(),
        ]
    }

    #[test]
    fn both_methods_report_the_resident_bytes() {
        let scratch = Scratch::on_disk();
        let size = (2 << 20) + 100;
        let file = scratch.holding(&vec![5; size as usize]);
        if of_file(&file).unwrap().memory {
            return println!("skip: the build folder lives in memory");
        }
        assert_eq!(both(&file, 0, size), [size; 3]);
        assert_eq!(both(&file, 0, 0), [0; 3]);
        assert_eq!(both(&file, 1 << 30, 4096), [0; 3]);
        drop_cached(&file).unwrap();
        assert_eq!(both(&file, 0, size), [0; 3]);
        // Read one page in the middle, without read-ahead by the kernel.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        file.read_exact_at(&mut [0; 1], 1 << 20).unwrap();
        let some = both(&file, 0, size);
        assert!(some[0] > 0 && some[0] < size, "{some:?}");
        assert!(some.iter().all(|bytes| *bytes == some[0]), "{some:?}");
        assert_eq!(both(&file, 1 << 20, 1), [1; 3]);
        assert_eq!(both(&file, 0, 4096), [0; 3]);
    }

    #[test]
    fn files_in_tmpfs_are_resident_as_far_as_they_are_written() {
        let Some(scratch) = Scratch::in_memory() else {
            return;
        };
        let file = scratch.holding(&[]);
        file.set_len(1 << 20).unwrap();
        assert_eq!(both(&file, 0, 1 << 20), [0; 3]);
        file.write_all_at(&vec![1; 512 << 10], 0).unwrap();
        assert_eq!(both(&file, 0, 1 << 20), [512 << 10; 3]);
    }

    #[test]
    fn anything_but_a_file_has_no_answer() {
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(by_mincore(pipe.as_fd(), 0, 4096, WINDOW_BYTES).unwrap_or(0) == 0);
        assert!(resident_bytes(&pipe, 0, 4096).map_or(0, |found| found.bytes) == 0);
    }
}
