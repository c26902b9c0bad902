//! Sets up a worker's flows: their lanes, receives and credits.

use std::sync::Arc;

use super::caps::{claims_arrival, completed_is_visible};
use super::point_engine::compares_each;
use crate::kinds::transfer::layout::{SliceLayout, answers};
use crate::loop_parameters::flow_slots;
use crate::opening::credit_lanes::CreditLanes;
use crate::opening::engine::{EngineWorker, OpenEngine};
use tonnage_engine::memory::Memory;
use tonnage_engine::{Caps, Engine, Lane, LaneKind, LaneSpec, Verb};
use tonnage_loops::Scratch;
use tonnage_loops::credits::{CreditReturn, Credits};
use tonnage_loops::flow::{Flow, Receives};
use tonnage_loops::ping_pong::{LastByteSignal, PingPongEnd};
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_units::{Error, Result};

/// A receiver returns credits after 1/`DEPTH_SHARE` of the depth. This is early enough that a sender never waits while
/// most of its depth is unused.
const DEPTH_SHARE: u64 = 4;

/// After this number of polls without an arrival, the receiver of a stream also returns fewer credits than
/// 1/`DEPTH_SHARE` of the depth. The number is large, because the sender is busy meanwhile.
const IDLE_POLLS_STREAM: u32 = 64;

/// The same number of polls for other pacings, such as batches. There the sender may be waiting for exactly these
/// credits.
const IDLE_POLLS_WAITING: u32 = 2;

/// Creates the flows of `rank` to the ranks in its layout's `out`, in the same order.
pub(super) fn make_flows(
    point: &TransferPoint,
    rank: u32,
    layout: &SliceLayout,
    engine: &mut dyn Engine,
    worker: &EngineWorker,
) -> Result<Vec<Flow>> {
    let flow = |(index, &target): (usize, &u32)| {
        let (kind, there) = (LaneKind::Initiate(point.op), worker.remote_of(target)?);
        let lane = engine.lane(&LaneSpec {
            ordered: answers(point) && point.op == Verb::Write,
            delivered: requests_delivery(point, completed_is_visible(&worker.caps)),
            ..LaneSpec::new(kind, target, worker.region, there)
        })?;
        let there = SliceLayout::new(point, target);
        let remote = there.into_origin_of(rank).ok_or_else(|| {
            let lacks = format!("rank {target} has no slice for the data of rank {rank}");
            Error::Failed(lacks)
        })?;
        let local = layout.out_origin(index);
        Ok(Flow::new(
            &flow_slots(point),
            rank,
            target,
            lane,
            local,
            remote,
        ))
    };
    layout.out.iter().enumerate().map(flow).collect()
}

/// Creates the table in which each side of a ping-pong keeps its flows.
///
/// # Errors
/// [`Error::Unavailable`] if the CPU would have to watch memory that it cannot access.
pub(super) fn make_table(
    point: &TransferPoint,
    rank: u32,
    layout: &SliceLayout,
    flows: Vec<Flow>,
    memory: &Arc<dyn Memory>,
    caps: &Caps,
) -> Result<PingPongEnd> {
    let signals = if point.op == Verb::Write {
        let visible = memory
            .host()
            .ok_or_else(|| invisible_memory_error(point, rank))?;
        let slots = flow_slots(point);
        let signal = |(index, &peer): (usize, &u32)| {
            let (out, into) = (layout.out_origin(index), layout.into_origin(index));
            LastByteSignal::new(&slots, rank, peer, Arc::clone(visible), out, into)
        };
        layout.out.iter().enumerate().map(signal).collect()
    } else {
        Vec::new()
    };
    let begins = point.roles.initiates(rank);
    Ok(PingPongEnd::new(flows, signals, !begins, caps))
}

/// Returns whether a target of plain writes flushes them after a round. If rounds consist of pairs, only the round's
/// targets flush.
pub(super) fn flushes_in_round(point: &TransferPoint, rank: u32, round: u32) -> bool {
    let roles = point.roles;
    // If a single round has all pairs, every rank with initiators is a target in that round. The pairs then need not be
    // listed.
    let is_of_pairs = roles.round_count() > 1 || roles.pair_of_round(round).is_some();
    point.op == Verb::Write && (!is_of_pairs || !roles.initiators_in_round(rank, round).is_empty())
}

/// Returns whether lanes request that writes complete only after delivery.
fn requests_delivery(point: &TransferPoint, [always, on_request]: [bool; 2]) -> bool {
    claims_arrival(point) && on_request && !always
}

/// Returns whether the bytes are in the peer's memory when a latency sample ends, for the record. It is true only if
/// this holds for all initiating devices. `None` if the question does not apply or cannot be answered.
pub(crate) fn is_delivered(point: &TransferPoint, open: &OpenEngine) -> Option<bool> {
    if !open.moves_bytes {
        return None;
    }
    if compares_each(point) {
        let is_asked = point.op != Verb::Read && point.pacing != Pacing::PingPong;
        return is_asked.then_some(true);
    }
    let arrivals = open.opened.common.arrivals.iter();
    let known: Option<Vec<bool>> = arrivals
        .map(|device| is_delivered_by_device(point, device.delivers, device.sends_taken))
        .collect();
    known.map(|all| all.into_iter().all(|delivered| delivered))
}

/// Does the same as [`is_delivered`], but for one device.
fn is_delivered_by_device(
    point: &TransferPoint,
    delivers: [bool; 2],
    sends_taken: bool,
) -> Option<bool> {
    let [always, _] = delivers;
    match (point.op, point.pacing) {
        (Verb::Read | Verb::FetchAdd | Verb::CompareSwap, _) | (_, Pacing::PingPong) => None,
        (Verb::Write | Verb::WriteImm, _) => Some(always || requests_delivery(point, delivers)),
        (Verb::Send, _) => Some(sends_taken),
    }
}

/// Creates the receives of `rank`: one set for each of its initiators.
pub(super) fn make_receives(
    point: &TransferPoint,
    rank: u32,
    layout: &SliceLayout,
    engine: &mut dyn Engine,
    worker: &EngineWorker,
) -> Result<Vec<Receives>> {
    let receive = |(index, &peer): (usize, &u32)| {
        let there = worker.remote_of(peer)?;
        let spec = LaneSpec::new(LaneKind::Receive, peer, worker.region, there);
        let (lane, origin) = (engine.lane(&spec)?, layout.into_origin(index));
        Ok(Receives::new(&flow_slots(point), peer, rank, lane, origin))
    };
    layout.into.iter().enumerate().map(receive).collect()
}

/// Passes the length of incoming write-imms to the engine, which may receive them in parts. At the end of a point,
/// announces that no more will arrive.
pub(super) fn announce_part_lengths(
    point: &TransferPoint,
    layout: &SliceLayout,
    engine: &mut dyn Engine,
    begins: bool,
) -> Result<()> {
    if point.op != Verb::WriteImm {
        return Ok(());
    }
    let bytes = begins.then_some(point.slots.size_bytes);
    let mut initiators = layout.into.iter();
    initiators.try_for_each(|&peer| engine.expect(peer, bytes))
}

/// Begins the credits of a point, if this worker has any.
pub(super) fn begin_credits<'a>(
    credits: Option<&'a mut CreditLanes>,
    point: &TransferPoint,
    engine: &mut dyn Engine,
    caps: &Caps,
    flows: &[Flow],
    layout: &SliceLayout,
) -> Result<Option<(&'a mut Credits, Vec<Lane>)>> {
    // Credits are needed for sends, but not if messages are answered or compared one by one. Other points may share the
    // engine.
    let is_counted = point.op == Verb::Send && !answers(point) && !point.verify.is_each();
    let Some(credits) = credits.filter(|_| is_counted) else {
        return Ok(None);
    };
    let sends: Vec<_> = flows.iter().map(|flow| (flow.peer, flow.lane)).collect();
    let parameters = (credit_return(point), point.depth() as usize);
    let begun = credits.begin(parameters, engine, caps, &sends, &layout.into)?;
    Ok(Some(begun))
}

/// Determines when receivers return credits. This depends on how long senders can go on without them.
fn credit_return(point: &TransferPoint) -> CreditReturn {
    let depth = match point.pacing {
        Pacing::Stream { depth } | Pacing::Paced { depth, .. } => depth,
        Pacing::Batch { batch } => batch,
        Pacing::PingPong => 1,
    };
    let is_stream = matches!(point.pacing, Pacing::Stream { .. });
    CreditReturn {
        every: (u64::from(depth) / DEPTH_SHARE).max(1),
        idle_polls: if is_stream {
            IDLE_POLLS_STREAM
        } else {
            IDLE_POLLS_WAITING
        },
    }
}

/// Allocates the buffers of the loops for up to `flows` simultaneous flows.
pub(super) fn allocate_scratch(point: &TransferPoint, flows: usize) -> Scratch {
    // The second argument is the number of operations per flow that the loops must tell apart.
    match point.pacing {
        Pacing::Batch { .. } => Scratch::new(flows, 1).with_batches(
            point.batching.in_flight,
            flows.saturating_mul(point.batch_share_max() as usize),
        ),
        Pacing::Paced { depth, .. } => Scratch::for_paced(flows, depth as usize),
        Pacing::Stream { depth } => Scratch::new(flows, depth as usize),
        Pacing::PingPong => Scratch::new(flows, 1),
    }
}

/// Returns the error for memory that the CPU cannot access. If the plan knows this, it reports the same error. Here it
/// was found only after allocation.
fn invisible_memory_error(point: &TransferPoint, rank: u32) -> Error {
    Error::Unavailable {
        what: format!(
            "ping-pong with op write and {} {} on rank {rank}",
            point.memories.memory_option(rank, point.roles),
            point.memories.memory_of(rank, point.roles)
        ),
        why: "it waits for the last byte to appear, and the CPU cannot look at this memory".into(),
        how: format!(
            "Choose --op write-imm or --op send, or another {}",
            point.memories.memory_option(rank, point.roles)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::transfer::Access;

    const STREAM: Pacing = Pacing::Stream { depth: 4 };
    const BATCH: Pacing = Pacing::Batch { batch: 4 };

    /// A rank that is a target only in another round need not flush in this one.
    #[test]
    fn only_targets_of_a_round_flush_in_it() {
        let of = |traffic, op, round| {
            let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 15);
            (point.roles.traffic, point.op, point.roles.ranks) = (traffic, op, 3);
            let flushes = |rank: &u32| flushes_in_round(&point, *rank, round);
            (0..3).filter(flushes).collect::<Vec<_>>()
        };
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 15);
        (point.roles.traffic, point.roles.ranks) = (Traffic::Matrix, 3);
        let roles = point.roles;
        assert!(roles.round_count() > 1);
        for round in 0..roles.round_count() {
            let targets = roles.pairs_of_round(round).into_iter().map(|pair| pair.1);
            let targets: Vec<u32> = targets.collect();
            assert_eq!(of(Traffic::Matrix, Verb::Write, round), targets);
            assert!(of(Traffic::Matrix, Verb::Send, round).is_empty());
        }
        assert_eq!(of(Traffic::InTurn, Verb::Write, 1), [2]);
        // If all pairs run at once, all ranks are targets. Under fan-in only rank 0 is one, and write-imms need no
        // flush.
        assert_eq!(of(Traffic::AllToAll, Verb::Write, 0), [0, 1, 2]);
        assert!(of(Traffic::FanIn, Verb::WriteImm, 0).is_empty());
    }

    #[test]
    fn records_say_where_latency_ends_at_the_initiator() {
        let of = |op, pacing, delivers| {
            let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 15);
            (point.op, point.pacing) = (op, pacing);
            is_delivered_by_device(&point, delivers, false)
        };
        let (on_request, never, always) = ([false, true], [false, false], [true, true]);
        assert_eq!(of(Verb::Write, STREAM, on_request), Some(false));
        assert_eq!(of(Verb::Write, BATCH, on_request), Some(true));
        assert_eq!(of(Verb::Send, BATCH, on_request), Some(false));
        assert_eq!(of(Verb::Read, STREAM, on_request), None);
        assert_eq!(of(Verb::WriteImm, Pacing::PingPong, on_request), None);
        assert_eq!(of(Verb::WriteImm, BATCH, never), Some(false));
        assert_eq!(of(Verb::WriteImm, STREAM, always), Some(true));
        assert_eq!(of(Verb::Send, STREAM, always), Some(false));
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 15);
        (point.op, point.pacing) = (Verb::Send, STREAM);
        assert_eq!(is_delivered_by_device(&point, never, true), Some(true));
    }
}
