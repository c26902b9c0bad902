//! Kernels for NEON, which every 64-bit Arm CPU has, 16 bytes at a time. A shorter remainder is folded in a copy on the
//! stack.

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use super::number::{Fold, Number};
use super::operands::{Dividing, Folding, Operands, divides, folds, typed, walk};
use super::portable;
use crate::copy::Method;

/// Whether the CPU has the feature that these kernels need.
pub(super) fn available() -> bool {
    is_aarch64_feature_detected!("neon")
}

/// # Safety
/// 16 bytes must be readable `AT` bytes behind `from`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load<const AT: usize>(from: *const u8) -> uint8x16_t {
    let value;
    // SAFETY: reads only the bytes that the caller promised, and has no other effect.
    unsafe {
        asm!(
            "ldr {value:q}, [{from}, #{at}]",
            value = lateout(vreg) value,
            from = in(reg) from,
            at = const AT,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// # Safety
/// 16 bytes must be writable `AT` bytes behind `to`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store<const AT: usize>(to: *mut u8, value: uint8x16_t) {
    // SAFETY: writes only the bytes that the caller promised, and has no other effect.
    unsafe {
        asm!(
            "str {value:q}, [{to}, #{at}]",
            to = in(reg) to,
            at = const AT,
            value = in(vreg) value,
            options(nostack, preserves_flags)
        );
    }
}

/// Folds fewer bytes than a register holds.
///
/// # Safety
/// The conditions of [`Operands`], with 1 to 15 bytes; the CPU must have the feature.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn fold_partial_register(all: Operands, op: &impl Fn(uint8x16_t, uint8x16_t) -> uint8x16_t) {
    let (mut one, mut other) = ([0_u8; 16], [0_u8; 16]);
    // SAFETY: the copies are of `bytes` bytes, which the caller promised and the buffers hold.
    unsafe {
        Method::Memcpy.copy(all.one, one.as_mut_ptr(), all.bytes);
        Method::Memcpy.copy(all.other, other.as_mut_ptr(), all.bytes);
        let result = op(load::<0>(one.as_ptr()), load::<0>(other.as_ptr()));
        store::<0>(one.as_mut_ptr(), result);
        Method::Memcpy.copy(one.as_ptr(), all.to, all.bytes);
    }
}

walk!("neon", uint8x16_t);

typed! { "neon":
    walk_f32: float32x4_t, vreinterpretq_f32_u8, vreinterpretq_u8_f32;
    walk_f64: float64x2_t, vreinterpretq_f64_u8, vreinterpretq_u8_f64;
    walk_i8: int8x16_t, vreinterpretq_s8_u8, vreinterpretq_u8_s8;
    walk_i32: int32x4_t, vreinterpretq_s32_u8, vreinterpretq_u8_s32;
    walk_i64: int64x2_t, vreinterpretq_s64_u8, vreinterpretq_u8_s64;
}

/// Converts in assembly, because the intrinsics of f16 are not stable in Rust.
///
/// # Safety
/// As for `walk`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn walk_f16(all: Operands, op: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) {
    let wide = |halves: uint8x16_t| {
        let (low, high): (float32x4_t, float32x4_t);
        // SAFETY: changes only the two output registers.
        unsafe {
            asm!(
                "fcvtl {low:v}.4s, {halves:v}.4h",
                "fcvtl2 {high:v}.4s, {halves:v}.8h",
                low = out(vreg) low,
                high = lateout(vreg) high,
                halves = in(vreg) halves,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        (low, high)
    };
    let narrow = |low: float32x4_t, high: float32x4_t| {
        let halves: uint8x16_t;
        // SAFETY: changes only the output register.
        unsafe {
            asm!(
                "fcvtn {halves:v}.4h, {low:v}.4s",
                "fcvtn2 {halves:v}.8h, {high:v}.4s",
                halves = out(vreg) halves,
                low = in(vreg) low,
                high = in(vreg) high,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        halves
    };
    // SAFETY: the caller's promise is passed on.
    unsafe {
        walk(all, |a, b| {
            let ((a_low, a_high), (b_low, b_high)) = (wide(a), wide(b));
            narrow(op(a_low, b_low), op(a_high, b_high))
        });
    }
}

/// Converts even and odd elements to f32 separately, in place.
///
/// # Safety
/// As for `walk`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn walk_bf16(all: Operands, op: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) {
    let upper_half = vdupq_n_u32(0xffff_0000);
    let even = |a| vreinterpretq_f32_u32(vshlq_n_u32::<16>(vreinterpretq_u32_u8(a)));
    let odd = |a| vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(a), upper_half));
    // SAFETY: the caller's promise is passed on.
    unsafe {
        walk(all, |a, b| {
            let low = vshrq_n_u32::<16>(rounded_bf16(op(even(a), even(b))));
            let high = vandq_u32(rounded_bf16(op(odd(a), odd(b))), upper_half);
            vreinterpretq_u8_u32(vorrq_u32(low, high))
        });
    }
}

/// Rounds each element to bf16 in its upper half, like `halves::to_bf16`; the lower half is undefined.
#[inline]
#[target_feature(enable = "neon")]
fn rounded_bf16(value: float32x4_t) -> uint32x4_t {
    let bits = vreinterpretq_u32_f32(value);
    let even = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
    let rounded = vaddq_u32(bits, vaddq_u32(even, vdupq_n_u32(0x7fff)));
    let quiet = vorrq_u32(bits, vdupq_n_u32(0x0040_0000));
    vbslq_u32(vceqq_f32(value, value), rounded, quiet)
}

#[inline]
#[target_feature(enable = "neon")]
fn product_64(a: int64x2_t, b: int64x2_t) -> int64x2_t {
    let low = vgetq_lane_s64::<0>(a).wrapping_mul(vgetq_lane_s64::<0>(b));
    let high = vgetq_lane_s64::<1>(a).wrapping_mul(vgetq_lane_s64::<1>(b));
    vcombine_s64(vdup_n_s64(low), vdup_n_s64(high))
}

#[inline]
#[target_feature(enable = "neon")]
fn minimum_i64(a: int64x2_t, b: int64x2_t) -> int64x2_t {
    vbslq_s64(vcgtq_s64(a, b), b, a)
}

#[inline]
#[target_feature(enable = "neon")]
fn maximum_i64(a: int64x2_t, b: int64x2_t) -> int64x2_t {
    vbslq_s64(vcgtq_s64(a, b), a, b)
}

// NEON's float minimum and maximum follow IEEE 754-2019.
folds! {
    #[target_feature(enable = "neon")]
    F32 f32s: walk_f32 [vaddq_f32, vmulq_f32, vminq_f32, vmaxq_f32],
    F64 f64s: walk_f64 [vaddq_f64, vmulq_f64, vminq_f64, vmaxq_f64],
    F16 f16s: walk_f16 [vaddq_f32, vmulq_f32, vminq_f32, vmaxq_f32],
    Bf16 bf16s: walk_bf16 [vaddq_f32, vmulq_f32, vminq_f32, vmaxq_f32],
    I8 i8s: walk_i8 [vaddq_s8, vmulq_s8, vminq_s8, vmaxq_s8],
    U8 u8s: walk [vaddq_u8, vmulq_u8, vminq_u8, vmaxq_u8],
    I32 i32s: walk_i32 [vaddq_s32, vmulq_s32, vminq_s32, vmaxq_s32],
    I64 i64s: walk_i64 [vaddq_s64, product_64, minimum_i64, maximum_i64],
}

divides! {
    #[target_feature(enable = "neon")]
    F32 f32s_by: walk_f32, |a, by| vdivq_f32(a, vdupq_n_f32(by as f32)),
    F64 f64s_by: walk_f64, |a, by| vdivq_f64(a, vdupq_n_f64(by.into())),
    F16 f16s_by: walk_f16, |a, by| vdivq_f32(a, vdupq_n_f32(by as f32)),
    Bf16 bf16s_by: walk_bf16, |a, by| vdivq_f32(a, vdupq_n_f32(by as f32)),
    _ => portable::dividing,
}
