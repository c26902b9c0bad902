//! A worker over several paths for tests. The engines of the paths keep posted operations until a test completes them.

use std::sync::{Arc, Mutex};

use tonnage_sys::clock::Clock;

use crate::memory::Request;
use crate::paths::{Cut, Division, Rails, divide};
use crate::testing::{CAPS, TestDomain, TestEngine, TestMemory, TestScript};
use crate::{
    Caps, Completion, Domain, Ending, Engine, Lane, LaneKind, LaneSpec, Op, Peer, PeerEndpoint,
    Region, RegionId, Verb, WorkerConfig,
};

pub(super) const ALL: Caps = Caps { depth: 8, ..CAPS };

/// First number of a path's regions, lanes, descriptors and addresses. It differs for each path, so mixed-up paths are
/// noticed.
fn first_of(path: usize) -> u32 {
    10 * (path as u32 + 1) + 1
}

/// A device that adds the engine of each path to `shown`.
pub(super) fn device(shown: &Arc<Mutex<Vec<TestEngine>>>, caps: Caps) -> Arc<dyn Domain> {
    let shown = Arc::clone(shown);
    let worker = move |_: &WorkerConfig| {
        let mut all = shown.lock().unwrap();
        let engine = TestEngine::new(TestScript {
            first: first_of(all.len()),
            failure: format!("path {}", all.len()),
            keeps_handed: true,
            // Only the first path reports that it had to wait for incoming writes.
            waits_for_incoming: all.is_empty(),
            ..TestScript::default()
        });
        all.push(engine.clone());
        engine
    };
    Arc::new(TestDomain {
        caps,
        ..TestDomain::new(worker)
    })
}

/// A worker with paths, and access to their engines.
pub(super) struct Bench {
    pub(super) worker: Box<dyn Engine + Send>,
    shown: Arc<Mutex<Vec<TestEngine>>>,
    pub(super) region: Region,
}

pub(super) fn bench(queue_pairs: u32, cut: Option<(u32, u32)>, caps: Caps) -> Bench {
    let division = Division {
        queue_pairs,
        cut: cut.map(|(chunk_bytes, chunks_max)| Cut {
            chunk_bytes,
            chunks_max,
        }),
        rails: Rails::Single,
    };
    bench_over(1, division, caps)
}

/// A worker over two devices. Depending on `division`, each of the peers 1 and 2 is reached by one or both rails.
pub(super) fn two_rails(division: Division) -> Bench {
    bench_over(2, division, ALL)
}

fn bench_over(devices: usize, division: Division, caps: Caps) -> Bench {
    let shown = Arc::default();
    let devices = (0..devices).map(|_| device(&shown, caps)).collect();
    let domains = divide(devices, division);
    let config = WorkerConfig {
        rank: 0,
        worker: 0,
        peers_max: 2,
        depth: 8,
        queue_pairs: 1,
        sleeps: false,
        clock: Clock::new(),
    };
    let mut worker = domains[0].worker(&config).unwrap();
    let memory = TestMemory::allocate(&Request {
        bytes: 1,
        ..Request::default()
    });
    let region = worker.register(&memory.unwrap()).unwrap();
    let addresses = worker.endpoint_addresses(&[1, 2]).unwrap();
    // The peers' addresses are the worker's own.
    let peers = [1, 2].into_iter().zip(addresses);
    let peers: Vec<_> = peers
        .map(|(peer, address)| PeerEndpoint::same_container(peer, address))
        .collect();
    worker.connect(&peers).unwrap();
    Bench {
        worker,
        shown,
        region,
    }
}

impl Drop for Bench {
    /// Checks that each path was only given regions and lanes that it had created itself.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for (path, engine) in self.shown.lock().unwrap().iter().enumerate() {
            let (script, first) = (engine.lock(), first_of(path));
            assert_eq!(script.wrong, Vec::<String>::new());
            for lane in &script.resolved {
                assert_eq!(lane.local, RegionId(first));
                if lane.kind != LaneKind::Receive {
                    assert_eq!(lane.remote.0, [first as u8]);
                }
            }
            let addresses = script.connected.iter().map(|neighbor| &neighbor.address);
            assert!(
                addresses
                    .into_iter()
                    .all(|address| address.0[0] == first as u8)
            );
        }
    }
}

impl Bench {
    pub(super) fn lane(&mut self, kind: LaneKind, peer: Peer) -> Lane {
        let spec = LaneSpec::new(kind, peer, self.region.id, &self.region.descriptor);
        self.worker.lane(&spec).unwrap()
    }

    /// Makes every path refuse operations on a lane.
    pub(super) fn refuse(&self, lane: Lane) {
        for engine in self.shown.lock().unwrap().iter() {
            let mut script = engine.lock();
            let refused = Lane(script.first + lane.0);
            script.takes = Some(Box::new(move |op| op.lane != refused));
        }
    }

    pub(super) fn writes(&mut self) -> Lane {
        self.lane(LaneKind::Initiate(Verb::Write), 1)
    }

    pub(super) fn path<T>(&self, index: usize, look: impl FnOnce(&mut TestScript) -> T) -> T {
        look(&mut self.shown.lock().unwrap()[index].lock())
    }

    pub(super) fn posted(&self, index: usize) -> Vec<Op> {
        self.path(index, |script| script.handed.concat())
    }

    pub(super) fn delivers(&self, index: usize, completion: Completion) {
        self.path(index, |script| script.done.push_back(completion));
    }

    /// Completes a part, as the engine of its path would.
    pub(super) fn completes(&self, index: usize, part: &Op, ending: Ending) {
        self.path(index, |script| script.end_op(part, ending));
    }

    pub(super) fn polled(&mut self) -> Vec<Completion> {
        let mut done = [Completion::EMPTY; 64];
        let count = self.worker.poll(&mut done).unwrap();
        done[..count].to_vec()
    }
}

pub(super) fn op(lane: Lane, tag: u32, len: u32) -> Op {
    Op {
        lane,
        tag,
        local: 1000,
        remote: 5000,
        len,
        imm: 90 + tag,
    }
}
