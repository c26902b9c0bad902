//! A rank's part of intervals: counts the operations of its workers, and sends the numbers to rank 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use tonnage_loops::loop_progress::LoopProgress;
use tonnage_ranks::{Notes, pack};
use tonnage_units::Result;
use tonnage_units::histogram::LatencyHistogram;

/// Progress of a rank in a trial. It is sent to rank 0 at the end of each interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tick {
    /// Number of the trial.
    pub trial: u64,
    /// Number of whole intervals since the aligned start.
    pub passed: u64,
    /// Number of operations that were complete at the end of these intervals.
    pub operations: u64,
    /// Encoded latencies, approximately those of operations since the last tick; empty if there are none.
    pub latencies: Vec<u8>,
    /// True after all workers of the rank have driven their flows.
    pub is_driven: bool,
    /// True in the last tick of a trial. Its number of operations is exact.
    pub is_last: bool,
}

/// Produces the ticks of a rank in one trial.
pub(super) struct Ticker {
    pub(super) trial: u64,
    pub(super) interval_ns: u64,
    /// Progress of each worker.
    pub(super) worker_progress: Arc<[Arc<LoopProgress>]>,
    pub(super) notes: Notes,
    /// True after all workers of the rank have driven their flows.
    pub(super) is_driven: Arc<AtomicBool>,
    /// Time of the last count, and the number of operations then.
    counted: (u64, u64),
    /// Number of operations that were reported in ticks.
    reported: u64,
    latencies: LatencyHistogram,
    next: Option<Tick>,
}

impl Ticker {
    pub(super) fn new(
        (trial, interval_ns): (u64, u64),
        worker_progress: Arc<[Arc<LoopProgress>]>,
        notes: Notes,
        is_driven: Arc<AtomicBool>,
    ) -> Self {
        Self {
            trial,
            interval_ns,
            worker_progress,
            notes,
            is_driven,
            counted: (0, 0),
            reported: 0,
            latencies: LatencyHistogram::new(),
            next: None,
        }
    }

    /// Counts the operations that are completed `elapsed_ns` after the start, and asks the workers for their latencies.
    pub(super) fn count(&mut self, elapsed_ns: u64) {
        // Read before the operations are counted. A worker that finishes in between then still counts as driving, and a
        // later tick has its last operations.
        let is_driven = self.is_driven.load(Ordering::Acquire);
        let operations: u64 = self
            .worker_progress
            .iter()
            .map(|loop_progress| loop_progress.completed())
            .sum();
        for loop_progress in self.worker_progress.iter() {
            // Takes latencies that a worker handed over after the last tick, to make room for the next ones.
            loop_progress.take_latencies(&mut self.latencies);
            loop_progress.request_latencies();
        }
        let passed = elapsed_ns / self.interval_ns;
        let at_end = self.at_end(elapsed_ns, operations);
        self.counted = (elapsed_ns, operations);
        self.reported = self.reported.max(at_end);
        self.next = Some(Tick {
            trial: self.trial,
            passed,
            operations: self.reported,
            latencies: Vec::new(),
            is_driven,
            is_last: false,
        });
    }

    /// Estimates the number of operations at the end of the interval, because this thread may have woken later. It
    /// subtracts operations of the excess time, at the rate since the last count. If the thread was more than half an
    /// interval late, the workers may have been delayed as well. Then all operations count, because their times are
    /// unknown.
    fn at_end(&self, elapsed_ns: u64, operations: u64) -> u64 {
        let late_ns = elapsed_ns % self.interval_ns;
        let (counted_ns, counted) = self.counted;
        let since_ns = elapsed_ns - counted_ns;
        if late_ns * 2 > self.interval_ns || since_ns <= late_ns {
            return operations;
        }
        let since = u128::from(operations.saturating_sub(counted));
        let late = since * u128::from(late_ns) / u128::from(since_ns);
        operations - late as u64
    }

    /// Returns whether all workers have handed over the requested latencies, or will not do so any more.
    pub(super) fn is_answered(&self) -> bool {
        let mut worker_progress = self.worker_progress.iter();
        self.is_driven.load(Ordering::Acquire)
            || worker_progress.all(|loop_progress| loop_progress.is_answered())
    }

    /// Sends the last count, with latencies from the workers.
    pub(super) fn send(&mut self) -> Result<()> {
        let Some(mut tick) = self.next.take() else {
            return Ok(());
        };
        tick.latencies = self.latencies();
        self.notes.send(pack(&tick)?)
    }

    /// Sends the last tick of a trial, with the exact number of operations.
    pub(super) fn send_last(&mut self, operations: u64, window_ns: u64) -> Result<()> {
        let tick = Tick {
            trial: self.trial,
            passed: window_ns / self.interval_ns,
            operations,
            latencies: self.latencies(),
            is_driven: true,
            is_last: true,
        };
        self.notes.send(pack(&tick)?)
    }

    /// Returns the encoded latencies that the workers have handed over.
    fn latencies(&mut self) -> Vec<u8> {
        for loop_progress in self.worker_progress.iter() {
            loop_progress.take_latencies(&mut self.latencies);
        }
        let encoded = match self.latencies.count() {
            0 => Vec::new(),
            _ => self.latencies.encode(),
        };
        self.latencies.clear();
        encoded
    }
}
