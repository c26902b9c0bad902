//! An engine of tests whose link is known: 1 Gb/s, and 20 ms from the last bit of an operation to its completion.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tonnage_engine::memory::{Memory, MemoryEntry};
use tonnage_engine::{
    Caps, Card, Completion, Domain, Engine, EngineReport, Entry, Failure, Flush, Lane, LaneSpec,
    Lists, Neighbor, Op, OpenRequest, Peer, Region, RegionId, WorkerConfig,
};
use tonnage_engines::null;
use tonnage_sys::clock::Clock;
use tonnage_units::Result;

/// 1 Gb/s.
const NS_PER_BYTE: u64 = 8;
const DELAY_NS: u64 = 20_000_000;
/// Sleep of a worker that has nothing under way, such as one that is a target.
const IDLE_NS: u64 = 100_000;

static ENGINES: [Entry; 1] = [Entry {
    name: "long",
    about: "moves nothing, as slowly as a long link",
    open: |request| {
        let domains = (null::ENTRY.open)(request)?;
        let long = |inner| Arc::new(LongDomain { inner }) as Arc<dyn Domain>;
        Ok(domains.into_iter().map(long).collect())
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

struct LongDomain {
    inner: Arc<dyn Domain>,
}

impl Domain for LongDomain {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: "long".into(),
            ..self.inner.report()
        }
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        Ok(Box::new(Long {
            inner: self.inner.worker(config)?,
            clock: config.clock,
            free_ns: 0,
            under_way: VecDeque::new(),
        }))
    }
}

struct Long {
    inner: Box<dyn Engine + Send>,
    clock: Clock,
    /// Time at which the link has sent all that was posted.
    free_ns: u64,
    /// Times at which operations complete, in their order.
    under_way: VecDeque<u64>,
}

impl Engine for Long {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        self.inner.register(memory)
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.inner.deregister(region)
    }

    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>> {
        self.inner.cards(peers)
    }

    fn connect(&mut self, peers: &[Neighbor]) -> Result<()> {
        self.inner.connect(peers)
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        self.inner.lane(spec)
    }

    fn release(&mut self, lane: Lane) {
        self.inner.release(lane);
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let taken = self.inner.post(ops)?;
        let now_ns = self.clock.now_ns();
        for op in &ops[..taken] {
            self.free_ns = self.free_ns.max(now_ns) + u64::from(op.len) * NS_PER_BYTE;
            self.under_way.push_back(self.free_ns + DELAY_NS);
        }
        Ok(taken)
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        self.inner.flush(lane, tag)
    }

    /// Sleeps until something is due, and a little where nothing is under way: who spins for seconds loses the CPU for
    /// longer than the link stores, where others want it too.
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        let mut now_ns = self.clock.now_ns();
        let wait_ns = match self.under_way.front() {
            Some(due_ns) => due_ns.saturating_sub(now_ns),
            None => IDLE_NS,
        };
        if wait_ns > 0 {
            std::thread::sleep(Duration::from_nanos(wait_ns));
            now_ns = self.clock.now_ns();
        }
        let ended = self
            .under_way
            .iter()
            .take_while(|&&due_ns| due_ns <= now_ns);
        let count = ended.count().min(done.len());
        self.under_way.drain(..count);
        self.inner.poll(&mut done[..count])
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, done: &Completion) -> Failure {
        self.inner.failure(done)
    }
}

/// The engine can be opened.
#[test]
fn it_is_as_null_but_for_its_time() {
    let domains = (ENGINES[0].open)(&OpenRequest::default()).unwrap();
    assert_eq!(domains[0].report().name, "long");
    assert!(!domains[0].caps().moves_bytes);
}
