//! Names of an endpoint's parts for whoever posts to it: peers, regions, and regions of peers.
//!
//! They are numbers; what they stand for is in [`super::endpoint`].

/// A peer in the address vector: its place in the endpoint's list. What the library calls an address may be a pointer,
/// so it never leaves the endpoint that it is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub(super) usize);

/// A registered arena: its place in the endpoint's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionHandle(pub(super) usize);

/// A registered arena as a peer reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Base that an offset is added to.
    pub base: u64,
    /// The key of the registration.
    pub key: u64,
    /// Bytes.
    pub len: u64,
}
