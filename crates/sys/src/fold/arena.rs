//! Reductions as methods of [`Arena`]. The methods check ranges, alignment and overlap for the kernels.

use std::num::NonZeroU32;

use super::kernel::Kernel;
use super::number::Number;
use super::operands::Operands;
use crate::mapping::{Arena, OutOfRange};

/// Operands that a kernel cannot process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldError {
    /// Elements outside their arena.
    Outside(OutOfRange),
    /// Elements at an address that is not a multiple of their size.
    Unaligned {
        /// Offset of the first element.
        offset: u64,
        /// Bytes of an element.
        size_bytes: u64,
    },
    /// A result that partially overlaps an operand. A result may coincide with an operand, but not overlap it
    /// otherwise.
    Overlap {
        /// Offset of the result.
        offset: u64,
        /// Bytes of the result.
        bytes: u64,
    },
}

impl std::fmt::Display for FoldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outside(range) => range.fmt(f),
            Self::Unaligned { offset, size_bytes } => write!(
                f,
                "elements of {size_bytes} bytes at offset {offset} are not aligned to their size"
            ),
            Self::Overlap { offset, bytes } => write!(
                f,
                "the result, {bytes} bytes at offset {offset}, overlaps an operand: use separate memory, or the \
                 operand's exact range"
            ),
        }
    }
}

impl std::error::Error for FoldError {}

impl From<OutOfRange> for FoldError {
    fn from(range: OutOfRange) -> Self {
        Self::Outside(range)
    }
}

impl Arena {
    /// Folds elements of `from` into this arena: `to = to op from`.
    ///
    /// Other threads or processes may write to any of these bytes at the same time, also through another mapping of the
    /// same file. The result is then a mixture.
    ///
    /// # Errors
    /// If elements lie outside or are not aligned to their size, or if the ranges overlap without being the same.
    #[inline]
    pub fn fold(
        &self,
        kernel: &Kernel,
        to: u64,
        from: &Self,
        from_offset: u64,
        elements: u64,
    ) -> Result<(), FoldError> {
        self.combine(kernel, to, (self, to), (from, from_offset), elements)
    }

    /// Folds elements of two ranges into this arena: `to = one op other`. The operands may overlap each other.
    ///
    /// # Errors
    /// As for [`Self::fold`], for `to` and each operand.
    #[inline]
    pub fn combine(
        &self,
        kernel: &Kernel,
        to: u64,
        one: (&Self, u64),
        other: (&Self, u64),
        elements: u64,
    ) -> Result<(), FoldError> {
        let number = kernel.number();
        let (target, bytes) = self.elements(number, to, elements)?;
        let (one, _) = one.0.elements(number, one.1, elements)?;
        let (other, _) = other.0.elements(number, other.1, elements)?;
        if [one, other]
            .iter()
            .any(|from| overlap(target, *from, bytes))
        {
            return Err(FoldError::Overlap {
                offset: to,
                bytes: bytes as u64,
            });
        }
        let operands = Operands {
            to: target,
            one,
            other,
            bytes,
        };
        // SAFETY: ranges, alignment and overlap were just checked.
        unsafe { kernel.run(operands) };
        Ok(())
    }

    /// Divides elements of this arena by a number, the last step of an average: `at = at / by`. Integers are truncated
    /// towards 0. The kernel's operation is ignored.
    ///
    /// # Errors
    /// If elements lie outside or are not aligned to their size.
    #[inline]
    pub fn divide(
        &self,
        kernel: &Kernel,
        at: u64,
        elements: u64,
        by: NonZeroU32,
    ) -> Result<(), FoldError> {
        let (at, bytes) = self.elements(kernel.number(), at, elements)?;
        let operands = Operands {
            to: at,
            one: at,
            other: at,
            bytes,
        };
        // SAFETY: range and alignment were just checked; the only operand coincides with the result.
        unsafe { kernel.run_division(operands, by.get()) };
        Ok(())
    }

    /// Returns a pointer to elements, and their size in bytes.
    #[inline]
    fn elements(
        &self,
        number: Number,
        offset: u64,
        elements: u64,
    ) -> Result<(*mut u8, usize), FoldError> {
        let size_bytes = number.size_bytes();
        // A size that does not fit into 64 bits saturates, and lies outside the arena.
        let bytes = elements.saturating_mul(size_bytes);
        let pointer = self.pointer(offset, bytes)?;
        if !(pointer as u64).is_multiple_of(size_bytes) {
            return Err(FoldError::Unaligned { offset, size_bytes });
        }
        // The range is inside an arena, so its size fits into `usize`.
        Ok((pointer, bytes as usize))
    }
}

/// Whether two ranges of equal length overlap partially.
#[inline]
fn overlap(one: *mut u8, other: *mut u8, bytes: usize) -> bool {
    one != other && one.addr().abs_diff(other.addr()) < bytes
}
