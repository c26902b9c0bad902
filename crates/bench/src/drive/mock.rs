//! An engine for unit tests of the loops: completes what was posted a few polls later, and can stall, fail and hang.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tonnage_sys::clock::Clock;

use super::flow::Flow;
use super::port::Port;
use super::recorder::{PhaseTimes, Recorder};
use crate::drive::walk::tests::point;
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Arm, Card, Completion, Descriptor, Ending, Engine, Failure, Flush, Lane, LaneSpec, Neighbor,
    Op, Peer, Region, RegionId,
};
use tonnage_plan::transfer::Addresses;
use tonnage_units::Result;

/// A peer's answers to operations, where it sends one back.
pub(crate) type Replies = Box<dyn FnMut(&Op) -> Option<Completion> + Send>;

/// A question about an operation.
pub(crate) type Asks = Box<dyn FnMut(&Op) -> bool + Send>;

/// The engine. It takes at most `room` operations per post, and completes at most 5 per poll.
pub(crate) struct Mock {
    pub(crate) posted: u64,
    pub(crate) most_in_flight: usize,
    pub(crate) stuck: bool,
    /// Nothing of this lane completes.
    pub(crate) stuck_lane: Option<Lane>,
    pub(crate) fail_at: Option<u64>,
    /// Number of operations after which it panics.
    pub(crate) panic_at: Option<u64>,
    /// Times that somebody slept on its descriptor.
    pub(crate) slept: u32,
    /// A descriptor on which nothing ever comes, and its other end.
    descriptor: Option<[UnixStream; 2]>,
    /// The next poll reports one arrival with this immediate, and nothing else.
    pub(crate) arrives: Option<u32>,
    /// Arrivals that are reported one by one, each before anything that was posted.
    pub(crate) arriving: VecDeque<Completion>,
    /// The peer: told of each operation, it may send something back.
    pub(crate) peer: Option<Replies>,
    /// Posts of which it takes nothing, to begin with.
    pub(crate) busy: u32,
    /// Times that it was handed operations.
    pub(crate) calls: u64,
    /// The most operations that it was handed at a time.
    pub(crate) most_handed: usize,
    /// Returns whether it takes an operation now; where there is none, it takes all.
    pub(crate) takes: Option<Asks>,
    /// Returns whether an operation may complete now.
    pub(crate) ends: Option<Asks>,
    /// Number of operations after which nothing completes, and for how long.
    pub(crate) stall_ns: Option<(u64, u64)>,
    /// Number of times that it was asked to flush.
    pub(crate) flushes: u32,
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
            stuck_lane: None,
            fail_at: None,
            panic_at: None,
            slept: 0,
            descriptor: None,
            arrives: None,
            arriving: VecDeque::new(),
            peer: None,
            busy: 0,
            calls: 0,
            most_handed: 0,
            takes: None,
            ends: None,
            stall_ns: None,
            flushes: 0,
            room,
            in_flight: VecDeque::new(),
            clock: Clock::new(),
            stalled_until: 0,
        }
    }
}

impl Mock {
    /// Has a descriptor from now on.
    pub(crate) fn sleeps(&mut self) {
        self.descriptor = UnixStream::pair().ok().map(Into::into);
    }

    /// Takes the oldest operation that may complete.
    fn next_done(&mut self) -> Option<Op> {
        let (mut all, stuck_lane, ends) = (self.in_flight.iter(), self.stuck_lane, &mut self.ends);
        let at = all.position(|op| {
            Some(op.lane) != stuck_lane && ends.as_mut().is_none_or(|ends| ends(op))
        })?;
        self.in_flight.remove(at)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

impl Engine for Mock {
    fn register(&mut self, _memory: &Arc<dyn Memory>) -> Result<Region> {
        let descriptor = Descriptor::default();
        Ok(Region {
            id: RegionId(0),
            descriptor,
        })
    }

    fn deregister(&mut self, _region: RegionId) -> Result<()> {
        Ok(())
    }

    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>> {
        Ok(vec![Card(Vec::new()); peers.len()])
    }

    fn connect(&mut self, _peers: &[Neighbor]) -> Result<()> {
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        Ok(Lane(spec.peer))
    }

    fn release(&mut self, _lane: Lane) {}

    /// Busy at first, then on its way, so that both are waited for.
    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        self.flushes += 1;
        if self.flushes == 1 {
            return Ok(Flush::Again);
        }
        self.in_flight.push_back(Op {
            lane,
            tag,
            local: 0,
            remote: 0,
            len: 1,
            imm: 0,
        });
        Ok(Flush::Posted)
    }

    fn arm(&mut self) -> Result<Arm<'_>> {
        let has_work = !self.in_flight.is_empty();
        Ok(match &self.descriptor {
            Some([descriptor, _]) if !has_work => {
                self.slept += 1;
                Arm::Sleep(descriptor.as_fd())
            }
            Some(_) => Arm::Ready,
            None => Arm::Unsupported,
        })
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, done: &Completion) -> Failure {
        Failure {
            name: format!("{:?}", done.ending),
            code: 77,
            peer: Some(done.lane.0),
            ..Failure::default()
        }
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        assert!(!ops.is_empty(), "a call for nothing costs time");
        assert!(self.panic_at.is_none_or(|at| self.posted < at), "as asked");
        self.calls += 1;
        self.most_handed = self.most_handed.max(ops.len());
        if self.busy > 0 {
            self.busy -= 1;
            return Ok(0);
        }
        let mut taken = ops.len().min(self.room);
        if let Some(takes) = &mut self.takes {
            let refused = ops[..taken].iter().position(|op| !takes(op));
            taken = refused.unwrap_or(taken);
        }
        if let Some(peer) = &mut self.peer {
            self.arriving.extend(ops[..taken].iter().filter_map(peer));
        }
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
                ending: Ending::Arrived,
                ..Completion::EMPTY
            };
            return Ok(1);
        }
        if let Some(arrival) = self.arriving.pop_front() {
            done[0] = arrival;
            return Ok(1);
        }
        if self.stuck || (self.stalled_until > 0 && self.clock.now_ns() < self.stalled_until) {
            return Ok(0);
        }
        let mut count = 0;
        while count < 5.min(done.len())
            && let Some(op) = self.next_done()
        {
            let ending = match self.fail_at {
                Some(at) if self.posted >= at => Ending::Failed(77),
                _ => Ending::Done,
            };
            done[count] = Completion {
                tag: op.tag,
                lane: op.lane,
                len: op.len,
                imm: op.imm,
                ending,
            };
            count += 1;
        }
        Ok(count)
    }
}

/// An arrival from the peer of this lane.
pub(crate) fn arrival(lane: Lane) -> Completion {
    Completion {
        lane,
        ending: Ending::Arrived,
        ..Completion::EMPTY
    }
}

/// Keeps samples; its clock advances by one at each reading.
#[derive(Default)]
pub(crate) struct Counter {
    pub(crate) readings: std::cell::Cell<u64>,
    pub(crate) samples: Vec<u64>,
    pub(crate) phases: Vec<PhaseTimes>,
}

impl Recorder for Counter {
    fn now_ns(&self) -> u64 {
        self.readings.set(self.readings.get() + 1);
        self.readings.get()
    }

    fn sample(&mut self, latency_ns: u64) {
        self.samples.push(latency_ns);
    }

    fn phases(&mut self, times: PhaseTimes) {
        self.phases.push(times);
    }
}

pub(crate) fn flow(lane: u32, peer: u32) -> Flow {
    Flow::new(&point(Addresses::Sequential, 8), 0, peer, Lane(lane), 0, 0)
}

pub(crate) fn silent_port<'a>(mock: &'a mut Mock, stop: &'a AtomicBool) -> Port<'a> {
    Port::new(mock, Clock::new(), stop, false)
}
