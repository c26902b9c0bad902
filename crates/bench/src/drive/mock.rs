//! An engine for unit tests of the loops: completes what was posted a few polls later, and can stall, fail and hang.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

use tonnage_sys::clock::Clock;

use super::flow::Flow;
use super::port::Port;
use crate::drive::walk::tests::point;
use tonnage_engine::{Card, Completion, Engine, Kind, Lane, LaneSpec, Op};
use tonnage_plan::transfer::Addresses;
use tonnage_units::Result;

/// The engine. It takes at most `room` operations per post, and completes at most 5 per poll.
pub(crate) struct Mock {
    pub(crate) posted: u64,
    pub(crate) most_in_flight: usize,
    pub(crate) stuck: bool,
    pub(crate) fail_at: Option<u64>,
    /// The next poll reports one arrival with this immediate, and nothing else.
    pub(crate) arrives: Option<u32>,
    /// Number of operations after which nothing completes, and for how long.
    pub(crate) stall_ns: Option<(u64, u64)>,
    room: usize,
    in_flight: VecDeque<Op>,
    clock: Clock,
    stalled_until: u64,
}

impl Mock {
    pub(crate) fn new(room: usize) -> Self {
        Self {
            posted: 0,
            most_in_flight: 0,
            stuck: false,
            fail_at: None,
            arrives: None,
            stall_ns: None,
            room,
            in_flight: VecDeque::new(),
            clock: Clock::new(),
            stalled_until: 0,
        }
    }
}

impl Engine for Mock {
    fn card(&self) -> Card {
        Card(Vec::new())
    }

    fn connect(&mut self, _peers: &[(u32, Card)]) -> Result<()> {
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec) -> Result<Lane> {
        Ok(Lane(spec.peer))
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let taken = ops.len().min(self.room);
        self.in_flight.extend(&ops[..taken]);
        self.posted += taken as u64;
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
        if let Some((after, ns)) = self.stall_ns
            && self.posted >= after
        {
            self.stalled_until = self.clock.now_ns() + ns;
            self.stall_ns = None;
        }
        Ok(taken)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        if let Some(imm) = self.arrives.take() {
            done[0] = Completion {
                imm,
                kind: Kind::Arrived,
                ..Completion::EMPTY
            };
            return Ok(1);
        }
        if self.stuck || (self.stalled_until > 0 && self.clock.now_ns() < self.stalled_until) {
            return Ok(0);
        }
        let mut count = 0;
        while count < 5.min(done.len())
            && let Some(op) = self.in_flight.pop_front()
        {
            let kind = match self.fail_at {
                Some(at) if self.posted >= at => Kind::Failed(77),
                _ => Kind::Done,
            };
            done[count] = Completion {
                tag: op.tag,
                lane: op.lane,
                len: op.len,
                imm: op.imm,
                kind,
            };
            count += 1;
        }
        Ok(count)
    }
}

pub(crate) fn flow(lane: u32, peer: u32) -> Flow {
    Flow::new(&point(Addresses::Sequential, 8), 0, peer, Lane(lane), 0, 0)
}

pub(crate) fn silent_port<'a>(mock: &'a mut Mock, stop: &'a AtomicBool) -> Port<'a> {
    Port::new(mock, Clock::new(), stop, false)
}
