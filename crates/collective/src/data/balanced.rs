//! Inputs for averages of floating-point numbers. The result must be the same whether a library divides the sum,
//! divides each rank's part, or multiplies the sum or the parts by the rounded 1/n.
//!
//! All parts of an element have the same magnitude. The negative parts cancel most positive ones; one or two positive
//! parts remain. For n = odd · 2^j, the magnitude is κ · odd · 2^a. The integer κ is chosen so that κ · odd times the
//! rounded 1/n rounds to exactly κ / 2^j ([`is_exact`] tries all methods). In any order, partial sums are small
//! multiples of the magnitude.
//!
//! If partial sums over all ranks would be too large to be exact with any κ, only three ranks contribute: +2^a, +2^a
//! and -2^a. 2^a times the rounded 1/n is the rounded 2^a / n, and sums of up to twice that are exact. (For float16 and
//! more than 2^14 ranks, 1/n is not a normal number. A library that rounds 1/n to float16 then gets a different
//! result.)
//!
//! None of this is needed if the number of ranks is a power of two: then division is exact, and so is 1/n.

use half::{bf16, f16};

use super::hash::{Random, scale};
use super::spread::seat;
use crate::Dtype;

/// If three ranks contribute: the least exponent of the magnitude, and the number of exponents. 2^a / n is a normal
/// float16 for all supported numbers of ranks, and three times 2^a is finite.
const EXPONENTS_OF_THREE: (u32, u32) = (7, 8);

/// Parts of equal magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balanced {
    ranks: u32,
    /// Number of ranks with a nonzero part.
    givers: u32,
    /// The odd factor of the number of ranks, or 1 if three ranks contribute.
    factor: i32,
    /// Least κ, and number of values of κ.
    kappa: (u32, u32),
    /// Least exponent a, and number of values of a.
    exponents: (u32, u32),
}

impl Balanced {
    /// Parts of `ranks` ranks, which must not be a power of two.
    pub fn new(dtype: Dtype, ranks: u32) -> Self {
        let odd = ranks >> ranks.trailing_zeros();
        // A partial sum is less than `ranks / 2 + 3` parts, even if one part is counted twice.
        let multiples = (u64::from(ranks / 2) + 3) * u64::from(odd);
        // κ · odd · 2^a must also fit an i32.
        let room = (integers_max(dtype) / multiples).min((1 << 23) / u64::from(odd));
        match kappas(dtype, ranks, room as u32) {
            Some(kappa) => Self {
                ranks,
                givers: ranks,
                factor: odd as i32,
                kappa,
                exponents: (0, if dtype == Dtype::Float16 { 5 } else { 8 }),
            },
            None => Self {
                ranks,
                givers: 3,
                factor: 1,
                kappa: (1, 1),
                exponents: EXPONENTS_OF_THREE,
            },
        }
    }

    /// Magnitude of an element in units of the factor, with a random sign.
    #[inline(always)]
    fn unit(&self, random: Random) -> i32 {
        let kappa = self.kappa.0 + scale(random.value, self.kappa.1);
        let exponent = self.exponents.0 + scale(random.count, self.exponents.1);
        let sign = -((random.value & 1) as i32);
        ((kappa << exponent) as i32 ^ sign) - sign
    }

    /// The part of the rank at `place` in the circle (see `spread`).
    #[inline(always)]
    pub fn part(&self, random: Random, place: u32) -> i32 {
        let seat = seat(random, place, self.ranks);
        let negative = -i32::from(seat < (self.givers - 1) / 2);
        let gives = -i32::from(seat < self.givers);
        (((self.unit(random) * self.factor) ^ negative) - negative) & gives
    }

    /// The sum of all parts, divided by the factor.
    #[inline(always)]
    pub fn total(&self, random: Random) -> i32 {
        self.unit(random) * (2 - (self.givers & 1) as i32)
    }

    /// The sum is [`total`](Self::total) times this.
    pub fn total_scale(&self) -> f64 {
        f64::from(self.factor)
    }

    /// The rounded average is [`total`](Self::total) times this.
    pub fn expected_scale(&self, dtype: Dtype) -> f64 {
        // Computed at the smallest exponent in use, because 1/n alone may not be a normal number. Rounded through
        // float32, as libraries do for 16-bit types. For float16 this changes the result for six numbers of ranks up to
        // 65,536. The smallest of them is 8283.
        let least = f64::from(1 << self.exponents.0);
        let quotient = least * f64::from(self.factor) / f64::from(self.ranks);
        let quotient = match dtype {
            Dtype::Float64 => quotient,
            _ => f64::from(quotient as f32),
        };
        round(dtype, quotient) / least
    }

    /// Fraction of the elements for which a given rank's part is not 0.
    pub fn share(&self) -> f64 {
        f64::from(self.givers) / f64::from(self.ranks)
    }
}

/// The largest integer up to which a floating-point type represents all integers.
pub fn integers_max(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::Float64 => 1 << 53,
        Dtype::Float16 => 1 << 11,
        Dtype::Bfloat16 => 1 << 8,
        _ => 1 << 24,
    }
}

/// Rounds to the nearest value of the type.
pub fn round(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::Float16 => f16::from_f32(odd_single(value)).to_f64(),
        Dtype::Bfloat16 => bf16::from_f32(odd_single(value)).to_f64(),
        Dtype::Float32 => f64::from(value as f32),
        _ => value,
    }
}

/// Converts `value` to a float32. Rounding this float32 to a narrower type gives the same result as rounding `value`.
/// If `value` is not exact in float32, the result is the neighbour with an odd last bit, which is never halfway between
/// two values of the narrower type. (The conversion from float64 in `half` is less precise: it drops the lower half of
/// the significand.)
fn odd_single(value: f64) -> f32 {
    let nearest = value as f32;
    let is_odd = nearest.to_bits() & 1 == 1;
    if f64::from(nearest) == value || is_odd || !nearest.is_finite() {
        return nearest;
    }
    let is_nearer_zero = f64::from(nearest).abs() < value.abs();
    let step = if is_nearer_zero { 1 } else { u32::MAX };
    f32::from_bits(nearest.to_bits().wrapping_add(step))
}

/// Finds consecutive exact values of κ up to `kappa_max`, and returns the least one and their number. Of the ranges
/// with at least `MANY` values, returns the one with the largest values. If there is none, returns the longest range.
fn kappas(dtype: Dtype, ranks: u32, kappa_max: u32) -> Option<(u32, u32)> {
    const EXPONENT_MAX: u32 = 8;
    const MANY: u32 = 32;
    let leasts = (0..=EXPONENT_MAX).rev();
    let leasts = leasts.flat_map(|exponent| [1 << exponent, (1 << exponent) + 1]);
    let mut most: Option<(u32, u32)> = None;
    for least in leasts {
        let end = kappa_max.min(2 * least);
        let exact = (least..=end).take_while(|kappa| is_exact(dtype, ranks, *kappa));
        let count = exact.count() as u32;
        if count > most.map_or(0, |(_, count)| count) {
            most = Some((least, count));
        }
        if count >= MANY {
            break;
        }
    }
    most
}

/// Whether κ · odd divided by the number of ranks is exact with every method: by division, or by multiplication with an
/// inverse. The inverse may be rounded to the type, to float32 or to float64, and the product likewise.
pub fn is_exact(dtype: Dtype, ranks: u32, kappa: u32) -> bool {
    let exponent = ranks.trailing_zeros();
    let part = f64::from(kappa) * f64::from(ranks >> exponent);
    let exact = f64::from(kappa) / f64::from(1 << exponent);
    let inverse = 1.0 / f64::from(ranks);
    let in_single = f64::from(part as f32 * inverse as f32);
    let products = [
        part * inverse,
        match dtype {
            Dtype::Float64 => part * inverse,
            _ => in_single,
        },
        part * round(dtype, inverse),
    ];
    round(dtype, part) == part
        && products
            .iter()
            .all(|product| round(dtype, *product) == exact)
}
