//! Kernels for AVX2 and F16C, 32 bytes at a time. A shorter remainder is folded in a copy on the stack.

use std::arch::asm;
use std::arch::x86_64::*;

use super::number::{Fold, Number};
use super::operands::{
    Dividing, Folding, Operands, divides, folds, register_extremes, typed, walk,
};
use super::portable;
use crate::copy::Method;

/// Whether the CPU has the features that these kernels need.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

/// # Safety
/// 32 bytes must be readable `AT` bytes behind `from`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load<const AT: usize>(from: *const u8) -> __m256i {
    let value;
    // SAFETY: reads only the bytes that the caller promised, and has no other effect.
    unsafe {
        asm!(
            "vmovdqu {value}, ymmword ptr [{from} + {at}]",
            value = lateout(ymm_reg) value,
            from = in(reg) from,
            at = const AT,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// # Safety
/// 32 bytes must be writable `AT` bytes behind `to`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<const AT: usize>(to: *mut u8, value: __m256i) {
    // SAFETY: writes only the bytes that the caller promised, and has no other effect.
    unsafe {
        asm!(
            "vmovdqu ymmword ptr [{to} + {at}], {value}",
            to = in(reg) to,
            at = const AT,
            value = in(ymm_reg) value,
            options(nostack, preserves_flags)
        );
    }
}

/// Folds fewer bytes than a register holds.
///
/// # Safety
/// The conditions of [`Operands`], with 1 to 31 bytes; the CPU must have the features.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn fold_partial_register(all: Operands, op: &impl Fn(__m256i, __m256i) -> __m256i) {
    let (mut one, mut other) = ([0_u8; 32], [0_u8; 32]);
    // SAFETY: the copies are of `bytes` bytes, which the caller promised and the buffers hold.
    unsafe {
        Method::Memcpy.copy(all.one, one.as_mut_ptr(), all.bytes);
        Method::Memcpy.copy(all.other, other.as_mut_ptr(), all.bytes);
        let result = op(load::<0>(one.as_ptr()), load::<0>(other.as_ptr()));
        store::<0>(one.as_mut_ptr(), result);
        Method::Memcpy.copy(one.as_ptr(), all.to, all.bytes);
    }
}

walk!("avx2,f16c", __m256i);

typed! { "avx2,f16c":
    walk_f32: __m256, _mm256_castsi256_ps, _mm256_castps_si256;
    walk_f64: __m256d, _mm256_castsi256_pd, _mm256_castpd_si256;
}

/// # Safety
/// As for `walk`, here and below.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn walk_f16(all: Operands, op: impl Fn(__m256, __m256) -> __m256) {
    let lower = |a| _mm256_cvtph_ps(_mm256_castsi256_si128(a));
    let upper = |a| _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(a));
    let narrow = |a| _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a);
    // SAFETY: the caller's promise is passed on.
    unsafe {
        walk(all, |a, b| {
            let low = narrow(op(lower(a), lower(b)));
            let high = narrow(op(upper(a), upper(b)));
            _mm256_set_m128i(high, low)
        });
    }
}

/// Converts even and odd elements to f32 separately, in place.
///
/// # Safety
/// As above.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn walk_bf16(all: Operands, op: impl Fn(__m256, __m256) -> __m256) {
    let upper_half = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
    let even = |a| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(a));
    let odd = |a| _mm256_castsi256_ps(_mm256_and_si256(a, upper_half));
    // SAFETY: the caller's promise is passed on.
    unsafe {
        walk(all, |a, b| {
            let low = _mm256_srli_epi32::<16>(rounded_bf16(op(even(a), even(b))));
            let high = rounded_bf16(op(odd(a), odd(b)));
            _mm256_or_si256(low, _mm256_and_si256(high, upper_half))
        });
    }
}

/// Rounds each element to bf16 in its upper half, like `halves::to_bf16`; the lower half is undefined.
#[inline]
#[target_feature(enable = "avx2")]
fn rounded_bf16(value: __m256) -> __m256i {
    let bits = _mm256_castps_si256(value);
    let even = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
    _mm256_blendv_epi8(rounded, quiet, nan)
}

register_extremes! { "avx2":
    minimum_f32, maximum_f32: __m256, _mm256_or_ps, _mm256_min_ps, _mm256_xor_ps, _mm256_set1_ps;
    minimum_f64, maximum_f64: __m256d, _mm256_or_pd, _mm256_min_pd, _mm256_xor_pd, _mm256_set1_pd;
}

/// Products of bytes by 16-bit multiplications: even bytes in place, odd bytes shifted down and up again.
#[inline]
#[target_feature(enable = "avx2")]
fn product_8(a: __m256i, b: __m256i) -> __m256i {
    let even = _mm256_mullo_epi16(a, b);
    let odd = _mm256_mullo_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
    let odd = _mm256_slli_epi16::<8>(odd);
    _mm256_or_si256(odd, _mm256_and_si256(even, _mm256_set1_epi16(0xff)))
}

/// Products of 64 bits from AVX2's 32-bit products: the product of the lower halves, plus the mixed products shifted
/// up.
#[inline]
#[target_feature(enable = "avx2")]
fn product_64(a: __m256i, b: __m256i) -> __m256i {
    let (upper_a, upper_b) = (_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
    let mixed = _mm256_add_epi64(_mm256_mul_epu32(upper_a, b), _mm256_mul_epu32(a, upper_b));
    _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64::<32>(mixed))
}

#[inline]
#[target_feature(enable = "avx2")]
fn minimum_i64(a: __m256i, b: __m256i) -> __m256i {
    _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn maximum_i64(a: __m256i, b: __m256i) -> __m256i {
    _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b))
}

folds! {
    #[target_feature(enable = "avx2,f16c")]
    F32 f32s: walk_f32 [_mm256_add_ps, _mm256_mul_ps, minimum_f32, maximum_f32],
    F64 f64s: walk_f64 [_mm256_add_pd, _mm256_mul_pd, minimum_f64, maximum_f64],
    F16 f16s: walk_f16 [_mm256_add_ps, _mm256_mul_ps, minimum_f32, maximum_f32],
    Bf16 bf16s: walk_bf16 [_mm256_add_ps, _mm256_mul_ps, minimum_f32, maximum_f32],
    I8 i8s: walk [_mm256_add_epi8, product_8, _mm256_min_epi8, _mm256_max_epi8],
    U8 u8s: walk [_mm256_add_epi8, product_8, _mm256_min_epu8, _mm256_max_epu8],
    I32 i32s: walk [_mm256_add_epi32, _mm256_mullo_epi32, _mm256_min_epi32, _mm256_max_epi32],
    I64 i64s: walk [_mm256_add_epi64, product_64, minimum_i64, maximum_i64],
}

divides! {
    #[target_feature(enable = "avx2,f16c")]
    F32 f32s_by: walk_f32, |a, by| _mm256_div_ps(a, _mm256_set1_ps(by as f32)),
    F64 f64s_by: walk_f64, |a, by| _mm256_div_pd(a, _mm256_set1_pd(by.into())),
    F16 f16s_by: walk_f16, |a, by| _mm256_div_ps(a, _mm256_set1_ps(by as f32)),
    Bf16 bf16s_by: walk_bf16, |a, by| _mm256_div_ps(a, _mm256_set1_ps(by as f32)),
    _ => portable::dividing,
}
