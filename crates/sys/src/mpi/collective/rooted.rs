//! Collectives in which one rank, the root, has a different role.

use std::ffi::c_int;

use super::sizes::either;
use super::{ArenaPlace, Communicator, Memory, MpiReduction, MpiType};
use crate::error::LibraryError;

impl Communicator {
    /// Sends the root's elements to every rank.
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
        let at = Memory::in_arena(at, self.bytes_of(element, elements, 1)?)?;
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

    /// Reduces the elements of all ranks into the root's `recv`, which is ignored on other ranks. On the root, a `send`
    /// of `None` takes its elements from `recv`.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`], or a missing `send` or `recv`.
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

    /// Collects the blocks of all ranks at the root, in rank order. `elements` is the size of one block. `recv` is
    /// ignored except on the root. On the root, a `send` of `None` takes its block from its position in `recv`.
    ///
    /// # Errors
    /// As [`Communicator::reduce`], or more elements than this MPI can count, with the largest possible number.
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
        // SAFETY: as in `broadcast`; only the root gets elements, and has room for a block of each rank.
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

    /// Sends the root's i-th block to rank i. `elements` is the size of one block. `send` is ignored except on the
    /// root. On the root, a `recv` of `None` leaves its block at its position in `send`.
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
        // The direction is reversed, and so are the roles of the root's memory.
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

    /// Converts the root for MPI, and checks both arguments with their sizes. `every` is needed on all ranks, but the
    /// root may omit it (in place). `roots` is needed on the root only.
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
            return Ok((member, Memory::in_arena(every, every_bytes)?, Memory::NONE));
        }
        let roots = roots.ok_or_else(no_place)?;
        let every = self.given(every, every_bytes)?;
        let roots = Memory::in_arena(roots, roots_bytes)?;
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
    LibraryError::argument("the root has no memory for the elements of all ranks")
}
