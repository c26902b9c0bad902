//! Calls of libibverbs that only some queue pairs need: address handles, shared receive queues, and the extended
//! work-request interface, which came in release 24 of rdma-core. A library without them does for reliable connections.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::abi::{ibv_ah_attr, ibv_pd, ibv_qp};
use super::loaded::functions;
use super::mlx5_abi::{ibv_ah, ibv_qp_ex, ibv_srq, ibv_srq_init_attr};
use crate::library::SharedLibrary;

functions! {
    create_ah = c"ibv_create_ah" @ c"IBVERBS_1.1" (*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah = c"ibv_destroy_ah" @ c"IBVERBS_1.1" (*mut ibv_ah) -> c_int;
    create_srq = c"ibv_create_srq" @ c"IBVERBS_1.1" (*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    destroy_srq = c"ibv_destroy_srq" @ c"IBVERBS_1.1" (*mut ibv_srq) -> c_int;
    interface = c"ibv_qp_to_qp_ex" @ c"IBVERBS_1.6" (*mut ibv_qp) -> *mut ibv_qp_ex;
}
