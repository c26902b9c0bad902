//! Elements as numbers, and reductions as a library performs them in the element's own type.
//!
//! Only used to explain a few wrong elements, so speed does not matter.

use std::fmt;

use half::{bf16, f16};

use super::balanced::round;

use crate::{Dtype, Reduction};

/// An element's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ElementValue {
    /// A value of an integer type.
    Integer(i64),
    /// A float16, bfloat16 or float32.
    Single(f32),
    /// A float64.
    Double(f64),
}

impl ElementValue {
    /// Decodes an element. Missing bytes count as 0.
    pub fn read(dtype: Dtype, bytes: &[u8]) -> Self {
        fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
            let mut array = [0; N];
            array
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            array
        }
        match dtype {
            Dtype::Float32 => Self::Single(f32::from_le_bytes(array(bytes))),
            Dtype::Float64 => Self::Double(f64::from_le_bytes(array(bytes))),
            Dtype::Float16 => Self::Single(f16::from_le_bytes(array(bytes)).to_f32()),
            Dtype::Bfloat16 => Self::Single(bf16::from_le_bytes(array(bytes)).to_f32()),
            Dtype::Int8 => Self::Integer(i8::from_le_bytes(array(bytes)).into()),
            Dtype::Uint8 => Self::Integer(u8::from_le_bytes(array(bytes)).into()),
            Dtype::Int32 => Self::Integer(i32::from_le_bytes(array(bytes)).into()),
            Dtype::Int64 => Self::Integer(i64::from_le_bytes(array(bytes))),
        }
    }

    /// Rounds to the nearest element of a floating-point type.
    fn rounded(dtype: Dtype, value: f64) -> Self {
        match dtype {
            Dtype::Float64 => Self::Double(value),
            _ => Self::Single(round(dtype, value) as f32),
        }
    }

    /// Truncates to an element of an integer type with the same low bits.
    fn wrapped(dtype: Dtype, value: i64) -> Self {
        Self::Integer(match dtype {
            Dtype::Int8 => i64::from(value as i8),
            Dtype::Uint8 => i64::from(value as u8),
            Dtype::Int32 => i64::from(value as i32),
            _ => value,
        })
    }

    /// The value as a float64; for int64, the nearest one.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Single(value) => value.into(),
            Self::Double(value) => value,
        }
    }

    /// Combines two elements. For an average, adds them without dividing.
    pub fn combine(self, dtype: Dtype, reduction: Reduction, other: Self) -> Self {
        if let (Self::Integer(a), Self::Integer(b)) = (self, other) {
            let value = match reduction {
                Reduction::Sum | Reduction::Avg => a.wrapping_add(b),
                Reduction::Prod => a.wrapping_mul(b),
                Reduction::Min => a.min(b),
                Reduction::Max => a.max(b),
            };
            return Self::wrapped(dtype, value);
        }
        // Sums and products of narrower types are exact in a float64, so the result is rounded only once.
        let (a, b) = (self.to_f64(), other.to_f64());
        let value = match reduction {
            Reduction::Sum | Reduction::Avg => a + b,
            Reduction::Prod => a * b,
            Reduction::Min => a.min(b),
            Reduction::Max => a.max(b),
        };
        Self::rounded(dtype, value)
    }

    /// Returns the average over `ranks` ranks after a part has been added to the sum `times` times.
    ///
    /// `sum` is used for floating-point numbers. For integers the sum is computed as average times ranks, which is
    /// exact.
    pub fn average_of(self, dtype: Dtype, ranks: u32, sum: f64, part: Self, times: i64) -> Self {
        let ranks_wide = i64::from(ranks);
        match (self, part) {
            (Self::Integer(average), Self::Integer(part)) => {
                let sum = average.wrapping_mul(ranks_wide);
                let sum = Self::wrapped(dtype, sum.wrapping_add(part.wrapping_mul(times)));
                match sum {
                    Self::Integer(sum) => Self::Integer(sum / ranks_wide),
                    other => other,
                }
            }
            _ => Self::rounded(
                dtype,
                (sum + part.to_f64() * times as f64) / f64::from(ranks),
            ),
        }
    }
}

impl fmt::Display for ElementValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug prints the fewest digits that parse back to the same number, and uses exponents for extreme values.
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Single(value) => write!(f, "{value:?}"),
            Self::Double(value) => write!(f, "{value:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_few_digits() {
        let shown = |dtype, bytes: &[u8]| ElementValue::read(dtype, bytes).to_string();
        assert_eq!(shown(Dtype::Float32, &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(shown(Dtype::Float64, &3f64.to_le_bytes()), "3.0");
        assert_eq!(
            shown(
                Dtype::Bfloat16,
                &bf16::from_f32(-(2f32.powi(100))).to_le_bytes()
            ),
            "-1.2676506e30"
        );
        assert_eq!(shown(Dtype::Float16, &f16::NAN.to_le_bytes()), "NaN");
        assert_eq!(shown(Dtype::Int8, &[0xff]), "-1");
        assert_eq!(shown(Dtype::Uint8, &[0xff]), "255");
        assert_eq!(
            shown(Dtype::Int64, &i64::MIN.to_le_bytes()),
            i64::MIN.to_string()
        );
    }

    #[test]
    fn results_wrap_or_are_rounded_as_in_their_type() {
        let integer = ElementValue::Integer;
        let sum = |dtype, a, b| integer(a).combine(dtype, Reduction::Sum, integer(b));
        assert_eq!(sum(Dtype::Int8, 100, 100), integer(-56));
        assert_eq!(sum(Dtype::Uint8, 200, 100), integer(44));
        assert_eq!(
            sum(Dtype::Int32, i32::MAX.into(), 1),
            integer(i32::MIN.into())
        );
        let single = ElementValue::Single;
        let one_more = single(256.0).combine(Dtype::Bfloat16, Reduction::Sum, single(1.0));
        assert_eq!(one_more, single(256.0));
        let average = integer(3).average_of(Dtype::Int32, 4, 12.0, integer(2), -1);
        assert_eq!(average, integer(2));
    }
}
