//! Declarations of `infiniband/mlx5dv.h`, and of the parts of `infiniband/verbs.h` for DC queue pairs: the extended
//! work-request interface, address handles and shared receive queues. They are the used parts of release 44 of
//! rdma-core, and one field of a later release.
//!
//! Layout and numbers only. The tests below compare them with the values that a C compiler printed for the headers.
#![allow(
    non_camel_case_types,
    reason = "the names are those of the headers, so that both can be read side by side"
)]

use std::ffi::{c_int, c_uint, c_void};

use super::abi::{ibv_cq, ibv_pd, ibv_qp, ibv_qp_cap};
use crate::header::{structures, zeroed};

/// A function pointer that is not called here.
type Uncalled = Option<unsafe extern "C" fn()>;

pub enum ibv_ah {}
pub enum ibv_srq {}

structures! {
    /// Request for a shared receive queue.
    ibv_srq_init_attr { srq_context: *mut c_void, max_wr: u32, max_sge: u32, srq_limit: u32 }
    /// Request for a queue pair of the extended interface.
    ibv_qp_init_attr_ex {
        qp_context: *mut c_void, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq, cap: ibv_qp_cap,
        qp_type: c_uint, sq_sig_all: c_int, comp_mask: u32, pd: *mut ibv_pd, xrcd: *mut c_void, create_flags: u32,
        max_tso_header: u16, rwq_ind_tbl: *mut c_void,
        /// Settings of receive-side scaling, which are not used.
        rx_hash_conf: [u64; 3],
        source_qpn: u32, send_ops_flags: u64,
    }
    /// A complete queue pair, the beginning of the extended interface.
    ibv_qp_whole {
        leading: ibv_qp, state: c_uint, qp_type: c_uint, _mutex: libc::pthread_mutex_t, _cond: libc::pthread_cond_t,
        _events_completed: u32,
    }
    /// The extended work-request interface of a queue pair. The library may replace calls when the
    /// state of the queue pair changes.
    ibv_qp_ex {
        qp_base: ibv_qp_whole, comp_mask: u64, wr_id: u64, wr_flags: c_uint, _before: [Uncalled; 4],
        wr_rdma_read: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        wr_rdma_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>, _between: [Uncalled; 7],
        wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>, _lists_of_data: Uncalled,
        wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>, _lists_of_stretches: Uncalled,
        wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
        wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    }
    /// The leading part of mlx5's additions to that interface.
    mlx5dv_qp_ex {
        comp_mask: u64, wr_set_dc_addr: Option<unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64)>,
    }
    /// Kind of a DC queue pair, and the access key of a target.
    #[derive(Clone, Copy, Default)]
    mlx5dv_dc_init_attr { dc_type: c_uint, dct_access_key: u64 }
    /// mlx5's part of a request for a queue pair.
    #[derive(Clone, Copy, Default)]
    mlx5dv_qp_init_attr { comp_mask: u64, create_flags: u32, dc_init_attr: mlx5dv_dc_init_attr, send_ops_flags: u64 }
    /// Capabilities of a device. A library fills in the fields that `comp_mask` requests and that it knows, and sets
    /// the mask to these fields.
    #[derive(Clone, Copy)]
    mlx5dv_context {
        version: u8, flags: u64, comp_mask: u64, _between: [u64; 16], max_dc_rd_atom: u64, max_dc_init_rd_atom: u64,
        /// Space for additions of later releases.
        _behind: [u64; 16],
    }
}

zeroed! { ibv_qp_init_attr_ex ibv_srq_init_attr mlx5dv_context }

pub const IBV_QPT_DRIVER: c_uint = 0xff;

pub const IBV_QP_INIT_ATTR_PD: u32 = 1;
pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 64;

pub const IBV_QP_EX_WITH_RDMA_WRITE: u64 = 1;
pub const IBV_QP_EX_WITH_RDMA_READ: u64 = 16;

pub const MLX5DV_QP_INIT_ATTR_MASK_DC: u64 = 2;

pub const MLX5DV_DCTYPE_DCT: c_uint = 1;
pub const MLX5DV_DCTYPE_DCI: c_uint = 2;

/// DC reads in flight; known to libraries since 2023.
pub const MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{assert_offsets, assert_sizes};

    #[test]
    fn fields_lie_where_the_headers_have_them() {
        // Sizes of the C library's locks differ between architectures; the header's numbers are those of x86-64.
        let locks = size_of::<libc::pthread_mutex_t>() + size_of::<libc::pthread_cond_t>();
        let whole = size_of::<ibv_qp_whole>();
        assert_eq!(whole, 72 + locks);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(whole, 160);
        assert_offsets! {
            ibv_srq_init_attr: max_wr 8, max_sge 12, srq_limit 16;
            ibv_qp_init_attr_ex: send_cq 8, recv_cq 16, srq 24, cap 32, qp_type 52, sq_sig_all 56, comp_mask 60, pd 64,
                xrcd 72, create_flags 80, max_tso_header 84, rwq_ind_tbl 88, rx_hash_conf 96, source_qpn 120,
                send_ops_flags 128;
            ibv_qp_whole: state 56, qp_type 60, _mutex 64, _events_completed 64 + locks;
            ibv_qp_ex: comp_mask whole, wr_id whole + 8, wr_flags whole + 16, wr_rdma_read whole + 56,
                wr_rdma_write whole + 64, wr_set_inline_data whole + 128, wr_set_sge whole + 144, wr_start whole + 160,
                wr_complete whole + 168, wr_abort whole + 176;
            mlx5dv_qp_ex: comp_mask 0, wr_set_dc_addr 8;
            mlx5dv_dc_init_attr: dc_type 0, dct_access_key 8;
            mlx5dv_qp_init_attr: comp_mask 0, create_flags 8, dc_init_attr 16, send_ops_flags 32;
            mlx5dv_context: flags 8, comp_mask 16, max_dc_rd_atom 152, max_dc_init_rd_atom 160;
        }
    }

    #[test]
    fn requests_are_as_large_as_in_the_headers() {
        assert_sizes! {
            ibv_srq_init_attr 24, ibv_qp_init_attr_ex 136, mlx5dv_dc_init_attr 16, mlx5dv_qp_init_attr 40
        }
        // The library writes at most its own release's size: 152 bytes in release 44, 200 bytes in releases of 2026.
        assert!(size_of::<mlx5dv_context>() >= 200);
    }
}
