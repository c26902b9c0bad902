//! Handles of an endpoint's parts for posting: peers, regions, and regions of peers.
//!
//! They are indices into lists of [`super::endpoint`].

/// A peer in the address vector: its index in the endpoint's list. The library's address may be a pointer, so it never
/// leaves the endpoint where it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub(super) usize);

/// A registered memory: its index in the endpoint's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionHandle(pub(super) usize);

/// The description of registered memory for peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Base address to add offsets to.
    pub base: u64,
    /// The key of the registration.
    pub key: u64,
    /// Size in bytes.
    pub len: u64,
}
