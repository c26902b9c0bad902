//! Trials that the device runs itself: the orders for the device, and the memory that it uses.

use std::sync::Arc;
use std::time::Duration;

use super::{FlowDriver, PendingLatencies};
use crate::kinds::transfer::layout::GUARD_BYTES;
use crate::kinds::transfer::totals::TrialTotals;
use crate::kinds::transfer::trial::Schedule;
use crate::loop_parameters::flow_slots;
use tonnage_engine::carried::{
    BinnedLatencies, CarriedFlow, CarriedOrder, CarriedProgress, TrialCarrier,
};
use tonnage_loops::flow::Flow;
use tonnage_plan::transfer::{Pacing, TransferPoint, TrialLength};
use tonnage_units::{Error, Result};

impl FlowDriver<'_> {
    fn carrier(&mut self) -> Result<&mut dyn TrialCarrier> {
        let none = || {
            Error::Failed(
                "the engine cannot run whole trials, although its device claims to; report this"
                    .into(),
            )
        };
        self.port.engine.carrier().ok_or_else(none)
    }

    /// Returns the ranges of this worker's memory that its own operations use.
    fn own_memory_ranges(&self) -> Vec<(u64, u64)> {
        let bytes = self.assignment.point.slots.footprint_bytes + GUARD_BYTES;
        let flows = self.flows.iter();
        flows.map(|flow| (flow.local_origin, bytes)).collect()
    }

    /// Copies this worker's memory, after it was filled, to the memory that the device's own operations access. Does
    /// nothing if the device runs no operations itself.
    pub(in super::super) fn hand_over_memory(&mut self) -> Result<()> {
        let stretches = self.own_memory_ranges();
        if self.assignment.caps.carried {
            self.carrier()?.copy_to_landing(&stretches)?;
        }
        Ok(())
    }

    /// Copies bytes from the device's memory, where its reads put them, back to this worker's memory. There they can be
    /// checked.
    pub(in super::super) fn fetch_memory(&mut self) -> Result<()> {
        let stretches = self.own_memory_ranges();
        if self.assignment.caps.carried && self.assignment.point.op.returns_bytes() {
            self.carrier()?.copy_from_landing(&stretches)?;
        }
        Ok(())
    }

    /// Prepares a round that the device runs itself, before the round's start, and returns its progress. `None` for
    /// other rounds.
    pub(super) fn begin_carried(
        &mut self,
        schedule: &Schedule,
    ) -> Result<Option<Arc<dyn CarriedProgress>>> {
        self.carried = None;
        if !self.assignment.caps.carried || self.active.is_empty() {
            return Ok(None);
        }
        let (point, rank) = (self.assignment.point, self.assignment.setup.rank);
        let stop = self.port.stop_flag();
        let slots = flow_slots(point);
        let carried = |flow: &Flow| flow.carried(&slots, rank);
        let flows: Vec<_> = self.flows[self.active.clone()]
            .iter()
            .map(carried)
            .collect();
        let order = carried_order(point, schedule.length, &flows, stop);
        let progress = self.carrier()?.begin(&order)?;
        self.carried = Some(flows);
        Ok(Some(progress))
    }

    /// Makes the device run a prepared round.
    pub(super) fn drive_carried(
        &mut self,
        schedule: &Schedule,
        flows: &[CarriedFlow],
        totals: &mut TrialTotals,
    ) -> Result<()> {
        let stop = self.port.stop_flag();
        let left_ns = |ns: u64| (schedule.start_ns + ns).saturating_sub(self.port.clock.now_ns());
        let order = CarriedOrder {
            duration: match schedule.length {
                // If the start comes after the end, the trial still runs for a moment.
                TrialLength::DurationNs(ns) => Some(Duration::from_nanos(left_ns(ns).max(1))),
                TrialLength::Iterations(_) => None,
            },
            patience: self.assignment.setup.patience,
            ..carried_order(self.assignment.point, schedule.length, flows, stop)
        };
        let trial = self.carrier()?.carry_out(&order)?;
        for (flow, &issued) in self.flows[self.active.clone()]
            .iter_mut()
            .zip(&trial.issued)
        {
            flow.skip(issued);
        }
        totals.operations = trial.operations();
        self.port.note_in_flight(trial.in_flight_max);
        self.pending = PendingLatencies::Carried(trial.operations());
        Ok(())
    }

    /// Returns the latencies of a round that the device ran, if latencies are recorded.
    pub(in super::super) fn carried_latencies(&mut self) -> Result<Option<BinnedLatencies>> {
        if !self.assignment.point.latency {
            return Ok(None);
        }
        self.carrier()?.latencies().map(Some)
    }
}

/// Builds the order for a round, without its duration.
fn carried_order<'a>(
    point: &TransferPoint,
    length: TrialLength,
    flows: &'a [CarriedFlow],
    stop: &'a std::sync::atomic::AtomicBool,
) -> CarriedOrder<'a> {
    let (depth, in_batches) = match point.pacing {
        Pacing::Batch { batch } => (batch, true),
        _ => (point.depth(), false),
    };
    // In batches, the device counts operations, and an iteration is one batch on each flow.
    let of_batch = u64::from(depth).saturating_mul(flows.len() as u64);
    let each = if in_batches { of_batch } else { 1 };
    let most = point.iterations_max();
    let count = match length {
        TrialLength::Iterations(count) => Some(most.map_or(count, |most| most.min(count))),
        TrialLength::DurationNs(_) => most,
    };
    CarriedOrder {
        verb: point.op,
        size_bytes: point.slots.size_bytes,
        depth,
        in_batches,
        slots: point.slots.count(),
        stride_bytes: point.slots.stride_bytes,
        orders: point.slots.orders(),
        flows,
        operations_max: count.map(|count| count.saturating_mul(each)),
        duration: None,
        patience: Duration::MAX,
        timed: point.latency,
        stop,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use tonnage_engine::Lane;
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::Access;

    #[test]
    fn an_iteration_is_an_operation_or_a_batch_of_each_flow() {
        let stop = AtomicBool::new(false);
        let flow = CarriedFlow {
            lane: Lane(0),
            local: 0,
            remote: 0,
            seed: 0,
            issued: 0,
        };
        let flows = [flow, flow, flow];
        let stream = point(Access::Random, 4);
        let of = |point: &TransferPoint, length| {
            let order = carried_order(point, length, &flows, &stop);
            (order.depth, order.in_batches, order.operations_max)
        };
        let ten = TrialLength::Iterations(10);
        assert_eq!(of(&stream, ten), (4, false, Some(10)));
        assert_eq!(of(&stream, TrialLength::DurationNs(5)), (4, false, None));
        let batch = TransferPoint {
            pacing: Pacing::Batch { batch: 5 },
            ..stream
        };
        assert_eq!(of(&batch, ten), (5, true, Some(150)));
    }
}
