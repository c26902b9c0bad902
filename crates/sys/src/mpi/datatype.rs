//! MPI types composed of other types, for layouts that a count of a plain type cannot express.

use std::ffi::c_int;

use super::World;
use super::calls::Handle;
use crate::error::LibraryError;

/// An MPI type that is freed when it is dropped.
pub(super) struct MadeType<'a> {
    world: &'a World,
    handle: Handle,
}

impl<'a> MadeType<'a> {
    /// Makes a type. `make` calls an MPI function that writes the type's handle, and `call` is the name of that
    /// function.
    pub(super) fn new(
        world: &'a World,
        call: &'static str,
        make: impl FnOnce(*mut Handle) -> c_int,
    ) -> Result<Self, LibraryError> {
        let mut handle: Handle = 0;
        let code = make(&raw mut handle);
        world.check(call, code)?;
        Ok(Self { world, handle })
    }

    /// Commits the type, so that it is usable for transfers. Types that are only parts of other types need no commit.
    pub(super) fn committed(mut self) -> Result<Self, LibraryError> {
        // SAFETY: MPI runs and this is its thread, because the type was made just before and owns its handle.
        let code = unsafe { (self.world.loaded.functions.type_commit)(&raw mut self.handle) };
        self.world.check("MPI_Type_commit", code)?;
        Ok(self)
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }
}

impl Drop for MadeType<'_> {
    fn drop(&mut self) {
        // SAFETY: types live only within a call on MPI's thread while it runs, and this value owns the handle. A
        // failure to free it is harmless.
        let _ = unsafe { (self.world.loaded.functions.type_free)(&raw mut self.handle) };
    }
}
