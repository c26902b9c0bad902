//! Handles of what belongs to a worker's queues, and the sizes of a queue pair.

use std::ptr::NonNull;

use super::abi::ibv_qp;
use super::mlx5_abi::{ibv_qp_ex, mlx5dv_qp_ex};
use super::pieces::RegionKeys;

/// Handle of a registration, unique within its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistrationHandle(pub(super) usize);

/// Handle of a queue pair, unique within its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairHandle(pub(super) usize);

/// Handle of the address of a target of DC, unique within its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressHandle(pub(super) usize);

/// Registered memory as a peer reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedRegion {
    /// Address of its first byte, in the peer.
    pub base: u64,
    /// Keys that the peer's device knows it by.
    pub keys: RegionKeys,
    /// Its bytes.
    pub len: u64,
}

/// Work requests that a queue pair has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepths {
    /// Of the send queue.
    pub send: u32,
    /// Of the receive queue.
    pub receive: u32,
}

/// A queue pair that is open.
pub(super) struct QueuePair {
    pub(super) raw: NonNull<ibv_qp>,
    pub(super) number: u32,
    pub(super) limits: PairLimits,
    /// The interface that takes its work requests, where it is an initiator of DC.
    pub(super) initiator: Option<Initiator>,
}

/// The work-request interface of an initiator of DC, and what mlx5 adds to it. Both are parts of the queue pair.
#[derive(Clone, Copy)]
pub(super) struct Initiator {
    pub(super) interface: NonNull<ibv_qp_ex>,
    pub(super) own_interface: NonNull<mlx5dv_qp_ex>,
}

/// Sizes that a queue pair was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairLimits {
    /// Work requests of its queues.
    pub depths: QueueDepths,
    /// The largest payload that fits into a work request itself.
    pub inline_bytes: u32,
}
