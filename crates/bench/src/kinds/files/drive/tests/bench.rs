//! Everything that a task of the loops borrows, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tonnage_sys::clock::Clock;
use tonnage_sys::mapping::{Arena, Pages, Sharing};

use super::super::{BufferLayout, Task};
use crate::kinds::files::data::Pool;
use crate::kinds::files::sequence::Sequence;
use crate::kinds::files::sequence::tests::point;
use crate::kinds::files::stamp::FileKey;
use tonnage_plan::files::{DataKind, FileLayout, FileOrder, FilePoint, Phase};

pub(super) const LEN: u64 = 1000;
pub(super) const COUNT: u64 = 40;
pub(super) const SEED: u64 = 11;
/// Long before any test is over, and much longer than a handful of transfers in memory.
pub(super) const SOON_NS: u64 = 200_000_000;

/// Owner of everything that a task borrows.
pub(super) struct Bench {
    pub(super) point: FilePoint,
    pub(super) memory: Arc<Arena>,
    pub(super) buffers: BufferLayout,
    pub(super) pool: Pool,
    pub(super) clock: Clock,
    pub(super) start_ns: u64,
    pub(super) watched: AtomicU64,
    pub(super) stop: [Arc<AtomicBool>; 2],
}

impl Bench {
    /// For one transfer after the other.
    pub(super) fn blocking() -> Self {
        let bench = Self::new(BufferLayout::new(LEN, 1, true));
        let BufferLayout { source, slots, .. } = bench.buffers;
        bench.pool.place(&bench.memory, source, 0, slots).unwrap();
        bench
    }

    /// For so many in flight.
    pub(super) fn queued(slots: u32) -> Self {
        Self::new(BufferLayout::new(LEN, slots, false))
    }

    fn new(buffers: BufferLayout) -> Self {
        let bytes = buffers.bytes() as usize;
        let memory = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap();
        let clock = Clock::new();
        let point = FilePoint {
            layout: FileLayout::PerProcess,
            block_bytes: LEN * COUNT,
            transfer_bytes: LEN,
            segments: 1,
            order: FileOrder::Sequential,
            read_percent: Some(70),
            ..point(1)
        };
        Self {
            point,
            memory: Arc::new(memory),
            buffers,
            pool: Pool::new(SEED, DataKind::Random),
            clock,
            start_ns: clock.now_ns(),
            watched: AtomicU64::new(0),
            stop: Default::default(),
        }
    }

    pub(super) fn task(&self, phase: Phase) -> Task<'_> {
        Task {
            places: Sequence::new(&self.point, 0, phase),
            first: 0,
            step: 1,
            file: 0,
            name: "data/t",
            transfer_bytes: LEN,
            data: phase
                .writes()
                .then_some((FileKey::new(SEED, 0), &self.pool)),
            sync_each: false,
            memory: &self.memory,
            buffers: self.buffers,
            clock: self.clock,
            start_ns: self.start_ns,
            wall_ns: None,
            beyond_wall: false,
            stop: [&self.stop[0], &self.stop[1]],
            watched_bytes: &self.watched,
        }
    }
}
