//! A worker's assignment at one point. Its flow driver, its memory checker and its idle policy share it.

use std::ops::Range;

use super::layout::SliceLayout;
use super::point_engine::compares_each;
use super::trial::WorkerSetup;
use tonnage_engine::Caps;
use tonnage_plan::transfer::{CqMode, TransferPoint};

/// The point, the worker's set-up, the capabilities of its device, and the layout of its memory.
pub(super) struct WorkerAssignment<'a> {
    pub(super) point: &'a TransferPoint,
    pub(super) setup: WorkerSetup,
    pub(super) caps: Caps,
    pub(super) layout: SliceLayout,
}

impl WorkerAssignment<'_> {
    /// Returns whether this worker initiates operations. A target that only answers does not.
    pub(super) fn initiates(&self) -> bool {
        self.point.roles.initiates(self.setup.rank)
    }

    /// Returns whether this worker is an initiator or a target.
    pub(super) fn takes_part(&self) -> bool {
        !(self.layout.out.is_empty() && self.layout.into.is_empty())
    }

    /// Returns the indices of the flows that are driven in round `round`.
    pub(super) fn in_round(&self, round: u32) -> Range<usize> {
        self.layout.in_round(self.point, (self.setup.rank, round))
    }

    /// Returns whether the device serves all peers by itself, so that this worker need not poll.
    pub(super) fn is_served(&self) -> bool {
        let point = self.point;
        let is_silent =
            self.caps.passive_target && !point.op.notifies_target() && !compares_each(point);
        is_silent && self.layout.out.is_empty() && point.cq == CqMode::Busy
    }

    /// Returns whether another worker times the batches in which this worker has a share.
    pub(super) fn follows_batches(&self) -> bool {
        self.setup.shared.is_some() && self.setup.worker > 0
    }

    /// Returns whether this worker's latencies are recorded.
    pub(super) fn records_latencies(&self) -> bool {
        self.point.latency && !self.follows_batches()
    }
}
