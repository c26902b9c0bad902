//! An engine of tests that moves nothing, as `null`, and remembers who posted towards whom, in the order of all ranks.

use std::sync::{Arc, Mutex};

use tonnage_engine::memory::{Memory, MemoryEntry};
use tonnage_engine::{
    Caps, Card, Completion, Domain, Engine, EngineReport, Entry, Failure, Flush, Lane, LaneSpec,
    Lists, Neighbor, Op, Peer, Region, RegionId, WorkerConfig,
};
use tonnage_engines::null;
use tonnage_units::Result;
use tonnage_units::lock::lock;

static ENGINES: [Entry; 1] = [Entry {
    name: "seen",
    about: "moves nothing, and remembers when",
    open: |request| {
        let domains = (null::ENTRY.open)(request)?;
        let seen = |inner| Arc::new(SeenDomain { inner }) as Arc<dyn Domain>;
        Ok(domains.into_iter().map(seen).collect())
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

/// Initiator and target of an operation.
pub type Posted = (Peer, Peer);

static POSTED: Mutex<Vec<Posted>> = Mutex::new(Vec::new());

/// Posts of all ranks since they were taken last. Posts of one pair that follow each other are there once.
pub fn take() -> Vec<Posted> {
    std::mem::take(&mut lock(&POSTED))
}

struct SeenDomain {
    inner: Arc<dyn Domain>,
}

impl Domain for SeenDomain {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: "seen".into(),
            ..self.inner.report()
        }
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        Ok(Box::new(Seen {
            inner: self.inner.worker(config)?,
            rank: config.rank,
            lanes: Vec::new(),
        }))
    }
}

struct Seen {
    inner: Box<dyn Engine + Send>,
    rank: Peer,
    lanes: Vec<(Lane, Peer)>,
}

impl Engine for Seen {
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
        let lane = self.inner.lane(spec)?;
        self.lanes.push((lane, spec.peer));
        Ok(lane)
    }

    fn release(&mut self, lane: Lane) {
        self.inner.release(lane);
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        for op in ops {
            let peer = self.lanes.iter().find(|(lane, _)| *lane == op.lane);
            let mut posted = lock(&POSTED);
            match peer.map(|&(_, peer)| (self.rank, peer)) {
                Some(pair) if posted.last() != Some(&pair) => posted.push(pair),
                _ => {}
            }
        }
        self.inner.post(ops)
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        self.inner.flush(lane, tag)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.inner.poll(done)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, done: &Completion) -> Failure {
        self.inner.failure(done)
    }
}
