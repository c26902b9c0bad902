//! The lanes of a worker: what each was asked for, and the route and the flush that came of it in `resolve`.

use tonnage_engine::{LaneKind, RegionId};
use tonnage_sys::libfabric::{RemoteRegion, Route};

/// Key that tells lanes apart.
#[derive(PartialEq)]
pub(super) struct Spec {
    pub(super) kind: LaneKind,
    pub(super) peer: u32,
    pub(super) local: RegionId,
    pub(super) remote: RemoteRegion,
    pub(super) ordered: bool,
    pub(super) delivered: bool,
}

/// One lane.
pub(super) struct LaneState {
    pub(super) spec: Spec,
    pub(super) route: Route,
    /// The read that proves arrival, and where its byte goes; writes that are delivered need none.
    pub(super) flush: Option<(Route, u64)>,
    /// The longest write that such a read proves; of no account to lanes without one.
    pub(super) flushed_bytes_max: u32,
    /// Offset of the last byte that was written and not delivered; `None` before the first such write.
    pub(super) last_byte: Option<u64>,
    /// The sender, in the high half of the data of a write-imm.
    pub(super) sender: u64,
    /// Receives of it are held, so that later ones have to wait behind them.
    pub(super) holds: bool,
}
