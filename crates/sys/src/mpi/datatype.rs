//! Types that are put together of others, for what one count of a plain type cannot say.

use std::ffi::c_int;

use super::World;
use super::calls::Handle;
use crate::error::LibraryError;

/// A type that MPI has made for this process; given back when it is dropped.
pub(super) struct MadeType<'a> {
    world: &'a World,
    handle: Handle,
}

impl<'a> MadeType<'a> {
    /// The type whose handle `make` writes; `call` is what it calls.
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

    /// The type, ready for transfers; those that others are made of need not be.
    pub(super) fn committed(mut self) -> Result<Self, LibraryError> {
        // SAFETY: MPI runs and this is its thread, for the type was made a moment ago and owns its handle.
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
        // SAFETY: types live only within a call on MPI's thread while it runs, and this value owns the handle. That one
        // cannot be given back is no reason to fail.
        let _ = unsafe { (self.world.loaded.functions.type_free)(&raw mut self.handle) };
    }
}
