//! [`Operands`] of all kernels, and the shared parts of vector kernels: the loop (`walk!`) and the table (`folds!`).

use super::number::Fold;

/// Three ranges of the same length.
///
/// Conditions for calling a kernel: `one` and `other` are readable and `to` writable for `bytes` bytes. `bytes` and
/// each address are multiples of the element size. `to` either coincides with an operand or does not overlap it. Other
/// threads or processes may be writing to any of these bytes.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) to: *mut u8,
    pub(super) one: *const u8,
    pub(super) other: *const u8,
    pub(super) bytes: usize,
}

/// Kernel for one element type.
pub(super) type Folding = unsafe fn(Operands, Fold);

/// Kernel that divides `one` by a number; `other` equals `one`.
pub(super) type Dividing = unsafe fn(Operands, u32);

impl Operands {
    /// Returns a part of the operands.
    ///
    /// # Safety
    /// `at + bytes` must not exceed `self.bytes`.
    #[inline]
    pub(super) unsafe fn subrange(self, at: usize, bytes: usize) -> Self {
        // SAFETY: inside, as the caller promises.
        unsafe {
            Self {
                to: self.to.add(at),
                one: self.one.add(at),
                other: self.other.add(at),
                bytes,
            }
        }
    }

    /// Returns the number of bytes before the first address that is aligned for stores of `register` bytes; 0 for short
    /// ranges, because they are not worth a separate head.
    #[inline]
    pub(super) fn head(self, register: usize) -> usize {
        if self.bytes < 16 * register {
            return 0;
        }
        self.to.align_offset(register)
    }
}

/// Defines `walk`, which processes operands register by register, four per iteration, and a shorter remainder with
/// `fold_partial_register`.
macro_rules! walk {
    ($features:literal, $register:ty) => {
        /// # Safety
        /// The conditions of [`Operands`]; the CPU must have the features.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn walk(all: Operands, op: impl Fn($register, $register) -> $register) {
            const REGISTER: usize = size_of::<$register>();
            let mut at = all.head(REGISTER);
            // SAFETY: every access is below `bytes`. The loads of an iteration precede its stores, so `to` may be an
            // operand.
            unsafe {
                if at > 0 {
                    fold_partial_register(all.subrange(0, at), &op);
                }
                while all.bytes - at >= 4 * REGISTER {
                    let (to, one, other) = (all.to.add(at), all.one.add(at), all.other.add(at));
                    let a = op(load::<0>(one), load::<0>(other));
                    let b = op(load::<REGISTER>(one), load::<REGISTER>(other));
                    let c = op(
                        load::<{ 2 * REGISTER }>(one),
                        load::<{ 2 * REGISTER }>(other),
                    );
                    let d = op(
                        load::<{ 3 * REGISTER }>(one),
                        load::<{ 3 * REGISTER }>(other),
                    );
                    store::<0>(to, a);
                    store::<REGISTER>(to, b);
                    store::<{ 2 * REGISTER }>(to, c);
                    store::<{ 3 * REGISTER }>(to, d);
                    at += 4 * REGISTER;
                }
                while all.bytes - at >= REGISTER {
                    let result = op(load::<0>(all.one.add(at)), load::<0>(all.other.add(at)));
                    store::<0>(all.to.add(at), result);
                    at += REGISTER;
                }
                if at < all.bytes {
                    fold_partial_register(all.subrange(at, all.bytes - at), &op);
                }
            }
        }
    };
}

/// Defines variants of `walk` for registers of other types. Each converts the operands from registers of bytes, and the
/// result back.
macro_rules! typed {
    ($features:literal: $($name:ident: $register:ty, $from:ident, $to:ident;)*) => {$(
        /// # Safety
        /// As for `walk`.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $name(all: Operands, op: impl Fn($register, $register) -> $register) {
            // SAFETY: the caller's promise is passed on.
            unsafe { walk(all, |a, b| $to(op($from(a), $from(b)))) }
        }
    )*};
}

/// Defines minimum and maximum for float registers of x86, with the results of `portable::extremes`.
#[cfg(target_arch = "x86_64")]
macro_rules! register_extremes {
    ($features:literal: $($minimum:ident, $maximum:ident: $register:ty, $or:ident, $min:ident, $xor:ident, $set:ident;)*) => {$(
        #[inline]
        #[target_feature(enable = $features)]
        fn $minimum(a: $register, b: $register) -> $register {
            $or($min(a, b), $min(b, a))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn $maximum(a: $register, b: $register) -> $register {
            let sign = $set(-0.0);
            $xor($minimum($xor(a, sign), $xor(b, sign)), sign)
        }
    )*};
}

/// Defines a kernel for each element type, and `folding`, which returns the kernel of a type. Each line gives the loop,
/// and the operations in the order of [`Fold::ALL`].
macro_rules! folds {
    (#[$feature:meta] $($number:ident $name:ident: $walk:path [$sum:path, $prod:path, $min:path, $max:path],)*) => {
        $(
            /// # Safety
            /// The conditions of [`Operands`]; the CPU must have the features.
            #[$feature]
            unsafe fn $name(all: Operands, fold: Fold) {
                // SAFETY: the caller's promise is passed on.
                unsafe {
                    match fold {
                        Fold::Sum => $walk(all, |a, b| $sum(a, b)),
                        Fold::Prod => $walk(all, |a, b| $prod(a, b)),
                        Fold::Min => $walk(all, |a, b| $min(a, b)),
                        Fold::Max => $walk(all, |a, b| $max(a, b)),
                    }
                }
            }
        )*

        pub(super) fn folding(number: Number) -> Folding {
            match number {
                $(Number::$number => $name,)*
            }
        }
    };
}

/// Defines a division kernel per line from its loop and its division, and `dividing`, which returns the kernel of a
/// type.
macro_rules! divides {
    (
        #[$feature:meta]
        $($number:ident $name:ident: $walk:path, |$a:ident, $by:ident| $quotient:expr,)*
        $(_ => $others:path,)?
    ) => {
        $(
            /// # Safety
            /// The conditions of [`Operands`]; the CPU must have the features.
            #[$feature]
            unsafe fn $name(all: Operands, $by: u32) {
                // SAFETY: the caller's promise is passed on.
                unsafe { $walk(all, |$a, _| $quotient) }
            }
        )*

        pub(super) fn dividing(number: Number) -> Dividing {
            match number {
                $(Number::$number => $name,)*
                $(_ => $others(number),)?
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use register_extremes;
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(unused_imports)
)]
pub(super) use {divides, folds, typed, walk};
