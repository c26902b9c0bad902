//! `null`: completes every operation immediately and moves nothing. It measures the harness's own cost: the loop, the
//! calls through the engine's traits, the histogram and the clock. This cost is recorded, but never subtracted.
//!
//! An operation that notifies its target (write-imm, send) is immediately answered by one of the same kind, so that a
//! ping-pong can be measured too.

use std::collections::VecDeque;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Caps, Completion, Descriptor, Domain, Ending, EndpointAddress, Engine, EngineReport, Entry,
    Facts, Failure, Flush, Lane, LaneKind, LaneSpec, LaneTable, Op, Peer, PeerEndpoint, Region,
    RegionId, Verb, WorkerConfig, move_waiting,
};
use tonnage_units::Result;

/// Number of operations that fit into the queue. Each operation can have two completions.
const DEPTH: u32 = 1024;

static CAPS: Caps = Caps {
    immediate_bits: 32,
    moves_bytes: false,
    delivered: true,
    delivery_on_request: true,
    arrivals_named: true,
    sends_taken: true,
    ..Caps::new(&Verb::ALL, DEPTH, u32::MAX as u64)
};

/// This engine's row in the list of engines.
pub const ENTRY: Entry = Entry {
    moves_bytes: false,
    ..Entry::new(
        "null",
        "completes at once and moves nothing, to show tonnage's own overhead",
        &Verb::ALL,
        |_| Ok(vec![Arc::new(NullDomain)]),
    )
};

struct NullDomain;

impl Domain for NullDomain {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: "null".to_owned(),
            facts: Facts::default().with_fact("depth", DEPTH),
            ..EngineReport::default()
        }
    }

    fn worker(&self, _config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        Ok(Box::new(Null::new()))
    }
}

struct Null {
    /// Number of registrations so far. The memories are not used.
    regions: u32,
    lanes: LaneTable<(LaneKind, Peer)>,
    queue: VecDeque<Completion>,
}

impl Null {
    fn new() -> Self {
        Self {
            regions: 0,
            lanes: LaneTable::default(),
            queue: VecDeque::with_capacity(2 * DEPTH as usize),
        }
    }
}

impl Engine for Null {
    fn register(&mut self, _memory: &Arc<dyn Memory>) -> Result<Region> {
        let id = RegionId(self.regions);
        self.regions += 1;
        let descriptor = Descriptor::default();
        Ok(Region { id, descriptor })
    }

    fn deregister(&mut self, _region: RegionId) -> Result<()> {
        Ok(())
    }

    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        Ok(vec![EndpointAddress(Vec::new()); peers.len()])
    }

    fn connect(&mut self, _peers: &[PeerEndpoint]) -> Result<()> {
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let wanted = (spec.kind, spec.peer);
        let known = self.lanes.find(|&lane| lane == wanted);
        Ok(known.unwrap_or_else(|| self.lanes.put(wanted)))
    }

    fn release_lane(&mut self, lane: Lane) {
        self.lanes.release(lane);
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let mut taken = 0;
        for op in ops {
            let (kind, peer) = match self.lanes.get(op.lane) {
                Ok(&lane) => lane,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            };
            let LaneKind::Initiate(verb) = kind else {
                taken += 1;
                continue;
            };
            if self.queue.len() + 2 > 2 * DEPTH as usize {
                break;
            }
            let done = Completion::new(op, Ending::Done);
            self.queue.push_back(done);
            if verb.notifies_target() {
                self.queue.push_back(Completion {
                    tag: 0,
                    lane: Lane(peer),
                    ending: Ending::Arrived,
                    ..done
                });
            }
            taken += 1;
        }
        Ok(taken)
    }

    fn flush(&mut self, lane: Lane, _tag: u32) -> Result<Flush> {
        self.lanes.get(lane).map(|_| Flush::Delivered)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        Ok(move_waiting(&mut self.queue, done))
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, _done: &Completion) -> Failure {
        // Operations of this engine never fail.
        Failure::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(null: &mut Null, verb: Verb, peer: Peer) -> Lane {
        let (kind, remote) = (LaneKind::Initiate(verb), Descriptor::default());
        let spec = LaneSpec::new(kind, peer, RegionId(0), &remote);
        null.lane(&spec).unwrap()
    }

    fn op(lane: Lane, tag: u32) -> Op {
        Op {
            lane,
            tag,
            len: 8,
            ..Op::default()
        }
    }

    #[test]
    fn a_call_that_fails_took_nothing() {
        let mut null = Null::new();
        let good = op(lane(&mut null, Verb::Write, 1), 3);
        let bad = op(Lane(99), 4);
        assert_eq!(null.post(&[good, bad]).unwrap(), 1);
        assert!(null.post(&[bad, good]).is_err());
        let mut done = [Completion::EMPTY; 4];
        assert_eq!(null.poll(&mut done).unwrap(), 1);
    }

    #[test]
    fn everything_posted_completes_once_in_order_without_growing_the_queue() {
        let mut null = Null::new();
        let lane = lane(&mut null, Verb::Write, 1);
        let capacity = null.queue.capacity();
        let ops: Vec<Op> = (0..5000).map(|tag| op(lane, tag)).collect();
        let (mut posted, mut tags) = (0, Vec::new());
        let mut done = [Completion::EMPTY; 64];
        while tags.len() < ops.len() {
            posted += null.post(&ops[posted..]).unwrap();
            let count = null.poll(&mut done).unwrap();
            tags.extend(done[..count].iter().map(|completion| completion.tag));
        }
        assert!(tags.into_iter().eq(0..5000));
        assert_eq!(null.queue.capacity(), capacity);
    }

    #[test]
    fn a_notifying_operation_is_answered() {
        let mut null = Null::new();
        let lane = lane(&mut null, Verb::Send, 3);
        null.post(&[op(lane, 9)]).unwrap();
        let mut done = [Completion::EMPTY; 64];
        assert_eq!(null.poll(&mut done).unwrap(), 2);
        assert_eq!((done[0].ending, done[0].tag), (Ending::Done, 9));
        assert_eq!((done[1].ending, done[1].lane), (Ending::Arrived, Lane(3)));
    }

    #[test]
    fn a_released_lane_takes_nothing_and_its_number_is_reused() {
        let mut null = Null::new();
        let first = lane(&mut null, Verb::Write, 1);
        let second = lane(&mut null, Verb::Read, 1);
        assert_eq!(null.flush(first, 0).unwrap(), Flush::Delivered);
        null.release_lane(first);
        assert!(null.post(&[op(first, 0)]).is_err());
        assert!(null.flush(first, 0).is_err());
        assert_eq!(lane(&mut null, Verb::Read, 1), second);
        assert_eq!(lane(&mut null, Verb::Send, 2), first);
    }
}
