//! What unit tests of the loops share: an engine that completes what was posted a few polls later, recorders and flows.

use std::sync::atomic::AtomicBool;

use tonnage_sys::clock::Clock;

use super::flow::Flow;
use super::port::Port;
use super::recorder::{PhaseTimes, Recorder};
use crate::drive::walk::tests::point;
use tonnage_engine::testing::{Script, TestEngine, at_once};
use tonnage_engine::{Flush, Lane};
use tonnage_plan::transfer::Addresses;

/// An engine that takes at most `post_max` operations per post, and completes at most 5 per poll.
pub(crate) fn mock(post_max: usize) -> TestEngine {
    TestEngine::new(Script {
        panics_at_nothing: true,
        post_max: Some(post_max),
        poll_max: Some(5),
        ends: Some(at_once()),
        // Busy at first, then on its way, so that both are waited for.
        flush_answers: [Flush::Again].into(),
        posts_flushes: true,
        ..Script::default()
    })
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

pub(crate) fn silent_port<'a>(engine: &'a mut TestEngine, stop: &'a AtomicBool) -> Port<'a> {
    Port::new(engine, Clock::new(), stop, false)
}
