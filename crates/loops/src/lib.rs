//! The timed loops. They use engines only through traits. While a loop runs, it allocates nothing, never waits for a
//! lock, and reads the clock only as often as the measurement needs. Two loops differ: batches that wake sleeping
//! workers take the lock of the sleepers, and the loops of single calls may allocate between calls.
//!
//! | file | loop |
//! | --- | --- |
//! | [`stream`], [`flow_length`] | a true sliding window; flows that end on their own |
//! | [`batch`] | post B operations, wait for all B; several batches can overlap |
//! | [`ping_pong`] | one operation, one answer; both sides |
//! | [`paced`] | operations due at fixed times |
//! | [`calls`], [`collective`] | collectives timed by two clock reads, per call or per series; native collectives |
//! | [`files`] | file transfers, one at a time or several in flight; file content |
//! | [`each`], [`library`] | layers between loop and engine: comparing every operation; the library for other programs |
//! | [`credits`] | used by loops: a message completes once its receiver has consumed it |
//! | [`loop_progress`] | used by loops: publishes progress to a thread that samples it once per interval |
//! | [`stall`] | used by loops: detects operations that make no progress |
//! | [`flow`], [`flow_walk`], [`walk`], [`permutation`] | an initiator's traffic with a peer; the order in which it visits the slots of a buffer |
//! | [`port`], [`until`], [`recorder`] | the engine as the loops see it; when a loop ends; what it records |
//! | [`timed_loop`] | picks the loop of a trial and its recorder |
//! | [`serve`] | the target of one-sided operations: makes progress until every rank is done |
//!
//! The start and end of a trial, the agreement on them, and the checks afterwards are in `tonnage_bench`.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

pub mod batch;
pub mod calls;
pub mod collective;
pub mod credits;
pub mod each;
pub mod files;
pub mod flow;
pub mod flow_length;
pub mod flow_walk;
pub mod library;
pub mod loop_progress;
pub mod paced;
pub mod permutation;
pub mod ping_pong;
pub mod port;
pub mod recorder;
pub mod serve;
pub mod stall;
pub mod stream;
pub mod timed_loop;
pub mod until;
pub mod walk;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

/// Maximum number of operations posted, or completions polled, in one call. Sixteen would already amortize the indirect
/// call: 4.79 ns per operation, compared with 4.71 ns for a static call. With 64, an engine can post a whole default
/// window with one doorbell.
pub const BURST: usize = 64;

/// Maximum number of operations of a batch that are built before they are posted. They take 2 MiB of memory. A larger
/// batch takes several calls.
pub const CALL_MAX: usize = 1 << 16;

/// A batch in flight.
#[derive(Debug, Clone, Copy, Default)]
struct BatchSlot {
    start_ns: u64,
    /// Time spent building operations.
    prepare_ns: u64,
    /// Time when the last operation was posted.
    posted_ns: u64,
    /// Operations that were built and have not completed.
    left: u64,
}

/// Aligns a value to its own pair of cache lines, because CPUs prefetch lines in pairs. Writing the value then doesn't
/// disturb readers of other values.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// Buffers of the loops, made once per point so that the loops allocate nothing.
pub struct Scratch {
    /// Free tags or, in batch loops, free batch slots. The one that has been free the longest comes first. This order
    /// makes flows alternate even on an engine that completes at once.
    ready: VecDeque<u32>,
    /// Time when the operation of each tag was posted (or due), nanoseconds.
    posted_ns: Vec<u64>,
    /// The flow that each tag belongs to.
    flow_of_tag: Vec<u32>,
    /// Tags no longer needed by their flow, in loops with flows that end on their own.
    retired: Vec<u32>,
    /// Number of tags per flow.
    depth: usize,
    /// Batches in flight or free.
    batches: Vec<BatchSlot>,
    /// Whether each batch slot is in use, for batches that workers share.
    busy: Vec<bool>,
    /// Operations built but not yet accepted by the engine.
    staged: Vec<tonnage_engine::Op>,
    /// Flows of a paced loop. They hold their own free tags; `ready` is unused.
    paced: Vec<paced::PacedFlow>,
    /// Flows with overdue operations that have room again.
    behind: VecDeque<u32>,
    /// Flows with operations that the engine rejected for lack of room.
    refusing: VecDeque<u32>,
}

impl Scratch {
    /// Buffers for `flows` lanes with `depth` operations in flight on each.
    pub fn new(flows: usize, depth: usize) -> Self {
        let tags = flows * depth;
        Self {
            ready: VecDeque::with_capacity(tags),
            posted_ns: vec![0; tags],
            flow_of_tag: (0..tags).map(|tag| (tag % flows.max(1)) as u32).collect(),
            retired: Vec::with_capacity(tags),
            depth,
            batches: Vec::new(),
            busy: Vec::new(),
            staged: Vec::with_capacity(BURST),
            paced: Vec::new(),
            behind: VecDeque::new(),
            refusing: VecDeque::new(),
        }
    }

    /// Adds room for `in_flight` batches and for `operations` built at once.
    #[must_use]
    pub fn with_batches(mut self, in_flight: u32, operations: usize) -> Self {
        self.batches = vec![BatchSlot::default(); in_flight as usize];
        self.busy = vec![false; in_flight as usize];
        self.ready.reserve(in_flight as usize);
        self.staged = Vec::with_capacity(operations.clamp(1, CALL_MAX));
        self
    }

    /// Returns the flows with operations in flight, after a loop with a separate window for each flow.
    pub fn waiting_flows(&self) -> Vec<u32> {
        let mut is_ready = vec![false; self.flow_of_tag.len()];
        let paced = self.paced.iter().flat_map(|flow| &flow.free);
        for &tag in self.ready.iter().chain(&self.retired).chain(paced) {
            is_ready[tag as usize] = true;
        }
        let waiting = self.flow_of_tag.iter().zip(is_ready);
        let mut flows: Vec<u32> = waiting
            .filter_map(|(&flow, is_ready)| (!is_ready).then_some(flow))
            .collect();
        flows.sort_unstable();
        flows.dedup();
        flows
    }

    fn reset_batches(&mut self) {
        self.ready.clear();
        self.ready.extend(0..self.batches.len() as u32);
        self.batches.fill(BatchSlot::default());
        self.staged.clear();
    }

    /// Distributes the tags over `flows` flows, one window each. Calls `takes` once per tag; if it returns false, the
    /// tag is retired. `flows` must not exceed the number passed to [`Self::new`].
    fn share_out(&mut self, flows: usize, mut takes: impl FnMut(usize) -> bool) {
        self.ready.clear();
        self.retired.clear();
        self.staged.clear();
        let used = flows * self.depth;
        for (tag, flow_of_tag) in self.flow_of_tag.iter_mut().enumerate() {
            let flow = tag % flows.max(1);
            let is_ready = tag < used && takes(flow);
            *flow_of_tag = flow as u32;
            match is_ready {
                true => self.ready.push_back(tag as u32),
                false => self.retired.push(tag as u32),
            }
        }
    }

    fn reset(&mut self) {
        self.ready.clear();
        self.ready.extend(0..self.posted_ns.len() as u32);
        self.staged.clear();
    }
}
