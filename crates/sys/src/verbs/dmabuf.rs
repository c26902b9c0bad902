//! The call of libibverbs that registers memory of a device by its file, which came in release 34 of rdma-core. A
//! library without it does for memory of the host.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::abi::{ibv_mr, ibv_pd};
use super::loaded::functions;
use crate::library::SharedLibrary;

functions! {
    register = c"ibv_reg_dmabuf_mr" @ c"IBVERBS_1.12" (*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
}
