//! A list of work requests that are handed over with one doorbell.

use super::abi::{ibv_send_wr, ibv_sge, ibv_wr_kind};

/// Work requests that are handed over with one doorbell, at most.
pub(super) const LIST_MAX: usize = 64;

/// Place of a target where there is none.
pub(super) const NO_TARGET: usize = usize::MAX;

/// Work requests of one queue pair that were not handed over yet.
pub(super) struct Chain {
    pub(super) pair: usize,
    pub(super) len: usize,
    pub(super) requests: Box<[ibv_send_wr; LIST_MAX]>,
    pub(super) stretches: Box<[ibv_sge; LIST_MAX]>,
    /// Targets of initiators of DC, by their places; [`NO_TARGET`] elsewhere.
    pub(super) targets: Box<[usize; LIST_MAX]>,
}

impl Chain {
    pub(super) fn new() -> Self {
        let none = std::ptr::null_mut();
        let request = ibv_send_wr {
            wr_id: 0,
            next: none,
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            imm_data: 0,
            wr: ibv_wr_kind { _rest: [0; 11] },
        };
        let stretch = ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        Self {
            pair: 0,
            len: 0,
            requests: Box::new([request; LIST_MAX]),
            stretches: Box::new([stretch; LIST_MAX]),
            targets: Box::new([NO_TARGET; LIST_MAX]),
        }
    }
}
