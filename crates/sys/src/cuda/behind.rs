//! A copy, words behind it and an event behind all of them, handed over at once: the context is made current once,
//! which for small copies is a good part of what handing over costs.

use super::buffer::CudaPart;
use super::failure::CudaFailure;
use super::flags::FlagWords;
use super::stream::{CudaEvent, CudaStream};

/// Two words that follow each other, and where they are written.
#[derive(Debug, Clone, Copy)]
pub struct WordsBehind<'a> {
    /// Memory of the words.
    pub words: &'a FlagWords,
    /// Offset of the first, a multiple of 8.
    pub offset: u64,
    /// The words, the first one first.
    pub values: [u64; 2],
}

impl CudaStream {
    /// Hands over a copy as [`CudaStream::copy`] does, words behind it as [`FlagWords::write`] does, and an event
    /// behind both.
    ///
    /// # Errors
    /// As those; nothing was handed over where it is `OtherGpu` or `Outside`.
    #[inline]
    pub fn copy_and_tell(
        &self,
        (from, to): (CudaPart<'_>, CudaPart<'_>),
        behind: Option<WordsBehind<'_>>,
        event: &CudaEvent,
    ) -> Result<(), CudaFailure> {
        self.check_parts(&from, &to)?;
        let place = |behind: &WordsBehind<'_>| behind.words.place(self, behind.offset, 2);
        let first = behind.as_ref().map(place).transpose()?;
        let calls = self.context().current()?;
        // SAFETY: both ranges lie in memory that waits for this context before it is given back. Bytes that the CPU or
        // another copy touches meanwhile become a mixture.
        let code = unsafe {
            let own = &self.context().library.own;
            own.copy(to.address, from.address, from.bytes as usize, self.handle)
        };
        self.context().check("cuMemcpyAsync", code)?;
        if let (Some(first), Some(WordsBehind { words, values, .. })) = (first, behind) {
            for (address, word) in [first, first + 8].into_iter().zip(values) {
                // SAFETY: the word is aligned and lies in pinned memory, which waits for this context before it is
                // given back; it is bytes of an arena, over which no reference is formed but to atomics.
                let code = unsafe { (words.calls.write)(self.handle, address, word, 0) };
                self.context().check("cuStreamWriteValue64_v2", code)?;
            }
        }
        // SAFETY: event and stream live.
        let code = unsafe { (calls.event_record)(event.handle, self.handle) };
        self.context().check("cuEventRecord", code)
    }
}
