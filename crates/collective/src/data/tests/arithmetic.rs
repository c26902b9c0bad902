//! Reductions in each type's own arithmetic, independent of the code under test.

use half::{bf16, f16};

use crate::{Dtype, Reduction};

/// Methods of computing an average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Average {
    /// Divide the sum.
    DivideSum,
    /// Divide each part.
    DivideParts,
    /// Multiply the sum by the rounded inverse.
    MultiplySum,
    /// Multiply each part by the rounded inverse.
    MultiplyParts,
}

impl Average {
    pub const ALL: [Self; 4] = [
        Self::DivideSum,
        Self::DivideParts,
        Self::MultiplySum,
        Self::MultiplyParts,
    ];
}

/// An element type. Combining returns `None` if an integer overflows or a float is not finite.
trait Element: Copy {
    fn read(bytes: &[u8]) -> Self;
    fn bytes(self) -> Vec<u8>;
    fn combine(self, reduction: Reduction, other: Self) -> Option<Self>;
    fn divide(self, ranks: u32) -> Self;
    fn multiply_by_inverse(self, ranks: u32) -> Self;
}

macro_rules! integer {
    ($($type:ty),+) => {$(
        impl Element for $type {
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn combine(self, reduction: Reduction, other: Self) -> Option<Self> {
                match reduction {
                    Reduction::Sum | Reduction::Avg => self.checked_add(other),
                    Reduction::Prod => self.checked_mul(other),
                    Reduction::Min => Some(self.min(other)),
                    Reduction::Max => Some(self.max(other)),
                }
            }
            fn divide(self, ranks: u32) -> Self {
                (i128::from(self) / i128::from(ranks)) as Self
            }
            fn multiply_by_inverse(self, ranks: u32) -> Self {
                self.divide(ranks)
            }
        }
    )+};
}

macro_rules! float {
    ($($type:ty, $wide:ty, $widen:expr, $narrow:expr);+) => {$(
        impl Element for $type {
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn combine(self, reduction: Reduction, other: Self) -> Option<Self> {
                let (a, b): ($wide, $wide) = ($widen(self), $widen(other));
                let value = match reduction {
                    Reduction::Sum | Reduction::Avg => a + b,
                    Reduction::Prod => a * b,
                    Reduction::Min => a.min(b),
                    Reduction::Max => a.max(b),
                };
                let value: $type = $narrow(value);
                $widen(value).is_finite().then_some(value)
            }
            fn divide(self, ranks: u32) -> Self {
                $narrow($widen(self) / ranks as $wide)
            }
            fn multiply_by_inverse(self, ranks: u32) -> Self {
                let inverse: $type = $narrow(1.0 / ranks as $wide);
                $narrow($widen(self) * $widen(inverse))
            }
        }
    )+};
}

integer!(i8, u8, i32, i64);
float!(
    f32, f32, |value| value, |value| value;
    f64, f64, |value| value, |value| value;
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32
);

/// Reduces parts pairwise until one is left. `pick` chooses the pairs, so any order and grouping is possible.
///
/// `pick` gets the number of remaining parts and returns two indices. Returns `None` if a partial result overflows.
pub fn reduce(
    dtype: Dtype,
    (reduction, average): (Reduction, Average),
    parts: &[&[u8]],
    ranks: u32,
    pick: impl FnMut(usize) -> (usize, usize),
) -> Option<Vec<u8>> {
    let kind = (reduction, average);
    match dtype {
        Dtype::Float32 => run::<f32>(kind, parts, ranks, pick),
        Dtype::Float64 => run::<f64>(kind, parts, ranks, pick),
        Dtype::Float16 => run::<f16>(kind, parts, ranks, pick),
        Dtype::Bfloat16 => run::<bf16>(kind, parts, ranks, pick),
        Dtype::Int8 => run::<i8>(kind, parts, ranks, pick),
        Dtype::Uint8 => run::<u8>(kind, parts, ranks, pick),
        Dtype::Int32 => run::<i32>(kind, parts, ranks, pick),
        Dtype::Int64 => run::<i64>(kind, parts, ranks, pick),
    }
}

fn run<T: Element>(
    (reduction, average): (Reduction, Average),
    parts: &[&[u8]],
    ranks: u32,
    mut pick: impl FnMut(usize) -> (usize, usize),
) -> Option<Vec<u8>> {
    let is_average = reduction == Reduction::Avg;
    let before = |part: T| match average {
        Average::DivideParts if is_average => part.divide(ranks),
        Average::MultiplyParts if is_average => part.multiply_by_inverse(ranks),
        _ => part,
    };
    let mut parts: Vec<T> = parts.iter().map(|part| before(T::read(part))).collect();
    while parts.len() > 1 {
        let (one, other) = pick(parts.len());
        let (low, high) = (one.min(other), one.max(other));
        let taken = parts.swap_remove(high);
        parts[low] = parts[low].combine(reduction, taken)?;
    }
    let after = match average {
        Average::DivideSum if is_average => parts[0].divide(ranks),
        Average::MultiplySum if is_average => parts[0].multiply_by_inverse(ranks),
        _ => parts[0],
    };
    Some(after.bytes())
}
