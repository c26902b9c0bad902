//! Calls for more elements than a count of 32 bits can say.
//!
//! A call that treats each element for itself (all-reduce, reduce, broadcast, a message) is made for one part of the
//! elements after the other. One that moves a block for each rank cannot be taken apart so, because the parts of blocks
//! do not lie together in memory: it counts in units, a type of several elements. A reduction over units would have no
//! meaning, so that a reduce-scatter is refused. All this is only for libraries without the functions with counts of 64
//! bits; there the largest call is one call.
//!
//! The length alone decides, so that all ranks decide alike.

use super::super::calls::{Handle, LargeFunctions};
use super::super::datatype::MadeType;
use super::Communicator;
use crate::error::LibraryError;

/// The largest count of 32 bits.
pub(super) const COUNT_MAX: u64 = i32::MAX as u64;

/// Number of elements that a call with counts of 32 bits is used for.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallLimit {
    pub(super) elements_max: u64,
    /// Functions with counts of 64 bits are used where they are.
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
                "a call of MPI counts 1 to {COUNT_MAX} elements, not {elements_max}"
            )));
        }
        Ok(Self {
            elements_max,
            large,
        })
    }
}

/// The largest unit that is tried: dividing by more is of no use below 2^47 elements.
const UNIT_MAX: u64 = 1 << 16;

/// One call of those that a part of the elements is given to.
pub(super) struct CallPart<'a> {
    /// Elements before it.
    pub(super) first: u64,
    /// Elements of it; a count of 32 bits can say them where `large` is `None`.
    pub(super) count: u64,
    pub(super) large: Option<&'a LargeFunctions>,
}

/// Way to count the elements of a block for each rank.
pub(super) struct BlockCount<'a> {
    /// A count of 32 bits can say it where `large` is `None`.
    pub(super) count: u64,
    pub(super) dtype: Handle,
    pub(super) large: Option<&'a LargeFunctions>,
    /// Keeps the type of several elements until after the call.
    _unit: Option<MadeType<'a>>,
}

/// Calls the function of a table, which is the one for the large counts where there is one; the count gets the type
/// that the table wants.
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
    /// The functions with counts of 64 bits, where a call is for so many elements.
    #[inline]
    fn large_for(&self, elements: u64) -> Option<&LargeFunctions> {
        let is_large = elements > self.limit.elements_max && self.limit.large;
        self.kit.large.as_ref().filter(|_| is_large)
    }

    /// Makes one call for all elements, or several that treat one part after the other.
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

    /// Counts the elements of a block for each rank that are only moved. The count for all ranks together has to fit
    /// too, because libraries add it up in an `int`.
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
                "{elements} elements of each of {ranks} ranks cannot be counted by this MPI, whose counts have 32 bits; \
                 {fits} can"
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

    /// Counts the elements of a block for each rank that are reduced.
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
                "{elements} elements of each of {ranks} ranks cannot be reduced and scattered by this MPI, whose counts \
                 have 32 bits; {} can",
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

/// The least number of elements that divides a block so that the units of all ranks are at most `max`; else the largest
/// smaller block that can be divided so.
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
