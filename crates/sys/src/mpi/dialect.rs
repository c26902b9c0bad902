//! The three numberings of handles and constants in MPI libraries: before MPI 5, every library chose its own.
//!
//! Sources: the standard's own binary interface (MPI 5.0, chapter 20; MPICH 5.0's `mpi_abi.h`), MPICH's `mpi.h` and
//! Open MPI's `mpi.h`, 4.1 and 5.0. All libraries of the "MPICH ABI compatibility initiative" share MPICH's numbers
//! (Intel MPI, Cray MPICH, MVAPICH). A handle is an `int` in MPICH and an address in the other dialects, so all handles
//! fit into a `usize`.

use std::ffi::{CStr, c_int};

use crate::error::LibraryError;
use crate::library::SharedLibrary;

use super::calls::Handle;

/// Numbering of handles and constants in a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The binary interface of MPI 5.0: `libmpi_abi.so`.
    Standard,
    /// MPICH and libraries with its interface: `libmpich.so.12`, `libmpi.so.12`.
    Mpich,
    /// Open MPI: `libmpi.so.40`.
    OpenMpi,
}

impl Dialect {
    /// Returns the name for records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard ABI",
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
        }
    }
}

/// A constant handle: a number, or the address of an object that the library exports.
#[derive(Debug, Clone, Copy)]
pub(super) enum Constant {
    Number(Handle),
    Symbol(&'static CStr),
}

impl Constant {
    /// Returns the handle in this library.
    pub(super) fn handle(self, library: &SharedLibrary) -> Result<Handle, LibraryError> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Symbol(name) => library
                .symbol_without_version(name)
                .map(|address| address.as_ptr() as Handle),
        }
    }
}

/// Constants of a dialect: as in its header, or as handles in a loaded library.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constants<H = Handle> {
    pub(super) comm_world: H,
    pub(super) comm_self: H,
    pub(super) byte: H,
    pub(super) info_null: H,
    pub(super) errors_return: H,
    pub(super) numbers: Numbers,
}

/// Numbers that differ between dialects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) mode_create: c_int,
    pub(super) mode_exclusive: c_int,
    pub(super) mode_read_only: c_int,
    pub(super) mode_write_only: c_int,
    pub(super) mode_read_write: c_int,
    pub(super) thread_funneled: c_int,
    /// Maximum length of a key, without its final zero byte.
    pub(super) info_key_bytes: usize,
    /// Maximum length of a value, without its final zero byte.
    pub(super) info_value_bytes: usize,
}

const STANDARD: Constants<Constant> = Constants {
    comm_world: Constant::Number(0x101),
    comm_self: Constant::Number(0x102),
    byte: Constant::Number(0x247),
    info_null: Constant::Number(0x130),
    errors_return: Constant::Number(0x143),
    numbers: Numbers {
        mode_create: 2,
        mode_exclusive: 8,
        mode_read_only: 16,
        mode_write_only: 256,
        mode_read_write: 32,
        thread_funneled: 1024,
        info_key_bytes: 256,
        info_value_bytes: 1024,
    },
};

const MPICH: Constants<Constant> = Constants {
    comm_world: Constant::Number(0x4400_0000),
    comm_self: Constant::Number(0x4400_0001),
    byte: Constant::Number(0x4c00_010d),
    info_null: Constant::Number(0x1c00_0000),
    errors_return: Constant::Number(0x5400_0001),
    numbers: Numbers {
        mode_create: 1,
        mode_exclusive: 64,
        mode_read_only: 2,
        mode_write_only: 4,
        mode_read_write: 8,
        thread_funneled: 1,
        info_key_bytes: 255,
        info_value_bytes: 1024,
    },
};

const OPEN_MPI: Constants<Constant> = Constants {
    comm_world: Constant::Symbol(c"ompi_mpi_comm_world"),
    comm_self: Constant::Symbol(c"ompi_mpi_comm_self"),
    byte: Constant::Symbol(c"ompi_mpi_byte"),
    info_null: Constant::Symbol(c"ompi_mpi_info_null"),
    errors_return: Constant::Symbol(c"ompi_mpi_errors_return"),
    // The other numbers equal MPICH's.
    numbers: Numbers {
        info_key_bytes: 36,
        info_value_bytes: 256,
        ..MPICH.numbers
    },
};

impl Dialect {
    /// Recognises the dialect of a library. `file` is the path that it was loaded from, `says` its own version text.
    ///
    /// # Errors
    /// If the dialect is unknown, because its numbers would be guesses.
    pub(super) fn detect(
        library: &SharedLibrary,
        file: &str,
        says: &str,
    ) -> Result<Self, LibraryError> {
        // The file name decides, because MPICH's libmpi.so.12 exports some functions of the standard's interface too.
        if is_standard(file) {
            return Ok(Self::Standard);
        }
        if library
            .symbol_without_version(c"ompi_mpi_comm_world")
            .is_ok()
        {
            return Ok(Self::OpenMpi);
        }
        const FAMILY: [&str; 5] = ["MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation", "FUJITSU"];
        if FAMILY.iter().any(|name| says.contains(name)) {
            return Ok(Self::Mpich);
        }
        Err(LibraryError::unsupported(format!(
            "{file} is neither Open MPI, nor of the MPICH family, nor a libmpi_abi, so its ABI is unknown; it reports \
             version {says:?}"
        )))
    }

    pub(super) fn constants(self, library: &SharedLibrary) -> Result<Constants, LibraryError> {
        let table = match self {
            Self::Standard => &STANDARD,
            Self::Mpich => &MPICH,
            Self::OpenMpi => &OPEN_MPI,
        };
        let handle = |constant: Constant| constant.handle(library);
        Ok(Constants {
            comm_world: handle(table.comm_world)?,
            comm_self: handle(table.comm_self)?,
            byte: handle(table.byte)?,
            info_null: handle(table.info_null)?,
            errors_return: handle(table.errors_return)?,
            numbers: table.numbers,
        })
    }
}

fn is_standard(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.starts_with("libmpi_abi.so")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LibraryErrorKind;

    #[test]
    fn the_standard_interface_is_recognized_by_the_file_name() {
        assert!(is_standard("/opt/mpich/lib/libmpi_abi.so.1"));
        assert!(is_standard("libmpi_abi.so"));
        assert!(!is_standard("/opt/libmpi_abi.so.1/libmpi.so.12"));
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn a_library_of_no_known_family_is_refused() {
        let library = SharedLibrary::loaded("libc.so.6").unwrap();
        let refused = Dialect::detect(&library, "/lib/libmpi.so.9", "My MPI 3").unwrap_err();
        assert!(matches!(*refused, LibraryErrorKind::Unsupported(_)));
        let text = refused.to_string();
        assert!(text.contains("/lib/libmpi.so.9") && text.contains("My MPI 3"));
        let intel = "Intel(R) MPI Library 2021.11 for Linux* OS";
        let dialect = Dialect::detect(&library, "/lib/libmpi.so.12", intel).unwrap();
        assert_eq!(dialect, Dialect::Mpich);
    }
}
