//! Kernels for AVX-512 (F, BW, DQ, VL), 64 bytes at a time. A shorter remainder is loaded and stored under a byte mask.

use std::arch::asm;
use std::arch::x86_64::*;

use super::number::{Fold, Number};
use super::operands::{
    Dividing, Folding, Operands, divides, folds, register_extremes, typed, walk,
};
use super::portable;

/// Whether the CPU has the features that these kernels need.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// # Safety
/// 64 bytes must be readable `AT` bytes behind `from`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load<const AT: usize>(from: *const u8) -> __m512i {
    let value;
    // SAFETY: reads only the bytes that the caller promised, and has no other effect.
    unsafe {
        asm!(
            "vmovdqu64 {value}, zmmword ptr [{from} + {at}]",
            value = lateout(zmm_reg) value,
            from = in(reg) from,
            at = const AT,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// # Safety
/// 64 bytes must be writable `AT` bytes behind `to`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store<const AT: usize>(to: *mut u8, value: __m512i) {
    // SAFETY: writes only the bytes that the caller promised, and has no other effect.
    unsafe {
        asm!(
            "vmovdqu64 zmmword ptr [{to} + {at}], {value}",
            to = in(reg) to,
            at = const AT,
            value = in(zmm_reg) value,
            options(nostack, preserves_flags)
        );
    }
}

/// Folds fewer bytes than a register holds.
///
/// # Safety
/// The conditions of [`Operands`], with 1 to 63 bytes; the CPU must have the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn fold_partial_register(all: Operands, op: &impl Fn(__m512i, __m512i) -> __m512i) {
    let mask = (1_u64 << all.bytes) - 1;
    let (one, other): (__m512i, __m512i);
    // SAFETY: the mask limits the accesses to `bytes` bytes, which the caller promised; masked-out bytes are not
    // touched.
    unsafe {
        asm!(
            "vmovdqu8 {one}{{{mask}}}{{z}}, zmmword ptr [{from}]",
            "vmovdqu8 {other}{{{mask}}}{{z}}, zmmword ptr [{from_other}]",
            one = out(zmm_reg) one,
            other = lateout(zmm_reg) other,
            mask = in(kreg) mask,
            from = in(reg) all.one,
            from_other = in(reg) all.other,
            options(pure, readonly, nostack, preserves_flags)
        );
        asm!(
            "vmovdqu8 zmmword ptr [{to}]{{{mask}}}, {result}",
            to = in(reg) all.to,
            mask = in(kreg) mask,
            result = in(zmm_reg) op(one, other),
            options(nostack, preserves_flags)
        );
    }
}

walk!("avx512f,avx512bw,avx512dq,avx512vl", __m512i);

typed! { "avx512f,avx512bw,avx512dq,avx512vl":
    walk_f32: __m512, _mm512_castsi512_ps, _mm512_castps_si512;
    walk_f64: __m512d, _mm512_castsi512_pd, _mm512_castpd_si512;
}

/// # Safety
/// As for `walk`, here and below.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn walk_f16(all: Operands, op: impl Fn(__m512, __m512) -> __m512) {
    let lower = |a| _mm512_cvtph_ps(_mm512_castsi512_si256(a));
    let upper = |a| _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(a));
    let narrow = |a| _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a);
    // SAFETY: the caller's promise is passed on.
    unsafe {
        walk(all, |a, b| {
            let low = narrow(op(lower(a), lower(b)));
            let high = narrow(op(upper(a), upper(b)));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        });
    }
}

/// Converts even and odd elements to f32 separately, in place.
///
/// # Safety
/// As above.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn walk_bf16(all: Operands, op: impl Fn(__m512, __m512) -> __m512) {
    let upper_half = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    let even = |a| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(a));
    let odd = |a| _mm512_castsi512_ps(_mm512_and_si512(a, upper_half));
    // SAFETY: the caller's promise is passed on.
    unsafe {
        walk(all, |a, b| {
            let low = _mm512_srli_epi32::<16>(rounded_bf16(op(even(a), even(b))));
            let high = rounded_bf16(op(odd(a), odd(b)));
            _mm512_or_si512(low, _mm512_and_si512(high, upper_half))
        });
    }
}

/// Rounds each element to bf16 in its upper half, like `halves::to_bf16`; the lower half is undefined.
#[inline]
#[target_feature(enable = "avx512f")]
fn rounded_bf16(value: __m512) -> __m512i {
    let bits = _mm512_castps_si512(value);
    let even = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
    let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
    _mm512_mask_mov_epi32(rounded, nan, quiet)
}

register_extremes! { "avx512f,avx512dq":
    minimum_f32, maximum_f32: __m512, _mm512_or_ps, _mm512_min_ps, _mm512_xor_ps, _mm512_set1_ps;
    minimum_f64, maximum_f64: __m512d, _mm512_or_pd, _mm512_min_pd, _mm512_xor_pd, _mm512_set1_pd;
}

/// Products of bytes by 16-bit multiplications: even bytes in place, odd bytes shifted down and up again.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn product_8(a: __m512i, b: __m512i) -> __m512i {
    let even = _mm512_mullo_epi16(a, b);
    let odd = _mm512_mullo_epi16(_mm512_srli_epi16::<8>(a), _mm512_srli_epi16::<8>(b));
    let odd = _mm512_slli_epi16::<8>(odd);
    _mm512_or_si512(odd, _mm512_and_si512(even, _mm512_set1_epi16(0xff)))
}

folds! {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    F32 f32s: walk_f32 [_mm512_add_ps, _mm512_mul_ps, minimum_f32, maximum_f32],
    F64 f64s: walk_f64 [_mm512_add_pd, _mm512_mul_pd, minimum_f64, maximum_f64],
    F16 f16s: walk_f16 [_mm512_add_ps, _mm512_mul_ps, minimum_f32, maximum_f32],
    Bf16 bf16s: walk_bf16 [_mm512_add_ps, _mm512_mul_ps, minimum_f32, maximum_f32],
    I8 i8s: walk [_mm512_add_epi8, product_8, _mm512_min_epi8, _mm512_max_epi8],
    U8 u8s: walk [_mm512_add_epi8, product_8, _mm512_min_epu8, _mm512_max_epu8],
    I32 i32s: walk [_mm512_add_epi32, _mm512_mullo_epi32, _mm512_min_epi32, _mm512_max_epi32],
    I64 i64s: walk [_mm512_add_epi64, _mm512_mullo_epi64, _mm512_min_epi64, _mm512_max_epi64],
}

divides! {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    F32 f32s_by: walk_f32, |a, by| _mm512_div_ps(a, _mm512_set1_ps(by as f32)),
    F64 f64s_by: walk_f64, |a, by| _mm512_div_pd(a, _mm512_set1_pd(by.into())),
    F16 f16s_by: walk_f16, |a, by| _mm512_div_ps(a, _mm512_set1_ps(by as f32)),
    Bf16 bf16s_by: walk_bf16, |a, by| _mm512_div_ps(a, _mm512_set1_ps(by as f32)),
    _ => portable::dividing,
}
