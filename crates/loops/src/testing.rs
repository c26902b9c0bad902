//! Test support for the loops, and for other crates through the feature `testing`: an engine that completes a few
//! operations per poll, recorders, and flows.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tonnage_sys::clock::Clock;

use crate::flow::Flow;
use crate::flow_walk::FlowSlots;
use crate::port::Port;
use crate::recorder::{PhaseTimes, Recorder};
use crate::serve::WorkerSleep;
use tonnage_engine::testing::{TestEngine, TestScript, ends_at_once};
use tonnage_engine::{Access, Flush, Lane, Verb};
use tonnage_ranks::Sleepers;
use tonnage_units::{Error, Result};

/// An engine that accepts at most `post_max` operations per post, and completes at most 5 per poll.
pub fn mock(post_max: usize) -> TestEngine {
    TestEngine::new(TestScript {
        panics_at_nothing: true,
        post_max: Some(post_max),
        poll_max: Some(5),
        ends: Some(ends_at_once()),
        // The flush is rejected at first, then posted. So tests cover the wait for room and the wait for completion.
        flush_answers: [Flush::Again].into(),
        posts_flushes: true,
        ..TestScript::default()
    })
}

/// Far longer than any of these tests takes, so that a missing wake-up is noticed.
pub const LONG: Duration = Duration::from_secs(20);

/// Sleeps until `over` returns true, checking only every [`LONG`], while another thread runs `action`. Returns the
/// elapsed time.
pub fn rested(
    sleepers: &Sleepers,
    stop: &AtomicBool,
    over: impl FnMut() -> bool,
    action: impl FnOnce() + Send,
) -> Result<Duration> {
    let rest = WorkerSleep {
        longest: LONG,
        ..WorkerSleep::register(sleepers)?
    };
    let mut mock = mock(1);
    let mut port = silent_port(&mut mock, stop);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let act = || {
            // The worker should be asleep by then; if not, it must still notice the change.
            std::thread::sleep(Duration::from_millis(20));
            action();
        };
        let started = std::thread::Builder::new().spawn_scoped(scope, act);
        started.map_err(|error| Error::start_error("a thread", &error))?;
        rest.sleep_until(&mut port, over)
    })?;
    Ok(began.elapsed())
}

/// A recorder that keeps samples. Its clock advances by one at each reading.
#[derive(Default)]
pub struct Counter {
    pub readings: std::cell::Cell<u64>,
    pub samples: Vec<u64>,
    pub phases: Vec<PhaseTimes>,
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

/// Writes of 8 bytes to `slots` adjacent slots, in the same order at both ends.
pub fn slots(access: Access, slots: u64) -> FlowSlots {
    FlowSlots {
        op: Verb::Write,
        size_bytes: 8,
        stride_bytes: 8,
        slots,
        orders: (access, access),
        word_places: 0,
        seed: 5,
    }
}

pub fn flow(lane: u32, peer: u32) -> Flow {
    Flow::new(&slots(Access::Sequential, 8), 0, peer, Lane(lane), 0, 0)
}

pub fn silent_port<'a>(engine: &'a mut TestEngine, stop: &'a AtomicBool) -> Port<'a> {
    Port::new(engine, Clock::new(), stop, false)
}
