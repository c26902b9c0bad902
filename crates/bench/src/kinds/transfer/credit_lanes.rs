//! Memory and lanes of credits, for engines whose sends complete before their receiver has taken them.
//!
//! Counting itself is in [`crate::drive::credits`]. The counts have a memory of their own, of the host,
//! because the CPU looks at them whatever memory the payload is in.

use std::sync::Arc;

use tonnage_engine::memory::{Memory, MemoryEntry, Request};
use tonnage_engine::{
    Caps, Descriptor, Engine, Lane, LaneKind, LaneSpec, Lists, Peer, RegionId, Verb,
};
use tonnage_plan::kinds::transfer::{Pacing, TransferPoint};
use tonnage_units::{Error, Result};

use super::layout::{SliceLayout, answers};
use crate::drive::credits::{Credits, Telling};
use crate::drive::flow::Flow;
use crate::opening::introduction::CreditPlace;

/// Share of the window after which a sender is told: small enough that it never waits with most of its window out.
const WINDOW_SHARE: u64 = 4;

/// Polls without an arrival before a stream's sender is told of less than that: it has enough to do meanwhile.
const IDLE_POLLS_STREAM: u32 = 64;

/// Polls without an arrival before a sender is told that waits for just that.
const IDLE_POLLS_WAITING: u32 = 2;

/// Returns whether sends of a device are done only by credits.
pub(super) fn needs_credits(op: Verb, caps: &Caps) -> bool {
    op == Verb::Send && caps.moves_bytes && !caps.sends_taken && caps.verbs.contains(&Verb::Write)
}

/// Counts of one worker with its peers, and what their lanes need.
pub(super) struct CreditLanes {
    credits: Credits,
    region: RegionId,
    descriptor: Descriptor,
    remotes: Vec<(Peer, Descriptor)>,
}

impl CreditLanes {
    /// Allocates and registers memory for the counts with so many peers.
    ///
    /// # Errors
    /// When no memory of the list can be looked at by the CPU, or the device refuses it.
    pub(super) fn new(
        engine: &mut dyn Engine,
        lists: &Lists,
        caps: &Caps,
        peers: usize,
    ) -> Result<Self> {
        let visible = |entry: &&MemoryEntry| entry.host_addressable;
        let entry = lists.memories.iter().find(visible);
        let none = || Error::Failed("no memory of the host to count messages in".into());
        let memory: Arc<dyn Memory> = (entry.ok_or_else(none)?.allocate)(&Request {
            bytes: Credits::bytes(peers),
            shared: caps.shared_memory,
            ..Request::default()
        })?;
        let arena = Arc::clone(memory.mapped("credits")?);
        let region = engine.register(&memory)?;
        Ok(Self {
            credits: Credits::new(arena),
            region: region.id,
            descriptor: region.descriptor,
            remotes: Vec::with_capacity(peers),
        })
    }

    /// The place where the `index`-th peer writes its count.
    pub(super) fn place(&self, index: usize) -> CreditPlace {
        CreditPlace {
            memory: self.descriptor.clone(),
            offset: Credits::told_at(index),
        }
    }

    /// Adds the `index`-th peer, by the place that it named for this worker.
    ///
    /// # Errors
    /// When it named none, because it counts otherwise.
    pub(super) fn connect(
        &mut self,
        peer: Peer,
        index: usize,
        place: Option<CreditPlace>,
    ) -> Result<()> {
        let CreditPlace { memory, offset } = place.ok_or_else(|| {
            Error::Failed(format!(
                "rank {peer} takes messages without telling: its device differs from this rank's"
            ))
        })?;
        self.remotes.push((peer, memory));
        self.credits.add(peer, index, offset)
    }

    /// Begins a point whose messages go out on `sends` and come from `senders`, in the order of the receives. Returns
    /// the counts and the lanes that carry them; `None` where each message is answered, so that the answer says enough.
    ///
    /// # Errors
    /// When the engine cannot resolve a lane.
    fn begin(
        &mut self,
        point: &TransferPoint,
        engine: &mut dyn Engine,
        caps: &Caps,
        sends: &[(Peer, Lane)],
        senders: &[Peer],
    ) -> Result<Option<(&mut Credits, Vec<Lane>)>> {
        if answers(point) {
            return Ok(None);
        }
        let tell = |&peer: &Peer| {
            let known = self.remotes.iter().find(|(rank, _)| *rank == peer);
            let none = || Error::Failed(format!("rank {peer} named no place for its credits"));
            let (_, remote) = known.ok_or_else(none)?;
            let lane = engine.lane(&LaneSpec {
                kind: LaneKind::Initiate(Verb::Write),
                peer,
                local: self.region,
                remote,
                ordered: false,
                // A count that was overtaken by an older one would be lost.
                in_order: true,
                delivered: caps.delivery_on_request && !caps.delivered,
            })?;
            Ok((peer, lane))
        };
        let tells: Vec<(Peer, Lane)> = senders.iter().map(tell).collect::<Result<_>>()?;
        let window = point.depth() as usize;
        self.credits.begin(telling(point), window, sends, &tells)?;
        let lanes = tells.into_iter().map(|(_, lane)| lane).collect();
        Ok(Some((&mut self.credits, lanes)))
    }
}

/// Begins the credits of a point, where a worker has any.
///
/// # Errors
/// As [`CreditLanes::begin`].
pub(super) fn begin<'a>(
    credits: Option<&'a mut CreditLanes>,
    point: &TransferPoint,
    engine: &mut dyn Engine,
    caps: &Caps,
    flows: &[Flow],
    layout: &SliceLayout,
) -> Result<Option<(&'a mut Credits, Vec<Lane>)>> {
    // Of the points that share an engine only some may send.
    let Some(credits) = credits.filter(|_| point.op == Verb::Send) else {
        return Ok(None);
    };
    let sends: Vec<_> = flows.iter().map(|flow| (flow.peer, flow.lane)).collect();
    credits.begin(point, engine, caps, &sends, &layout.into)
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
