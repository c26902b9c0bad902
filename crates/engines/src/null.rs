//! `null`: completes every operation at once and moves nothing. What is measured with it is the harness's own floor:
//! the loop, the calls through the engine's traits, the histogram, the clock. It is recorded, never subtracted.
//!
//! An operation that notifies its target (write-imm, send) is answered at once by one of the same kind, so that a
//! ping-pong has a floor too.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Caps, Card, Completion, Domain, Engine, Entry, Kind, Lane, LaneKind, LaneSpec, LimitKind, Op,
    Verb, WorkerConfig,
};
use tonnage_units::{Error, Result};

/// Completions that wait to be polled; a posted operation takes one or two.
const DEPTH: u32 = 1024;

static CAPS: Caps = Caps {
    verbs: &Verb::ALL,
    immediate_bits: 32,
    depth: DEPTH,
    message_bytes_max: u32::MAX as u64,
    moves_bytes: false,
    delivered: true,
    delivery_on_request: true,
    arrivals_named: true,
    arrives_by_polling: false,
    ordered_writes: false,
    shared_memory: false,
    limit: LimitKind::None,
};

/// The row of the list of engines.
pub const ENTRY: Entry = Entry {
    name: "null",
    about: "completes at once and moves nothing: the harness's own floor",
    variant: None,
    options: &[],
    has_devices: false,
    libraries: &[],
    verbs: &Verb::ALL,
    ordered_writes: false,
    moves_bytes: false,
    open: |_| Ok(vec![Arc::new(NullDomain)]),
};

struct NullDomain;

impl Domain for NullDomain {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn effective(&self) -> Value {
        json!({ "name": "null", "depth": DEPTH })
    }

    fn worker(&self, _config: &WorkerConfig, _memory: Arc<dyn Memory>) -> Result<Box<dyn Engine>> {
        let queue = VecDeque::with_capacity(2 * DEPTH as usize);
        Ok(Box::new(Null {
            lanes: Vec::new(),
            queue,
        }))
    }
}

struct Null {
    lanes: Vec<(LaneKind, u32)>,
    queue: VecDeque<Completion>,
}

impl Engine for Null {
    fn card(&self) -> Card {
        Card(Vec::new())
    }

    fn connect(&mut self, _peers: &[(u32, Card)]) -> Result<()> {
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec) -> Result<Lane> {
        let wanted = (spec.kind, spec.peer);
        let index = self
            .lanes
            .iter()
            .position(|&lane| lane == wanted)
            .unwrap_or_else(|| {
                self.lanes.push(wanted);
                self.lanes.len() - 1
            });
        Ok(Lane(index as u32))
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let mut taken = 0;
        for op in ops {
            let Some(&(kind, peer)) = self.lanes.get(op.lane.0 as usize) else {
                return Err(Error::Failed(format!(
                    "lane {} was never resolved",
                    op.lane.0
                )));
            };
            let LaneKind::Initiate(verb) = kind else {
                taken += 1;
                continue;
            };
            if self.queue.len() + 2 > 2 * DEPTH as usize {
                break;
            }
            let done = Completion {
                tag: op.tag,
                lane: op.lane,
                len: op.len,
                imm: op.imm,
                kind: Kind::Done,
            };
            self.queue.push_back(done);
            if verb.notifies_target() {
                self.queue.push_back(Completion {
                    tag: 0,
                    lane: Lane(peer),
                    kind: Kind::Arrived,
                    ..done
                });
            }
            taken += 1;
        }
        Ok(taken)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        let count = self.queue.len().min(done.len());
        for (slot, completion) in done.iter_mut().zip(self.queue.drain(..count)) {
            *slot = completion;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> Null {
        Null {
            lanes: Vec::new(),
            queue: VecDeque::with_capacity(2 * DEPTH as usize),
        }
    }

    fn op(lane: Lane, tag: u32) -> Op {
        Op {
            lane,
            tag,
            local: 0,
            remote: 0,
            len: 8,
            imm: 0,
        }
    }

    #[test]
    fn everything_posted_completes_once_in_order_without_growing_the_queue() {
        let mut null = engine();
        let spec = LaneSpec {
            kind: LaneKind::Initiate(Verb::Write),
            peer: 1,
            ordered: false,
            delivered: false,
        };
        let lane = null.lane(&spec).unwrap();
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
        let mut null = engine();
        let spec = LaneSpec {
            kind: LaneKind::Initiate(Verb::Send),
            peer: 3,
            ordered: false,
            delivered: false,
        };
        let lane = null.lane(&spec).unwrap();
        null.post(&[op(lane, 9)]).unwrap();
        let mut done = [Completion::EMPTY; 64];
        assert_eq!(null.poll(&mut done).unwrap(), 2);
        assert_eq!((done[0].kind, done[0].tag), (Kind::Done, 9));
        assert_eq!((done[1].kind, done[1].lane), (Kind::Arrived, Lane(3)));
    }
}
