//! The timed loops. They know engines only by their traits, allocate nothing while they run, take no lock, and read
//! the clock no more than the question needs.
//!
//! | file | loop |
//! | --- | --- |
//! | [`stream`], [`extent`] | a true sliding window; flows that end by themselves in it |
//! | [`batch`] | post B, wait for B; several such batches at once |
//! | [`ping_pong`] | one operation, one answer; both sides |
//! | [`paced`] | operations due at fixed times |
//! | [`calls`], [`collective`] | collectives, each between two looks at the clock; native ones carried out |
//! | [`files`] | files, one transfer after the other or a window of them; their content |
//! | [`each`], [`library`] | between the loops and an engine: comparing every operation; the library for other programs |
//! | [`credits`] | beside the loops: a message is done once its receiver has taken it |
//! | [`pulse`] | beside the loops: how far they are, for a thread that looks once an interval |
//! | [`stall`] | beside the loops: operations that make no progress |
//! | [`flow`], [`flow_walk`], [`walk`], [`permutation`] | an initiator's traffic with a peer; the order in which it visits the places of a buffer |
//! | [`port`], [`until`], [`recorder`] | the engine as the loops see it; when a loop ends; what it records |
//! | [`timed_loop`] | picks the loop of a trial and its recorder |
//! | [`serve`] | the target of one-sided operations: progress until everybody is done |
//!
//! The start and end of a trial, the agreement on them, and the checks afterwards are in `tonnage_bench`.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

pub mod batch;
pub mod calls;
pub mod collective;
pub mod credits;
pub mod each;
pub mod extent;
pub mod files;
pub mod flow;
pub mod flow_walk;
pub mod library;
pub mod paced;
pub mod permutation;
pub mod ping_pong;
pub mod port;
pub mod pulse;
pub mod recorder;
pub mod serve;
pub mod stall;
pub mod stream;
pub mod timed_loop;
pub mod until;
pub mod walk;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

/// Most operations handed over, and most completions taken, at a time. Sixteen already amortise the indirect call
/// (4.79 ns against 4.71 ns static per operation); 64 lets an engine ring one doorbell for a default window.
pub const BURST: usize = 64;

/// The most operations of a batch that are built before they are handed over, 2.5 MiB of them: a larger one takes
/// several calls.
pub const CALL_MAX: usize = 1 << 16;

/// A batch in flight.
#[derive(Debug, Clone, Copy, Default)]
struct BatchSlot {
    start_ns: u64,
    /// Time in which operations were built.
    prepare_ns: u64,
    /// Time at which the last one was handed over.
    posted_ns: u64,
    /// Operations that were built and have not completed.
    left: u64,
}

/// Value on a cache line of its own (two, as CPUs fetch them in pairs), so that writing it disturbs nobody who looks at
/// another one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine<T>(T);

/// Buffers of the loops, made once per point so that the loops allocate nothing.
pub struct Scratch {
    /// Tags that are not in flight, the one that is free the longest first: so flows take turns even on an engine that
    /// completes at once.
    ready: VecDeque<u32>,
    /// Time at which the operation of a tag was posted (or due), nanoseconds.
    posted_ns: Vec<u64>,
    /// The flow that a tag belongs to.
    flow_of_tag: Vec<u32>,
    /// Tags of which their flow has no more use, where flows end by themselves.
    retired: Vec<u32>,
    /// Tags of each flow.
    window: usize,
    /// Batches in flight or free.
    batches: Vec<BatchSlot>,
    /// Places of batches whose batch is under way, where workers share them.
    busy: Vec<bool>,
    /// Operations built and not yet taken by the engine.
    staged: Vec<tonnage_engine::Op>,
    /// Flows of a paced loop. They hold their own free tags; `ready` is unused.
    paced: Vec<paced::PacedFlow>,
    /// Flows with overdue operations that have room again.
    behind: VecDeque<u32>,
    /// Those that the engine refused operations of.
    refusing: VecDeque<u32>,
}

impl Scratch {
    /// Buffers for `flows` lanes with `window` operations in flight on each.
    pub fn new(flows: usize, window: usize) -> Self {
        let tags = flows * window;
        Self {
            ready: VecDeque::with_capacity(tags),
            posted_ns: vec![0; tags],
            flow_of_tag: (0..tags).map(|tag| (tag % flows.max(1)) as u32).collect(),
            retired: Vec::with_capacity(tags),
            window,
            batches: Vec::new(),
            busy: Vec::new(),
            staged: Vec::with_capacity(BURST),
            paced: Vec::new(),
            behind: VecDeque::new(),
            refusing: VecDeque::new(),
        }
    }

    /// These, with room for so many batches in flight together and for the operations that are built at once.
    #[must_use]
    pub fn with_batches(mut self, in_flight: u32, operations: usize) -> Self {
        self.batches = vec![BatchSlot::default(); in_flight as usize];
        self.busy = vec![false; in_flight as usize];
        self.ready.reserve(in_flight as usize);
        self.staged = Vec::with_capacity(operations.clamp(1, CALL_MAX));
        self
    }

    /// Flows whose tags were not given back, in a loop that keeps a window for each flow.
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

    /// Gives so many flows a window each, of which each has only what it `takes`. They are no more than there were at
    /// first.
    fn share_out(&mut self, flows: usize, mut takes: impl FnMut(usize) -> bool) {
        self.ready.clear();
        self.retired.clear();
        self.staged.clear();
        let used = flows * self.window;
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
