//! [`Arena`]: one mapped stretch of memory that engines move bytes in and out of.
//!
//! No `&[u8]` is ever formed over an arena, because a peer or a device may be writing it at the same time: bytes go in
//! and out by bounds-checked copies, and single words are seen through atomics. An arena lives as long as anybody
//! holds its `Arc`, so an engine that registered it keeps it mapped.

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

/// Kind of pages of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The system's normal pages, and larger ones where the system gives those to everybody.
    Normal,
    /// Normal pages only: the kernel was asked not to merge them.
    Small,
    /// Normal pages that the kernel was asked to merge into 2 MiB ones; [`Arena::transparent_bytes`] says how many it
    /// did.
    Transparent,
    /// 2 MiB pages from the reserved pool.
    Huge2M,
    /// 1 GiB pages from the reserved pool.
    Huge1G,
}

/// Sharing of an arena with other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Only this process.
    Private,
    /// Any process that is given the file descriptor ([`Arena::file`]).
    Shared,
}

/// Mapped memory. See the module's head for its rules.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    len: usize,
    file: Option<OwnedFd>,
    pages: Pages,
    /// The address range that is given back in the end; it may be larger than what is used of it. `None` for bytes that
    /// the caller owns.
    range: Option<(NonNull<u8>, usize)>,
    /// Keeps bytes alive that the caller owns; dropped after everything else.
    _keeper: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: the arena owns its mapping, which does not belong to a thread. All access goes through atomics or through
// copies by which threads may race without harm (see `crate::copy`).
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
    /// Refuses a range that does not lie in `size` bytes.
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
    /// The size is rounded up to whole pages. `node` is the NUMA node that the pages should come from, if it has room.
    ///
    /// # Errors
    /// The system's refusal; `ENOMEM` for `Huge2M` and `Huge1G` means that the reserved pool is too small.
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
            // A kernel without transparent pages refuses the advice, and needs none.
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
    /// When the file is shorter than `len` (touching the missing pages would kill this process) or cannot be mapped.
    pub fn attach(file: OwnedFd, len: usize) -> io::Result<Self> {
        let size = rustix::fs::fstat(&file)?.st_size;
        if usize::try_from(size).unwrap_or(0) < len || len == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the shared memory holds {size} bytes, {len} were announced"),
            ));
        }
        let arena = Self::map_file(file, len, Pages::Normal)?;
        // So that large pages of the owner are large here too. Kernels without transparent pages refuse the advice, and
        // then the owner has none either.
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

    /// Private memory that starts on a multiple of 2 MiB, because only whole aligned stretches become large pages. What
    /// is left of the address range stays inaccessible at both ends; it keeps the kernel from merging two arenas into
    /// one mapping, whose large pages could not be told apart.
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
        // SAFETY: the range is this arena's own mapping, which nobody else knows yet.
        unsafe { mprotect(arena.base.as_ptr().cast(), len, access)? };
        Ok(arena)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is this arena's own mapping, and none of the advice used here discards its content.
        unsafe { madvise(self.base.as_ptr().cast(), self.len, advice)? };
        Ok(())
    }

    /// Gives every page its memory now, so that no fault falls into a timed loop.
    fn prefault(&self) -> io::Result<()> {
        match self.advise(Advice::LinuxPopulateWrite) {
            // Kernels before 5.14 do not know the advice: the first byte of each page is touched instead.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                for offset in (0..self.len).step_by(rustix::param::page_size()) {
                    self.byte(offset).fetch_add(0, Ordering::Relaxed);
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Asks for pages of one NUMA node; another node's are taken when it is full, so nothing dies for lack of memory.
    fn prefer_node(&self, node: u32) -> io::Result<()> {
        let mut mask = [0u64; 16];
        let word = mask.get_mut(node as usize / 64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("NUMA node {node}"))
        })?;
        *word |= 1 << (node % 64);
        // SAFETY: the range is this arena's own mapping and the mask outlives the call; the call changes only where
        // pages will come from.
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

    /// Bytes; of what was mapped here a whole number of pages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: an arena has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pages that were asked for and had.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The file through which a peer can map it; `None` when private.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Returns the bytes that the kernel really backs with transparent huge pages now, from `/proc/self/smaps`.
    ///
    /// # Errors
    /// When that file cannot be read.
    pub fn transparent_bytes(&self) -> io::Result<u64> {
        let from = self.base.as_ptr() as u64;
        crate::smaps::huge_bytes(from..from + self.len as u64)
    }

    /// Address of the mapping in this process: a number, for a peer that asks the kernel for it.
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Pointer to a range, for a library that reads or writes it.
    ///
    /// # Errors
    /// When the range does not lie inside.
    #[inline]
    pub(crate) fn pointer(&self, offset: u64, len: u64) -> Result<*mut u8, OutOfRange> {
        // Within the mapping, so that the sum cannot wrap.
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
    /// When the range does not lie inside.
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
    /// When the range does not lie inside.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), OutOfRange> {
        let at = self.check(offset, bytes.len() as u64)?;
        // SAFETY: as for `write`. A thread or a peer that writes at the same time makes the copy a mixture.
        unsafe {
            Method::Memcpy.copy(self.base.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len());
        }
        Ok(())
    }

    /// Copies `len` bytes to another arena. Ranges of one arena that overlap are refused.
    ///
    /// # Errors
    /// When a range does not lie inside its arena, or the two overlap.
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

    /// Like [`Self::copy_to`], and the last byte becomes visible to other CPUs after all the others.
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
            // One aligned word needs no order: it is seen whole or not at all.
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

    /// The aligned 64-bit word at `offset`, or `None` when it is unaligned or outside.
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.base.as_ptr().wrapping_add(self.check(offset, 8).ok()?);
        if !at.cast::<AtomicU64>().is_aligned() {
            return None;
        }
        // SAFETY: inside the mapping and aligned, as checked, alive as long as `self`, and any bit pattern is a valid
        // integer. Other processes access it atomically or by copies that tear, never by reference.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// Reads the byte at `offset` and orders everything after it (acquire).
    ///
    /// # Errors
    /// When the offset is outside.
    #[inline]
    pub fn load_byte(&self, offset: u64) -> Result<u8, OutOfRange> {
        Ok(self.byte(self.check(offset, 1)?).load(Ordering::Acquire))
    }

    /// Writes the byte at `offset` after everything before it (release).
    ///
    /// # Errors
    /// When the offset is outside.
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
        // SAFETY: the mapping is this arena's own and nothing borrowed from it outlives it. A failure leaves the
        // mapping in place, which harms nobody.
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
    // A process that has the file could else cut off pages under all that have it mapped.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

mod borrowed;
mod nodes;
#[cfg(test)]
mod tests;
