//! [`Arena`]: one mapped range of memory that engines move bytes in and out of.
//!
//! No `&[u8]` is ever formed over an arena, because a peer or a device may be writing it at the same time. Bytes are
//! copied in and out with bounds checks, and single words are accessed as atomics. An arena lives as long as its `Arc`,
//! so an engine that has registered it keeps it mapped.

use std::any::Any;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

use crate::copy::Method;
use crate::library::outcome;

const MIB_2: usize = 2 << 20;
const GIB_1: usize = 1 << 30;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Page size of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The system's normal pages, possibly merged into larger ones by the system's default policy.
    Normal,
    /// Normal pages only: the kernel was asked not to merge them.
    Small,
    /// Normal pages that the kernel was asked to merge into 2 MiB pages; [`Arena::transparent_bytes`] reports the
    /// result.
    Transparent,
    /// 2 MiB pages from the reserved pool.
    Huge2M,
    /// 1 GiB pages from the reserved pool.
    Huge1G,
}

/// Sharing of an arena with other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Private to this process.
    Private,
    /// Shared with every process that gets the file descriptor ([`Arena::file`]).
    Shared,
}

/// Mapped memory. The module documentation has the rules for access.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    len: usize,
    file: Option<OwnedFd>,
    pages: Pages,
    /// The address range to unmap. It may be larger than the used part. `None` for bytes that the caller owns.
    range: Option<(NonNull<u8>, usize)>,
    /// Keeps the caller's bytes alive; dropped after everything else.
    _keeper: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: the arena owns its mapping, which is not bound to a thread. All access uses atomics, or copies that threads
// may race without harm (see `crate::copy`).
unsafe impl Send for Arena {}
// SAFETY: as above; `&Arena` gives no reference to plain bytes.
unsafe impl Sync for Arena {}

/// An offset and length that do not lie inside an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} lie outside a memory of {size} bytes")]
pub struct OutOfRange {
    /// First byte asked for.
    pub offset: u64,
    /// Number of bytes asked for.
    pub len: u64,
    /// Bytes in the arena.
    pub size: u64,
}

impl OutOfRange {
    /// Rejects a range that does not lie in `size` bytes.
    #[inline]
    pub(crate) fn check(offset: u64, len: u64, size: u64) -> Result<(), Self> {
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Self { offset, len, size }),
        }
    }
}

impl Arena {
    /// Maps `bytes` of zeroed memory with the given pages and prefaults it.
    ///
    /// Rounds the size up to whole pages. `node` is the preferred NUMA node of the pages, used as long as it has room.
    ///
    /// # Errors
    /// The system's error; `ENOMEM` for `Huge2M` and `Huge1G` means that the reserved pool is too small.
    pub fn allocate(
        bytes: usize,
        pages: Pages,
        sharing: Sharing,
        node: Option<u32>,
    ) -> io::Result<Self> {
        let unit = match pages {
            Pages::Normal | Pages::Small => rustix::param::page_size(),
            Pages::Transparent | Pages::Huge2M => MIB_2,
            Pages::Huge1G => GIB_1,
        };
        let len = bytes
            .max(1)
            .checked_next_multiple_of(unit)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let arena = match sharing {
            Sharing::Shared => Self::map_file(new_memfd(len, pages)?, len, pages)?,
            Sharing::Private if pages == Pages::Transparent => Self::map_aligned(len)?,
            Sharing::Private => Self::map_private(len, pages)?,
        };
        match pages {
            Pages::Transparent => arena.advise(Advice::LinuxHugepage)?,
            // A kernel without transparent pages rejects the advice, and does not need it.
            Pages::Small => drop(arena.advise(Advice::LinuxNoHugepage)),
            Pages::Normal | Pages::Huge2M | Pages::Huge1G => {}
        }
        if let Some(node) = node {
            arena.prefer_node(node)?;
        }
        arena.prefault()?;
        Ok(arena)
    }

    /// Maps memory that another process shares through `file`.
    ///
    /// # Errors
    /// If the file is shorter than `len` (touching the missing pages would kill this process) or cannot be mapped.
    pub fn attach(file: OwnedFd, len: usize) -> io::Result<Self> {
        let size = rustix::fs::fstat(&file)?.st_size;
        if usize::try_from(size).unwrap_or(0) < len || len == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the shared memory holds {size} bytes, {len} were announced"),
            ));
        }
        let arena = Self::map_file(file, len, Pages::Normal)?;
        // Large pages of the owner should be large in this process too. Kernels without transparent pages reject the
        // advice, but there the owner has no large pages either.
        let _ = arena.advise(Advice::LinuxHugepage);
        arena.prefault()?;
        Ok(arena)
    }

    fn map_file(file: OwnedFd, len: usize, pages: Pages) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing that exists.
        let base = unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, &file, 0)? };
        let mut arena = Self::mapped(base, len, pages)?;
        arena.file = Some(file);
        Ok(arena)
    }

    fn map_private(len: usize, pages: Pages) -> io::Result<Self> {
        let flags = match pages {
            Pages::Normal | Pages::Small | Pages::Transparent => MapFlags::PRIVATE,
            Pages::Huge2M => MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB,
            Pages::Huge1G => MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_1GB,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing that exists.
        let base = unsafe { mmap_anonymous(null_mut(), len, READ_WRITE, flags)? };
        Self::mapped(base, len, pages)
    }

    fn mapped(base: *mut c_void, len: usize, pages: Pages) -> io::Result<Self> {
        let base = NonNull::new(base.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped memory at address 0"))?;
        Ok(Self {
            base,
            len,
            file: None,
            pages,
            range: Some((base, len)),
            _keeper: None,
        })
    }

    /// Maps private memory that starts at a multiple of 2 MiB, because only aligned ranges become large pages. The rest
    /// of the address range stays inaccessible at both ends. This keeps the kernel from merging two arenas into one
    /// mapping, in which large pages could not be attributed to an arena.
    fn map_aligned(len: usize) -> io::Result<Self> {
        let range_len = len
            .checked_add(MIB_2 + rustix::param::page_size())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing that exists.
        let start = unsafe { mmap_anonymous(null_mut(), range_len, ProtFlags::empty(), flags)? };
        let mut arena = Self::mapped(start, range_len, Pages::Transparent)?;
        let skipped = arena.base.as_ptr().align_offset(MIB_2);
        // SAFETY: at most 2 MiB are skipped, and the range is longer than that by `len`.
        arena.base = unsafe { arena.base.add(skipped) };
        arena.len = len;
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range is this arena's own mapping, and nothing else refers to it yet.
        unsafe { mprotect(arena.base.as_ptr().cast(), len, access)? };
        Ok(arena)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is this arena's own mapping, and none of the advice used here discards its content.
        unsafe { madvise(self.base.as_ptr().cast(), self.len, advice)? };
        Ok(())
    }

    /// Allocates all pages now, so that no page fault occurs in a timed loop.
    fn prefault(&self) -> io::Result<()> {
        match self.advise(Advice::LinuxPopulateWrite) {
            // Kernels before 5.14 do not know the advice: touch the first byte of each page instead.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                for offset in (0..self.len).step_by(rustix::param::page_size()) {
                    self.byte(offset).fetch_add(0, Ordering::Relaxed);
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Prefers pages of one NUMA node. When it is full, other nodes are used, so the process is not killed for lack of
    /// memory.
    fn prefer_node(&self, node: u32) -> io::Result<()> {
        let mut mask = [0u64; 16];
        let word = mask.get_mut(node as usize / 64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("NUMA node {node}"))
        })?;
        *word |= 1 << (node % 64);
        // SAFETY: the range is this arena's own mapping and the mask outlives the call; the call changes only which
        // node pages come from.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.len,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                mask.len() * 64,
                0,
            )
        };
        outcome(result)
    }

    /// Size in bytes: whole pages, unless the caller owns the bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: an arena has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pages that were requested and obtained.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The file by which a peer can map the arena; `None` if private.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Returns the bytes that the kernel currently backs with transparent huge pages, from `/proc/self/smaps`.
    ///
    /// # Errors
    /// If that file cannot be read.
    pub fn transparent_bytes(&self) -> io::Result<u64> {
        let from = self.base.as_ptr() as u64;
        crate::smaps::huge_bytes(from..from + self.len as u64)
    }

    /// Address of the mapping in this process, as a number, for a peer that passes it to the kernel.
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Returns a pointer to a range, for a library that reads or writes it.
    ///
    /// # Errors
    /// If the range does not lie inside.
    #[inline]
    pub(crate) fn pointer(&self, offset: u64, len: u64) -> Result<*mut u8, OutOfRange> {
        // Within the mapping, so the sum cannot wrap.
        self.check(offset, len)
            .map(|at| self.base.as_ptr().wrapping_add(at))
    }

    #[inline]
    fn check(&self, offset: u64, len: u64) -> Result<usize, OutOfRange> {
        OutOfRange::check(offset, len, self.len as u64).map(|()| offset as usize)
    }

    /// Copies `bytes` into the arena.
    ///
    /// # Errors
    /// If the range does not lie inside.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfRange> {
        let at = self.check(offset, bytes.len() as u64)?;
        // SAFETY: the range was checked, and a slice of this process cannot overlap the mapping, over which no slice
        // is ever formed.
        unsafe {
            Method::Memcpy.copy(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len());
        }
        Ok(())
    }

    /// Copies bytes of the arena out.
    ///
    /// # Errors
    /// If the range does not lie inside.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), OutOfRange> {
        let at = self.check(offset, bytes.len() as u64)?;
        // SAFETY: as for `write`. A thread or a peer that writes at the same time makes the copy a mixture.
        unsafe {
            Method::Memcpy.copy(self.base.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len());
        }
        Ok(())
    }

    /// Copies `len` bytes to another arena, or to a range of the same arena that does not overlap.
    ///
    /// # Errors
    /// If a range does not lie inside its arena, or the two overlap.
    #[inline]
    pub fn copy_to(
        &self,
        offset: u64,
        target: &Self,
        target_offset: u64,
        len: u32,
        method: Method,
    ) -> Result<(), OutOfRange> {
        let from = self.check(offset, u64::from(len))?;
        let to = target.check(target_offset, u64::from(len))?;
        let len = len as usize;
        // SAFETY: both ranges were just checked, so the pointers stay inside their mappings.
        let (from, to) = unsafe { (self.base.as_ptr().add(from), target.base.as_ptr().add(to)) };
        if (from as usize) < to as usize + len && (to as usize) < from as usize + len {
            return Err(OutOfRange {
                offset: target_offset,
                len: len as u64,
                size: target.len as u64,
            });
        }
        // SAFETY: readable and writable for `len` bytes, and not overlapping, as checked above.
        unsafe { method.copy(from, to, len) };
        Ok(())
    }

    /// Like [`Self::copy_to`], but the last byte becomes visible to other CPUs after all other bytes.
    ///
    /// # Errors
    /// As for [`Self::copy_to`].
    #[inline]
    pub fn copy_to_last_byte_last(
        &self,
        offset: u64,
        target: &Self,
        target_offset: u64,
        len: u32,
        method: Method,
    ) -> Result<(), OutOfRange> {
        if len == 0 {
            return Ok(());
        }
        if len == 8
            && let (Some(from), Some(to)) = (self.word(offset), target.word(target_offset))
        {
            // One aligned word is visible as a whole or not at all, so its bytes need no order.
            to.store(from.load(Ordering::Relaxed), Ordering::Release);
            return Ok(());
        }
        let last = u64::from(len - 1);
        self.copy_to(offset, target, target_offset, len - 1, method)?;
        let byte = self
            .byte(self.check(offset + last, 1)?)
            .load(Ordering::Relaxed);
        target
            .byte(target.check(target_offset + last, 1)?)
            .store(byte, Ordering::Release);
        Ok(())
    }

    /// Returns the aligned 64-bit word at `offset`; `None` if it is unaligned or outside.
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.base.as_ptr().wrapping_add(self.check(offset, 8).ok()?);
        if !at.cast::<AtomicU64>().is_aligned() {
            return None;
        }
        // SAFETY: inside the mapping and aligned, as checked, alive as long as `self`, and any bit pattern is a valid
        // integer. Other processes access it atomically or by copies that may tear, never by reference.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// Reads the byte at `offset`, with acquire ordering.
    ///
    /// # Errors
    /// If the offset is outside.
    #[inline]
    pub fn load_byte(&self, offset: u64) -> Result<u8, OutOfRange> {
        Ok(self.byte(self.check(offset, 1)?).load(Ordering::Acquire))
    }

    /// Writes the byte at `offset`, with release ordering.
    ///
    /// # Errors
    /// If the offset is outside.
    #[inline]
    pub fn store_byte(&self, offset: u64, value: u8) -> Result<(), OutOfRange> {
        self.byte(self.check(offset, 1)?)
            .store(value, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.len);
        // SAFETY: callers pass an index that `check` returned or that a loop bounds by `len`; see `word`.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(at)) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let Some((start, len)) = self.range else {
            return;
        };
        // SAFETY: the mapping is this arena's own and nothing borrowed from it outlives it. After a failure the mapping
        // stays in place, which is harmless.
        let _ = unsafe { munmap(start.as_ptr().cast(), len) };
    }
}

fn new_memfd(len: usize, pages: Pages) -> io::Result<OwnedFd> {
    let flags = match pages {
        Pages::Normal | Pages::Small | Pages::Transparent => MemfdFlags::empty(),
        Pages::Huge2M => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        Pages::Huge1G => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
    };
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("tonnage", flags)?;
    ftruncate(&file, len as u64)?;
    // Seal the size. Otherwise, a process with the file could remove pages that other processes have mapped.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

mod borrowed;
mod nodes;
#[cfg(test)]
mod tests;
