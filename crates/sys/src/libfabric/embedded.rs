//! The functions of the libfabric that is compiled into the program.
//!
//! What lives here: their declarations. What does not: the build (`crates/libfabric-embedded`), and calling them, which
//! [`super::Libfabric`] does for a loaded library and this one alike.

use std::ffi::{c_char, c_int, c_void};

use super::abi::{fi_fabric_attr, fi_info, fid_fabric};

unsafe extern "C" {
    pub(super) fn fi_getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        list: *mut *mut fi_info,
    ) -> c_int;
    pub(super) fn fi_freeinfo(list: *mut fi_info);
    pub(super) fn fi_dupinfo(info: *const fi_info) -> *mut fi_info;
    pub(super) fn fi_fabric(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int;
    /// Takes nothing, returns a constant, and needs no set-up.
    pub(super) safe fn fi_version() -> u32;
    /// Takes any code and returns a constant string.
    pub(super) safe fn fi_strerror(code: c_int) -> *const c_char;
}
