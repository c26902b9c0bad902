//! Conversions between f32 and f16 or bf16, without special instructions or branches, so that loops can be vectorized.

/// Converts an f16 to f32.
#[inline]
pub(super) fn from_f16(half: u16) -> f32 {
    /// Difference of the exponents' biases, as a factor; the multiplication also converts subnormals correctly.
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = u32::from(half & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * SCALE).to_bits();
    let special = magnitude | 0x7f80_0000;
    let value = if magnitude < 0x7c00 << 13 {
        finite
    } else {
        special
    };
    f32::from_bits(value | u32::from(half & 0x8000) << 16)
}

/// Rounds to the nearest f16, ties to even.
#[inline]
pub(super) fn to_f16(value: f32) -> u16 {
    /// Smallest f32 that is a normal f16, 2^-14.
    const NORMAL: u32 = 113 << 23;
    /// First f32 beyond the exponents of f16, 2^16.
    const BEYOND: u32 = (127 + 16) << 23;
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let even = (magnitude >> 13) & 1;
    // A carry goes into the exponent. The result is then the next power of two, or infinity.
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + even) >> 13;
    // The last bit of 0.5 as f32 has the value of the last bit of a subnormal f16, so the addition rounds.
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5_f32.to_bits());
    let special = if magnitude > 0x7f80_0000 {
        0x7e00
    } else {
        0x7c00
    };
    let half = if magnitude < NORMAL {
        subnormal
    } else if magnitude < BEYOND {
        normal
    } else {
        special
    };
    (half | (bits >> 16) & 0x8000) as u16
}

/// Converts a bf16 to f32.
#[inline]
pub(super) fn from_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Rounds to the nearest bf16, ties to even.
#[inline]
pub(super) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // Rounding could turn a NaN into infinity or change its sign.
    let quiet = bits | 0x0040_0000;
    ((if value.is_nan() { quiet } else { rounded }) >> 16) as u16
}
