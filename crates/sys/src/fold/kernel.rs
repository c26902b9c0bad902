//! [`Kernel`]: the sets of instructions, and which of them this CPU has.

use super::number::{Fold, Number};
use super::operands::{Dividing, Folding, Operands};
use super::portable;

/// A way to fold elements of one type by one operation. It exists only where the CPU has the instructions.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    name: &'static str,
    number: Number,
    fold: Fold,
    folding: Folding,
    dividing: Dividing,
}

/// A set of instructions: name, detection, and its kernels.
type Set = (
    &'static str,
    fn() -> bool,
    fn(Number) -> Folding,
    fn(Number) -> Dividing,
);

/// The sets of this architecture, the fastest last.
const SETS: &[Set] = &[
    ("portable", || true, portable::folding, portable::dividing),
    #[cfg(target_arch = "x86_64")]
    (
        "avx2",
        super::avx2::available,
        super::avx2::folding,
        super::avx2::dividing,
    ),
    #[cfg(target_arch = "x86_64")]
    (
        "avx512",
        super::avx512::available,
        super::avx512::folding,
        super::avx512::dividing,
    ),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    (
        "neon",
        super::neon::available,
        super::neon::folding,
        super::neon::dividing,
    ),
];

impl Kernel {
    /// The kernels that this CPU has, the slowest first, which is the portable one.
    pub fn available(number: Number, fold: Fold) -> Vec<Self> {
        SETS.iter()
            .filter(|(_, available, _, _)| available())
            .map(|set| Self::of(set, number, fold))
            .collect()
    }

    /// The fastest kernel that this CPU has.
    pub fn best(number: Number, fold: Fold) -> Self {
        let mut sets = SETS.iter().rev();
        let set = sets.find(|(_, available, _, _)| available());
        Self::of(set.unwrap_or(&SETS[0]), number, fold)
    }

    fn of(&(name, _, folding, dividing): &Set, number: Number, fold: Fold) -> Self {
        Self {
            name,
            number,
            fold,
            folding: folding(number),
            dividing: dividing(number),
        }
    }

    /// The name in records and tables: that of the instructions.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The type of elements that it folds.
    pub fn number(&self) -> Number {
        self.number
    }

    /// The operation that it folds by.
    pub fn operation(&self) -> Fold {
        self.fold
    }

    /// # Safety
    /// As [`Operands`] says.
    #[inline]
    pub(super) unsafe fn run(&self, operands: Operands) {
        // SAFETY: the caller's promise is passed on; the CPU has the instructions, or there would be no such kernel.
        unsafe { (self.folding)(operands, self.fold) }
    }

    /// # Safety
    /// As [`Operands`] says; `other` is `one`.
    #[inline]
    pub(super) unsafe fn run_division(&self, operands: Operands, by: u32) {
        // SAFETY: as above.
        unsafe { (self.dividing)(operands, by) }
    }
}
