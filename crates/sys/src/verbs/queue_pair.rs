//! Queue pairs of reliable connections: makes them, and moves them to the states in which they receive and send.

use std::ptr::NonNull;

use super::abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_INIT,
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, ibv_ah_attr, ibv_global_route, ibv_qp_attr, ibv_qp_cap,
    ibv_qp_init_attr,
};
use super::context::Gid;
use super::handles::{PairHandle, PairLimits, QueueDepths, QueuePair};
use super::queues::Queues;
use super::{check, halving, last_error};
use crate::error::LibraryError;

#[cold]
pub(super) fn no_such_pair() -> LibraryError {
    LibraryError::argument("there is no such queue pair")
}

/// Maximum hops of a packet between subnets.
const HOPS: u8 = 64;

/// Timeouts and retries of a queue pair, as encoded in the InfiniBand specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Retransmission timeout: 4.096 µs times two to this power; 0 for none.
    pub timeout: u8,
    /// Number of retransmissions; on some devices, 7 means without limit.
    pub retry: u8,
    /// Number of retries if the peer has no receive ready; 7 means without limit.
    pub rnr_retry: u8,
    /// Time that a peer waits before it retries a message for which this side had no receive. It is an index into the
    /// specification's table.
    pub rnr_timer: u8,
}

/// The path to a peer's queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathTo {
    /// Port of this side.
    pub port: u8,
    /// Index of the partition key in the port's table.
    pub pkey_index: u16,
    /// Number of the peer's queue pair.
    pub number: u32,
    /// First packet sequence number of this side.
    pub first_packet_out: u32,
    /// First packet sequence number of the peer.
    pub first_packet_in: u32,
    /// Largest payload of a packet, a power of two from 256 to 4096.
    pub mtu: u32,
    /// Index of this side's GID, and the peer's GID. `None` if packets carry no GIDs; only InfiniBand allows this.
    pub gids: Option<(u8, Gid)>,
    /// The peer's local identifier (LID); ignored on Ethernet.
    pub lid: u16,
    /// Service level.
    pub service_level: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Maximum reads in flight of this side.
    pub reads_out: u8,
    /// Maximum reads in flight of the peer.
    pub reads_in: u8,
}

impl Queues {
    /// Makes a queue pair of a reliable connection with these depths and `inline_bytes` inline bytes per work request,
    /// or fewer if the device supports fewer.
    ///
    /// # Errors
    /// The library's reason.
    pub fn make_pair(
        &mut self,
        depths: QueueDepths,
        inline_bytes: u32,
    ) -> Result<PairHandle, LibraryError> {
        let (_, pair) = halving(inline_bytes, 0, |bytes| {
            self.try_to_make_pair(depths, bytes)
        })?;
        self.pairs.push(pair);
        Ok(PairHandle(self.pairs.len() - 1))
    }

    fn try_to_make_pair(
        &self,
        depths: QueueDepths,
        inline_bytes: u32,
    ) -> Result<QueuePair, LibraryError> {
        let mut attributes = ibv_qp_init_attr {
            send_cq: self.completions.as_ptr(),
            recv_cq: self.completions.as_ptr(),
            cap: ibv_qp_cap {
                max_send_wr: depths.send,
                max_recv_wr: depths.receive,
                max_send_sge: self.stretches_max,
                max_recv_sge: 1,
                max_inline_data: inline_bytes,
            },
            qp_type: IBV_QPT_RC,
            ..ibv_qp_init_attr::ZEROED
        };
        let create = self.context.library.calls.create_qp;
        let domain = self.thread.as_ref().map_or(self.protection, |it| it.parent);
        // SAFETY: protection domain and completion queue are open; the struct is valid for reads and writes.
        let raw = unsafe { (create)(domain.as_ptr(), &raw mut attributes) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_create_qp"))?;
        Ok(QueuePair {
            raw,
            // SAFETY: the queue pair is open.
            number: unsafe { (*raw.as_ptr()).qp_num },
            limits: PairLimits {
                depths: QueueDepths {
                    send: attributes.cap.max_send_wr,
                    receive: attributes.cap.max_recv_wr,
                },
                inline_bytes: attributes.cap.max_inline_data,
            },
            initiator: None,
        })
    }

    /// Returns the number of a queue pair, for peers and messages; 0 for an unknown one.
    pub fn number(&self, pair: PairHandle) -> u32 {
        self.pairs.get(pair.0).map_or(0, |pair| pair.number)
    }

    /// Returns the granted sizes of a queue pair; `None` for an unknown one.
    pub fn limits(&self, pair: PairHandle) -> Option<PairLimits> {
        self.pairs.get(pair.0).map(|pair| pair.limits)
    }

    /// Moves a new queue pair to the state in which receives can be posted. Its peer may write and read, and, with
    /// `atomics`, use atomic operations.
    ///
    /// # Errors
    /// The library's reason.
    pub fn initialize(
        &mut self,
        pair: PairHandle,
        port: u8,
        pkey_index: u16,
        atomics: bool,
    ) -> Result<(), LibraryError> {
        let access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        let more = if atomics { IBV_ACCESS_REMOTE_ATOMIC } else { 0 };
        let attributes = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            pkey_index,
            port_num: port,
            qp_access_flags: (access | more) as u32,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify("to INIT", pair, attributes, mask)
    }

    /// Moves a queue pair to the state in which it receives from its peer, and then to the state in which it sends.
    ///
    /// # Errors
    /// The library's reason.
    pub fn connect(
        &mut self,
        pair: PairHandle,
        path: &PathTo,
        patience: Patience,
    ) -> Result<(), LibraryError> {
        let receives = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: mtu_number(path.mtu),
            dest_qp_num: path.number,
            rq_psn: path.first_packet_in & 0xff_ffff,
            max_dest_rd_atomic: path.reads_in,
            min_rnr_timer: patience.rnr_timer,
            ah_attr: address(path),
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify("to RTR", pair, receives, mask)?;
        let sends = sends(path, patience, path.reads_out);
        self.modify("to RTS", pair, sends, SENDS_MASK)
    }

    pub(super) fn modify(
        &mut self,
        what: &str,
        pair: PairHandle,
        mut attributes: ibv_qp_attr,
        mask: i32,
    ) -> Result<(), LibraryError> {
        let pair = self.pairs.get(pair.0).ok_or_else(no_such_pair)?;
        let modify = self.context.library.calls.modify_qp;
        // SAFETY: the queue pair is open; the struct is valid for reads.
        let code = unsafe { (modify)(pair.raw.as_ptr(), &raw mut attributes, mask) };
        check("ibv_modify_qp", code).map_err(|error| error.about(what))
    }
}

/// Returns the attributes of the state in which a queue pair sends, with at most `reads` reads in flight.
pub(super) fn sends(path: &PathTo, patience: Patience, reads: u8) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: IBV_QPS_RTS,
        sq_psn: path.first_packet_out & 0xff_ffff,
        timeout: patience.timeout,
        retry_cnt: patience.retry,
        rnr_retry: patience.rnr_retry,
        max_rd_atomic: reads,
        ..ibv_qp_attr::default()
    }
}

/// Mask of the attributes that `sends` sets.
pub(super) const SENDS_MASK: i32 = IBV_QP_STATE
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC;

/// Encodes a packet's payload size: 1 for 256, and one more for each doubling.
pub(super) fn mtu_number(bytes: u32) -> u32 {
    bytes.max(256).ilog2() - 7
}

/// Returns the address attributes of the path to a peer's port.
pub(super) fn address(path: &PathTo) -> ibv_ah_attr {
    let without = ibv_ah_attr {
        dlid: path.lid,
        sl: path.service_level,
        port_num: path.port,
        ..ibv_ah_attr::default()
    };
    let Some((own, gid)) = path.gids else {
        return without;
    };
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&gid[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    ibv_ah_attr {
        is_global: 1,
        grh: ibv_global_route {
            dgid: [half(0), half(8)],
            flow_label: path.flow_label & 0xf_ffff,
            sgid_index: own,
            hop_limit: HOPS,
            traffic_class: path.traffic_class,
        },
        ..without
    }
}
