//! A test engine that moves nothing, like `null`. It records initiator and target of each post, in one order over all
//! ranks.

use std::sync::{Arc, Mutex};

use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::testing::{TestDomain, TestEngine, TestScript, ends_at_once};
use tonnage_engine::{Entry, Lists, Peer};
use tonnage_engines::null;
use tonnage_units::lock::lock;

static ENGINES: [Entry; 1] = [Entry {
    name: "seen",
    about: "moves nothing, and remembers when",
    open: |request| {
        TestDomain::wrap_all((null::ENTRY.open)(request), |domain| {
            domain.report.name = "seen".into();
            domain.workers = Arc::new(|config| Ok(Box::new(worker(config.rank))));
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

/// Initiator and target of an operation.
pub type Posted = (Peer, Peer);

static POSTED: Mutex<Vec<Posted>> = Mutex::new(Vec::new());

/// Returns the posts of all ranks since the last call. Consecutive posts by the same pair are recorded once.
pub fn take() -> Vec<Posted> {
    std::mem::take(&mut lock(&POSTED))
}

fn worker(rank: Peer) -> TestEngine {
    TestEngine::new(TestScript {
        answers: Some(Box::new(move |peer, _| {
            let mut posted = lock(&POSTED);
            if posted.last() != Some(&(rank, peer)) {
                posted.push((rank, peer));
            }
            None
        })),
        ends: Some(ends_at_once()),
        ..TestScript::default()
    })
}
