//! Collectives in which all ranks have the same role.

use super::sizes::either;
use super::{ArenaPlace, Communicator, Memory, MpiReduction, MpiType};
use crate::error::LibraryError;

impl Communicator {
    /// Reduces the elements of all ranks into every rank's `recv`. A `send` of `None` takes the elements from `recv`.
    ///
    /// # Errors
    /// MPI's description; a type or reduction that the library lacks; a range outside its arena, or two that overlap.
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
        let (from, to) = (self.given(send, bytes)?, Memory::in_arena(recv, bytes)?);
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

    /// Reduces a block for each rank, and returns the i-th result block to rank i. `elements` is the size of one block.
    /// A `send` of `None` takes all blocks from `recv`; the result then replaces the first block, and the others become
    /// undefined.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], and more elements than this MPI can count, with the largest possible number.
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
        let to = Memory::in_arena(recv, if send.is_some() { one } else { all })?;
        from.apart_from(&to)?;
        let block = self.reduced_block(dtype, elements)?;
        // SAFETY: as in `all_reduce`; the input has a block for each rank.
        let code = either!(self, block, |table, count| unsafe {
            (table.reduce_scatter_block)(from.at, to.at, count, block.dtype, op, self.handle)
        });
        self.world.check("MPI_Reduce_scatter_block", code)
    }

    /// Collects the blocks of all ranks on every rank, in rank order. `elements` is the size of one block. A `send` of
    /// `None` takes this rank's block from its position in `recv`.
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
        let to = Memory::in_arena(recv, self.bytes_of(element, elements, self.size)?)?;
        from.apart_from(&to)?;
        let block = self.block(dtype, elements)?;
        let dtype = block.dtype;
        // SAFETY: as in `all_reduce`; the output has room for a block of each rank.
        let code = either!(self, block, |table, count| unsafe {
            (table.all_gather)(from.at, count, dtype, to.at, count, dtype, self.handle)
        });
        self.world.check("MPI_Allgather", code)
    }

    /// Sends the i-th block of each rank to rank i, which stores them in rank order. `elements` is the size of one
    /// block. A `send` of `None` takes the blocks from `recv`, and the received blocks replace them.
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
        let (from, to) = (self.given(send, all)?, Memory::in_arena(recv, all)?);
        from.apart_from(&to)?;
        let block = self.block(dtype, elements)?;
        let dtype = block.dtype;
        // SAFETY: as in `all_reduce`; both ranges have a block for each rank.
        let code = either!(self, block, |table, count| unsafe {
            (table.all_to_all)(from.at, count, dtype, to.at, count, dtype, self.handle)
        });
        self.world.check("MPI_Alltoall", code)
    }
}
