//! The loops over files: one transfer at a time, or several in a queue. The blocking loop reads the clock once per
//! transfer, and again after a sync or vote. The queued loop reads it once per group of posts and once per group of
//! completions. Neither loop allocates.
//!
//! [`super::sequence`] gives the offsets; `tonnage_bench` begins and ends phases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tonnage_sys::mapping::Arena;

use crate::BURST;
use crate::files::data::{ContentPool, POOL_BYTES};
use crate::files::sequence::{Sequence, TransferPlace};
use crate::files::stamp::FileKey;
use crate::files::timeline::Timeline;
use tonnage_engine::calls::{FileCall, FileCalls, FileQueue, FileTransfer, lane_of};
use tonnage_engine::{Completion, Ending, Op};
use tonnage_sys::clock::Clock;
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Result};

/// One thread's work in a phase.
pub struct ThreadTask<'a> {
    /// The transfers on the data of one rank.
    pub places: Sequence,
    /// Index of this thread's first transfer. The thread makes the transfers `first`, `first + step`, `first + 2·step`,
    /// …
    pub first: u64,
    /// Number of threads in the rank.
    pub step: u64,
    /// The number of the open file.
    pub file: u32,
    /// Name of the file in error messages.
    pub name: &'a str,
    pub transfer_bytes: u64,
    /// Data to write; `None` in phases that only read.
    pub data: Option<(FileKey, &'a ContentPool)>,
    /// True if each write is followed by a sync.
    pub sync_each: bool,
    /// Memory that holds the thread's buffers.
    pub memory: &'a Arc<Arena>,
    /// Layout of that memory.
    pub buffers: BufferLayout,
    /// The thread's clock.
    pub clock: Clock,
    /// Start time of the phase, the same for all threads and ranks.
    pub start_ns: u64,
    /// Time of the stonewall, if any. Transfers that end by this time are counted separately.
    pub wall_ns: Option<u64>,
    /// True if transfers continue after the stonewall.
    pub beyond_wall: bool,
    /// The loop ends with an error if one of these flags becomes true.
    pub stop: [&'a AtomicBool; 2],
    /// Bytes moved so far, for progress reports.
    pub watched_bytes: &'a AtomicU64,
}

/// Layout of a thread's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLayout {
    /// Start of the source for blocking writes: a copy of the pool, long enough for a transfer from any offset.
    pub source: u64,
    /// Start of the slots. Blocking reads use the first slot; a queue uses one slot per transfer.
    pub slots: u64,
    /// Distance from one slot to the next.
    pub stride: u64,
    /// Number of slots.
    pub count: u32,
}

impl BufferLayout {
    /// Creates a layout with `slots` transfer slots and, if `source` is true, a source for blocking writes.
    pub fn new(transfer_bytes: u64, slots: u32, source: bool) -> Self {
        // Slots begin at page boundaries. Otherwise a page could hold parts of two slots, and the kernel moves whole
        // pages.
        let stride = transfer_bytes.next_multiple_of(4096);
        let source_bytes = if source { POOL_BYTES + stride } else { 0 };
        Self {
            source: 0,
            slots: source_bytes,
            stride,
            count: slots.max(1),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.slots + self.stride * u64::from(self.count)
    }
}

/// Results of one thread in a phase so far.
#[derive(Default)]
pub struct Samples {
    /// Finished transfers.
    pub transfers: u64,
    /// Finished reads.
    pub reads: u64,
    /// Transfers that had ended by the stonewall.
    pub before_wall: u64,
    pub read_latencies: LatencyHistogram,
    /// Latencies of writes, without syncs. In the blocking loop they include stamping the data.
    pub write_latencies: LatencyHistogram,
    /// Bytes over time.
    pub timeline: Timeline,
    /// Time spent in syncs after writes.
    pub sync_ns: u64,
    /// Largest number of transfers in flight.
    pub in_flight_max: u32,
}

impl Samples {
    #[inline]
    fn add(&mut self, task: &ThreadTask<'_>, write: bool, latency_ns: u64, now_ns: u64) {
        self.transfers += 1;
        if write {
            self.write_latencies.record(latency_ns);
        } else {
            self.reads += 1;
            self.read_latencies.record(latency_ns);
        }
        if task.wall_ns.is_none_or(|wall_ns| now_ns <= wall_ns) {
            self.before_wall += 1;
        }
        let since_start_ns = now_ns.saturating_sub(task.start_ns);
        self.timeline.add(since_start_ns, task.transfer_bytes);
        let moved = self.transfers * task.transfer_bytes;
        task.watched_bytes.store(moved, Ordering::Relaxed);
    }
}

/// Inspects data that was read. Used only outside timed phases.
pub trait InspectRead {
    /// Inspects the bytes of a transfer, which are at `local`.
    fn inspect(&mut self, local: u64, place: TransferPlace) -> Result<()>;
}

/// Inspects reads, if verification is on.
pub type Inspector<'a> = Option<&'a mut dyn InspectRead>;

/// Decides with the other ranks whether a phase of collective calls ends. Called before each call; the argument is true
/// if this rank wants to stop.
pub type Vote<'a> = &'a mut dyn FnMut(bool) -> Result<bool>;

impl ThreadTask<'_> {
    fn check_stop(&self) -> Result<()> {
        if self.stop.iter().any(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Error::Failed(format!("{}: the run was stopped", self.name)));
        }
        Ok(())
    }

    #[inline]
    fn place(&self, transfer: u64) -> TransferPlace {
        self.places.at(self.first + transfer * self.step)
    }

    #[inline]
    fn is_over(&self, now_ns: u64) -> bool {
        !self.beyond_wall && self.wall_ns.is_some_and(|wall_ns| now_ns >= wall_ns)
    }

    /// Stamps the source of a blocking write and returns its offset.
    #[inline]
    fn source(&self, offset: u64) -> Result<u64> {
        let (key, _) = self.data.ok_or_else(no_data)?;
        let local = self.buffers.source + offset % POOL_BYTES;
        key.stamp_all(self.memory, local, offset, self.transfer_bytes)?;
        Ok(local)
    }

    /// Fills the slot of a queued write, unless the slot already holds the same part of the pool. Then stamps the slot.
    fn fill_slot(&self, local: u64, offset: u64, holds: &mut Option<u64>) -> Result<()> {
        let (key, pool) = self.data.ok_or_else(no_data)?;
        let place = offset % POOL_BYTES;
        if *holds != Some(place) {
            pool.copy_into(self.memory, local, offset, self.transfer_bytes)?;
            *holds = Some(place);
        }
        key.stamp_all(self.memory, local, offset, self.transfer_bytes)
    }
}

fn no_data() -> Error {
    Error::Failed("a phase that writes has no data to write".into())
}

/// Makes one transfer at a time, until the thread has made `until` transfers, the stonewall is reached, or all ranks
/// vote to end.
pub fn run_blocking(
    calls: &mut dyn FileCalls,
    task: &ThreadTask<'_>,
    until: u64,
    samples: &mut Samples,
    mut inspect: Inspector<'_>,
    mut vote: Option<Vote<'_>>,
) -> Result<()> {
    let (file, len) = (task.file, task.transfer_bytes);
    let mut then_ns = task.clock.now_ns();
    while samples.transfers < until {
        let mut over = task.is_over(then_ns);
        if let Some(vote) = &mut vote {
            over = vote(over)?;
            then_ns = task.clock.now_ns();
        }
        if over {
            break;
        }
        task.check_stop()?;
        let place = task.place(samples.transfers);
        let (write, offset) = (place.write, place.offset);
        let local = if write {
            task.source(offset)?
        } else {
            task.buffers.slots
        };
        let transfer = FileTransfer {
            file,
            local,
            offset,
            len,
        };
        calls.call(&if write {
            FileCall::Write(transfer)
        } else {
            FileCall::Read(transfer)
        })?;
        let mut now_ns = task.clock.now_ns();
        let latency_ns = now_ns.saturating_sub(then_ns);
        if write && task.sync_each {
            calls.call(&FileCall::Sync { file })?;
            let synced_ns = task.clock.now_ns();
            samples.sync_ns += synced_ns.saturating_sub(now_ns);
            now_ns = synced_ns;
        }
        samples.add(task, write, latency_ns, now_ns);
        samples.in_flight_max = 1;
        if let Some(inspect) = &mut inspect {
            inspect.inspect(local, place)?;
        }
        then_ns = now_ns;
    }
    Ok(())
}

/// Transfers in flight of [`run_queued`]; created once per thread.
pub struct TransfersInFlight {
    free: Vec<u32>,
    in_flight: Vec<(u64, TransferPlace)>,
    /// Pool offset of the data in each slot. `None` if the slot's content is unknown.
    holds: Vec<Option<u64>>,
    staged: Vec<Op>,
}

impl TransfersInFlight {
    /// Creates `count` slots.
    pub fn new(count: u32) -> Self {
        let none = TransferPlace {
            offset: 0,
            write: false,
        };
        Self {
            free: (0..count).rev().collect(),
            in_flight: vec![(0, none); count as usize],
            holds: vec![None; count as usize],
            staged: Vec::with_capacity(count as usize),
        }
    }

    /// Marks the content of all slots as unknown, before a phase with other data.
    pub fn forget(&mut self) {
        self.holds.fill(None);
    }
}

/// Keeps all slots in flight until the thread has made `until` transfers or the stonewall is reached. Transfers in
/// flight at the stonewall are finished and counted, but not in `before_wall`.
pub fn run_queued(
    queue: &mut dyn FileQueue,
    task: &ThreadTask<'_>,
    until: u64,
    (samples, slots): (&mut Samples, &mut TransfersInFlight),
    mut inspect: Inspector<'_>,
) -> Result<()> {
    let mut done = [Completion::EMPTY; BURST];
    let mut begun = samples.transfers;
    let mut now_ns = task.clock.now_ns();
    loop {
        if begun < until && !task.is_over(now_ns) {
            begun += stage_transfers(task, until - begun, begun, slots)?;
        }
        let posted = queue.post(&slots.staged)?;
        slots.staged.drain(..posted);
        if samples.transfers == begun {
            samples.in_flight_max = samples.in_flight_max.max(queue.take_most_in_flight());
            return Ok(());
        }
        task.check_stop()?;
        let mut count = queue.poll(&mut done)?;
        if count == 0 {
            queue.wait()?;
            count = queue.poll(&mut done)?;
        }
        now_ns = task.clock.now_ns();
        for completion in &done[..count] {
            let slot = completion.tag;
            let (posted_ns, place) = slots.in_flight[slot as usize];
            if let Ending::Failed(code) = completion.ending {
                return Err(transfer_error(task, place, code));
            }
            samples.add(task, place.write, now_ns.saturating_sub(posted_ns), now_ns);
            if let Some(inspect) = &mut inspect {
                let local = task.buffers.slots + u64::from(slot) * task.buffers.stride;
                inspect.inspect(local, place)?;
            }
            slots.free.push(slot);
        }
    }
}

/// Assigns free slots to the next transfers, and returns how many it assigned.
fn stage_transfers(
    task: &ThreadTask<'_>,
    left: u64,
    first: u64,
    slots: &mut TransfersInFlight,
) -> Result<u64> {
    let before = slots.staged.len();
    let mut count = 0;
    while count < left {
        let Some(slot) = slots.free.pop() else { break };
        let place = task.place(first + count);
        let local = task.buffers.slots + u64::from(slot) * task.buffers.stride;
        let holds = &mut slots.holds[slot as usize];
        if place.write {
            task.fill_slot(local, place.offset, holds)?;
        } else {
            *holds = None;
        }
        slots.in_flight[slot as usize].1 = place;
        slots.staged.push(Op {
            lane: lane_of(task.file, place.write),
            tag: slot,
            local,
            remote: place.offset,
            // The length fits in 32 bits; plan expansion checks this.
            len: task.transfer_bytes as u32,
            imm: 0,
        });
        count += 1;
    }
    // Latencies begin once all these slots are filled, because their transfers are posted together.
    let now_ns = task.clock.now_ns();
    for op in &slots.staged[before..] {
        slots.in_flight[op.tag as usize].0 = now_ns;
    }
    Ok(count)
}

fn transfer_error(task: &ThreadTask<'_>, place: TransferPlace, code: i32) -> Error {
    let verb = if place.write { "writing" } else { "reading" };
    let what = format!(
        "{verb} {} bytes at offset {} of {}",
        task.transfer_bytes, place.offset, task.name
    );
    match code {
        0 => Error::Failed(format!("{what}: the file ends before that")),
        code => Error::io(what, std::io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests;
