//! Encoding of small integers or factors as elements of each type, in loops that compilers can vectorize.

use half::bf16;
use tonnage_sys::wide;

use super::power::{Factor, mark};
use crate::Dtype;

/// An element type of N bytes.
trait EncodeElement<const N: usize> {
    /// The type in which integers are multiplied by the scale.
    type Scale: Copy;

    /// Converts the scale. `Self::Scale` must be able to represent it.
    fn scale(scale: f64) -> Self::Scale;

    /// Encodes an integer times the scale.
    fn scaled(integer: i32, scale: Self::Scale) -> [u8; N];

    /// Encodes a factor.
    fn factor(factor: Factor) -> [u8; N];
}

/// The largest exponent of two that still leaves room for the largest odd factor.
pub fn exponent_max(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Float64 => 1023,
        Dtype::Float32 | Dtype::Bfloat16 => 127,
        Dtype::Float16 => 15,
        Dtype::Int8 | Dtype::Uint8 => 4,
        Dtype::Int32 => 16,
        Dtype::Int64 => 32,
    }
}

/// Writes integers, each multiplied by `scale`.
pub fn write_scaled(dtype: Dtype, integers: &[i32], scale: f64, out: &mut [u8]) {
    fn write<const N: usize, T: EncodeElement<N>>(integers: &[i32], scale: f64, out: &mut [u8]) {
        let scale = T::scale(scale);
        wide::run(
            out,
            #[inline(always)]
            move |out| {
                for (slot, integer) in out.as_chunks_mut::<N>().0.iter_mut().zip(integers) {
                    *slot = T::scaled(*integer, scale);
                }
            },
        );
    }
    match dtype {
        Dtype::Float32 => write::<4, f32>(integers, scale, out),
        Dtype::Float64 => write::<8, f64>(integers, scale, out),
        Dtype::Float16 => write::<2, Half>(integers, scale, out),
        Dtype::Bfloat16 => write::<2, bf16>(integers, scale, out),
        Dtype::Int8 | Dtype::Uint8 => write::<1, u8>(integers, scale, out),
        Dtype::Int32 => write::<4, i32>(integers, scale, out),
        Dtype::Int64 => write::<8, i64>(integers, scale, out),
    }
}

/// Writes factors, given as one slice of their `packed` fields and one of their `odd` fields.
pub fn write_factors(dtype: Dtype, packed: &[i32], odd: &[u32], out: &mut [u8]) {
    fn write<const N: usize, T: EncodeElement<N>>(packed: &[i32], odd: &[u32], out: &mut [u8]) {
        let factors = packed.iter().zip(odd).map(|(packed, odd)| Factor {
            packed: *packed as u32,
            odd: *odd,
        });
        wide::run(
            out,
            #[inline(always)]
            move |out| {
                for (slot, factor) in out.as_chunks_mut::<N>().0.iter_mut().zip(factors) {
                    *slot = T::factor(factor);
                }
            },
        );
    }
    match dtype {
        Dtype::Float32 => write::<4, f32>(packed, odd, out),
        Dtype::Float64 => write::<8, f64>(packed, odd, out),
        Dtype::Float16 => write::<2, Half>(packed, odd, out),
        Dtype::Bfloat16 => write::<2, bf16>(packed, odd, out),
        Dtype::Int8 => write::<1, i8>(packed, odd, out),
        Dtype::Uint8 => write::<1, u8>(packed, odd, out),
        Dtype::Int32 => write::<4, i32>(packed, odd, out),
        Dtype::Int64 => write::<8, i64>(packed, odd, out),
    }
}

/// Bits of a factor as a float32. Its significand has up to `bits` fraction bits.
#[inline(always)]
fn single(factor: Factor, bits: u32) -> u32 {
    let has_odd = 0u32.wrapping_sub(factor.packed >> mark::ODD & 1);
    let significand = (factor.odd >> (32 - bits) << (23 - bits)) & has_odd;
    let exponent = (factor.packed & 0xffff) + 127;
    (factor.packed >> mark::NEGATIVE) << 31 | exponent << 23 | significand
}

impl EncodeElement<4> for f32 {
    type Scale = f32;

    fn scale(scale: f64) -> f32 {
        scale as f32
    }

    #[inline(always)]
    fn scaled(integer: i32, scale: f32) -> [u8; 4] {
        (integer as f32 * scale).to_le_bytes()
    }

    #[inline(always)]
    fn factor(factor: Factor) -> [u8; 4] {
        single(factor, 23).to_le_bytes()
    }
}

impl EncodeElement<8> for f64 {
    type Scale = f64;

    fn scale(scale: f64) -> f64 {
        scale
    }

    #[inline(always)]
    fn scaled(integer: i32, scale: f64) -> [u8; 8] {
        (f64::from(integer) * scale).to_le_bytes()
    }

    #[inline(always)]
    fn factor(factor: Factor) -> [u8; 8] {
        let has_odd = 0u64.wrapping_sub(u64::from(factor.packed >> mark::ODD & 1));
        let significand = u64::from(factor.odd) << 20 | u64::from(factor.odd) >> 12;
        let exponent = u64::from(factor.packed & 0xffff) + 1023;
        let sign = u64::from(factor.packed >> mark::NEGATIVE) << 63;
        (sign | exponent << 52 | significand & has_odd).to_le_bytes()
    }
}

/// Float16 elements. They are converted here, because the conversions of the crate `half` query the CPU's features for
/// each element.
struct Half;

/// Converts a float32 to float16. The value must be exact in float16, and a normal number or 0.
#[inline(always)]
fn narrow(bits: u32) -> u16 {
    const BIAS_DIFFERENCE: u32 = 127 - 15;
    let magnitude = bits & 0x7fff_ffff;
    let normal = (magnitude >> 13).wrapping_sub(BIAS_DIFFERENCE << 10);
    let not_zero = 0u32.wrapping_sub(u32::from(magnitude != 0));
    (bits >> 16 & 0x8000 | normal & not_zero) as u16
}

impl EncodeElement<2> for Half {
    type Scale = f32;

    fn scale(scale: f64) -> f32 {
        scale as f32
    }

    #[inline(always)]
    fn scaled(integer: i32, scale: f32) -> [u8; 2] {
        narrow((integer as f32 * scale).to_bits()).to_le_bytes()
    }

    #[inline(always)]
    fn factor(factor: Factor) -> [u8; 2] {
        narrow(single(factor, 10)).to_le_bytes()
    }
}

impl EncodeElement<2> for bf16 {
    type Scale = f32;

    fn scale(scale: f64) -> f32 {
        scale as f32
    }

    #[inline(always)]
    fn scaled(integer: i32, scale: f32) -> [u8; 2] {
        // Truncation is exact, because the lower half is 0.
        (((integer as f32 * scale).to_bits() >> 16) as u16).to_le_bytes()
    }

    #[inline(always)]
    fn factor(factor: Factor) -> [u8; 2] {
        ((single(factor, 7) >> 16) as u16).to_le_bytes()
    }
}

macro_rules! integer {
    ($type:ty, $bytes:literal, $odd_bits:literal) => {
        impl EncodeElement<$bytes> for $type {
            type Scale = $type;

            fn scale(scale: f64) -> $type {
                scale as $type
            }

            #[inline(always)]
            fn scaled(integer: i32, scale: $type) -> [u8; $bytes] {
                (integer as $type).wrapping_mul(scale).to_le_bytes()
            }

            #[inline(always)]
            fn factor(factor: Factor) -> [u8; $bytes] {
                let random = (factor.odd >> (32 - $odd_bits) | 1) as $type;
                let has_odd = (0 as $type).wrapping_sub((factor.packed >> mark::ODD & 1) as $type);
                let magnitude = (random & has_odd | 1) << (factor.packed & 0xffff);
                let sign = (0 as $type).wrapping_sub((factor.packed >> mark::NEGATIVE) as $type);
                (magnitude ^ sign).wrapping_sub(sign).to_le_bytes()
            }
        }
    };
}

integer!(i8, 1, 3);
integer!(u8, 1, 4);
integer!(i32, 4, 15);
integer!(i64, 8, 31);

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn conversion_to_float16_agrees_with_half() {
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            if half.is_normal() || bits == 0 {
                assert_eq!(narrow(half.to_f32().to_bits()), bits);
            }
        }
    }

    #[test]
    fn largest_products_are_finite_and_have_their_odd_factor() {
        let packed = [(exponent_max(Dtype::Int8) | 1 << mark::ODD) as i32];
        let mut one = [0];
        write_factors(Dtype::Int8, &packed, &[u32::MAX], &mut one);
        assert_eq!(one, [112]);
        write_factors(Dtype::Uint8, &packed, &[u32::MAX], &mut one);
        assert_eq!(one, [240]);
        let packed = [(exponent_max(Dtype::Float16) | 1 << mark::ODD) as i32];
        let mut two = [0; 2];
        write_factors(Dtype::Float16, &packed, &[u32::MAX], &mut two);
        assert_eq!(f16::from_le_bytes(two), f16::MAX);
        let packed = [(exponent_max(Dtype::Float64) | 1 << mark::ODD) as i32];
        let mut eight = [0; 8];
        write_factors(Dtype::Float64, &packed, &[u32::MAX], &mut eight);
        assert_eq!(f64::from_le_bytes(eight), f64::MAX);
    }
}
