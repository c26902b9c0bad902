//! Calls in which all ranks have the same part.

use super::sizes::either;
use super::{ArenaPlace, Communicator, Memory, MpiReduction, MpiType};
use crate::error::LibraryError;

impl Communicator {
    /// Gives every rank the reduction of what all gave. `send` is `None` to take the elements from `recv`.
    ///
    /// # Errors
    /// MPI's own words; a type or reduction that the library lacks; a range outside its arena, or two that overlap.
    #[inline]
    pub fn all_reduce(
        &self,
        element: MpiType,
        reduction: MpiReduction,
        send: Option<ArenaPlace<'_>>,
        recv: ArenaPlace<'_>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let (dtype, op) = (self.type_of(element)?, self.reduction(reduction)?);
        let bytes = self.bytes_of(element, elements, 1)?;
        let (from, to) = (self.given(send, bytes)?, Memory::of(recv, bytes)?);
        from.apart_from(&to)?;
        self.in_parts(elements, |part| {
            let done = part.first * element.bytes();
            let (from, to) = (from.after(done), to.after(done));
            // SAFETY: MPI runs and this is its thread; type, reduction and group are handles of this library; the
            // memory is that of arenas that the caller's borrows keep, was checked to have the elements of all parts,
            // and no reference to it exists.
            let code = either!(self, part, |table, count| unsafe {
                (table.all_reduce)(from, to, count, dtype, op, self.handle)
            });
            self.world.check("MPI_Allreduce", code)
        })
    }

    /// Gives rank i the i-th block of the reduction of what all gave: a block for each rank. `elements` are those of
    /// one block. `send` is `None` to take all blocks from `recv`, whose first one the result then replaces; the others
    /// have no meaning afterwards.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], and more elements than this MPI can count, with the number that it can.
    #[inline]
    pub fn reduce_scatter_block(
        &self,
        element: MpiType,
        reduction: MpiReduction,
        send: Option<ArenaPlace<'_>>,
        recv: ArenaPlace<'_>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let (dtype, op) = (self.type_of(element)?, self.reduction(reduction)?);
        let all = self.bytes_of(element, elements, self.size)?;
        let one = self.bytes_of(element, elements, 1)?;
        let from = self.given(send, all)?;
        let to = Memory::of(recv, if send.is_some() { one } else { all })?;
        from.apart_from(&to)?;
        let block = self.reduced_block(dtype, elements)?;
        // SAFETY: as in `all_reduce`; what is given has a block for each rank.
        let code = either!(self, block, |table, count| unsafe {
            (table.reduce_scatter_block)(from.at, to.at, count, block.dtype, op, self.handle)
        });
        self.world.check("MPI_Reduce_scatter_block", code)
    }

    /// Gives every rank the blocks of all, in their order. `elements` are those of one block. `send` is `None` to take
    /// this rank's block from its place in `recv`.
    ///
    /// # Errors
    /// As [`Communicator::reduce_scatter_block`].
    #[inline]
    pub fn all_gather(
        &self,
        element: MpiType,
        send: Option<ArenaPlace<'_>>,
        recv: ArenaPlace<'_>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let dtype = self.type_of(element)?;
        let from = self.given(send, self.bytes_of(element, elements, 1)?)?;
        let to = Memory::of(recv, self.bytes_of(element, elements, self.size)?)?;
        from.apart_from(&to)?;
        let block = self.block(dtype, elements)?;
        let dtype = block.dtype;
        // SAFETY: as in `all_reduce`; the place of the result has a block for each rank.
        let code = either!(self, block, |table, count| unsafe {
            (table.all_gather)(from.at, count, dtype, to.at, count, dtype, self.handle)
        });
        self.world.check("MPI_Allgather", code)
    }

    /// Gives rank i the i-th block of each rank, in their order. `elements` are those of one block. `send` is `None` to
    /// take the blocks from `recv`, where those of the others replace them.
    ///
    /// # Errors
    /// As [`Communicator::reduce_scatter_block`].
    #[inline]
    pub fn all_to_all(
        &self,
        element: MpiType,
        send: Option<ArenaPlace<'_>>,
        recv: ArenaPlace<'_>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let dtype = self.type_of(element)?;
        let all = self.bytes_of(element, elements, self.size)?;
        let (from, to) = (self.given(send, all)?, Memory::of(recv, all)?);
        from.apart_from(&to)?;
        let block = self.block(dtype, elements)?;
        let dtype = block.dtype;
        // SAFETY: as in `all_reduce`; both places have a block for each rank.
        let code = either!(self, block, |table, count| unsafe {
            (table.all_to_all)(from.at, count, dtype, to.at, count, dtype, self.handle)
        });
        self.world.check("MPI_Alltoall", code)
    }
}
