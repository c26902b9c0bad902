//! A worker's assignment at one point, shared by its flow driver, its memory checker and its idle policy.

use std::ops::Range;

use super::layout::SliceLayout;
use super::point_engine::compares_each;
use super::trial::WorkerSetup;
use tonnage_engine::Caps;
use tonnage_plan::transfer::{CqMode, TransferPoint};

/// The point, the worker's identity in the run, its device's capabilities and the layout of its memory.
pub(super) struct WorkerAssignment<'a> {
    pub(super) point: &'a TransferPoint,
    pub(super) setup: WorkerSetup,
    pub(super) caps: Caps,
    pub(super) layout: SliceLayout,
}

impl WorkerAssignment<'_> {
    /// Whether this worker initiates operations; a target that only answers does not.
    pub(super) fn initiates(&self) -> bool {
        self.point.roles.initiates(self.setup.rank)
    }

    /// Whether this worker is an initiator or a target.
    pub(super) fn takes_part(&self) -> bool {
        !(self.layout.out.is_empty() && self.layout.into.is_empty())
    }

    /// Indices of the flows that round `round` drives.
    pub(super) fn in_round(&self, round: u32) -> Range<usize> {
        self.layout.in_round(self.point, (self.setup.rank, round))
    }

    /// Whether the device serves all peers on its own, so that this worker has nothing to poll for.
    pub(super) fn is_served(&self) -> bool {
        let point = self.point;
        let is_silent =
            self.caps.passive_target && !point.op.notifies_target() && !compares_each(point);
        is_silent && self.layout.out.is_empty() && point.cq == CqMode::Busy
    }

    /// Whether another worker times the batches that this one has a share of.
    pub(super) fn follows_batches(&self) -> bool {
        self.setup.shared.is_some() && self.setup.worker > 0
    }

    /// Whether the loops record this worker's latencies.
    pub(super) fn records_latencies(&self) -> bool {
        self.point.latency && !self.follows_batches()
    }
}
