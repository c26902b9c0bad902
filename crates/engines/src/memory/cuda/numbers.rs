//! The numbers that the kernels compute the pattern from.

use tonnage_engine::pattern::Key;
use tonnage_sys::cuda::PatternNumbers;
use tonnage_units::Result;

/// The key's numbers, for the kernels.
pub(super) fn numbers(key: Key, origin: u64, offset: u64) -> Result<PatternNumbers> {
    let numbers = key.numbers(origin, offset)?;
    Ok(PatternNumbers {
        place: numbers.place,
        base: numbers.base,
        inverted: numbers.inverted,
    })
}
