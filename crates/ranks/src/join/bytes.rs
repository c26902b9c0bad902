//! Count of the bytes that joining costs a rank. Those of later exchanges are counted in `crate::tree::node`.

/// Bytes of the control channel until a rank has its place in the tree, those of the encryption included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JoinBytes {
    /// From rank 0; at rank 0, from all others.
    pub got: u64,
    /// To them.
    pub said: u64,
    /// From a parent that is not rank 0.
    pub got_of_parent: u64,
    /// To it.
    pub said_to_parent: u64,
}
