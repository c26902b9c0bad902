//! Types of elements and reductions over them, by the names that users know, whether MPI has them or not.

/// Type of the elements of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MpiType {
    /// MPI_FLOAT.
    Float32,
    /// MPI_DOUBLE.
    Float64,
    /// No type of the standard; some libraries have one of their own.
    Float16,
    /// No type of the standard, and of no library that could reduce it when this was written.
    Bfloat16,
    /// MPI_INT8_T.
    Int8,
    /// MPI_UINT8_T.
    Uint8,
    /// MPI_INT32_T.
    Int32,
    /// MPI_INT64_T.
    Int64,
}

impl MpiType {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Float32,
        Self::Float64,
        Self::Float16,
        Self::Bfloat16,
        Self::Int8,
        Self::Uint8,
        Self::Int32,
        Self::Int64,
    ];

    /// The name that users know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
        }
    }

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

/// Combination of the elements that ranks give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MpiReduction {
    /// MPI_SUM.
    Sum,
    /// MPI_PROD.
    Prod,
    /// MPI_MIN.
    Min,
    /// MPI_MAX.
    Max,
    /// None of MPI's: it is here so that it can be refused by name.
    Avg,
}

impl MpiReduction {
    /// Those that MPI has.
    pub const MPI_HAS: [Self; 4] = [Self::Sum, Self::Prod, Self::Min, Self::Max];

    /// The name that users know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }
}
