//! An engine that keeps what was posted until a test ends it, and a worker with paths over several of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tonnage_sys::clock::Clock;
use tonnage_sys::mapping::Arena;
use tonnage_units::Result;

use crate::memory::{CopyRate, CopyTurns, Memory, MemoryReport, Stretch};
use crate::paths::{Cut, Division, Rails, divided};
use crate::pattern::{Key, Mismatches};
use crate::{
    Caps, Card, Completion, Descriptor, Domain, Ending, Engine, EngineReport, Failure, Flush, Lane,
    LaneKind, LaneSpec, LimitKind, Neighbor, Op, Peer, Region, RegionId, Verb, WorkerConfig,
};

/// Operations that a path was handed, and what it will say.
#[derive(Default)]
pub(super) struct Shown {
    /// The operations of each call of `post`.
    pub(super) calls: Vec<Vec<Op>>,
    /// Operations that it still has room for.
    pub(super) room: usize,
    pub(super) to_poll: VecDeque<Completion>,
    pub(super) flushes: Vec<u32>,
    pub(super) flush_answers: VecDeque<Flush>,
    /// Flushes of what peers have written.
    pub(super) incoming: u32,
    /// Peers that take nothing, as the last digit of their lanes.
    pub(super) full: Vec<u32>,
}

pub(super) type Shared = Arc<Mutex<Vec<Shown>>>;

pub(super) struct Device {
    pub(super) shown: Shared,
    pub(super) caps: Caps,
}

struct Fake {
    shown: Shared,
    index: usize,
}

impl Domain for Device {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn report(&self) -> EngineReport {
        EngineReport::default()
    }

    fn worker(&self, _config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        let mut all = self.shown.lock().unwrap();
        all.push(Shown {
            room: usize::MAX,
            ..Shown::default()
        });
        Ok(Box::new(Fake {
            shown: Arc::clone(&self.shown),
            index: all.len() - 1,
        }))
    }
}

impl Fake {
    fn with<T>(&self, look: impl FnOnce(&mut Shown) -> T) -> T {
        look(&mut self.shown.lock().unwrap()[self.index])
    }
}

impl Engine for Fake {
    fn register(&mut self, _memory: &Arc<dyn Memory>) -> Result<Region> {
        Ok(Region {
            id: RegionId(70 + self.index as u32),
            descriptor: Descriptor(vec![self.index as u8]),
        })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        assert_eq!(region, RegionId(70 + self.index as u32));
        Ok(())
    }

    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>> {
        Ok(peers
            .iter()
            .map(|&peer| Card(vec![self.index as u8, peer as u8]))
            .collect())
    }

    fn connect(&mut self, peers: &[Neighbor]) -> Result<()> {
        for neighbor in peers {
            // The test connects the worker with itself.
            assert_eq!(neighbor.card.0[0], self.index as u8);
        }
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        assert_eq!(spec.local, RegionId(70 + self.index as u32));
        if let LaneKind::Initiate(_) = spec.kind {
            assert_eq!(spec.remote.0, [self.index as u8]);
        }
        Ok(Lane(10 * (self.index as u32 + 1) + spec.peer))
    }

    fn release(&mut self, _lane: Lane) {}

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        Ok(self.with(|shown| {
            let open = ops
                .iter()
                .take_while(|op| !shown.full.contains(&(op.lane.0 % 10)));
            let taken = open.count().min(shown.room);
            shown.room -= taken;
            if taken > 0 {
                shown.calls.push(ops[..taken].to_vec());
            }
            taken
        }))
    }

    fn flush(&mut self, _lane: Lane, tag: u32) -> Result<Flush> {
        Ok(self.with(|shown| {
            shown.flushes.push(tag);
            shown.flush_answers.pop_front().unwrap_or(Flush::Delivered)
        }))
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        // The first path alone has something to wait for.
        self.with(|shown| shown.incoming += 1);
        Ok(self.index == 0)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        Ok(self.with(|shown| {
            let count = shown.to_poll.len().min(done.len());
            for (place, completion) in done.iter_mut().zip(shown.to_poll.drain(..count)) {
                *place = completion;
            }
            count
        }))
    }

    fn failure(&self, done: &Completion) -> Failure {
        Failure {
            name: format!("path {} lane {} tag {}", self.index, done.lane.0, done.tag),
            ..Failure::default()
        }
    }
}

/// A worker with paths, and a view of them.
pub(super) struct Bench {
    pub(super) worker: Box<dyn Engine + Send>,
    shown: Shared,
    pub(super) region: Region,
}

pub(super) fn caps() -> Caps {
    Caps {
        verbs: &Verb::ALL,
        immediate_bits: 32,
        depth: 8,
        message_bytes_max: 1 << 30,
        moves_bytes: true,
        delivered: true,
        delivery_on_request: true,
        sends_taken: true,
        passive_target: false,
        arrivals_named: true,
        arrives_by_polling: false,
        ordered_writes: true,
        shared_memory: false,
        carried: false,
        limit: LimitKind::None,
    }
}

/// Memory that no engine here looks at.
struct NoMemory;

impl Memory for NoMemory {
    fn bytes(&self) -> u64 {
        0
    }

    fn host(&self) -> Option<&Arc<Arena>> {
        None
    }

    fn report(&self) -> MemoryReport {
        MemoryReport::default()
    }

    fn fill(&self, _origin: u64, _offset: u64, _len: u64, _key: Key) -> Result<()> {
        Ok(())
    }

    fn verify(
        &self,
        _origin: u64,
        _offset: u64,
        _len: u64,
        _key: Key,
        _found: &mut Mismatches,
    ) -> Result<()> {
        Ok(())
    }

    fn read(&self, _offset: u64, _bytes: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn write(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn copy_rates(
        &self,
        _stretch: &Stretch,
        _slots: &mut dyn FnMut() -> (u64, u64),
        _clock: &Clock,
        _turns: CopyTurns,
    ) -> Result<Vec<CopyRate>> {
        Ok(Vec::new())
    }
}

pub(super) fn bench(queue_pairs: u32, cut: Option<(u32, u32)>, caps: Caps) -> Bench {
    let shown = Shared::default();
    let device = Device {
        shown: Arc::clone(&shown),
        caps,
    };
    let division = Division {
        queue_pairs,
        cut: cut.map(|(chunk_bytes, chunks_max)| Cut {
            chunk_bytes,
            chunks_max,
        }),
        rails: Rails::Single,
    };
    bench_over(vec![Arc::new(device)], division, shown)
}

/// A worker over two devices, on which paths lead to both or to one of the peers 1 and 2.
pub(super) fn two_rails(division: Division) -> Bench {
    let shown = Shared::default();
    let device = || -> Arc<dyn Domain> {
        Arc::new(Device {
            shown: Arc::clone(&shown),
            caps: caps(),
        })
    };
    bench_over(vec![device(), device()], division, Arc::clone(&shown))
}

fn bench_over(devices: Vec<Arc<dyn Domain>>, division: Division, shown: Shared) -> Bench {
    let domains = divided(devices, division);
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
    let region = worker.register(&(Arc::new(NoMemory) as _)).unwrap();
    let cards = worker.cards(&[1, 2]).unwrap();
    let peers = [1, 2].into_iter().zip(cards);
    let peers: Vec<_> = peers
        .map(|(peer, card)| Neighbor::beside(peer, card))
        .collect();
    worker.connect(&peers).unwrap();
    Bench {
        worker,
        shown,
        region,
    }
}

impl Bench {
    pub(super) fn lane(&mut self, kind: LaneKind, peer: Peer) -> Lane {
        let spec = LaneSpec {
            kind,
            peer,
            local: self.region.id,
            remote: &self.region.descriptor.clone(),
            ordered: false,
            in_order: false,
            delivered: false,
        };
        self.worker.lane(&spec).unwrap()
    }

    /// Makes the peer of a lane, which is its first or second, take nothing, or everything again.
    pub(super) fn full(&self, lane: Lane, full: bool) {
        let peer = lane.0 + 1;
        for shown in self.shown.lock().unwrap().iter_mut() {
            shown.full = if full { vec![peer] } else { Vec::new() };
        }
    }

    pub(super) fn writes(&mut self) -> Lane {
        self.lane(LaneKind::Initiate(Verb::Write), 1)
    }

    pub(super) fn path<T>(&self, index: usize, look: impl FnOnce(&mut Shown) -> T) -> T {
        look(&mut self.shown.lock().unwrap()[index])
    }

    pub(super) fn posted(&self, index: usize) -> Vec<Op> {
        self.path(index, |shown| shown.calls.concat())
    }

    pub(super) fn says(&self, index: usize, completion: Completion) {
        self.path(index, |shown| shown.to_poll.push_back(completion));
    }

    /// Ends a part as a path would.
    pub(super) fn ends(&self, index: usize, part: &Op, ending: Ending) {
        self.says(
            index,
            Completion {
                tag: part.tag,
                lane: part.lane,
                len: part.len,
                imm: part.imm,
                ending,
            },
        );
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

pub(super) fn arrival(peer: Peer, imm: u32, len: u32) -> Completion {
    Completion {
        tag: 0,
        lane: Lane(peer),
        len,
        imm,
        ending: Ending::Arrived,
    }
}
