//! Calls in which one rank, the root, has another part than the others.

use std::ffi::c_int;

use super::sizes::either;
use super::{ArenaPlace, Communicator, Memory, MpiReduction, MpiType};
use crate::error::LibraryError;

impl Communicator {
    /// Gives every rank the elements of the root.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], or a root that is not in the group.
    #[inline]
    pub fn broadcast(
        &self,
        element: MpiType,
        root: u32,
        at: ArenaPlace<'_>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let (dtype, root) = (self.type_of(element)?, self.member("root", root)?);
        let at = Memory::of(at, self.bytes_of(element, elements, 1)?)?;
        self.in_parts(elements, |part| {
            let at = at.after(part.first * element.bytes());
            // SAFETY: MPI runs and this is its thread; type and group are handles of this library, and the root is in
            // the group; the memory is that of an arena that the caller's borrow keeps, was checked to have the
            // elements of all parts, and no reference to it exists.
            let code = either!(self, part, |table, count| unsafe {
                (table.broadcast)(at, count, dtype, root, self.handle)
            });
            self.world.check("MPI_Bcast", code)
        })
    }

    /// Gives the root the reduction of what all gave. `recv` is the root's alone and is not looked at elsewhere; the
    /// root's `send` is `None` to take its elements from there.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`], or a place that is missing.
    #[inline]
    pub fn reduce(
        &self,
        element: MpiType,
        reduction: MpiReduction,
        root: u32,
        send: Option<ArenaPlace<'_>>,
        recv: Option<ArenaPlace<'_>>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let (dtype, op) = (self.type_of(element)?, self.reduction(reduction)?);
        let bytes = self.bytes_of(element, elements, 1)?;
        let (root, from, to) = self.towards(root, (send, bytes), (recv, bytes))?;
        self.in_parts(elements, |part| {
            let done = part.first * element.bytes();
            let (from, to) = (from.after(done), to.after(done));
            // SAFETY: as in `broadcast`; the reduction is this library's too, and only the root gets elements.
            let code = either!(self, part, |table, count| unsafe {
                (table.reduce)(from, to, count, dtype, op, root, self.handle)
            });
            self.world.check("MPI_Reduce", code)
        })
    }

    /// Gives the root the blocks of all, in their order. `elements` are those of one block. `recv` is the root's alone
    /// and is not looked at elsewhere; the root's `send` is `None` to take its block from its place there.
    ///
    /// # Errors
    /// As [`Communicator::reduce`], or more elements than this MPI can count, with the number that it can.
    #[inline]
    pub fn gather(
        &self,
        element: MpiType,
        root: u32,
        send: Option<ArenaPlace<'_>>,
        recv: Option<ArenaPlace<'_>>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let dtype = self.type_of(element)?;
        let one = self.bytes_of(element, elements, 1)?;
        let all = self.bytes_of(element, elements, self.size)?;
        let (root, from, to) = self.towards(root, (send, one), (recv, all))?;
        let block = self.block(dtype, elements)?;
        let dtype = block.dtype;
        // SAFETY: as in `broadcast`; only the root gets elements, and has a place for a block of each rank.
        let code = either!(self, block, |table, count| unsafe {
            (table.gather)(
                from.at,
                count,
                dtype,
                to.at,
                count,
                dtype,
                root,
                self.handle,
            )
        });
        self.world.check("MPI_Gather", code)
    }

    /// Gives rank i the i-th block of the root. `elements` are those of one block. `send` is the root's alone and is
    /// not looked at elsewhere; the root's `recv` is `None` to leave its block in its place there.
    ///
    /// # Errors
    /// As [`Communicator::gather`].
    #[inline]
    pub fn scatter(
        &self,
        element: MpiType,
        root: u32,
        send: Option<ArenaPlace<'_>>,
        recv: Option<ArenaPlace<'_>>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let dtype = self.type_of(element)?;
        let one = self.bytes_of(element, elements, 1)?;
        let all = self.bytes_of(element, elements, self.size)?;
        // The other way round, and so are the root's places.
        let (root, to, from) = self.towards(root, (recv, one), (send, all))?;
        let block = self.block(dtype, elements)?;
        let dtype = block.dtype;
        // SAFETY: as in `broadcast`; only the root gives elements, and has a block for each rank.
        let code = either!(self, block, |table, count| unsafe {
            (table.scatter)(
                from.at,
                count,
                dtype,
                to.at,
                count,
                dtype,
                root,
                self.handle,
            )
        });
        self.world.check("MPI_Scatter", code)
    }

    /// The root as MPI wants it, and the places, given with their bytes, of every rank and of the root. The root can do
    /// without the first one, in place; the others must have it, and have no second one.
    #[inline]
    fn towards(
        &self,
        root: u32,
        (every, every_bytes): (Option<ArenaPlace<'_>>, u64),
        (roots, roots_bytes): (Option<ArenaPlace<'_>>, u64),
    ) -> Result<(c_int, Memory, Memory), LibraryError> {
        let member = self.member("root", root)?;
        if self.rank != root {
            let every = every.ok_or_else(only_the_root)?;
            return Ok((member, Memory::of(every, every_bytes)?, Memory::NONE));
        }
        let roots = roots.ok_or_else(no_place)?;
        let every = self.given(every, every_bytes)?;
        let roots = Memory::of(roots, roots_bytes)?;
        every.apart_from(&roots)?;
        Ok((member, every, roots))
    }
}

#[cold]
fn only_the_root() -> LibraryError {
    LibraryError::argument("only the root can call in place")
}

#[cold]
fn no_place() -> LibraryError {
    LibraryError::argument("the root has no place for the elements of all")
}
