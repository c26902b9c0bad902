//! The check that the memories of workers fit into a machine or a container together.

use tonnage_units::{Bytes, Error, Result};

/// Advice is in multiples of this, or of a page where it is less.
const ADVICE_UNIT: u64 = 1 << 20;

const PAGE: u64 = 4096;

/// The option that a smaller memory is asked for by, and its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizedBy {
    pub(crate) option: &'static str,
    pub(crate) bytes: u64,
}

impl SizedBy {
    /// Value with which a memory of `has` bytes would have at most `fits`.
    fn value(self, has: u64, fits: u64) -> u64 {
        let scaled = u128::from(self.bytes) * u128::from(fits) / u128::from(has.max(1));
        // What guards and whole pages take does not shrink with the value.
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        let scaled = scaled.saturating_sub(if self.bytes == has { 0 } else { PAGE });
        let unit = if scaled < ADVICE_UNIT {
            PAGE
        } else {
            ADVICE_UNIT
        };
        scaled / unit * unit
    }
}

/// Refuses the memories of `workers`, of so many bytes each, where there is less.
///
/// # Errors
/// [`Error::Unavailable`], with the value that fits.
pub(super) fn check(
    place: &str,
    available_bytes: u64,
    (workers, bytes): (u64, u64),
    sized_by: SizedBy,
) -> Result<()> {
    if workers.saturating_mul(bytes) <= available_bytes {
        return Ok(());
    }
    let of_all = match workers {
        1 => "one worker".to_owned(),
        several => format!("each of {several} workers"),
    };
    let smaller = match sized_by.value(bytes, available_bytes / workers.max(1)) {
        0 => String::new(),
        fits => format!("{} {} or less, ", sized_by.option, Bytes(fits)),
    };
    Err(Error::Unavailable {
        what: format!("{} of memory for {of_all}", Bytes(bytes)),
        why: format!("this {place} has {available_bytes} bytes of memory available"),
        how: format!("Choose {smaller}fewer --workers or fewer ranks on this {place}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTER: SizedBy = SizedBy {
        option: "--register",
        bytes: 2 << 30,
    };

    #[test]
    fn the_size_that_fits_is_said_and_fits() {
        let gib = 1 << 30;
        assert!(check("machine", 8 * gib, (4, 2 * gib), REGISTER).is_ok());
        let refused = check("machine", 8 * gib - 1, (4, 2 * gib), REGISTER).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "2G of memory for each of 4 workers cannot be used here: this machine has 8589934591 bytes of memory available. \
             Choose --register 2047M or less, fewer --workers or fewer ranks on this machine"
        );
        assert!(check("machine", 8 * gib - 1, (4, 2047 << 20), REGISTER).is_ok());
    }

    #[test]
    fn an_option_that_is_a_part_of_the_memory_is_scaled() {
        let footprint = SizedBy {
            option: "--footprint",
            bytes: 1 << 30,
        };
        // Two slices, each with a guard.
        let bytes = 2 * ((1 << 30) + PAGE);
        let refused = check("container", 512 << 20, (2, bytes), footprint).unwrap_err();
        assert!(
            refused.to_string().contains("--footprint 127M or less"),
            "{refused}"
        );
        let none = check("container", 1024, (2, bytes), footprint).unwrap_err();
        assert!(
            none.to_string()
                .ends_with("Choose fewer --workers or fewer ranks on this container"),
            "{none}"
        );
        let one = check("container", 1 << 20, (1, bytes), footprint).unwrap_err();
        assert!(
            one.to_string().contains("for one worker")
                && one.to_string().contains("--footprint 504k"),
            "{one}"
        );
    }

    #[test]
    fn sizes_beyond_all_bounds_are_refused() {
        assert!(check("machine", u64::MAX - 1, (u64::MAX, u64::MAX), REGISTER).is_err());
    }
}
