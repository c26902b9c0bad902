//! Reductions of elements in arenas: `to = one op other`, element by element, and the final division of an average.
//!
//! A [`Kernel`] combines an instruction set that this CPU has, one [`Number`] and one [`Fold`]. With a kernel,
//! [`Arena::fold`](crate::mapping::Arena::fold), `combine` and `divide` are safe with any argument. All kernels give
//! the same bits, except for the sign and payload of a NaN:
//!
//! - Integers wrap. Their division drops the fraction.
//! - Floats are rounded to nearest even, after each single operation. f16 and bf16 are computed as f32 and rounded
//!   once.
//! - Minimum and maximum are those of IEEE 754-2019 (`minimum`, `maximum`): a NaN on either side gives a NaN, and -0 is
//!   below +0, so the result does not depend on the order of operands.
//!
//! **Why the loads and stores are assembly.** A peer may be writing the memory, so a `&[T]` over it would be unsound,
//! and plain accesses through a pointer are data races, which are undefined behaviour. Atomics are allowed, but no
//! compiler vectorizes them. So the vector kernels load and store their registers by `asm!` blocks of one instruction.
//! `copy.rs` explains why this is sound: CPU instructions access single bytes atomically, and the compiler cannot see
//! into the assembly. All code between these blocks is Rust: intrinsics on values in registers, which touch no memory.
//! Whole loops in assembly would be no sounder, and 32 times as long. The portable kernel folds a copy on the stack,
//! which is equally sound and needs no assembly, but every byte passes the first-level cache twice more.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `number.rs` | element types and operations |
//! | `kernel.rs` | detection and choice |
//! | `arena.rs` | range checks in front of the kernels |
//! | `operands.rs` | pointers and length for kernels; the loop and the table of all vector kernels |
//! | `portable.rs`, `avx2.rs`, `avx512.rs`, `neon.rs` | the kernels |
//! | `halves.rs` | f16 and bf16 without special instructions |
//!
//! Collectives, and the order in which ranks are folded, are in `tonnage_collective`.

mod arena;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod halves;
mod kernel;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod number;
mod operands;
mod portable;
#[cfg(test)]
mod tests;

pub use arena::FoldError;
pub use kernel::Kernel;
pub use number::{Fold, Number};
