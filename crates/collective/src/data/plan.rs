//! The data for each type, reduction and number of ranks.
//!
//! | reduction | parts |
//! | --- | --- |
//! | sum | small integers ([`super::spread`]), times a constant if the type is wider than 32 bits, with a random sign |
//! | prod | powers of two and a random factor ([`super::power`]) |
//! | min, max | one rank has the extreme ([`super::extreme`]) |
//! | avg of integers | n times the parts of a sum, so that each part and the sum are divisible by n |
//! | avg of floats | for 2^k ranks the parts of a sum, else parts of equal magnitude ([`super::balanced`]) |
//!
//! If 8-bit integers are averaged over more ranks than their largest value, no data can verify the average. Then the
//! sum is less than half the number of ranks, and the expected average is 0.

use tonnage_sys::wide;

use super::balanced::{Balanced, integers_max};
use super::encode;
use super::extreme::{Extreme, rank_key};
use super::hash::{ElementRun, Random};
use super::power::{Factor, Power};
use super::spread::RankSpread;
use crate::{Dtype, Reduction};

/// The largest sum before scaling. It fits an `i32`.
const INTEGER_MAX: u32 = i32::MAX as u32;

/// Odd multiplier for sums of 64-bit types, so that their upper bytes are used too. Sums of float64 must stay below
/// 2^53, because float64 represents all integers only up to there.
const FLOAT64_SCALE: u32 = (1 << 22) - 1;
const INT64_SCALE: u32 = u32::MAX;

/// Multiplier for float16 averages over 2^k ranks. With it, a part divided by 2^k remains a normal number.
const FLOAT16_AVG_SCALE: u32 = 16;

#[derive(Debug, Clone, Copy)]
enum Kernel {
    RankSpread(RankSpread, Sign),
    Balanced(Balanced),
    Extreme(Extreme),
    Power(Power),
}

/// -1 if elements have a random sign, otherwise 0.
type Sign = i32;

/// How the data for a type, a reduction and a number of ranks is generated.
#[derive(Debug, Clone, Copy)]
pub struct DataPlan {
    dtype: Dtype,
    kernel: Kernel,
    /// Factors by which integers are multiplied to get elements: for parts, for sums and for results.
    part_scale: f64,
    total_scale: f64,
    expected_scale: f64,
}

/// Buffer for a run of elements before they are encoded.
pub struct ElementBuffer {
    integers: [i32; super::hash::RUN],
    odd: [u32; super::hash::RUN],
}

impl ElementBuffer {
    /// Allocates a zeroed buffer.
    pub fn new() -> Self {
        Self {
            integers: [0; super::hash::RUN],
            odd: [0; super::hash::RUN],
        }
    }
}

impl DataPlan {
    /// The data for a type, a reduction and a number of ranks, which must be at least one.
    pub fn new(dtype: Dtype, reduction: Reduction, ranks: u32) -> Self {
        match reduction {
            Reduction::Sum => Self::sum(dtype, ranks),
            Reduction::Prod => Self::prod(dtype, ranks),
            Reduction::Min => Self::extreme(dtype, ranks, true),
            Reduction::Max => Self::extreme(dtype, ranks, false),
            Reduction::Avg if is_float(dtype) => Self::avg_of_floats(dtype, ranks),
            Reduction::Avg => Self::avg_of_integers(dtype, ranks),
        }
    }

    fn with_scale(dtype: Dtype, kernel: Kernel, scale: f64) -> Self {
        Self {
            dtype,
            kernel,
            part_scale: scale,
            total_scale: scale,
            expected_scale: scale,
        }
    }

    fn sum(dtype: Dtype, ranks: u32) -> Self {
        let spread = RankSpread::new(ranks, sum_max(dtype));
        let scale = match dtype {
            Dtype::Float64 => FLOAT64_SCALE,
            Dtype::Int64 => INT64_SCALE,
            _ => 1,
        };
        Self::with_scale(
            dtype,
            Kernel::RankSpread(spread, sign(dtype)),
            f64::from(scale),
        )
    }

    fn prod(dtype: Dtype, ranks: u32) -> Self {
        let power = Power::new(ranks, encode::exponent_max(dtype), dtype != Dtype::Uint8);
        Self::with_scale(dtype, Kernel::Power(power), 1.0)
    }

    fn extreme(dtype: Dtype, ranks: u32, is_minimum: bool) -> Self {
        let (least, largest) = match dtype {
            Dtype::Uint8 => (0, 255),
            Dtype::Int8 | Dtype::Bfloat16 => (-128, 127),
            Dtype::Float16 => (-1024, 1023),
            Dtype::Float32 => (-(1 << 23), (1 << 23) - 1),
            Dtype::Float64 | Dtype::Int32 | Dtype::Int64 => (i32::MIN, i32::MAX),
        };
        let scale = match dtype {
            Dtype::Float64 => FLOAT64_SCALE / 2,
            Dtype::Int64 => INT64_SCALE,
            _ => 1,
        };
        let kernel = Kernel::Extreme(Extreme::new(ranks, least, largest, is_minimum));
        Self::with_scale(dtype, kernel, f64::from(scale))
    }

    fn avg_of_floats(dtype: Dtype, ranks: u32) -> Self {
        if !ranks.is_power_of_two() {
            let balanced = Balanced::new(dtype, ranks);
            return Self {
                total_scale: balanced.total_scale(),
                expected_scale: balanced.expected_scale(dtype),
                ..Self::with_scale(dtype, Kernel::Balanced(balanced), 1.0)
            };
        }
        let mut plan = Self::sum(dtype, ranks);
        if dtype == Dtype::Float16 {
            plan.part_scale = f64::from(FLOAT16_AVG_SCALE);
        }
        plan.total_scale = plan.part_scale;
        plan.expected_scale = plan.part_scale / f64::from(ranks);
        plan
    }

    fn avg_of_integers(dtype: Dtype, ranks: u32) -> Self {
        // The factor n needs room in the type. For int64, the multiplier is reduced for this; for other types, the
        // parts are.
        let (room, scale) = match dtype {
            Dtype::Int64 => (INTEGER_MAX, INT64_SCALE / ranks),
            _ => (sum_max(dtype) / ranks, 1),
        };
        if room == 0 {
            let spread = RankSpread::new(ranks, sum_max(dtype).min((ranks - 1) / 2));
            return Self {
                expected_scale: 0.0,
                ..Self::with_scale(dtype, Kernel::RankSpread(spread, 0), 1.0)
            };
        }
        let kernel = Kernel::RankSpread(RankSpread::new(ranks, room), sign(dtype));
        let sum_scale = f64::from(scale) * f64::from(ranks);
        Self {
            expected_scale: f64::from(scale),
            ..Self::with_scale(dtype, kernel, sum_scale)
        }
    }

    /// Writes a rank's parts for the elements of a run, starting at element `first`. `place` is the rank's place in the
    /// circle (see `spread`).
    pub fn part(
        &self,
        (run, first): (&ElementRun, u32),
        (rank, place): (u32, u32),
        buffer: &mut ElementBuffer,
        out: &mut [u8],
    ) {
        let count = out.len() / self.dtype.bytes() as usize;
        let integers = &mut buffer.integers[..count];
        match self.kernel {
            Kernel::RankSpread(spread, sign) => each(run, first, integers, move |random| {
                let part = spread.part(random, spread.seat(random, place));
                signed(random, part, sign)
            }),
            Kernel::Balanced(kernel) => {
                each(run, first, integers, move |random| {
                    kernel.part(random, place)
                });
            }
            Kernel::Extreme(kernel) => {
                let key = rank_key(rank);
                each(run, first, integers, move |random| {
                    kernel.part(random, place, key)
                });
            }
            Kernel::Power(kernel) => {
                let odd = &mut buffer.odd[..count];
                each_factor(run, first, (integers, odd), move |random| {
                    kernel.part(random, place)
                });
                return encode::write_factors(self.dtype, integers, odd, out);
            }
        }
        encode::write_scaled(self.dtype, integers, self.part_scale, out);
    }

    /// Writes the results for the elements of a run, starting at element `first`.
    pub fn expected(
        &self,
        run: &ElementRun,
        first: u32,
        buffer: &mut ElementBuffer,
        out: &mut [u8],
    ) {
        let count = out.len() / self.dtype.bytes() as usize;
        if let Kernel::Power(kernel) = self.kernel {
            let (integers, odd) = (&mut buffer.integers[..count], &mut buffer.odd[..count]);
            each_factor(run, first, (integers, odd), move |random| {
                kernel.total(random)
            });
            return encode::write_factors(self.dtype, integers, odd, out);
        }
        let integers = &mut buffer.integers[..count];
        self.totals(run, first, integers);
        encode::write_scaled(self.dtype, integers, self.expected_scale, out);
    }

    fn totals(&self, run: &ElementRun, first: u32, integers: &mut [i32]) {
        match self.kernel {
            Kernel::RankSpread(spread, sign) => each(run, first, integers, move |random| {
                signed(random, spread.total(random), sign)
            }),
            Kernel::Balanced(kernel) => {
                each(run, first, integers, move |random| kernel.total(random))
            }
            Kernel::Extreme(kernel) => {
                each(run, first, integers, move |random| kernel.total(random))
            }
            Kernel::Power(_) => {}
        }
    }

    /// The sum before averaging, for one element.
    pub fn undivided_sum(&self, run: &ElementRun, first: u32) -> f64 {
        let mut total = [0];
        self.totals(run, first, &mut total);
        f64::from(total[0]) * self.total_scale
    }

    /// Fraction of the results that would differ without a given rank's part.
    pub fn share(&self) -> f64 {
        match self.kernel {
            Kernel::RankSpread(..) if self.expected_scale == 0.0 => 0.0,
            Kernel::RankSpread(spread, _) => spread.share(),
            Kernel::Balanced(kernel) => kernel.share(),
            Kernel::Extreme(kernel) => kernel.share(),
            Kernel::Power(kernel) => kernel.share(),
        }
    }
}

#[inline(always)]
fn each(run: &ElementRun, first: u32, integers: &mut [i32], value: impl Fn(Random) -> i32) {
    let run = *run;
    wide::run(
        integers,
        #[inline(always)]
        move |integers| {
            for (index, integer) in integers.iter_mut().enumerate() {
                *integer = value(run.random(first + index as u32));
            }
        },
    );
}

#[inline(always)]
fn each_factor(
    run: &ElementRun,
    first: u32,
    (packed, odd): (&mut [i32], &mut [u32]),
    value: impl Fn(Random) -> Factor,
) {
    let run = *run;
    wide::run(
        packed,
        #[inline(always)]
        move |packed| {
            for (index, (packed, odd)) in packed.iter_mut().zip(odd).enumerate() {
                let factor = value(run.random(first + index as u32));
                (*packed, *odd) = (factor.packed as i32, factor.odd);
            }
        },
    );
}

#[inline(always)]
fn signed(random: Random, magnitude: u32, sign: Sign) -> i32 {
    let negative = -((random.value & 1) as i32) & sign;
    (magnitude as i32 ^ negative) - negative
}

fn sign(dtype: Dtype) -> Sign {
    -i32::from(dtype != Dtype::Uint8)
}

/// Whether elements are floating-point numbers.
pub fn is_float(dtype: Dtype) -> bool {
    matches!(
        dtype,
        Dtype::Float32 | Dtype::Float64 | Dtype::Float16 | Dtype::Bfloat16
    )
}

/// The largest sum of small integers that is exact in a type in any order.
fn sum_max(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Int8 => 127,
        Dtype::Uint8 => 255,
        Dtype::Int32 | Dtype::Int64 | Dtype::Float64 => INTEGER_MAX,
        Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16 => integers_max(dtype) as u32,
    }
}
