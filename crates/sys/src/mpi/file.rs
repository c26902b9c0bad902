//! A file opened by MPI.
//!
//! Opening, closing, syncing and every call with [`Together::All`] are collective: all ranks that opened the file
//! together must make the same call, otherwise the calling ranks wait. This module cannot check that.

use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::World;
use super::calls::{Handle, Status};
use super::datatype::MadeType;
use super::hints::{InfoObject, MpiHints};
use crate::error::LibraryError;
use crate::mapping::Arena;

/// Maximum bytes per call; a longer transfer is split. The length alone decides, so all ranks split it in the same way.
/// MPI's counts had 32 bits before MPI 4, and some libraries with 64-bit calls cannot use them: MPICH 4.0 ends the
/// process at 2 GiB.
pub const CALL_BYTES_MAX: u64 = 1 << 30;

/// Ranks that open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All ranks together.
    World,
    /// This rank alone.
    Alone,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Creates the file; an error if it exists.
    pub create: bool,
}

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// Ranks that take part in a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// This rank alone.
    Alone,
    /// All ranks that have opened the file.
    All,
}

/// An open file. [`File::close`] must close a file that all ranks have opened together.
#[derive(Debug)]
pub struct File {
    world: Arc<World>,
    handle: Handle,
    path: PathBuf,
    scope: Scope,
    open: bool,
}

impl World {
    /// Opens a file; collective among the ranks of the scope.
    ///
    /// # Errors
    /// MPI's description.
    pub fn open(
        self: &Arc<Self>,
        path: &Path,
        scope: Scope,
        access: AccessMode,
        hints: &MpiHints,
    ) -> Result<File, LibraryError> {
        self.here()?;
        let constants = &self.loaded.constants;
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| LibraryError::argument("the path contains a NUL byte"))?;
        let mode = match (access.read, access.write) {
            (_, false) => constants.numbers.mode_read_only,
            (false, true) => constants.numbers.mode_write_only,
            (true, true) => constants.numbers.mode_read_write,
        };
        let create = if access.create {
            constants.numbers.mode_create | constants.numbers.mode_exclusive
        } else {
            0
        };
        let comm = match scope {
            Scope::World => constants.comm_world,
            Scope::Alone => constants.comm_self,
        };
        let info = InfoObject::from_hints(self, hints)?;
        let mut handle: Handle = 0;
        // SAFETY: MPI runs and this is its thread; communicator and hints are handles of this library, the name is
        // NUL-terminated and outlives the call, and the result has a place that was zeroed.
        let code = unsafe {
            (self.loaded.functions.file_open)(
                comm,
                name.as_ptr(),
                mode | create,
                info.handle(),
                &raw mut handle,
            )
        };
        self.check("MPI_File_open", code)?;
        let file = File {
            world: Arc::clone(self),
            handle,
            path: path.to_owned(),
            scope,
            open: true,
        };
        // SAFETY: both handles are this library's.
        let code =
            unsafe { (self.loaded.functions.file_set_errhandler)(handle, constants.errors_return) };
        self.check("MPI_File_set_errhandler", code)?;
        Ok(file)
    }
}

impl File {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Limits the file's view to a block of `block` bytes every `stride` bytes, the first one at `displacement`. Later
    /// offsets count bytes of these blocks. Collective.
    ///
    /// # Errors
    /// MPI's description, or a block that cannot be described.
    pub fn see_blocks(
        &self,
        displacement: u64,
        block: u64,
        stride: u64,
    ) -> Result<(), LibraryError> {
        self.here()?;
        let (world, functions) = (&self.world, &self.world.loaded.functions);
        let byte = world.loaded.constants.byte;
        let (displacement, stride) = (offset(displacement)?, offset(stride)?);
        // Counts have 32 bits, so a block is described as a number of units. A unit is the block's largest power-of-two
        // divisor, up to 1 MiB.
        let unit_bytes = (block & block.wrapping_neg()).min(1 << 20);
        let counts = c_int::try_from(unit_bytes)
            .ok()
            .zip(c_int::try_from(block / unit_bytes.max(1)).ok());
        let (unit_bytes, units) = counts.filter(|&(_, units)| units > 0).ok_or_else(|| {
            LibraryError::argument(format!(
                "MPI cannot describe a file view with blocks of {block} bytes"
            ))
        })?;
        let unit = MadeType::new(world, "MPI_Type_contiguous", |made| {
            // SAFETY: MPI runs and this is its thread, the type is this library's, and the result has a zeroed place.
            unsafe { (functions.type_contiguous)(unit_bytes, byte, made) }
        })?;
        let whole = MadeType::new(world, "MPI_Type_contiguous", |made| {
            // SAFETY: as above.
            unsafe { (functions.type_contiguous)(units, unit.handle(), made) }
        })?;
        let spaced = MadeType::new(world, "MPI_Type_create_resized", |made| {
            // SAFETY: as above.
            unsafe { (functions.type_create_resized)(whole.handle(), 0, stride as isize, made) }
        })?;
        let spaced = spaced.committed()?;
        let no_hints = world.loaded.constants.info_null;
        // SAFETY: file, types and hints are handles of this library, and the name is NUL-terminated. The library keeps
        // the parts of the types that it needs.
        let code = unsafe {
            (functions.file_set_view)(
                self.handle,
                displacement,
                byte,
                spaced.handle(),
                c"native".as_ptr(),
                no_hints,
            )
        };
        world.check("MPI_File_set_view", code)
    }

    /// Writes bytes of the arena to the file, or reads them, and returns the number of bytes moved. Fewer bytes are
    /// read at the end of the file.
    ///
    /// # Errors
    /// MPI's description, or a range outside the arena.
    #[inline]
    pub fn transfer(
        &self,
        (direction, together): (Direction, Together),
        at: u64,
        arena: &Arena,
        (local, len): (u64, u64),
    ) -> Result<u64, LibraryError> {
        self.here()?;
        let memory = arena.pointer(local, len)?;
        let end = at.checked_add(len).ok_or_else(too_far)?;
        let (at, _) = (offset(at)?, offset(end)?);
        if len <= CALL_BYTES_MAX {
            return self.one_call((direction, together), at, memory, len as c_int);
        }
        let mut moved = 0;
        for done in (0..len).step_by(CALL_BYTES_MAX as usize) {
            let piece = CALL_BYTES_MAX.min(len - done) as c_int;
            // Within the checked range, so the sum cannot wrap.
            let memory = memory.wrapping_add(done as usize);
            moved += self.one_call((direction, together), at + done as i64, memory, piece)?;
        }
        Ok(moved)
    }

    /// Moves `count` bytes by one call. `memory` has `count` bytes of an arena.
    #[inline]
    fn one_call(
        &self,
        (direction, together): (Direction, Together),
        at: i64,
        memory: *mut u8,
        count: c_int,
    ) -> Result<u64, LibraryError> {
        let (world, functions) = (&self.world, &self.world.loaded.functions);
        let (handle, byte) = (self.handle, world.loaded.constants.byte);
        let mut status: Status = [0; 8];
        let result = (&raw mut status).cast::<c_void>();
        let (name, call) = match (direction, together) {
            (Direction::Write, Together::Alone) => ("MPI_File_write_at", functions.write_at),
            (Direction::Write, Together::All) => ("MPI_File_write_at_all", functions.write_at_all),
            (Direction::Read, Together::Alone) => ("MPI_File_read_at", functions.read_at),
            (Direction::Read, Together::All) => ("MPI_File_read_at_all", functions.read_at_all),
        };
        // SAFETY: MPI runs and this is its thread; file and type are handles of this library; the memory is that of an
        // arena that the caller's borrow keeps, was checked to have `count` bytes, and no reference to it exists; the
        // status has room for that of any dialect.
        let code = unsafe { call(handle, at, memory.cast(), count, byte, result) };
        world.check(name, code)?;
        let mut moved: c_int = 0;
        // SAFETY: the status is that of the call above, the type is this library's, and the result has a valid place.
        let code = unsafe { (functions.get_count)(result, byte, &raw mut moved) };
        world.check("MPI_Get_count", code)?;
        counted(name, moved.into())
    }

    /// Waits until this rank's writes are on stable storage. Collective.
    ///
    /// # Errors
    /// MPI's description.
    pub fn sync(&self) -> Result<(), LibraryError> {
        self.here()?;
        // SAFETY: MPI runs, this is its thread, and the handle is an open file of this library.
        let code = unsafe { (self.world.loaded.functions.file_sync)(self.handle) };
        self.world.check("MPI_File_sync", code)
    }

    /// Reserves space for this many bytes. Collective.
    ///
    /// # Errors
    /// MPI's description.
    pub fn preallocate(&self, bytes: u64) -> Result<(), LibraryError> {
        self.here()?;
        let bytes = offset(bytes)?;
        // SAFETY: as for `sync`.
        let code = unsafe { (self.world.loaded.functions.file_preallocate)(self.handle, bytes) };
        self.world.check("MPI_File_preallocate", code)
    }

    /// Returns the size of the file in bytes.
    ///
    /// # Errors
    /// MPI's description.
    pub fn size(&self) -> Result<u64, LibraryError> {
        self.here()?;
        let mut bytes: i64 = 0;
        // SAFETY: as for `sync`, and the result has a valid place.
        let code =
            unsafe { (self.world.loaded.functions.file_get_size)(self.handle, &raw mut bytes) };
        self.world.check("MPI_File_get_size", code)?;
        u64::try_from(bytes)
            .map_err(|_| LibraryError::unsupported(format!("MPI_File_get_size returned {bytes}")))
    }

    /// Returns the hints that MPI uses for this file.
    ///
    /// # Errors
    /// MPI's description.
    pub fn hints(&self) -> Result<MpiHints, LibraryError> {
        self.here()?;
        let mut handle: Handle = 0;
        // SAFETY: as for `sync`, and the result has a place that was zeroed.
        let code =
            unsafe { (self.world.loaded.functions.file_get_info)(self.handle, &raw mut handle) };
        self.world.check("MPI_File_get_info", code)?;
        InfoObject::taken(&self.world, handle).read()
    }

    /// Closes the file. Collective.
    ///
    /// # Errors
    /// MPI's description. The file counts as closed even then.
    pub fn close(mut self) -> Result<(), LibraryError> {
        self.here()?;
        self.open = false;
        // SAFETY: as for `sync`; the handle is not used again, because the file is gone after this call.
        let code = unsafe { (self.world.loaded.functions.file_close)(&raw mut self.handle) };
        self.world.check("MPI_File_close", code)
    }

    #[inline]
    fn here(&self) -> Result<(), LibraryError> {
        self.world.here()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.open || self.here().is_err() {
            return;
        }
        match self.scope {
            Scope::Alone => {
                // SAFETY: as in `close`. A failure is ignored: an open file is dropped only after another failure,
                // which is reported.
                let _ = unsafe { (self.world.loaded.functions.file_close)(&raw mut self.handle) };
            }
            // Closing is collective, and the other ranks might not join, so the file stays open.
            Scope::World => self.world.left_open.store(true, Ordering::Relaxed),
        }
    }
}

fn offset(bytes: u64) -> Result<i64, LibraryError> {
    i64::try_from(bytes)
        .map_err(|_| LibraryError::argument(format!("offset {bytes} is too large for MPI")))
}

#[cold]
fn too_far() -> LibraryError {
    LibraryError::argument("the offset is too large")
}

/// Returns the byte count of a status; an error for MPI_UNDEFINED, which is negative in all dialects.
fn counted(call: &'static str, moved: i64) -> Result<u64, LibraryError> {
    u64::try_from(moved).map_err(|_| {
        LibraryError::unsupported(format!("{call} does not report how many bytes it moved"))
    })
}
