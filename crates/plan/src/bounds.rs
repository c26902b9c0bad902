//! Bounds that hold for experiments of several kinds. Bounds of one kind are next to its checks.

/// Maximum number of points of one plan: more than a day at a second each.
pub const POINTS_MAX: usize = 100_000;

/// Maximum number of ranks of one run.
pub const RANKS_MAX: u32 = 65_536;

/// Maximum number of threads of one rank.
pub const THREADS_MAX: u32 = 1024;

/// The largest single operation: engines carry lengths in 32 bits, and some devices only 31 of them.
pub const SIZE_BYTES_MAX: u32 = 1 << 30;

/// Maximum number of operations in flight on one lane. It determines the size of tags and completion queues.
pub const DEPTH_MAX: u32 = 1 << 20;

/// Largest footprint, and maximum memory of one rank.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;
