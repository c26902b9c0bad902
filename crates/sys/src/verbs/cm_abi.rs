//! The used declarations of `rdma/rdma_cma.h`, release 44 of rdma-core.
//!
//! Layout and numbers only. The tests below compare them with the values that a C compiler printed for the header.
#![allow(
    non_camel_case_types,
    reason = "the names are those of the header, so that both can be read side by side"
)]

use std::ffi::{c_int, c_uint, c_void};

use super::abi::ibv_context;
use crate::header::structures;

structures! {
    /// An event channel.
    rdma_event_channel { fd: c_int }
    /// The leading part of an identifier, librdmacm's counterpart of a socket.
    rdma_cm_id {
        /// The library's own handle of the device; null while the identifier is not bound to one.
        verbs: *mut ibv_context,
        channel: *mut rdma_event_channel, context: *mut c_void, qp: *mut c_void,
        /// Addresses and paths.
        _route: [u64; 39],
        ps: c_uint, port_num: u8,
    }
    /// Parameters of a connection.
    #[derive(Debug, Clone, Copy)]
    rdma_conn_param {
        private_data: *const c_void, private_data_len: u8, responder_resources: u8, initiator_depth: u8,
        flow_control: u8, retry_count: u8, rnr_retry_count: u8, srq: u8, qp_num: u32,
    }
    /// The leading part of an event, with the parameters of connection events.
    rdma_cm_event {
        id: *mut rdma_cm_id, listen_id: *mut rdma_cm_id, event: c_uint, status: c_int, conn: rdma_conn_param,
    }
}

pub const RDMA_PS_TCP: c_uint = 0x0106;

pub const RDMA_OPTION_ID: c_int = 0;
pub const RDMA_OPTION_ID_TOS: c_int = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{assert_offsets, assert_sizes};

    #[test]
    fn fields_lie_where_the_header_has_them() {
        assert_offsets! {
            rdma_event_channel: fd 0;
            rdma_cm_id: verbs 0, channel 8, context 16, qp 24, _route 32, ps 344, port_num 348;
            rdma_conn_param: private_data 0, private_data_len 8, responder_resources 9, initiator_depth 10,
                flow_control 11, retry_count 12, rnr_retry_count 13, srq 14, qp_num 16;
            rdma_cm_event: id 0, listen_id 8, event 16, status 20, conn 24;
        }
        // The only struct that is allocated here.
        assert_sizes! { rdma_conn_param 24 }
    }
}
