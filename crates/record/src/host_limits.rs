//! Upper bounds of a host, as the tour shows it.

use crate::Limit;

/// The limits of a host.
pub struct HostLimits {
    /// Memory copy whose source and destination stay in a cache, and the bytes of each.
    pub copy_in_cache: (Limit, u64),
    /// Memory copy that goes to DRAM, and the bytes of source and destination each.
    pub copy_in_dram: (Limit, u64),
    /// One TCP stream over loopback, as the receiver sees it, in bytes per second.
    pub socket_bytes_per_s: f64,
    /// A cache line from one CPU to another, or why it cannot be told.
    pub cache_line_ns: std::result::Result<([u32; 2], f64), String>,
}
