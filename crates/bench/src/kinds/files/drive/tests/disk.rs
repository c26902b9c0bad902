//! A file in memory for tests of the loops: slow, full, stopped or hanging when a test says so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tonnage_sys::clock::Clock;
use tonnage_sys::mapping::Arena;

use super::bench::{Bench, COUNT, LEN};
use tonnage_engine::calls::{Call, Calls, Queue, file_of};
use tonnage_engine::{Completion, Ending, Op};
use tonnage_units::{Error, Result};

/// Action of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Did {
    Read(u64),
    Write(u64),
    Sync,
}

/// A file in memory behind both traits.
pub(super) struct Disk {
    pub(super) memory: Arc<Arena>,
    pub(super) bytes: Vec<u8>,
    pub(super) did: Vec<Did>,
    /// Begin and end of each transfer, by the loops' clock.
    pub(super) times: Vec<(u64, u64)>,
    clock: Clock,
    /// The transfer of this index ends after this time.
    pub(super) slow: Option<(usize, u64)>,
    /// The transfer of this index fails.
    pub(super) fails: Option<(usize, i32)>,
    /// Transfer from whose index on somebody stops the run.
    pub(super) stops: Option<(usize, Arc<AtomicBool>)>,
    /// Number of waits after which somebody stops the run, while nothing ever ends.
    pub(super) hangs: Option<(usize, Arc<AtomicBool>)>,
    pub(super) sync_ns: u64,
    queue_entries: usize,
    pub(super) in_flight: VecDeque<Op>,
    pub(super) most_in_flight: usize,
    pub(super) waits: usize,
}

impl Disk {
    pub(super) fn new(bench: &Bench) -> Self {
        Self {
            memory: bench.memory.clone(),
            bytes: vec![0; (LEN * COUNT) as usize],
            did: Vec::new(),
            times: Vec::new(),
            clock: bench.clock,
            slow: None,
            fails: None,
            stops: None,
            hangs: None,
            sync_ns: 0,
            queue_entries: 3,
            in_flight: VecDeque::new(),
            most_in_flight: 0,
            waits: 0,
        }
    }

    fn move_bytes(&mut self, write: bool, local: u64, offset: u64, len: u64) {
        let begin_ns = self.clock.now_ns();
        let bytes = &mut self.bytes[offset as usize..(offset + len) as usize];
        if write {
            self.memory.read(local, bytes).unwrap();
            self.did.push(Did::Write(offset));
        } else {
            self.memory.write(local, bytes).unwrap();
            self.did.push(Did::Read(offset));
        }
        if let Some((_, until_ns)) = self.slow.filter(|(at, _)| *at == self.times.len()) {
            while self.clock.now_ns() <= until_ns {
                std::hint::spin_loop();
            }
        }
        if let Some((_, stop)) = self
            .stops
            .as_ref()
            .filter(|(at, _)| *at == self.times.len())
        {
            stop.store(true, Ordering::Relaxed);
        }
        self.times.push((begin_ns, self.clock.now_ns()));
    }

    fn failure(&self) -> Option<i32> {
        let found = self.fails.filter(|(at, _)| *at == self.times.len());
        found.map(|(_, code)| code)
    }
}

impl Calls for Disk {
    fn call(&mut self, call: &Call<'_>) -> Result<u64> {
        let (write, transfer) = match call {
            Call::Read(transfer) => (false, transfer),
            Call::Write(transfer) => (true, transfer),
            Call::Sync { .. } => {
                let until_ns = self.clock.now_ns() + self.sync_ns;
                while self.clock.now_ns() < until_ns {
                    std::hint::spin_loop();
                }
                self.did.push(Did::Sync);
                return Ok(0);
            }
            Call::Open(_) | Call::Close { .. } => return Err(Error::Failed("not here".into())),
        };
        if let Some(code) = self.failure() {
            return Err(Error::Failed(format!("the disk says {code}")));
        }
        self.move_bytes(write, transfer.local, transfer.offset, transfer.len);
        Ok(transfer.len)
    }
}

impl Queue for Disk {
    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let taken = ops.len().min(self.queue_entries);
        let slots = |op: &Op| self.in_flight.iter().all(|other| other.local != op.local);
        assert!(
            ops[..taken].iter().all(slots),
            "a slot was given away twice"
        );
        self.in_flight.extend(&ops[..taken]);
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
        Ok(taken)
    }

    /// The last that was posted is the first to end, two of them at a time.
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        // The first look finds nothing, so that the loop has to wait.
        if self.waits == 0 || self.hangs.is_some() {
            return Ok(0);
        }
        let mut count = 0;
        while count < 2
            && let Some(op) = self.in_flight.pop_back()
        {
            let ending = match self.failure() {
                Some(code) => Ending::Failed(code),
                None => Ending::Done,
            };
            self.move_bytes(file_of(op.lane).1, op.local, op.remote, u64::from(op.len));
            done[count] = Completion {
                tag: op.tag,
                lane: op.lane,
                len: op.len,
                imm: 0,
                ending,
            };
            count += 1;
        }
        Ok(count)
    }

    fn wait(&mut self) -> Result<()> {
        self.waits += 1;
        if let Some((_, stop)) = self.hangs.as_ref().filter(|(at, _)| *at == self.waits) {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn take_most_in_flight(&mut self) -> u32 {
        self.most_in_flight as u32
    }
}
