//! Handles of the objects of a worker's queues, and the sizes of a queue pair.

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

/// Handle of the address of a DC target, unique within its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressHandle(pub(super) usize);

/// The description of registered memory for peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedRegion {
    /// Address of the memory's first byte, in the peer's address space.
    pub base: u64,
    /// Keys of the peer's device.
    pub keys: RegionKeys,
    /// Size in bytes.
    pub len: u64,
}

/// Maximum work requests of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepths {
    /// In the send queue.
    pub send: u32,
    /// In the receive queue.
    pub receive: u32,
}

/// An open queue pair.
pub(super) struct QueuePair {
    pub(super) raw: NonNull<ibv_qp>,
    pub(super) number: u32,
    pub(super) limits: PairLimits,
    /// The work-request interface, if the queue pair is a DC initiator.
    pub(super) initiator: Option<Initiator>,
}

/// The work-request interface of a DC initiator, and mlx5's additions. Both are parts of the queue pair.
#[derive(Clone, Copy)]
pub(super) struct Initiator {
    pub(super) interface: NonNull<ibv_qp_ex>,
    pub(super) own_interface: NonNull<mlx5dv_qp_ex>,
}

/// Granted sizes of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairLimits {
    /// Maximum work requests of its queues.
    pub depths: QueueDepths,
    /// Maximum inline payload of a work request.
    pub inline_bytes: u32,
}
