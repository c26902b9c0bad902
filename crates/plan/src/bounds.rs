//! Limits shared by several kinds of experiments. The limits of a single kind are next to its checks.

/// Maximum number of points of one plan. At a second per point, these take more than a day.
pub const POINTS_MAX: usize = 100_000;

/// Maximum number of ranks of one run.
pub const RANKS_MAX: u32 = 65_536;

/// Maximum number of threads of one rank.
pub const THREADS_MAX: u32 = 1024;

/// Largest single operation. Engines store lengths in 32 bits, and some devices support only 31.
pub const SIZE_BYTES_MAX: u32 = 1 << 30;

/// Maximum number of operations in flight on one lane. It bounds the tags and completion queues that engines need.
pub const DEPTH_MAX: u32 = 1 << 20;

/// Maximum footprint, and maximum memory of one rank.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;
