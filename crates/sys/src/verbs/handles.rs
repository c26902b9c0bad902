//! Handles of what belongs to a worker's queues, and the sizes of a queue pair.

use std::ptr::NonNull;

use super::abi::ibv_qp;

/// Handle of a registration, unique within its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistrationHandle(pub(super) usize);

/// Handle of a queue pair, unique within its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairHandle(pub(super) usize);

/// Registered memory as a peer reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedRegion {
    /// Address of its first byte, in the peer.
    pub base: u64,
    /// Key that the peer's device knows it by.
    pub key: u32,
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
}

/// Sizes that a queue pair was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairLimits {
    /// Work requests of its queues.
    pub depths: QueueDepths,
    /// The largest payload that fits into a work request itself.
    pub inline_bytes: u32,
}
