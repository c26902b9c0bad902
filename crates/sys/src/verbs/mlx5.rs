//! libmlx5, the part of rdma-core for mlx5 NICs: the calls of its direct verbs, looked up once, and device queries.
//!
//! [`super::dc_pair`] makes DC queue pairs.

use std::ffi::{c_int, c_void};

use super::abi::{ibv_context, ibv_device, ibv_qp};
use super::check;
use super::context::Context;
use super::loaded::{ExtendedCalls, Libibverbs};
use super::mlx5_abi::{
    MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM, ibv_qp_ex, ibv_qp_init_attr_ex, mlx5dv_context,
    mlx5dv_qp_ex, mlx5dv_qp_init_attr,
};
use crate::error::LibraryError;
use crate::library::{SharedLibrary, Versioned, file_or_name, functions};

/// The file that the loader searches for. If libibverbs has loaded a file of this name as its driver, the loader
/// returns that file.
const NAME: &str = "libmlx5.so.1";

functions! { pub(super) Calls by Versioned:
    is_supported = (c"mlx5dv_is_supported", c"MLX5_1.8") => (*mut ibv_device) -> bool;
    query_device = (c"mlx5dv_query_device", c"MLX5_1.0") => (*mut ibv_context, *mut mlx5dv_context) -> c_int;
    create_qp = (c"mlx5dv_create_qp", c"MLX5_1.3") => (*mut ibv_context, *mut ibv_qp_init_attr_ex, *mut mlx5dv_qp_init_attr) -> *mut ibv_qp;
    own_interface = (c"mlx5dv_qp_ex_from_ibv_qp_ex", c"MLX5_1.10") => (*mut ibv_qp_ex) -> *mut mlx5dv_qp_ex;
}

/// The library, and the calls of libibverbs that only its queue pairs need.
#[derive(Debug)]
pub struct Libmlx5 {
    pub(super) calls: Calls,
    pub(super) verbs: ExtendedCalls,
    path: String,
    // The library that the calls belong to. It stays loaded even after this handle is dropped.
    _library: SharedLibrary,
}

/// Maximum DC reads in flight of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcReadsMax {
    /// As initiator.
    pub as_initiator: u8,
    /// As target.
    pub as_target: u8,
}

impl Libmlx5 {
    /// Loads the library that belongs to a libibverbs. The device must already be open, so that libibverbs has loaded
    /// its driver, which is this library.
    ///
    /// # Errors
    /// The loader's reason, or the call that one of the two lacks.
    pub fn load(libibverbs: &Libibverbs) -> Result<Self, LibraryError> {
        let library = SharedLibrary::open(NAME)?;
        let calls = Calls::look_up(|symbol| library.symbol(symbol))?;
        let verbs = ExtendedCalls::look_up(|symbol| libibverbs.library.symbol(symbol))?;
        Ok(Self {
            calls,
            verbs,
            path: file_or_name(calls.create_qp as *const c_void, NAME),
            _library: library,
        })
    }

    /// Path of the loaded file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether a device belongs to this library.
    pub fn drives(&self, context: &Context) -> bool {
        // SAFETY: the device is open and refers to the entry that it was opened from; the call compares pointers.
        unsafe { (self.calls.is_supported)((*context.raw.as_ptr()).device) }
    }

    /// Returns the maximum DC reads in flight of a device; `None` if the library is too old to report them.
    ///
    /// # Errors
    /// The library's reason; or that the device does not belong to it.
    pub fn dc_reads_max(&self, context: &Context) -> Result<Option<DcReadsMax>, LibraryError> {
        if !self.drives(context) {
            return Err(not_driven());
        }
        let mut answer = mlx5dv_context {
            comp_mask: MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM,
            ..mlx5dv_context::ZEROED
        };
        // SAFETY: the device is open; the struct is valid for writes and longer than that of any release.
        let code = unsafe { (self.calls.query_device)(context.raw.as_ptr(), &raw mut answer) };
        check("mlx5dv_query_device", code)?;
        Ok(reads_max(&answer))
    }
}

/// Makes the error for a device of another driver.
pub(super) fn not_driven() -> LibraryError {
    LibraryError::unsupported("libmlx5 does not drive this device")
}

/// Extracts the maximum DC reads in flight from the library's answer; `None` if the library did not fill them in.
fn reads_max(answer: &mlx5dv_context) -> Option<DcReadsMax> {
    let few = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
    let known = answer.comp_mask & MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM != 0;
    known.then(|| DcReadsMax {
        as_initiator: few(answer.max_dc_init_rd_atom),
        as_target: few(answer.max_dc_rd_atom),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_a_library_does_not_report_are_unknown() {
        let mut answer = mlx5dv_context::ZEROED;
        (answer.max_dc_rd_atom, answer.max_dc_init_rd_atom) = (64, 1 << 20);
        assert_eq!(reads_max(&answer), None);
        answer.comp_mask = MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM;
        let expected = DcReadsMax {
            as_initiator: 255,
            as_target: 64,
        };
        assert_eq!(reads_max(&answer), Some(expected));
    }
}
