//! Element types, and the operations on them.

/// Type of the elements of a reduction, in the machine's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// Signed byte.
    I8,
    /// Unsigned byte.
    U8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
}

impl Number {
    /// All element types.
    pub const ALL: [Self; 8] = [
        Self::F32,
        Self::F64,
        Self::F16,
        Self::Bf16,
        Self::I8,
        Self::U8,
        Self::I32,
        Self::I64,
    ];

    /// Returns the size of an element in bytes, which is also its alignment.
    pub fn size_bytes(self) -> u64 {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

/// Operation on two elements. The parent module defines the results for NaN, zeros and overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// Addition.
    Sum,
    /// Multiplication.
    Prod,
    /// The smaller element.
    Min,
    /// The greater element.
    Max,
}

impl Fold {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Prod, Self::Min, Self::Max];
}
