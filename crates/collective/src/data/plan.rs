//! Reductions: the data of a type, a reduction and a number of ranks.
//!
//! | reduction | parts |
//! | --- | --- |
//! | sum | small integers ([`super::spread`]), times a constant where the type is wider than 32 bits, with a random sign |
//! | prod | powers of two and a random factor ([`super::power`]) |
//! | min, max | one rank has the extreme ([`super::extreme`]) |
//! | avg of integers | n times the parts of a sum: each part can be divided exactly, and so can the sum |
//! | avg of floats | of 2^k ranks the parts of a sum, else plus or minus one magnitude ([`super::balanced`]) |
//!
//! An average of 8-bit integers over more ranks than their largest value has no data that shows anything: it is less
//! than 1. There, the sum is less than half the number of ranks, and 0 is expected.

use tonnage_sys::wide;

use super::balanced::{Balanced, integers_max};
use super::extreme::{Extreme, rank_key};
use super::hash::{ElementRun, Random};
use super::lane;
use super::power::{Factor, Power};
use super::spread::PlaceSpread;
use crate::{Dtype, Reduction};

/// Largest sum before it is multiplied: it must fit an `i32`.
const INTEGER_MAX: u32 = i32::MAX as u32;

/// Odd multiplier of 64-bit types' sums, so that their upper bytes are used: float64 has integers up to 2^53.
const FLOAT64_SCALE: u32 = (1 << 22) - 1;
const INT64_SCALE: u32 = u32::MAX;

/// Multiplier of averages of float16 over 2^k ranks: the parts' 2^k-th stays a normal number.
const FLOAT16_AVG_SCALE: u32 = 16;

#[derive(Debug, Clone, Copy)]
enum Kernel {
    PlaceSpread(PlaceSpread, Sign),
    Balanced(Balanced),
    Extreme(Extreme),
    Power(Power),
}

/// -1 where elements have a random sign, else 0.
type Sign = i32;

/// Data of a type, a reduction and a number of ranks.
#[derive(Debug, Clone, Copy)]
pub struct DataPlan {
    dtype: Dtype,
    kernel: Kernel,
    /// Numbers that integers are multiplied by: in a part, the sum, the result.
    part_scale: f64,
    total_scale: f64,
    expected_scale: f64,
}

/// Place for a run of elements before they become bytes.
pub struct Lanes {
    integers: [i32; super::hash::RUN],
    odd: [u32; super::hash::RUN],
}

impl Lanes {
    /// A place.
    pub fn new() -> Self {
        Self {
            integers: [0; super::hash::RUN],
            odd: [0; super::hash::RUN],
        }
    }
}

impl DataPlan {
    /// Data of a type, a reduction and a number of ranks, at least one.
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

    fn of(dtype: Dtype, kernel: Kernel, scale: f64) -> Self {
        Self {
            dtype,
            kernel,
            part_scale: scale,
            total_scale: scale,
            expected_scale: scale,
        }
    }

    fn sum(dtype: Dtype, ranks: u32) -> Self {
        let spread = PlaceSpread::new(ranks, sum_max(dtype));
        let scale = match dtype {
            Dtype::Float64 => FLOAT64_SCALE,
            Dtype::Int64 => INT64_SCALE,
            _ => 1,
        };
        Self::of(
            dtype,
            Kernel::PlaceSpread(spread, sign(dtype)),
            f64::from(scale),
        )
    }

    fn prod(dtype: Dtype, ranks: u32) -> Self {
        let power = Power::new(ranks, lane::exponent_max(dtype), dtype != Dtype::Uint8);
        Self::of(dtype, Kernel::Power(power), 1.0)
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
        Self::of(dtype, kernel, f64::from(scale))
    }

    fn avg_of_floats(dtype: Dtype, ranks: u32) -> Self {
        if !ranks.is_power_of_two() {
            let balanced = Balanced::new(dtype, ranks);
            return Self {
                total_scale: balanced.total_scale(),
                expected_scale: balanced.expected_scale(dtype),
                ..Self::of(dtype, Kernel::Balanced(balanced), 1.0)
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
        // Of a 64-bit type the multiplier takes the room that n needs.
        let (room, scale) = match dtype {
            Dtype::Int64 => (INTEGER_MAX, INT64_SCALE / ranks),
            _ => (sum_max(dtype) / ranks, 1),
        };
        if room == 0 {
            let spread = PlaceSpread::new(ranks, sum_max(dtype).min((ranks - 1) / 2));
            return Self {
                expected_scale: 0.0,
                ..Self::of(dtype, Kernel::PlaceSpread(spread, 0), 1.0)
            };
        }
        let kernel = Kernel::PlaceSpread(PlaceSpread::new(ranks, room), sign(dtype));
        let sum_scale = f64::from(scale) * f64::from(ranks);
        Self {
            expected_scale: f64::from(scale),
            ..Self::of(dtype, kernel, sum_scale)
        }
    }

    /// Writes the parts of a rank, which has a place in the run's circle, of the elements from one of the run on.
    pub fn part(
        &self,
        (run, first): (&ElementRun, u32),
        (rank, place): (u32, u32),
        lanes: &mut Lanes,
        out: &mut [u8],
    ) {
        let count = out.len() / self.dtype.bytes() as usize;
        let integers = &mut lanes.integers[..count];
        match self.kernel {
            Kernel::PlaceSpread(spread, sign) => each(run, first, integers, move |random| {
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
                let odd = &mut lanes.odd[..count];
                each_factor(run, first, (integers, odd), move |random| {
                    kernel.part(random, place)
                });
                return lane::write_factors(self.dtype, integers, odd, out);
            }
        }
        lane::write_scaled(self.dtype, integers, self.part_scale, out);
    }

    /// Writes the results of the elements from one of the run on.
    pub fn expected(&self, run: &ElementRun, first: u32, lanes: &mut Lanes, out: &mut [u8]) {
        let count = out.len() / self.dtype.bytes() as usize;
        if let Kernel::Power(kernel) = self.kernel {
            let (integers, odd) = (&mut lanes.integers[..count], &mut lanes.odd[..count]);
            each_factor(run, first, (integers, odd), move |random| {
                kernel.total(random)
            });
            return lane::write_factors(self.dtype, integers, odd, out);
        }
        let integers = &mut lanes.integers[..count];
        self.totals(run, first, integers);
        lane::write_scaled(self.dtype, integers, self.expected_scale, out);
    }

    fn totals(&self, run: &ElementRun, first: u32, integers: &mut [i32]) {
        match self.kernel {
            Kernel::PlaceSpread(spread, sign) => each(run, first, integers, move |random| {
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

    /// The sum that an average is made of, of one element.
    pub fn sum_of(&self, run: &ElementRun, first: u32) -> f64 {
        let mut total = [0];
        self.totals(run, first, &mut total);
        f64::from(total[0]) * self.total_scale
    }

    /// Share of the elements in which the result would be another one without a rank's part.
    pub fn share(&self) -> f64 {
        match self.kernel {
            Kernel::PlaceSpread(..) if self.expected_scale == 0.0 => 0.0,
            Kernel::PlaceSpread(spread, _) => spread.share(),
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

/// Returns whether elements are floating-point numbers.
pub fn is_float(dtype: Dtype) -> bool {
    matches!(
        dtype,
        Dtype::Float32 | Dtype::Float64 | Dtype::Float16 | Dtype::Bfloat16
    )
}

/// Largest sum of small integers that is exact in a type whatever their order.
fn sum_max(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Int8 => 127,
        Dtype::Uint8 => 255,
        Dtype::Int32 | Dtype::Int64 | Dtype::Float64 => INTEGER_MAX,
        Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16 => integers_max(dtype) as u32,
    }
}
