//! Calls for more elements than a 32-bit count can express.
//!
//! A call that treats each element separately (all-reduce, reduce, broadcast, a message) is split into parts. A call
//! that moves a block for each rank cannot be split, because the parts of all blocks are not contiguous. Instead, it
//! counts units of several elements each. A reduction over units would have no meaning, so a large reduce-scatter is
//! refused. With functions that have 64-bit counts, none of this is needed: every call is one call.
//!
//! The decision depends only on the length, so it is the same on all ranks.

use super::super::calls::{Handle, LargeFunctions};
use super::super::datatype::MadeType;
use super::Communicator;
use crate::error::LibraryError;

/// The largest 32-bit count.
pub(super) const COUNT_MAX: u64 = i32::MAX as u64;

/// When to use calls with 32-bit counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallLimit {
    pub(super) elements_max: u64,
    /// Whether to use functions with 64-bit counts if they exist.
    pub(super) large: bool,
}

impl Default for CallLimit {
    fn default() -> Self {
        Self {
            elements_max: COUNT_MAX,
            large: true,
        }
    }
}

impl CallLimit {
    pub(super) fn new(elements_max: u64, large: bool) -> Result<Self, LibraryError> {
        if !(1..=COUNT_MAX).contains(&elements_max) {
            return Err(LibraryError::argument(format!(
                "an MPI call can count 1 to {COUNT_MAX} elements, not {elements_max}"
            )));
        }
        Ok(Self {
            elements_max,
            large,
        })
    }
}

/// The largest unit to try. Larger units are not needed below 2^47 elements.
const UNIT_MAX: u64 = 1 << 16;

/// A contiguous part of the elements, for one call.
pub(super) struct CallPart<'a> {
    /// Number of elements before this part.
    pub(super) first: u64,
    /// Number of elements; fits into a 32-bit count if `large` is `None`.
    pub(super) count: u64,
    pub(super) large: Option<&'a LargeFunctions>,
}

/// Type and count for a block of elements per rank.
pub(super) struct BlockCount<'a> {
    /// Fits into a 32-bit count if `large` is `None`.
    pub(super) count: u64,
    pub(super) dtype: Handle,
    pub(super) large: Option<&'a LargeFunctions>,
    /// Keeps the unit type until after the call.
    _unit: Option<MadeType<'a>>,
}

/// Calls a function with 64-bit counts if the part has them, otherwise a function with 32-bit counts. The count has the
/// function's type.
macro_rules! either {
    ($communicator:ident, $part:ident, |$table:ident, $count:ident| $call:expr) => {
        match $part.large {
            None => {
                let ($table, $count) = (&$communicator.kit.plain, $part.count as std::ffi::c_int);
                $call
            }
            Some($table) => {
                let $count = $part.count as i64;
                $call
            }
        }
    };
}
pub(super) use either;

impl Communicator {
    /// Returns the functions with 64-bit counts if a call for `elements` elements needs them.
    #[inline]
    fn large_for(&self, elements: u64) -> Option<&LargeFunctions> {
        let is_large = elements > self.limit.elements_max && self.limit.large;
        self.kit.large.as_ref().filter(|_| is_large)
    }

    /// Makes one call for all elements, or a sequence of calls for parts of them.
    #[inline]
    pub(super) fn in_parts(
        &self,
        elements: u64,
        mut call: impl FnMut(CallPart<'_>) -> Result<(), LibraryError>,
    ) -> Result<(), LibraryError> {
        let large = self.large_for(elements);
        if large.is_some() || elements <= self.limit.elements_max {
            return call(CallPart {
                first: 0,
                count: elements,
                large,
            });
        }
        let mut first = 0;
        while first < elements {
            let count = self.limit.elements_max.min(elements - first);
            call(CallPart {
                first,
                count,
                large: None,
            })?;
            first += count;
        }
        Ok(())
    }

    /// Chooses type and count for a block per rank that is only moved. The count of all ranks together must also fit,
    /// because libraries add up the counts in an `int`.
    #[inline]
    pub(super) fn block(
        &self,
        dtype: Handle,
        elements: u64,
    ) -> Result<BlockCount<'_>, LibraryError> {
        let all = elements.saturating_mul(self.size.into());
        let large = self.large_for(all);
        if large.is_some() || all <= self.limit.elements_max {
            return Ok(BlockCount {
                count: elements,
                dtype,
                large,
                _unit: None,
            });
        }
        self.block_of_units(dtype, elements)
    }

    #[cold]
    fn block_of_units(&self, dtype: Handle, elements: u64) -> Result<BlockCount<'_>, LibraryError> {
        let (ranks, max) = (u64::from(self.size), self.limit.elements_max);
        let unit = unit(elements, ranks, max).map_err(|fits| {
            LibraryError::unsupported(format!(
                "{elements} elements from each of {ranks} ranks do not fit the 32-bit counts of this MPI; {fits} do"
            ))
        })?;
        // The largest unit is far below the largest count.
        let bound = unit as std::ffi::c_int;
        let contiguous = self.world.loaded.functions.type_contiguous;
        let made = MadeType::new(&self.world, "MPI_Type_contiguous", |made| {
            // SAFETY: MPI runs and this is its thread, the type is this library's, and the result has a zeroed place.
            unsafe { contiguous(bound, dtype, made) }
        })?;
        let made = made.committed()?;
        Ok(BlockCount {
            count: elements / unit,
            dtype: made.handle(),
            large: None,
            _unit: Some(made),
        })
    }

    /// Chooses type and count for a block per rank that is reduced.
    #[inline]
    pub(super) fn reduced_block(
        &self,
        dtype: Handle,
        elements: u64,
    ) -> Result<BlockCount<'_>, LibraryError> {
        let (ranks, max) = (u64::from(self.size), self.limit.elements_max);
        let all = elements.saturating_mul(ranks);
        let large = self.large_for(all);
        if large.is_none() && all > max {
            return Err(LibraryError::unsupported(format!(
                "{elements} elements for each of {ranks} ranks of a reduce-scatter do not fit the 32-bit counts of \
                 this MPI; {} do",
                max / ranks.max(1)
            )));
        }
        Ok(BlockCount {
            count: elements,
            dtype,
            large,
            _unit: None,
        })
    }
}

/// Returns the smallest unit that divides a block and gives at most `max` units for all ranks. If there is no such
/// unit, the error is the size of the largest smaller block with such a unit.
fn unit(elements: u64, ranks: u64, max: u64) -> Result<u64, u64> {
    let largest = UNIT_MAX.min(max);
    let least = elements.saturating_mul(ranks).div_ceil(max).max(1);
    if least > largest {
        return Err(max / ranks.max(1) * largest);
    }
    (least..=largest)
        .find(|unit| elements.is_multiple_of(*unit))
        .ok_or(elements - elements % least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_counts() {
        for wrong in [0, 1 << 31] {
            let why = CallLimit::new(wrong, true).unwrap_err();
            assert!(why.to_string().contains(&wrong.to_string()), "{why}");
        }
        assert!(CallLimit::new(COUNT_MAX, false).is_ok());
    }

    #[test]
    fn units_divide_a_block_and_are_few_enough() {
        for (elements, ranks, max) in [
            (42, 1, 7),
            (3 << 31, 8, COUNT_MAX),
            (1 << 31, 2, COUNT_MAX),
            (10, 3, 15),
        ] {
            let unit = unit(elements, ranks, max).unwrap();
            assert_eq!(elements % unit, 0);
            assert!(elements / unit * ranks <= max, "{elements} {ranks} {max}");
        }
        assert_eq!(unit(42, 1, 7), Ok(6));
    }

    #[test]
    fn a_block_that_cannot_be_divided_is_refused_with_one_that_can() {
        // A prime just above the largest count.
        let prime = 2_147_483_659;
        let fits = unit(prime, 2, COUNT_MAX).unwrap_err();
        assert!(fits < prime && prime - fits < 8, "{fits}");
        assert!(unit(fits, 2, COUNT_MAX).is_ok());
        let fits = unit(100, 1, 7).unwrap_err();
        assert!(unit(fits, 1, 7).is_ok(), "{fits}");
    }
}
