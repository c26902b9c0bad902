//! Setting up what a worker drives: its flows, with their lanes resolved, and the timetable of a paced trial.

use super::session::Worker;
use super::work::Schedule;
use crate::drive::flow::{Flow, Receives};
use crate::drive::paced::Timetable;
use crate::drive::port::Port;
use crate::kinds::transfer::layout::{Layout, answers};
use tonnage_engine::{Caps, LaneKind, LaneSpec, Verb};
use tonnage_plan::transfer::{Pacing, TransferPoint, TrialLength};
use tonnage_units::{Error, Result};

/// The flow of `rank` towards `target`, the `index`-th rank of its layout.
///
/// # Errors
/// When the engine cannot do what the lane asks.
pub(super) fn make_flow(
    point: &TransferPoint,
    rank: u32,
    target: u32,
    layout: &Layout,
    index: usize,
    worker: &mut Worker,
    caps: &Caps,
) -> Result<Flow> {
    let ordered = answers(point) && point.op == Verb::Write;
    let spec = LaneSpec {
        kind: LaneKind::Initiate(point.op),
        peer: target,
        ordered,
        delivered: asks_delivery(point, caps),
    };
    let lane = worker.engine.lane(&spec)?;
    let remote = Layout::new(point, target)
        .into_origin_of(rank)
        .ok_or_else(|| {
            Error::Failed(format!(
                "rank {target} has no place for what rank {rank} sends"
            ))
        })?;
    let mut flow = Flow::new(point, rank, target, lane, layout.out_origin(index), remote);
    if !caps.delivered && !spec.delivered && matches!(point.op, Verb::Write | Verb::WriteImm) {
        let spec = LaneSpec {
            kind: LaneKind::Initiate(Verb::Read),
            peer: target,
            ordered: false,
            delivered: false,
        };
        flow.flush_lane = Some(worker.engine.lane(&spec)?);
    }
    Ok(flow)
}

/// Returns whether lanes ask for delivery.
fn asks_delivery(point: &TransferPoint, caps: &Caps) -> bool {
    claims_arrival(point) && caps.delivery_on_request && !caps.delivered
}

/// Returns whether the bytes written are in the peer's memory when a latency sample ends, for the record; `None` where
/// that is no question, or cannot be told.
pub(crate) fn delivered(point: &TransferPoint, caps: &Caps) -> Option<bool> {
    match (point.op, point.pacing) {
        _ if !caps.moves_bytes => None,
        (Verb::Read, _) | (_, Pacing::PingPong) => None,
        (Verb::Write | Verb::WriteImm, _) => Some(caps.delivered || asks_delivery(point, caps)),
        // What is promised about writes holds for sends only in the negative.
        (Verb::Send, _) => (!caps.delivered).then_some(false),
    }
}

/// Returns whether each latency sample is taken for the time until the bytes are there. A stream's bandwidth is proved
/// by one flush at the end of each trial instead, and a ping-pong's by its answer.
fn claims_arrival(point: &TransferPoint) -> bool {
    matches!(point.op, Verb::Write | Verb::WriteImm)
        && matches!(point.pacing, Pacing::Batch { .. } | Pacing::Paced { .. })
}

/// The receives of `rank` for what each of its initiators sends.
///
/// # Errors
/// When the engine cannot receive.
pub(super) fn make_receives(
    point: &TransferPoint,
    rank: u32,
    layout: &Layout,
    port: &mut Port,
) -> Result<Vec<Receives>> {
    let receive = |(index, &peer): (usize, &u32)| {
        let spec = LaneSpec {
            kind: LaneKind::Receive,
            peer,
            ordered: false,
            delivered: false,
        };
        let lane = port.engine.lane(&spec)?;
        Ok(Receives::new(
            point,
            peer,
            rank,
            lane,
            layout.into_origin(index),
        ))
    };
    layout.into.iter().enumerate().map(receive).collect()
}

/// The timetable of one worker. The workers of a rank share its rate and take turns, evenly spaced. A trial by time gets
/// the operations that are due within it, and as long again to work off what is late.
pub(super) fn timetable(
    schedule: &Schedule,
    rate_per_s: f64,
    worker: u32,
    workers: u32,
) -> Timetable {
    let start_ns = schedule.start_ns + (f64::from(worker) * 1e9 / rate_per_s) as u64;
    let rate_per_s = rate_per_s / f64::from(workers);
    let operations = match schedule.length {
        TrialLength::DurationNs(ns) => (ns as f64 * rate_per_s / 1e9).ceil() as u64,
        TrialLength::Iterations(count) => count,
    };
    let planned_ns = (operations as f64 * 1e9 / rate_per_s) as u64;
    Timetable {
        start_ns,
        rate_per_s,
        operations: operations.max(1),
        give_up_ns: start_ns
            .saturating_add(planned_ns.saturating_mul(2))
            .saturating_add(1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_engine::LimitKind;
    use tonnage_plan::transfer::Addresses;

    const CAPS: Caps = Caps {
        verbs: &Verb::ALL,
        immediate_bits: 32,
        depth: 64,
        message_bytes_max: 1 << 20,
        moves_bytes: true,
        delivered: false,
        delivery_on_request: true,
        arrivals_named: true,
        arrives_by_polling: true,
        ordered_writes: true,
        shared_memory: false,
        limit: LimitKind::None,
    };

    const STREAM: Pacing = Pacing::Stream { window: 4 };
    const BATCH: Pacing = Pacing::Batch { batch: 4 };

    #[test]
    fn records_say_where_latency_ends_at_the_initiator() {
        let of = |op, pacing, caps: &Caps| {
            let mut point = crate::drive::walk::tests::point(Addresses::Sequential, 1 << 15);
            (point.op, point.pacing) = (op, pacing);
            delivered(&point, caps)
        };
        assert_eq!(of(Verb::Write, STREAM, &CAPS), Some(false));
        assert_eq!(of(Verb::Write, BATCH, &CAPS), Some(true));
        assert_eq!(of(Verb::Send, BATCH, &CAPS), Some(false));
        assert_eq!(of(Verb::Read, STREAM, &CAPS), None);
        assert_eq!(of(Verb::WriteImm, Pacing::PingPong, &CAPS), None);
        let never = Caps {
            delivery_on_request: false,
            ..CAPS
        };
        assert_eq!(of(Verb::WriteImm, BATCH, &never), Some(false));
        let always = Caps {
            delivered: true,
            ..CAPS
        };
        assert_eq!(of(Verb::WriteImm, STREAM, &always), Some(true));
        assert_eq!(of(Verb::Send, STREAM, &always), None);
        let nothing = Caps {
            moves_bytes: false,
            ..always
        };
        assert_eq!(of(Verb::Write, STREAM, &nothing), None);
    }
}
