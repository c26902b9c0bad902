//! Trials that are carried out elsewhere: the order for them, the memory that they use, and which points cannot be.

use std::time::Duration;

use super::layout::GUARD_BYTES;
use super::totals::TrialTotals;
use super::trial::{Schedule, WARM_UP};
use super::work::Work;
use crate::drive::flow::Flow;
use tonnage_engine::carried::{CarriedFlow, CarriedOrder, Carrier, SlotOrder};
use tonnage_plan::transfer::{Addresses, Batching, CqMode, Pacing, TransferPoint, TrialLength};
use tonnage_units::{Error, Result};

/// Refuses a point whose trials whoever carries them out cannot.
///
/// # Errors
/// `Unavailable`, with what to choose instead.
pub(super) fn check_carried(point: &TransferPoint, depth: u32, name: &str) -> Result<()> {
    let refused = |what: &str, why: &str, how: &str| {
        Err(Error::Unavailable {
            what: format!("{what} on {name}"),
            why: why.to_owned(),
            how: how.to_owned(),
        })
    };
    let loops = "it carries out whole trials of a window, or of batches without latencies";
    match point.pacing {
        Pacing::Stream { .. } => {}
        Pacing::Batch { .. } if !point.latency && point.batching == Batching::default() => {}
        pacing => {
            let how = "Choose --window, or --batch with --latency off";
            return refused(pacing.name(), loops, how);
        }
    }
    if point.cq == CqMode::Event {
        return refused("--cq event", "it polls", "Choose --cq busy");
    }
    if point.session.is_some() {
        let why = "it takes no single operations that the library could hand over";
        return refused("the library's calls", why, "Leave --api and --session out");
    }
    if !point.division().is_of_queue_pairs() {
        let why = "it does not cut operations, and has one device for each worker";
        return refused("--chunk or --rails", why, "Leave them out");
    }
    if point.loads.is_some() || point.background.is_some() {
        let how = "Choose another --traffic, and leave --background out";
        return refused("a traffic file or a background", loops, how);
    }
    if point.depth() > depth {
        let why = format!("it keeps at most {depth} operations in flight");
        return refused(
            &point.pacing.to_string(),
            &why,
            &format!("Choose at most {depth}"),
        );
    }
    Ok(())
}

impl Work<'_> {
    fn carrier(&mut self) -> Result<&mut dyn Carrier> {
        let none = || Error::Failed("the engine has nobody who carries trials out".into());
        self.port.engine.carrier().ok_or_else(none)
    }

    /// Stretches of this worker's memory that its own operations use.
    fn own_stretches(&self) -> Vec<(u64, u64)> {
        let bytes = self.point.footprint_bytes + GUARD_BYTES;
        let flows = self.flows.iter();
        flows.map(|flow| (flow.local_origin, bytes)).collect()
    }

    /// Takes what was put in place to where the operations have it, where that is elsewhere.
    ///
    /// # Errors
    /// When whoever carries trials out is gone.
    pub(super) fn hand_over_memory(&mut self) -> Result<()> {
        let stretches = self.own_stretches();
        match self.carried {
            Some(_) => self.carrier()?.take_over(&stretches),
            None => Ok(()),
        }
    }

    /// Brings back what landed elsewhere, so that it can be looked at.
    ///
    /// # Errors
    /// When whoever carries trials out is gone.
    pub(super) fn fetch_memory(&mut self) -> Result<()> {
        let stretches = self.own_stretches();
        match self.carried {
            Some(_) if self.point.op.fetches() => self.carrier()?.bring_back(&stretches),
            _ => Ok(()),
        }
    }

    /// Lets the round be carried out, which a trial's other thread may follow meanwhile.
    ///
    /// # Errors
    /// When an operation fails, or the run is stopped.
    pub(super) fn drive_carried(
        &mut self,
        schedule: &Schedule,
        patience: Duration,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        let (point, rank) = (self.point, self.rank);
        let active = self.active.clone();
        let carried = |flow: &Flow| flow.carried(point, rank);
        let flows: Vec<CarriedFlow> = self.flows[active.clone()].iter().map(carried).collect();
        let stop = self.port.stop_flag();
        let left_ns = |ns: u64| (schedule.start_ns + ns).saturating_sub(self.port.clock.now_ns());
        let order = CarriedOrder {
            duration: match schedule.length {
                // One that begins after its end still does something.
                TrialLength::DurationNs(ns) => Some(Duration::from_nanos(left_ns(ns).max(1))),
                TrialLength::Iterations(_) => None,
            },
            patience,
            stop,
            ..order_of(point, schedule.length, &flows, stop)
        };
        let felt = self.pulse.take();
        let pulse = felt.as_ref().filter(|_| schedule.number != WARM_UP);
        let carrier = self.carrier()?;
        let progress = carrier.begin(&order)?;
        if let Some(felt) = pulse {
            felt.pulse.follow(progress);
        }
        let outcome = carrier.carry_out(&order);
        let latencies = match (&outcome, point.latency) {
            (Ok(_), true) => Some(carrier.latencies()?),
            _ => None,
        };
        if let Some(felt) = pulse {
            let operations = outcome.as_ref().map_or(0, |trial| trial.operations());
            felt.pulse.end_following(operations, latencies.as_ref());
        }
        self.pulse = felt;
        let trial = outcome?;
        for (flow, &issued) in self.flows[active].iter_mut().zip(&trial.issued) {
            flow.skip(issued);
        }
        totals.operations = trial.operations();
        self.port.note_in_flight(trial.in_flight_max);
        if let (Some(histogram), Some(latencies)) = (&mut self.trial, &latencies) {
            histogram.merge_binned(latencies);
        }
        Ok(())
    }
}

/// The order of a round, without its time.
fn order_of<'a>(
    point: &TransferPoint,
    length: TrialLength,
    flows: &'a [CarriedFlow],
    stop: &'a std::sync::atomic::AtomicBool,
) -> CarriedOrder<'a> {
    let (window, in_batches) = match point.pacing {
        Pacing::Batch { batch } => (batch, true),
        _ => (point.depth(), false),
    };
    // An iteration is a batch of each flow.
    let each = match in_batches {
        true => u64::from(window).saturating_mul(flows.len() as u64),
        false => 1,
    };
    let most = point.iterations_max();
    let count = match length {
        TrialLength::Iterations(count) => Some(most.map_or(count, |most| most.min(count))),
        TrialLength::DurationNs(_) => most,
    };
    let (local, remote) = point.orders();
    CarriedOrder {
        verb: point.op,
        size_bytes: point.size_bytes,
        window,
        in_batches,
        slots: point.slots(),
        stride_bytes: point.stride_bytes,
        orders: (slot_order(local), slot_order(remote)),
        flows,
        operations_max: count.map(|count| count.saturating_mul(each)),
        duration: None,
        patience: Duration::MAX,
        timed: point.latency,
        stop,
    }
}

fn slot_order(addresses: Addresses) -> SlotOrder {
    match addresses {
        Addresses::Sequential => SlotOrder::Sequential,
        Addresses::Random => SlotOrder::Random,
        Addresses::Permuted => SlotOrder::Permuted,
        Addresses::Fixed => SlotOrder::Fixed,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::drive::walk::tests::point;
    use tonnage_engine::Lane;

    #[test]
    fn what_cannot_be_carried_out_is_refused_by_name() {
        let stream = point(Addresses::Sequential, 4);
        assert!(check_carried(&stream, 4, "x").is_ok());
        let batch = TransferPoint {
            pacing: Pacing::Batch { batch: 4 },
            latency: false,
            ..stream.clone()
        };
        assert!(check_carried(&batch, 4, "x").is_ok());
        let refused = |change: &dyn Fn(&mut TransferPoint)| {
            let mut point = stream.clone();
            change(&mut point);
            check_carried(&point, 8, "x").unwrap_err().to_string()
        };
        assert!(refused(&|it| it.pacing = Pacing::PingPong).contains("ping-pong on x"));
        assert!(refused(&|it| it.pacing = Pacing::Batch { batch: 2 }).contains("--latency off"));
        assert!(refused(&|it| it.cq = CqMode::Event).contains("--cq busy"));
        assert!(refused(&|it| it.rails = tonnage_engine::paths::Rails::Stripe).contains("--rails"));
        assert!(refused(&|it| it.pacing = Pacing::Stream { window: 9 }).contains("at most 8"));
        let cut = tonnage_engine::paths::Cut {
            chunk_bytes: 4096,
            chunks_max: 4,
        };
        assert!(refused(&|it| it.cut = Some(cut)).contains("--chunk"));
    }

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
        let stream = point(Addresses::Random, 4);
        let of = |point: &TransferPoint, length| {
            let order = order_of(point, length, &flows, &stop);
            (order.window, order.in_batches, order.operations_max)
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
