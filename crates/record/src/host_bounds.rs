//! Upper bounds of a host, for the tour.

use crate::Bound;

/// The bounds of a host.
pub struct HostBounds {
    /// Memory copy within a cache, and the size of the source, which equals that of the destination.
    pub copy_in_cache: (Bound, u64),
    /// Memory copy from DRAM to DRAM, and the size of the source, which equals that of the destination.
    pub copy_in_dram: (Bound, u64),
    /// One TCP stream over loopback, measured at the receiver, in bytes per second.
    pub socket_bytes_per_s: f64,
    /// One-way time of a cache line between two CPUs, or the reason that it is unknown.
    pub cache_line_ns: std::result::Result<([u32; 2], f64), String>,
}
