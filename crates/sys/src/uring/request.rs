//! Requests to a ring and their results: plain values without pointers.

use std::io;

use crate::mapping::OutOfRange;

/// Number of a file within its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(pub u32);

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the file to the arena.
    Read,
    /// From the arena to the file.
    Write,
}

/// One read or write, by offsets: no pointer of the caller is ever used.
#[derive(Debug, Clone, Copy)]
pub struct RingRequest {
    /// The file.
    pub file: FileId,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Offset in the arena.
    pub local: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
    /// Returned with the result.
    pub tag: u64,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// All bytes of the request were moved.
    Whole,
    /// The file ended early: the kernel returned no more bytes of a read.
    EndOfFile,
    /// The kernel's error number. A write that moves nothing, for example on a full device, is `ENOSPC`.
    Failed(i32),
}

/// A request that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The request's tag.
    pub tag: u64,
    /// Number of bytes moved, all of them for [`RequestOutcome::Whole`].
    pub moved: u32,
    /// Outcome of the request.
    pub outcome: RequestOutcome,
}

impl Finished {
    /// Initial value for buffers of results.
    pub const EMPTY: Self = Self {
        tag: 0,
        moved: 0,
        outcome: RequestOutcome::Whole,
    };
}

/// The reason why a request was not accepted.
#[derive(Debug)]
pub enum PostError {
    /// The request's bytes lie outside the arena.
    Outside(OutOfRange),
    /// No such file is open in this ring.
    NoFile(FileId),
    /// The kernel does not accept posted operations.
    Kernel(io::Error),
}

impl std::fmt::Display for PostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outside(error) => error.fmt(f),
            Self::NoFile(file) => write!(f, "file {} was never opened in this ring", file.0),
            Self::Kernel(error) => write!(f, "the kernel accepts no operations: {error}"),
        }
    }
}

impl std::error::Error for PostError {}
