//! The figure that a way of issuing operations is chosen for.

use super::point::Pacing;

/// Figure that a pacing is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacingAim {
    /// Amount that moves: as many operations as the window takes.
    Bandwidth,
    /// Time of one operation that waits for no other.
    Latency,
    /// Time of operations at a rate that was asked for, from which the bandwidth follows.
    LatencyAtRate,
}

impl Pacing {
    /// The figure that operations are issued in this way for: what a point is judged by where nobody names a metric.
    pub fn aim(self) -> PacingAim {
        match self {
            Self::PingPong => PacingAim::Latency,
            Self::Stream { .. } | Self::Batch { .. } => PacingAim::Bandwidth,
            Self::Paced { .. } => PacingAim::LatencyAtRate,
        }
    }
}
