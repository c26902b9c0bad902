//! Reductions of elements in arenas: `to = one op other`, element by element, and the division that an average ends
//! with.
//!
//! A [`Kernel`] is a set of instructions that this CPU was found to have, for one [`Number`] and one [`Fold`]; with it
//! [`Arena::fold`](crate::mapping::Arena::fold), `combine` and `divide` are safe with any argument. All kernels give
//! the same numbers, to the bit but for the sign and payload of a NaN:
//!
//! - Integers wrap. Their division drops the fraction.
//! - Floats are rounded to nearest even, after each single operation. f16 and bf16 are computed as f32 and rounded
//!   once.
//! - The least and the greatest are those of IEEE 754-2019 (`minimum`, `maximum`): a NaN on either side gives a NaN,
//!   and -0 is below +0, so that the order of operands never shows.
//!
//! **Why the loads and stores are assembly.** A peer may be writing the memory, so a `&[T]` over it would be unsound,
//! and plain accesses through a pointer race, which has no meaning in the language. Atomics have one, but no compiler
//! makes vectors of them. So the vector kernels load and store their registers by one-instruction `asm!` blocks, for
//! which `copy.rs` gives the reason: the processor's accesses are atomic for single bytes, and the compiler does not
//! see into them. Between them is Rust, intrinsics on values in registers, which touches no memory. Whole loops in
//! assembly would be no sounder, and 32 times as long; folding a copy on the stack is as sound and needs no assembly of
//! its own, which is what the portable kernel does, but every byte passes the first-level cache twice more.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `number.rs` | types of elements, operations |
//! | `kernel.rs` | detection and choice |
//! | `arena.rs` | the checks of ranges in front of the kernels |
//! | `operands.rs` | pointers and length as kernels get them; the loop and the table of all vector kernels |
//! | `portable.rs`, `avx2.rs`, `avx512.rs`, `neon.rs` | the kernels |
//! | `halves.rs` | f16 and bf16 without instructions for them |
//!
//! The order in which ranks are folded, and what a collective is, are in `tonnage_collective`.

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
