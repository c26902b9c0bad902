//! [`Kernel`]: the instruction sets, and detection of the sets that this CPU has.

use super::number::{Fold, Number};
use super::operands::{Dividing, Folding, Operands};
use super::portable;

/// Folds elements of one type by one operation. A kernel exists only if the CPU has its instructions.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    name: &'static str,
    number: Number,
    fold: Fold,
    folding: Folding,
    dividing: Dividing,
}

/// An instruction set: name, detection, and its kernels.
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
    /// Returns the kernels for this CPU, slowest first; the first is the portable one.
    pub fn available(number: Number, fold: Fold) -> Vec<Self> {
        SETS.iter()
            .filter(|(_, available, _, _)| available())
            .map(|set| Self::from_set(set, number, fold))
            .collect()
    }

    /// Returns the fastest kernel for this CPU.
    pub fn best(number: Number, fold: Fold) -> Self {
        let mut sets = SETS.iter().rev();
        let set = sets.find(|(_, available, _, _)| available());
        Self::from_set(set.unwrap_or(&SETS[0]), number, fold)
    }

    fn from_set(&(name, _, folding, dividing): &Set, number: Number, fold: Fold) -> Self {
        Self {
            name,
            number,
            fold,
            folding: folding(number),
            dividing: dividing(number),
        }
    }

    /// Returns the name of the instruction set, for records and tables.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the element type.
    pub fn number(&self) -> Number {
        self.number
    }

    /// Returns the operation.
    pub fn operation(&self) -> Fold {
        self.fold
    }

    /// # Safety
    /// The conditions of [`Operands`].
    #[inline]
    pub(super) unsafe fn run(&self, operands: Operands) {
        // SAFETY: the caller's promise is passed on; the CPU has the instructions, because this kernel exists.
        unsafe { (self.folding)(operands, self.fold) }
    }

    /// # Safety
    /// The conditions of [`Operands`]; `other` equals `one`.
    #[inline]
    pub(super) unsafe fn run_division(&self, operands: Operands, by: u32) {
        // SAFETY: as above.
        unsafe { (self.dividing)(operands, by) }
    }
}
