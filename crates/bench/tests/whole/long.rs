//! A test engine with a simulated link of 1 Gb/s. It takes 20 ms from an operation's last bit to its completion.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::testing::{TestDomain, TestEngine, TestScript};
use tonnage_engine::{Ending, Entry, Lists};
use tonnage_engines::null;
use tonnage_sys::clock::Clock;
use tonnage_units::lock::lock;

/// 8 ns per byte are 1 Gb/s.
const NS_PER_BYTE: u64 = 8;
const DELAY_NS: u64 = 20_000_000;
/// Time for which a worker without operations in flight, such as a target, sleeps.
const IDLE_NS: u64 = 100_000;

static ENGINES: [Entry; 1] = [Entry {
    name: "long",
    about: "moves nothing, as slowly as a long link",
    open: |request| {
        TestDomain::wrap_all((null::ENTRY.open)(request), |domain| {
            domain.report.name = "long".into();
            domain.workers = Arc::new(|config| Ok(Box::new(worker(config.clock))));
        })
    },
    ..null::ENTRY
}];

static MEMORIES: [MemoryEntry; 1] = [tonnage_engines::memory::HOST];

pub static LISTS: Lists = Lists {
    engines: &ENGINES,
    file_engines: &[],
    memories: &MEMORIES,
    backends: &[],
};

fn worker(clock: Clock) -> TestEngine {
    // Times at which the operations in flight will complete, in order.
    let due: Arc<Mutex<VecDeque<u64>>> = Arc::default();
    let (posted, polled, ended) = (Arc::clone(&due), Arc::clone(&due), due);
    // Time when the link will have sent all operations posted so far.
    let mut free_ns = 0;
    TestEngine::new(TestScript {
        answers: Some(Box::new(move |_, op| {
            free_ns = clock.now_ns().max(free_ns) + u64::from(op.len) * NS_PER_BYTE;
            lock(&posted).push_back(free_ns + DELAY_NS);
            None
        })),
        // Sleeps until a completion is due. Without operations in flight, it sleeps briefly. A thread that spun for
        // seconds would lose its CPU for longer than the operations in flight keep the link busy.
        before_poll: Some(Box::new(move || {
            let due_ns = lock(&polled).front().copied();
            let wait_ns = due_ns.map_or(IDLE_NS, |due_ns| due_ns.saturating_sub(clock.now_ns()));
            if wait_ns > 0 {
                std::thread::sleep(Duration::from_nanos(wait_ns));
            }
        })),
        ends: Some(Box::new(move |_| {
            let mut due = lock(&ended);
            let is_due = due.front().is_some_and(|&due_ns| due_ns <= clock.now_ns());
            is_due.then(|| due.pop_front()).map(|_| Ending::Done)
        })),
        ..TestScript::default()
    })
}
