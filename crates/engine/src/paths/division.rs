//! Number of paths between a worker and a peer, and bounds of what is cut.

use super::cut::Cut;

/// Division of the operations between a worker and a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// Endpoints of a worker towards each peer; operations take them in turn.
    pub queue_pairs: u32,
    /// The length above which operations are cut, if any is.
    pub cut: Option<Cut>,
}

impl Division {
    /// One path, and nothing is cut.
    pub const NONE: Self = Self {
        queue_pairs: 1,
        cut: None,
    };

    /// The most queue pairs between a worker and a peer.
    pub const QUEUE_PAIRS_MAX: u32 = 64;

    /// Number of parts of an operation of so many bytes, and the bytes of each but the last.
    #[inline]
    pub fn parts(&self, len: u32) -> (u32, u32) {
        self.cut.map_or((1, len), |cut| cut.parts(len))
    }
}
