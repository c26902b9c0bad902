//! One rank's side of intervals: counts its workers' operations, and sends them to rank 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use tonnage_loops::pulse::Pulse;
use tonnage_ranks::{Notes, pack};
use tonnage_units::Result;
use tonnage_units::histogram::LatencyHistogram;

/// Progress of a rank in a trial, sent to rank 0 at the end of each interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tick {
    /// Number of the trial.
    pub trial: u64,
    /// Whole intervals that have passed since the aligned start.
    pub passed: u64,
    /// Operations completed by then.
    pub operations: u64,
    /// Encoded latencies of roughly the operations completed since the last tick; empty if there are none.
    pub latencies: Vec<u8>,
    /// True once all workers of the rank have driven their flows.
    pub is_driven: bool,
    /// True in the last tick of a trial. Its count is exact.
    pub is_last: bool,
}

/// Produces the ticks of a rank in one trial.
pub(super) struct Ticker {
    pub(super) trial: u64,
    pub(super) interval_ns: u64,
    /// One pulse per worker.
    pub(super) pulses: Arc<[Arc<Pulse>]>,
    pub(super) notes: Notes,
    /// True once all workers of the rank have driven their flows.
    pub(super) is_driven: Arc<AtomicBool>,
    /// Time and number of operations at the last count.
    counted: (u64, u64),
    /// Operations reported so far.
    reported: u64,
    latencies: LatencyHistogram,
    next: Option<Tick>,
}

impl Ticker {
    pub(super) fn new(
        (trial, interval_ns): (u64, u64),
        pulses: Arc<[Arc<Pulse>]>,
        notes: Notes,
        is_driven: Arc<AtomicBool>,
    ) -> Self {
        Self {
            trial,
            interval_ns,
            pulses,
            notes,
            is_driven,
            counted: (0, 0),
            reported: 0,
            latencies: LatencyHistogram::new(),
            next: None,
        }
    }

    /// Counts the operations completed `elapsed_ns` after the start, and asks the workers for their latencies.
    pub(super) fn count(&mut self, elapsed_ns: u64) {
        // Read before the count: a worker that finishes in between then counts as still driving, and none of its
        // operations is missed.
        let is_driven = self.is_driven.load(Ordering::Acquire);
        let operations: u64 = self.pulses.iter().map(|pulse| pulse.completed()).sum();
        for pulse in self.pulses.iter() {
            // Take what a late worker has handed over since the last tick: it needs the room for the next latencies.
            pulse.take_latencies(&mut self.latencies);
            pulse.request_latencies();
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

    /// Estimates the operations at the end of the interval, because this thread may have woken late: it subtracts the
    /// late part at the rate since the last count. If the thread was late by more than half an interval, the workers
    /// may have been kept from running too. Then everything counts, because its time of completion is unknown.
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

    /// Whether all workers have handed over the requested latencies, or will no longer do so.
    pub(super) fn is_answered(&self) -> bool {
        let mut pulses = self.pulses.iter();
        self.is_driven.load(Ordering::Acquire) || pulses.all(|pulse| pulse.is_answered())
    }

    /// Sends the last count, with the latencies handed over by the workers.
    pub(super) fn send(&mut self) -> Result<()> {
        let Some(mut tick) = self.next.take() else {
            return Ok(());
        };
        tick.latencies = self.latencies();
        self.notes.send(pack(&tick)?)
    }

    /// Sends the last tick, with the exact count.
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

    /// Takes the latencies handed over by the workers, encoded.
    fn latencies(&mut self) -> Vec<u8> {
        for pulse in self.pulses.iter() {
            pulse.take_latencies(&mut self.latencies);
        }
        let encoded = match self.latencies.count() {
            0 => Vec::new(),
            _ => self.latencies.encode(),
        };
        self.latencies.clear();
        encoded
    }
}
