//! The used declarations of `infiniband/verbs.h`, release 44 of rdma-core. The first release with this interface
//! (IBVERBS_1.1) is from 2007, and it has only grown at the end since.
//!
//! Layout and numbers only. The tests below compare them with the values that a C compiler printed for the header.
#![allow(
    non_camel_case_types,
    reason = "the names are those of the header, so that both can be read side by side"
)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::header::{structures, zeroed};

/// A function pointer that is not called here.
type Unused = Option<unsafe extern "C" fn()>;

pub enum ibv_device {}
pub enum ibv_pd {}
pub enum ibv_cq {}

/// Fields that depend on the kind of a work request.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_wr_kind {
    pub rdma: ibv_wr_rdma,
    pub atomic: ibv_wr_atomic,
    /// Space for the other kinds, to the end of the work request.
    pub _rest: [u64; 11],
}

/// `ibv_poll_cq` of a device.
pub type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
/// `ibv_post_send` of a device.
pub type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
/// `ibv_post_recv` of a device.
pub type PostRecv =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

structures! {
    /// Calls that are not exported: each device's own, used by the header's inline functions.
    ibv_context_ops {
        _before: [Unused; 11], poll_cq: PollCq,
        req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int, _between: [Unused; 12],
        post_send: PostSend, post_recv: PostRecv, _behind: [Unused; 5],
    }
    /// An open device.
    ibv_context {
        device: *mut ibv_device, ops: ibv_context_ops, cmd_fd: c_int, async_fd: c_int,
        /// The number of completion vectors, and a lock of 40 bytes.
        _rest: [u64; 6],
        /// Marks whether a table of more calls precedes this struct.
        abi_compat: *mut c_void,
    }
    /// The leading part of a queue pair.
    ibv_qp {
        context: *mut ibv_context, qp_context: *mut c_void, pd: *mut ibv_pd, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq,
        srq: *mut c_void, handle: u32, qp_num: u32,
    }
    /// A registration.
    ibv_mr {
        context: *mut ibv_context, pd: *mut ibv_pd, addr: *mut c_void, length: usize, handle: u32, lkey: u32, rkey: u32,
    }
    /// A channel on which a completion queue signals new entries.
    ibv_comp_channel { context: *mut ibv_context, fd: c_int, refcnt: c_int }
    /// A range of local memory (scatter/gather entry).
    #[derive(Clone, Copy)]
    ibv_sge { addr: u64, length: u32, lkey: u32 }
    /// Remote range of an RDMA read or write.
    #[derive(Clone, Copy)]
    ibv_wr_rdma { remote_addr: u64, rkey: u32 }
    /// Remote word and operands of an atomic operation.
    #[derive(Clone, Copy)]
    ibv_wr_atomic { remote_addr: u64, compare_add: u64, swap: u64, rkey: u32 }
    /// A work request of the send queue.
    #[derive(Clone, Copy)]
    ibv_send_wr {
        wr_id: u64, next: *mut ibv_send_wr, sg_list: *mut ibv_sge, num_sge: c_int, opcode: c_uint, send_flags: c_uint,
        /// In network byte order.
        imm_data: u32,
        wr: ibv_wr_kind,
    }
    /// A work request of the receive queue.
    #[derive(Clone, Copy)]
    ibv_recv_wr { wr_id: u64, next: *mut ibv_recv_wr, sg_list: *mut ibv_sge, num_sge: c_int }
    /// A completion. If `status` is not success, only `wr_id`, `status`, `vendor_err` and `qp_num` are valid.
    #[derive(Clone, Copy)]
    ibv_wc {
        wr_id: u64, status: c_uint, opcode: c_uint, vendor_err: u32, byte_len: u32,
        /// In network byte order.
        imm_data: u32,
        qp_num: u32, src_qp: u32, wc_flags: c_uint, pkey_index: u16, slid: u16, sl: u8, dlid_path_bits: u8,
    }
    /// Sizes of a queue pair.
    #[derive(Clone, Copy, Default)]
    ibv_qp_cap { max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32 }
    /// Request for a queue pair.
    ibv_qp_init_attr {
        qp_context: *mut c_void, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut c_void, cap: ibv_qp_cap,
        qp_type: c_uint, sq_sig_all: c_int,
    }
    /// A route between subnets, or of RoCE.
    #[derive(Clone, Copy, Default)]
    ibv_global_route { dgid: [u64; 2], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8 }
    /// The path to a peer's port.
    #[derive(Clone, Copy, Default)]
    ibv_ah_attr {
        grh: ibv_global_route, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
    }
    /// Attributes of a queue pair for a state transition.
    #[derive(Clone, Copy, Default)]
    ibv_qp_attr {
        qp_state: c_uint, cur_qp_state: c_uint, path_mtu: c_uint, path_mig_state: c_uint, qkey: u32, rq_psn: u32,
        sq_psn: u32, dest_qp_num: u32, qp_access_flags: c_uint, cap: ibv_qp_cap, ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr, pkey_index: u16, alt_pkey_index: u16, en_sqd_async_notify: u8, sq_draining: u8,
        max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8,
        rnr_retry: u8, alt_port_num: u8, alt_timeout: u8, rate_limit: u32,
    }
    /// A port, as filled in by the exported call.
    #[derive(Clone, Copy, Default)]
    ibv_port_attr {
        state: c_uint, max_mtu: c_uint, active_mtu: c_uint, gid_tbl_len: c_int, port_cap_flags: u32, max_msg_sz: u32,
        bad_pkey_cntr: u32, qkey_viol_cntr: u32, pkey_tbl_len: u16, lid: u16, sm_lid: u16, lmc: u8, max_vl_num: u8,
        sm_sl: u8, subnet_timeout: u8, init_type_reply: u8, active_width: u8, active_speed: u8, phys_state: u8,
        link_layer: u8, flags: u8, port_cap_flags2: u16,
    }
    /// Limits of a device.
    #[derive(Clone, Copy)]
    ibv_device_attr {
        fw_ver: [c_char; 64], node_guid: u64, sys_image_guid: u64, max_mr_size: u64, page_size_cap: u64, vendor_id: u32,
        vendor_part_id: u32, hw_ver: u32, max_qp: c_int, max_qp_wr: c_int, device_cap_flags: c_uint, max_sge: c_int,
        max_sge_rd: c_int, max_cq: c_int, max_cqe: c_int, max_mr: c_int, max_pd: c_int, max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int, max_res_rd_atom: c_int, max_qp_init_rd_atom: c_int, max_ee_init_rd_atom: c_int,
        atomic_cap: c_uint,
        /// Unused fields, to the end of the struct.
        _rest: [u32; 16],
    }
    /// An event of a device or one of its objects.
    #[derive(Clone, Copy, Default)]
    ibv_async_event {
        /// Pointer to the object, or a port number in the lower half.
        element: u64,
        event_type: c_uint,
    }
}

zeroed! { ibv_device_attr ibv_qp_init_attr ibv_recv_wr ibv_send_wr ibv_sge ibv_wc }

pub const IBV_WR_RDMA_WRITE: c_uint = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: c_uint = 1;
pub const IBV_WR_SEND: c_uint = 2;
pub const IBV_WR_RDMA_READ: c_uint = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: c_uint = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_uint = 6;

pub const IBV_SEND_SIGNALED: c_uint = 2;
pub const IBV_SEND_INLINE: c_uint = 8;

pub const IBV_QPT_RC: c_uint = 2;

pub const IBV_QPS_INIT: c_uint = 1;
pub const IBV_QPS_RTR: c_uint = 2;
pub const IBV_QPS_RTS: c_uint = 3;

pub const IBV_QP_STATE: c_int = 1;
pub const IBV_QP_ACCESS_FLAGS: c_int = 8;
pub const IBV_QP_PKEY_INDEX: c_int = 16;
pub const IBV_QP_PORT: c_int = 32;
pub const IBV_QP_AV: c_int = 128;
pub const IBV_QP_PATH_MTU: c_int = 256;
pub const IBV_QP_TIMEOUT: c_int = 512;
pub const IBV_QP_RETRY_CNT: c_int = 1024;
pub const IBV_QP_RNR_RETRY: c_int = 2048;
pub const IBV_QP_RQ_PSN: c_int = 4096;
pub const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 8192;
pub const IBV_QP_MIN_RNR_TIMER: c_int = 32768;
pub const IBV_QP_SQ_PSN: c_int = 65536;
pub const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 131_072;
pub const IBV_QP_DEST_QPN: c_int = 1_048_576;

pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1;
pub const IBV_ACCESS_REMOTE_WRITE: c_int = 2;
pub const IBV_ACCESS_REMOTE_READ: c_int = 4;
pub const IBV_ACCESS_REMOTE_ATOMIC: c_int = 8;
pub const IBV_ACCESS_RELAXED_ORDERING: c_int = 1 << 20;

pub const IBV_WC_SUCCESS: c_uint = 0;
pub const IBV_WC_RECV_RDMA_WITH_IMM: c_uint = 129;

pub const IBV_ATOMIC_NONE: c_uint = 0;

pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{assert_offsets, assert_sizes};

    #[test]
    fn fields_lie_where_the_header_has_them() {
        assert_offsets! {
            ibv_context: ops 8, cmd_fd 264, async_fd 268;
            ibv_context_ops: poll_cq 88, req_notify_cq 96, post_send 200, post_recv 208;
            ibv_qp: context 0, handle 48, qp_num 52;
            ibv_mr: addr 16, lkey 36, rkey 40;
            ibv_comp_channel: fd 8;
            ibv_sge: length 8, lkey 12;
            ibv_send_wr: next 8, sg_list 16, num_sge 24, opcode 28, send_flags 32, imm_data 36, wr 40;
            ibv_wr_rdma: remote_addr 0, rkey 8;
            ibv_wr_atomic: remote_addr 0, compare_add 8, swap 16, rkey 24;
            ibv_recv_wr: next 8, sg_list 16, num_sge 24;
            ibv_wc: status 8, opcode 12, vendor_err 16, byte_len 20, imm_data 24, qp_num 28, wc_flags 36;
            ibv_qp_init_attr: send_cq 8, recv_cq 16, srq 24, cap 32, qp_type 52, sq_sig_all 56;
            ibv_global_route: flow_label 16, sgid_index 20, hop_limit 21, traffic_class 22;
            ibv_ah_attr: dlid 24, sl 26, src_path_bits 27, static_rate 28, is_global 29, port_num 30;
            ibv_qp_attr: path_mtu 8, rq_psn 20, sq_psn 24, dest_qp_num 28, qp_access_flags 32, ah_attr 56, pkey_index 120,
                max_rd_atomic 126, max_dest_rd_atomic 127, min_rnr_timer 128, port_num 129, timeout 130, retry_cnt 131,
                rnr_retry 132;
            ibv_port_attr: active_mtu 8, gid_tbl_len 12, max_msg_sz 20, pkey_tbl_len 32, lid 34, link_layer 46, flags 47;
            ibv_async_event: event_type 8;
            ibv_device_attr: max_mr_size 80, vendor_id 96, max_qp 108, max_qp_wr 112, max_cqe 132, max_qp_rd_atom 144,
                max_res_rd_atom 152, max_qp_init_rd_atom 156, atomic_cap 164;
        }
    }

    #[test]
    fn what_is_allocated_here_is_as_large_as_in_the_header() {
        assert_sizes! {
            ibv_send_wr 128, ibv_recv_wr 32, ibv_sge 16, ibv_wc 48, ibv_qp_init_attr 64, ibv_qp_attr 144,
            ibv_ah_attr 32, ibv_port_attr 52, ibv_async_event 16, ibv_device_attr 232
        }
    }
}
