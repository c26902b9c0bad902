//! Moments at which receivers tell their senders what they have taken, for engines that count in credits.
//!
//! Counting is in [`crate::drive::credits`], the lanes of the counts in [`crate::opening::credit_lanes`].

use tonnage_engine::{Caps, Engine, Lane, Verb};
use tonnage_plan::kinds::transfer::{Pacing, TransferPoint};
use tonnage_units::Result;

use super::layout::{SliceLayout, answers};
use crate::drive::credits::{Credits, Telling};
use crate::drive::flow::Flow;
use crate::opening::credit_lanes::CreditLanes;

/// Share of the window after which a sender is told: small enough that it never waits with most of its window out.
const WINDOW_SHARE: u64 = 4;

/// Polls without an arrival before a stream's sender is told of less than that: it has enough to do meanwhile.
const IDLE_POLLS_STREAM: u32 = 64;

/// Polls without an arrival before a sender is told that waits for just that.
const IDLE_POLLS_WAITING: u32 = 2;

/// Begins the credits of a point, where a worker has any.
///
/// # Errors
/// When the engine cannot resolve a lane.
pub(super) fn begin<'a>(
    credits: Option<&'a mut CreditLanes>,
    point: &TransferPoint,
    engine: &mut dyn Engine,
    caps: &Caps,
    flows: &[Flow],
    layout: &SliceLayout,
) -> Result<Option<(&'a mut Credits, Vec<Lane>)>> {
    // Of the points that share an engine only some may send.
    let Some(credits) = credits.filter(|_| is_counted(point)) else {
        return Ok(None);
    };
    let sends: Vec<_> = flows.iter().map(|flow| (flow.peer, flow.lane)).collect();
    let told = (telling(point), point.depth() as usize);
    let begun = credits.begin(told, engine, caps, &sends, &layout.into)?;
    Ok(Some(begun))
}

/// Returns whether messages of a point are done only by credits. Where each is answered or compared, that says enough.
fn is_counted(point: &TransferPoint) -> bool {
    point.op == Verb::Send && !answers(point) && !point.verify.is_each()
}

/// Moments at which senders are told, from what they wait for.
fn telling(point: &TransferPoint) -> Telling {
    let window = match point.pacing {
        Pacing::Stream { window } | Pacing::Paced { window, .. } => window,
        Pacing::Batch { batch } => batch,
        Pacing::PingPong => 1,
    };
    let is_stream = matches!(point.pacing, Pacing::Stream { .. });
    Telling {
        every: (u64::from(window) / WINDOW_SHARE).max(1),
        idle_polls: if is_stream {
            IDLE_POLLS_STREAM
        } else {
            IDLE_POLLS_WAITING
        },
    }
}
