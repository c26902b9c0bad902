//! Kernels for every CPU: copies blocks out of the arena, folds them by plain loops that the compiler vectorizes, and
//! copies them back. The division of integers is here for all kernels.

use std::mem::MaybeUninit;
use std::ops::{Add, Mul};

use super::halves::{from_bf16, from_f16, to_bf16, to_f16};
use super::number::{Fold, Number};
use super::operands::{Dividing, Folding, Operands, divides, folds};
use crate::copy::Method;

/// Elements per block: two blocks of the largest type fit into any first-level cache.
const BLOCK: usize = 1024;

/// # Safety
/// The conditions of [`Operands`]; any bits must be a valid `T`.
#[inline]
unsafe fn blocks<T: Copy>(all: Operands, op: impl Fn(T, T) -> T) {
    let mut one = [const { MaybeUninit::<T>::uninit() }; BLOCK];
    let mut other = [const { MaybeUninit::<T>::uninit() }; BLOCK];
    for at in (0..all.bytes).step_by(BLOCK * size_of::<T>()) {
        let bytes = (all.bytes - at).min(BLOCK * size_of::<T>());
        let elements = bytes / size_of::<T>();
        // SAFETY: the part lies inside the operands, the blocks hold at least as much, and the elements read from the
        // blocks were written just before.
        unsafe {
            let part = all.subrange(at, bytes);
            Method::Memcpy.copy(part.one, one.as_mut_ptr().cast(), bytes);
            Method::Memcpy.copy(part.other, other.as_mut_ptr().cast(), bytes);
            let one = std::slice::from_raw_parts_mut(one.as_mut_ptr().cast::<T>(), elements);
            let other = std::slice::from_raw_parts(other.as_ptr().cast::<T>(), elements);
            for (one, &other) in one.iter_mut().zip(other) {
                *one = op(*one, other);
            }
            Method::Memcpy.copy(one.as_ptr().cast(), part.to, bytes);
        }
    }
}

/// # Safety
/// The conditions of [`Operands`].
#[inline]
unsafe fn f16_blocks(all: Operands, op: impl Fn(f32, f32) -> f32) {
    // SAFETY: the caller's promise is passed on; any bits are a valid `u16`.
    unsafe { blocks(all, |a, b| to_f16(op(from_f16(a), from_f16(b)))) }
}

/// # Safety
/// The conditions of [`Operands`].
#[inline]
unsafe fn bf16_blocks(all: Operands, op: impl Fn(f32, f32) -> f32) {
    // SAFETY: as above.
    unsafe { blocks(all, |a, b| to_bf16(op(from_bf16(a), from_bf16(b)))) }
}

/// Defines minimum and maximum for a float type. Each compares in both directions and ORs the bits of the two results.
/// The results differ only for two zeros, where the OR keeps the negative sign, or with a NaN, where the OR keeps a
/// NaN.
macro_rules! extremes {
    ($float:ty, $minimum:ident, $maximum:ident) => {
        #[inline]
        fn $minimum(a: $float, b: $float) -> $float {
            let (one, other) = (if a < b { a } else { b }, if b < a { b } else { a });
            <$float>::from_bits(one.to_bits() | other.to_bits())
        }

        #[inline]
        fn $maximum(a: $float, b: $float) -> $float {
            -$minimum(-a, -b)
        }
    };
}

extremes!(f32, minimum_f32, maximum_f32);
extremes!(f64, minimum_f64, maximum_f64);

folds! {
    #[inline(never)]
    F32 f32s: blocks::<f32> [Add::add, Mul::mul, minimum_f32, maximum_f32],
    F64 f64s: blocks::<f64> [Add::add, Mul::mul, minimum_f64, maximum_f64],
    F16 f16s: f16_blocks [Add::add, Mul::mul, minimum_f32, maximum_f32],
    Bf16 bf16s: bf16_blocks [Add::add, Mul::mul, minimum_f32, maximum_f32],
    I8 i8s: blocks::<i8> [i8::wrapping_add, i8::wrapping_mul, Ord::min, Ord::max],
    U8 u8s: blocks::<u8> [u8::wrapping_add, u8::wrapping_mul, Ord::min, Ord::max],
    I32 i32s: blocks::<i32> [i32::wrapping_add, i32::wrapping_mul, Ord::min, Ord::max],
    I64 i64s: blocks::<i64> [i64::wrapping_add, i64::wrapping_mul, Ord::min, Ord::max],
}

divides! {
    #[inline(never)]
    F32 f32s_by: blocks::<f32>, |a, by| a / by as f32,
    F64 f64s_by: blocks::<f64>, |a, by| a / f64::from(by),
    F16 f16s_by: f16_blocks, |a, by| a / by as f32,
    Bf16 bf16s_by: bf16_blocks, |a, by| a / by as f32,
    I8 i8s_by: blocks::<i8>, |a, by| small_quotient(a.into(), by) as i8,
    U8 u8s_by: blocks::<u8>, |a, by| small_quotient(a.into(), by) as u8,
    I32 i32s_by: blocks::<i32>, |a, by| quotient(a, by),
    I64 i64s_by: blocks::<i64>, |a, by| a / i64::from(by.max(1)),
}

/// Returns the integer part of a byte's quotient. f32 is exact enough: a fractional quotient is at least 1 / `by` away
/// from any integer, and the error is less than 2^-16 / `by`.
#[inline]
fn small_quotient(a: i16, by: u32) -> i32 {
    // SAFETY: the quotient is at most 255 in magnitude, and not a NaN, because `by` is above 0.
    unsafe { (f32::from(a) / by.max(1) as f32).to_int_unchecked() }
}

/// Returns the integer part of a 32-bit quotient. f64 is exact enough for the same reason: its error is less than 2^-21
/// / `by`.
#[inline]
fn quotient(a: i32, by: u32) -> i32 {
    // SAFETY: the quotient lies between -2^31 and 2^31 - 1, and is not a NaN, because `by` is above 0.
    unsafe { (f64::from(a) / f64::from(by.max(1))).to_int_unchecked() }
}
