//! Words that a stream writes to pinned memory after all earlier work: a GPU's signal to the CPU that data have
//! arrived.
//!
//! CUDA's driver writes a word after a system-wide fence, so a reader that sees the word also sees the data. This
//! module does not use the call of a driver without this guarantee.

use std::ffi::c_uint;
use std::sync::Arc;

use super::abi::{Attribute, Code, CudaAddress, StreamHandle};
use super::buffer::{CudaPart, PinnedArena};
use super::context::CudaContext;
use super::driver::Introduced;
use super::failure::CudaFailure;
use super::stream::{CudaEvent, CudaStream};
use crate::library::functions;
use crate::mapping::OutOfRange;

/// Size of a word in bytes.
const WORD: u64 = 8;

functions! { pub(super) FlagCalls by Introduced:
    write = (c"cuStreamWriteValue64_v2", 11, 7) => (StreamHandle, CudaAddress, u64, c_uint) -> Code;
}

fn calls(context: &CudaContext) -> Result<FlagCalls, CudaFailure> {
    let library = &context.library;
    let calls = FlagCalls::look_up(|call| library.library.symbol(call))?;
    // A driver that does not know this attribute does not have the call.
    let writes = library.attribute(context.ordinal, Attribute::StreamWords);
    match writes.unwrap_or(0) {
        0 => Err(CudaFailure::NoWords),
        _ => Ok(calls),
    }
}

/// Pinned memory with words that streams of one GPU write.
#[derive(Debug)]
pub struct FlagWords {
    pinned: PinnedArena,
    pub(super) calls: FlagCalls,
    /// Device address of the first byte, which may differ from the CPU's address.
    address: CudaAddress,
}

impl FlagWords {
    /// Makes words in pinned memory. Only streams of the context that pinned the memory can write them.
    ///
    /// # Errors
    /// `NoWords`, or the driver's reason.
    pub fn new(pinned: PinnedArena) -> Result<Self, CudaFailure> {
        let context = pinned.context();
        let calls = calls(context)?;
        let address = pinned.address_in(context)?;
        Ok(Self {
            pinned,
            calls,
            address,
        })
    }

    /// Checks that a GPU can write words. Call this first, to avoid pinning memory that cannot be used.
    ///
    /// # Errors
    /// `NoWords`, or the driver's reason.
    pub fn offered(context: &CudaContext) -> Result<(), CudaFailure> {
        calls(context).map(|_| ())
    }

    /// Hands a stream the write of an aligned word, in the CPU's byte order.
    ///
    /// # Errors
    /// `Outside`, also for a word that is not aligned; `OtherGpu`; or the driver's reason.
    #[inline]
    pub fn write(&self, stream: &CudaStream, offset: u64, word: u64) -> Result<(), CudaFailure> {
        let address = self.place(stream, offset, 1)?;
        stream.context().call("cuStreamWriteValue64_v2", |_| {
            // SAFETY: the word is aligned and lies in pinned memory, which waits for this context before it is
            // released. It is part of an arena, over which no reference is formed except to atomics.
            unsafe { (self.calls.write)(stream.handle, address, word, 0) }
        })
    }

    /// Returns the address of `words` consecutive words, for a stream.
    #[inline]
    pub(super) fn place(
        &self,
        stream: &CudaStream,
        offset: u64,
        words: u64,
    ) -> Result<CudaAddress, CudaFailure> {
        let (len, size) = (words * WORD, self.pinned.arena().len() as u64);
        OutOfRange::check(offset, len, size)?;
        if !offset.is_multiple_of(WORD) {
            return Err(OutOfRange { offset, len, size }.into());
        }
        let context = stream.context();
        if !Arc::ptr_eq(context, self.pinned.context()) {
            return Err(context.other_gpu(self.pinned.context()));
        }
        Ok(self.address + offset)
    }
}

/// Two consecutive words to write after a copy.
#[derive(Debug, Clone, Copy)]
pub struct WordsBehind<'a> {
    /// Memory that contains the words.
    pub words: &'a FlagWords,
    /// Offset of the first word, a multiple of 8.
    pub offset: u64,
    /// The two values, in order.
    pub values: [u64; 2],
}

impl CudaStream {
    /// Hands over a copy as [`CudaStream::copy`] does, then the words `behind` it as [`FlagWords::write`] does, then an
    /// event. The context is made current once for all of them. This saves a good part of the cost of small copies.
    ///
    /// # Errors
    /// As for those functions. After `OtherGpu` or `Outside`, nothing was handed over.
    #[inline]
    pub fn copy_and_signal(
        &self,
        (from, to): (CudaPart<'_>, CudaPart<'_>),
        behind: Option<WordsBehind<'_>>,
        event: &CudaEvent,
    ) -> Result<(), CudaFailure> {
        self.check_parts(&from, &to)?;
        let place = |behind: &WordsBehind<'_>| behind.words.place(self, behind.offset, 2);
        let first = behind.as_ref().map(place).transpose()?;
        let calls = self.context().current()?;
        // SAFETY: both ranges lie in memory that waits for this context before it is released. Bytes that the CPU or
        // another copy writes meanwhile become a mixture.
        let code = unsafe {
            let own = &self.context().library.own;
            own.copy(to.address, from.address, from.bytes as usize, self.handle)
        };
        self.context().check("cuMemcpyAsync", code)?;
        if let (Some(first), Some(WordsBehind { words, values, .. })) = (first, behind) {
            for (address, word) in [first, first + 8].into_iter().zip(values) {
                // SAFETY: the word is aligned and lies in pinned memory, which waits for this context before it is
                // released. It is part of an arena, over which no reference is formed except to atomics.
                let code = unsafe { (words.calls.write)(self.handle, address, word, 0) };
                self.context().check("cuStreamWriteValue64_v2", code)?;
            }
        }
        // SAFETY: event and stream live.
        let code = unsafe { (calls.event_record)(event.handle, self.handle) };
        self.context().check("cuEventRecord", code)
    }
}
