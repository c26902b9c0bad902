//! Trials that the kernel executes. Each order becomes a run of the kernel module, which is resumed after signals.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tonnage_engine::carried::{
    BinnedLatencies, CarriedOrder, CarriedOutcome, CarriedProgress, TrialCarrier,
};
use tonnage_engine::{Access, Verb};
use tonnage_sys::kread::{
    KreadFlow, KreadOrder, KreadPosting, KreadSession, KreadSlotOrder, KreadVerb,
};
use tonnage_units::{Error, Result};

use super::kernel_worker::{KernelWorker, was_interrupted, was_stopped};

/// Progress of an order on its lanes.
#[derive(Debug)]
struct LaneProgress {
    session: Arc<KreadSession>,
    /// The lanes, each with the number of operations that it had completed before the order.
    lanes: Vec<(u32, u64)>,
}

impl CarriedProgress for LaneProgress {
    fn operations(&self) -> Option<u64> {
        let mut lanes = self.lanes.iter();
        lanes.try_fold(0, |all, &(lane, before)| {
            let now = self.session.operations(lane).ok()?;
            Some(all + now.saturating_sub(before))
        })
    }

    fn latencies(&self) -> Option<BinnedLatencies> {
        merged_latencies(&self.session, &self.lanes).ok()
    }
}

fn merged_latencies(
    session: &KreadSession,
    lanes: &[(u32, u64)],
) -> std::io::Result<BinnedLatencies> {
    let mut all = BinnedLatencies::default();
    for &(lane, _) in lanes {
        let known = session.latencies(lane)?;
        all.merge(&BinnedLatencies {
            bins: known.bins,
            samples: known.samples,
            min_ns: known.min_ns,
            max_ns: known.max_ns,
            sum_ns: known.sum_ns,
        });
    }
    Ok(all)
}

/// Converts a slot order to the module's type.
fn slot_order(order: Access) -> KreadSlotOrder {
    match order {
        Access::Fixed => KreadSlotOrder::Fixed,
        Access::Sequential => KreadSlotOrder::Sequential,
        Access::Random => KreadSlotOrder::Random,
        Access::Permuted => KreadSlotOrder::Permuted,
    }
}

impl KernelWorker {
    /// Converts the flows of an order to the module's type.
    fn flows(&self, order: &CarriedOrder<'_>) -> Result<Vec<KreadFlow>> {
        let each = self.pairs_per_peer();
        let flow = |flow: &tonnage_engine::carried::CarriedFlow| {
            let lane = self.lanes.get(flow.lane)?;
            let left = lane.len.checked_sub(flow.remote).ok_or_else(|| {
                self.port.about(format!(
                    "offset {} lies outside the peer's {} bytes",
                    flow.remote, lane.len
                ))
            })?;
            Ok(KreadFlow {
                lane: self.peers[lane.peer].first,
                lanes: each,
                remote: (lane.base + flow.remote, left),
                key: lane.key,
                local: flow.local,
                seed: flow.seed,
                begin: flow.issued,
            })
        };
        order.flows.iter().map(flow).collect()
    }

    fn posting_of(&self, order: &CarriedOrder<'_>) -> KreadPosting {
        match (order.in_batches, self.port.asked.signals_first) {
            (true, _) => KreadPosting::Batch,
            (false, true) => KreadPosting::First,
            (false, false) => KreadPosting::Each,
        }
    }

    /// Converts an order to a run of the module. The caller adds the end condition.
    fn run_of<'a>(&self, order: &CarriedOrder<'a>) -> KreadOrder<'a> {
        KreadOrder {
            verb: match order.verb {
                Verb::Write => KreadVerb::Write,
                _ => KreadVerb::Read,
            },
            bytes: order.size_bytes,
            window: order.depth,
            posting: self.posting_of(order),
            orders: (slot_order(order.orders.0), slot_order(order.orders.1)),
            slots: (order.slots, order.stride_bytes),
            operations_max: None,
            duration: None,
            patience: order.patience,
            timed: order.timed,
            stop: order.stop,
        }
    }

    /// Proves that the writes of each flow have arrived: reads one byte on each lane of the flow.
    fn flush_writes(&self, order: &CarriedOrder<'_>, flows: &[KreadFlow]) -> Result<()> {
        if order.verb != Verb::Write {
            return Ok(());
        }
        for (flow, carried) in flows.iter().zip(order.flows) {
            let lane = self.lanes.get(carried.lane)?;
            self.touch(lane.peer, (flow.remote.0, flow.key), 1, order.stop)?;
        }
        Ok(())
    }

    /// Stores the lanes of an order with their current counts of operations, and clears their latencies.
    fn count_from_here(&mut self, flows: &[KreadFlow]) -> Result<()> {
        let session = Arc::clone(self.session()?);
        self.driven.clear();
        for flow in flows {
            for lane in flow.lane..flow.lane + flow.lanes {
                let before = session
                    .operations(lane)
                    .map_err(|why| self.port.about(why))?;
                session.forget(lane).map_err(|why| self.port.about(why))?;
                self.driven.push((lane, before));
            }
        }
        Ok(())
    }
}

impl TrialCarrier for KernelWorker {
    fn copy_to_landing(&mut self, stretches: &[(u64, u64)]) -> Result<()> {
        let (Some(session), Some((_, memory))) = (&self.session, &self.memory) else {
            return Ok(());
        };
        for &(offset, bytes) in stretches {
            let taken = session.copy_to_landing(memory, offset, bytes);
            taken.map_err(|why| self.port.about(format!("filling landing memory: {why}")))?;
        }
        Ok(())
    }

    fn copy_from_landing(&mut self, stretches: &[(u64, u64)]) -> Result<()> {
        let (Some(session), Some((_, memory))) = (&self.session, &self.memory) else {
            return Ok(());
        };
        for &(offset, bytes) in stretches {
            let brought = session.copy_from_landing(memory, offset, bytes);
            brought.map_err(|why| self.port.about(format!("reading landing memory: {why}")))?;
        }
        Ok(())
    }

    fn begin(&mut self, order: &CarriedOrder<'_>) -> Result<Arc<dyn CarriedProgress>> {
        let flows = self.flows(order)?;
        if order.in_batches && self.port.asked.signals_first {
            return Err(Error::Unavailable {
                what: "engine-option signalling=first".into(),
                why: "a batch waits for all of its operations, and all are signalled".into(),
                how: "Choose --depth instead of --batch, or signalling=each".into(),
            });
        }
        if self.posting_of(order) == KreadPosting::First
            && (flows.len() > 1 || self.pairs_per_peer() > 1)
        {
            return Err(Error::Unavailable {
                what: "engine-option signalling=first".into(),
                why: "it uses one queue pair to one peer, as in the published benchmark".into(),
                how: "Leave --queue-pairs out and choose one target for each initiator, or signalling=each"
                    .into(),
            });
        }
        self.count_from_here(&flows)?;
        Ok(Arc::new(LaneProgress {
            session: Arc::clone(self.session()?),
            lanes: self.driven.clone(),
        }))
    }

    fn carry_out(&mut self, order: &CarriedOrder<'_>) -> Result<CarriedOutcome> {
        let mut flows = self.flows(order)?;
        let session = Arc::clone(self.session()?);
        let began = Instant::now();
        let mut trial = CarriedOutcome {
            issued: vec![0; flows.len()],
            in_flight_max: 0,
        };
        loop {
            let left = |all: Duration| all.saturating_sub(began.elapsed());
            let asked = KreadOrder {
                operations_max: order.operations_max.map(|all| all - trial.operations()),
                duration: order.duration.map(left),
                ..self.run_of(order)
            };
            let outcome = session.run(&asked, &flows);
            trial.in_flight_max = trial.in_flight_max.max(outcome.in_flight_max.into());
            for ((all, flow), issued) in
                trial.issued.iter_mut().zip(&mut flows).zip(&outcome.issued)
            {
                *all += *issued;
                flow.begin += *issued;
            }
            if order.stop.load(Ordering::Relaxed) {
                return Err(was_stopped());
            }
            if !was_interrupted(&outcome) {
                self.check(&outcome, order.verb, order.patience)?;
                break;
            }
            // A signal interrupted the run without ending the program, so the rest of the order is run now.
            let over = order.duration.is_some_and(|all| left(all).is_zero());
            if over || order.operations_max == Some(trial.operations()) {
                break;
            }
        }
        self.flush_writes(order, &flows)?;
        Ok(trial)
    }

    fn latencies(&mut self) -> Result<BinnedLatencies> {
        let session = self.session()?;
        merged_latencies(session, &self.driven).map_err(|why| self.port.about(why))
    }
}
