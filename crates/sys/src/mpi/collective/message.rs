//! Messages from one rank of a group to another.

use std::ffi::{c_int, c_void};

use super::super::calls::{Handle, LargeFunctions, Status};
use super::sizes::{CallPart, either};
use super::{ArenaPlace, Communicator, Memory, MpiType};
use crate::error::LibraryError;

/// All messages have the same tag, because messages from one rank to another arrive in order.
const TAG: c_int = 0;

impl Communicator {
    /// Sends elements to a rank, and waits until the memory may be modified. The elements may arrive later.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], or a rank that is not in the group.
    #[inline]
    pub fn send(
        &self,
        element: MpiType,
        to: u32,
        from: ArenaPlace<'_>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let (dtype, peer) = (self.type_of(element)?, self.member("rank", to)?);
        let from = Memory::in_arena(from, self.bytes_of(element, elements, 1)?)?;
        self.in_parts(elements, |part| {
            let from = from.after(part.first * element.bytes());
            // SAFETY: MPI runs and this is its thread; type and group are handles of this library, and the peer is in
            // the group; the memory is that of an arena that the caller's borrow keeps, was checked to have the
            // elements of all parts, and no reference to it exists.
            let code = either!(self, part, |table, count| unsafe {
                (table.send)(from, count, dtype, peer, TAG, self.handle)
            });
            self.world.check("MPI_Send", code)
        })
    }

    /// Receives `elements` elements from a rank.
    ///
    /// # Errors
    /// As [`Communicator::send`], or a message of another length.
    #[inline]
    pub fn receive(
        &self,
        element: MpiType,
        from: u32,
        to: ArenaPlace<'_>,
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let (dtype, peer) = (self.type_of(element)?, self.member("rank", from)?);
        let to = Memory::in_arena(to, self.bytes_of(element, elements, 1)?)?;
        self.in_parts(elements, |part| {
            let to = to.after(part.first * element.bytes());
            let mut status: Status = [0; 8];
            let result = (&raw mut status).cast::<c_void>();
            // SAFETY: as in `send`; the status has room for that of any dialect.
            let code = either!(self, part, |table, count| unsafe {
                (table.receive)(to, count, dtype, peer, TAG, self.handle, result)
            });
            self.world.check("MPI_Recv", code)?;
            self.check_length("MPI_Recv", &status, dtype, from, &part)
        })
    }

    /// Sends elements to a rank, and at the same time receives the same number of elements from another or the same
    /// rank.
    ///
    /// # Errors
    /// As [`Communicator::send`] and [`Communicator::receive`], or ranges that overlap.
    #[inline]
    pub fn send_receive(
        &self,
        element: MpiType,
        (to, source): (u32, ArenaPlace<'_>),
        (from, place): (u32, ArenaPlace<'_>),
        elements: u64,
    ) -> Result<(), LibraryError> {
        self.world.here()?;
        let dtype = self.type_of(element)?;
        let (target, origin) = (self.member("rank", to)?, self.member("rank", from)?);
        let bytes = self.bytes_of(element, elements, 1)?;
        let (source, place) = (
            Memory::in_arena(source, bytes)?,
            Memory::in_arena(place, bytes)?,
        );
        source.apart_from(&place)?;
        self.in_parts(elements, |part| {
            let source = source.after(part.first * element.bytes());
            let place = place.after(part.first * element.bytes());
            let mut status: Status = [0; 8];
            let result = (&raw mut status).cast::<c_void>();
            // SAFETY: as in `send` and `receive`; the two places were checked not to overlap.
            let code = either!(self, part, |table, count| unsafe {
                (table.send_receive)(
                    source,
                    count,
                    dtype,
                    target,
                    TAG,
                    place,
                    count,
                    dtype,
                    origin,
                    TAG,
                    self.handle,
                    result,
                )
            });
            self.world.check("MPI_Sendrecv", code)?;
            self.check_length("MPI_Sendrecv", &status, dtype, from, &part)
        })
    }

    /// Checks that a message filled its whole range, because MPI reports success for a shorter message.
    #[inline]
    fn check_length(
        &self,
        call: &'static str,
        status: &Status,
        dtype: Handle,
        from: u32,
        part: &CallPart<'_>,
    ) -> Result<(), LibraryError> {
        let length = self.length_of(status, dtype, part.large)?;
        if u64::try_from(length) == Ok(part.count) {
            return Ok(());
        }
        Err(LibraryError::argument(format!(
            "{call}: received {length} elements from rank {from}, expected {}",
            part.count
        )))
    }

    /// Returns the number of elements of the message that a status describes.
    #[inline]
    fn length_of(
        &self,
        status: &Status,
        dtype: Handle,
        large: Option<&LargeFunctions>,
    ) -> Result<i64, LibraryError> {
        let status = (&raw const *status).cast::<c_void>();
        let (mut length, mut short): (i64, c_int) = (0, 0);
        let code = match large {
            // SAFETY: the library has filled in the status, the type is its own, and the result has a valid place.
            Some(large) => unsafe { (large.get_count)(status, dtype, &raw mut length) },
            // SAFETY: as above.
            None => unsafe {
                (self.world.loaded.functions.get_count)(status, dtype, &raw mut short)
            },
        };
        self.world.check("MPI_Get_count", code)?;
        Ok(if large.is_some() {
            length
        } else {
            short.into()
        })
    }
}
