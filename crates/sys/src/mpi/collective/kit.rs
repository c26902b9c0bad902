//! Element types and reductions with their names for users, including those that MPI lacks. Also the loaded library's
//! functions and handles for collectives.
//!
//! Sources of the numbers: `mpi_abi.h` of MPICH 5.0.2 (the standard's interface), `mpi.h` of MPICH 4.0.2 and 5.0.2, and
//! `mpi.h` of Open MPI 4.1.4 and 5.0.11. Standard types and reductions have the same numbers in all releases of a
//! dialect.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::error::LibraryError;
use crate::library::SharedLibrary;

use super::super::calls::{GroupFunctions, Handle, LargeFunctions, PlainFunctions};
use super::super::dialect::{Constant, Dialect};
use super::super::text_of;

/// Element type of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MpiType {
    /// MPI_FLOAT.
    Float32,
    /// MPI_DOUBLE.
    Float64,
    /// Not a type of the standard; some libraries have their own.
    Float16,
    /// Not a type of the standard. When this was written, no library could reduce it.
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
    /// All types, in the order of their declaration.
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

    /// Returns the name for users.
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

    /// Size of one element in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Float64 | Self::Int64 => 8,
        }
    }
}

/// How the elements of the ranks are combined.
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
    /// Not a reduction of MPI; it exists so that it can be refused by name.
    Avg,
}

impl MpiReduction {
    /// The reductions of MPI.
    pub const MPI_HAS: [Self; 4] = [Self::Sum, Self::Prod, Self::Min, Self::Max];

    /// Returns the name for users.
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

/// Handles of one dialect.
struct Numbers {
    float32: Constant,
    float64: Constant,
    int8: Constant,
    uint8: Constant,
    int32: Constant,
    int64: Constant,
    sum: Constant,
    prod: Constant,
    min: Constant,
    max: Constant,
    /// Address value of MPI_IN_PLACE.
    in_place: usize,
    /// A library's own float16 type, and the name that the library reports if the type is usable.
    float16: Option<(Constant, &'static str)>,
}

const STANDARD: Numbers = Numbers {
    float32: Constant::Number(0x210),
    float64: Constant::Number(0x214),
    int8: Constant::Number(0x240),
    uint8: Constant::Number(0x241),
    int32: Constant::Number(0x250),
    int64: Constant::Number(0x258),
    sum: Constant::Number(0x21),
    prod: Constant::Number(0x24),
    min: Constant::Number(0x22),
    max: Constant::Number(0x23),
    in_place: 1,
    float16: None,
};

const MPICH: Numbers = Numbers {
    float32: Constant::Number(0x4c00_040a),
    float64: Constant::Number(0x4c00_080b),
    int8: Constant::Number(0x4c00_0137),
    uint8: Constant::Number(0x4c00_013b),
    int32: Constant::Number(0x4c00_0439),
    int64: Constant::Number(0x4c00_083a),
    sum: Constant::Number(0x5800_0003),
    prod: Constant::Number(0x5800_0004),
    min: Constant::Number(0x5800_0002),
    max: Constant::Number(0x5800_0001),
    in_place: usize::MAX,
    float16: Some((Constant::Number(0x4c00_0246), "MPIX_C_FLOAT16")),
};

const OPEN_MPI: Numbers = Numbers {
    float32: Constant::Symbol(c"ompi_mpi_float"),
    float64: Constant::Symbol(c"ompi_mpi_double"),
    int8: Constant::Symbol(c"ompi_mpi_int8_t"),
    uint8: Constant::Symbol(c"ompi_mpi_uint8_t"),
    int32: Constant::Symbol(c"ompi_mpi_int32_t"),
    int64: Constant::Symbol(c"ompi_mpi_int64_t"),
    sum: Constant::Symbol(c"ompi_mpi_op_sum"),
    prod: Constant::Symbol(c"ompi_mpi_op_prod"),
    min: Constant::Symbol(c"ompi_mpi_op_min"),
    max: Constant::Symbol(c"ompi_mpi_op_max"),
    in_place: 1,
    float16: Some((Constant::Symbol(c"ompi_mpi_short_float"), "MPI_SHORT_FLOAT")),
};

/// The first release of MPICH with a float16 type that is known to work. Debian's 4.0.2 has no name for the type, and
/// ends the process when it reduces elements of the type. Release 5.0.2 still does so with bfloat16.
const MPICH_WITH_FLOAT16: u32 = 5;

/// Functions and handles, looked up once per process.
#[derive(Debug)]
pub(super) struct CollectiveKit {
    pub(super) groups: GroupFunctions,
    pub(super) plain: PlainFunctions,
    /// `None` before MPI 4.
    pub(super) large: Option<LargeFunctions>,
    pub(super) in_place: usize,
    /// Handles in the order of [`MpiType::ALL`]; `None` for types that the library lacks.
    types: [Option<Handle>; 8],
    /// Handles in the order of [`MpiReduction::MPI_HAS`].
    reductions: [Handle; 4],
}

impl CollectiveKit {
    /// Looks up functions and handles. `version` is the library's own text. MPI must be running, and must return errors
    /// instead of ending the process.
    pub(super) fn look_up(
        library: &SharedLibrary,
        dialect: Dialect,
        version: &str,
    ) -> Result<Self, LibraryError> {
        let numbers = match dialect {
            Dialect::Standard => &STANDARD,
            Dialect::Mpich => &MPICH,
            Dialect::OpenMpi => &OPEN_MPI,
        };
        let find = |symbol| library.symbol_without_version(symbol);
        let groups = GroupFunctions::look_up(find)?;
        let handle = |constant: Constant| constant.handle(library);
        let known = |constant: Constant| handle(constant).map(Some);
        let float16 = numbers
            .float16
            .filter(|_| dialect != Dialect::Mpich || is_mpich_with_float16(version))
            .and_then(|(constant, name)| Some((handle(constant).ok()?, name)))
            .filter(|&(handle, name)| is_half(&groups, handle, name));
        Ok(Self {
            groups,
            plain: PlainFunctions::look_up(find)?,
            large: LargeFunctions::look_up(find).ok(),
            in_place: numbers.in_place,
            types: [
                known(numbers.float32)?,
                known(numbers.float64)?,
                float16.map(|(handle, _)| handle),
                None,
                known(numbers.int8)?,
                known(numbers.uint8)?,
                known(numbers.int32)?,
                known(numbers.int64)?,
            ],
            reductions: [
                handle(numbers.sum)?,
                handle(numbers.prod)?,
                handle(numbers.min)?,
                handle(numbers.max)?,
            ],
        })
    }

    /// Returns the library's handle of a type; `None` if it lacks the type.
    #[inline]
    pub(super) fn type_of(&self, element: MpiType) -> Option<Handle> {
        self.types.get(element as usize).copied().flatten()
    }

    /// Returns the library's handle of a reduction; `None` if MPI lacks it.
    #[inline]
    pub(super) fn reduction(&self, reduction: MpiReduction) -> Option<Handle> {
        self.reductions.get(reduction as usize).copied()
    }

    /// MPI_IN_PLACE.
    #[inline]
    pub(super) fn in_place(&self) -> *mut c_void {
        ptr::without_provenance_mut(self.in_place)
    }
}

/// Whether a version text is that of an MPICH with a working float16. Derivatives of MPICH number their releases
/// differently.
fn is_mpich_with_float16(version: &str) -> bool {
    let number = version.strip_prefix("MPICH Version:").map(str::trim_start);
    let major = number.and_then(|number| number.split('.').next()?.parse().ok());
    major.is_some_and(|major: u32| major >= MPICH_WITH_FLOAT16)
}

/// Whether the handle is that of a two-byte type with this name. If a library was built without the type, its handle
/// has no name or no size.
fn is_half(groups: &GroupFunctions, handle: Handle, name: &str) -> bool {
    let mut bytes: c_int = 0;
    // SAFETY: MPI runs and returns errors, the handle is one that this library's header declares, and the result has a
    // valid place.
    let code = unsafe { (groups.type_size)(handle, &raw mut bytes) };
    let found = text_of(|text, length| {
        // SAFETY: as above, and the text has room for the longest name of any library.
        unsafe { (groups.type_get_name)(handle, text, length) }
    });
    code == 0 && bytes == 2 && found.is_some_and(|found| found == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float16_is_accepted_only_from_new_mpich_releases() {
        assert!(is_mpich_with_float16("MPICH Version:      5.0.2"));
        assert!(is_mpich_with_float16("MPICH Version:\t11.0"));
        for other in [
            "MPICH Version:\t4.0.2",
            "Intel(R) MPI Library 2021.11 for Linux* OS",
            "MVAPICH Version: 5.0",
            "MPICH Version:",
        ] {
            assert!(!is_mpich_with_float16(other), "{other}");
        }
    }

    #[test]
    fn types_and_reductions_are_in_the_order_of_their_numbers() {
        for (index, element) in MpiType::ALL.into_iter().enumerate() {
            assert_eq!(element as usize, index);
        }
        for (index, reduction) in MpiReduction::MPI_HAS.into_iter().enumerate() {
            assert_eq!(reduction as usize, index);
        }
    }
}
