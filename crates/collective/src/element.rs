//! Element types and reductions.

tonnage_units::names! {
    /// Type of the elements.
    pub enum Dtype: "dtype" {
        /// IEEE 754, 32 bits.
        Float32 = "float32",
        /// IEEE 754, 64 bits.
        Float64 = "float64",
        /// IEEE 754, 16 bits.
        Float16 = "float16",
        /// The upper half of a float32.
        Bfloat16 = "bfloat16",
        /// Signed, 8 bits.
        Int8 = "int8",
        /// Unsigned, 8 bits.
        Uint8 = "uint8",
        /// Signed, 32 bits.
        Int32 = "int32",
        /// Signed, 64 bits.
        Int64 = "int64",
    }
}

impl Dtype {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Float64 | Self::Int64 => 8,
        }
    }
}

tonnage_units::names! {
    /// How the ranks' elements are combined.
    pub enum Reduction: "reduction" {
        /// Sum of the elements.
        Sum = "sum",
        /// Product of the elements.
        Prod = "prod",
        /// The smallest.
        Min = "min",
        /// The largest.
        Max = "max",
        /// Sum of the elements divided by the number of ranks.
        Avg = "avg",
    }
}
