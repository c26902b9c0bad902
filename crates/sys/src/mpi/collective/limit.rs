//! Number of elements above which a call counts as large.

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
    pub(super) fn new(elements_max: u64, large: bool) -> Result<Self, String> {
        if !(1..=COUNT_MAX).contains(&elements_max) {
            return Err(format!(
                "a call of MPI counts 1 to {COUNT_MAX} elements, not {elements_max}"
            ));
        }
        Ok(Self {
            elements_max,
            large,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_counts() {
        for wrong in [0, 1 << 31] {
            let why = CallLimit::new(wrong, true).unwrap_err();
            assert!(why.contains(&wrong.to_string()), "{why}");
        }
        assert!(CallLimit::new(COUNT_MAX, false).is_ok());
    }
}
