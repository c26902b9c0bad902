//! Bounds that hold for experiments of several kinds. Bounds of one kind are next to its checks.

/// The most points of one plan: more than a day at a second each.
pub const POINTS_MAX: usize = 100_000;

/// The most ranks of one run.
pub const RANKS_MAX: u32 = 65_536;

/// The most workers of one rank.
pub const WORKERS_MAX: u32 = 1024;

/// The largest single operation: engines carry lengths in 32 bits, and some devices only 31 of them.
pub const SIZE_BYTES_MAX: u32 = 1 << 30;

/// The most operations in flight on one lane: tags and completion queues are sized by it.
pub const DEPTH_MAX: u32 = 1 << 20;

/// The largest footprint, and the most memory that one rank is asked to have.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;
