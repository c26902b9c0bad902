//! Memory and lanes for credits. They are used with engines that complete sends before the receiver has taken them.
//!
//! [`tonnage_loops::credits`] does the counting. The counts are in host memory, because the CPU reads them, even if the
//! payload is in device memory. The pacing of a point determines when receivers return credits.

use std::sync::Arc;

use tonnage_engine::memory::{Memory, MemoryEntry, Request};
use tonnage_engine::{
    Caps, Descriptor, Engine, Lane, LaneKind, LaneSpec, Lists, Peer, RegionId, Verb,
};
use tonnage_units::{Error, Result};

use tonnage_loops::credits::{CreditReturn, Credits};
use tonnage_loops::each::PlaceInMemory;

/// Returns whether credits are needed to know that the receiver has taken a send.
pub(crate) fn needs_credits(op: Verb, caps: &Caps) -> bool {
    op == Verb::Send && caps.moves_bytes && !caps.sends_taken && caps.verbs.contains(&Verb::Write)
}

/// Credit counts of one worker and its peers, with memory and lanes for them.
pub(crate) struct CreditLanes {
    credits: Credits,
    region: RegionId,
    descriptor: Descriptor,
    remotes: Vec<(Peer, Descriptor)>,
}

impl CreditLanes {
    /// Allocates and registers memory for the counts of `peers` peers.
    ///
    /// # Errors
    /// If no memory in the list can be read by the CPU, or if the device refuses the memory.
    pub(crate) fn new(
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

    /// Returns where the peer at this index writes its count.
    pub(crate) fn place(&self, index: usize) -> PlaceInMemory {
        PlaceInMemory {
            memory: self.descriptor.clone(),
            offset: Credits::count_offset(index),
        }
    }

    /// Adds the peer at this index. `place` is where the peer wants this worker's count.
    pub(crate) fn connect(
        &mut self,
        peer: Peer,
        index: usize,
        place: Option<PlaceInMemory>,
    ) -> Result<()> {
        let PlaceInMemory { memory, offset } = place.ok_or_else(|| {
            Error::Failed(format!(
                "rank {peer} returns no credits for messages: its device differs from this rank's"
            ))
        })?;
        self.remotes.push((peer, memory));
        self.credits.add(peer, index, offset)
    }

    /// Begins a point. Messages are sent on `sends`, with at most `depth` in flight, and received from `senders`, in
    /// the order of the receives. Returns the counts, and the lanes that carry them.
    pub(crate) fn begin(
        &mut self,
        (telling, depth): (CreditReturn, usize),
        engine: &mut dyn Engine,
        caps: &Caps,
        sends: &[(Peer, Lane)],
        senders: &[Peer],
    ) -> Result<(&mut Credits, Vec<Lane>)> {
        let tell = |&peer: &Peer| {
            let known = self.remotes.iter().find(|(rank, _)| *rank == peer);
            let none = || Error::Failed(format!("rank {peer} sent no address for its credits"));
            let (_, remote) = known.ok_or_else(none)?;
            let write = LaneKind::Initiate(Verb::Write);
            let lane = engine.lane(&LaneSpec {
                // Counts must arrive in order. Otherwise an older count could overwrite a newer one.
                in_order: true,
                delivered: caps.delivery_on_request && !caps.delivered,
                ..LaneSpec::new(write, peer, self.region, remote)
            })?;
            Ok((peer, lane))
        };
        let tells: Vec<(Peer, Lane)> = senders.iter().map(tell).collect::<Result<_>>()?;
        self.credits.begin(telling, depth, sends, &tells)?;
        let lanes = tells.into_iter().map(|(_, lane)| lane).collect();
        Ok((&mut self.credits, lanes))
    }
}
