//! One rank's side of intervals: counts what its workers have done, and sends it to rank 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use tonnage_loops::pulse::Pulse;
use tonnage_ranks::{Notes, pack};
use tonnage_units::Result;
use tonnage_units::histogram::LatencyHistogram;

/// Progress of a rank in a trial, told to rank 0 at the end of each interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tick {
    /// Number of the trial.
    pub trial: u64,
    /// Whole intervals that have passed since the aligned start.
    pub passed: u64,
    /// Operations that have completed until then.
    pub operations: u64,
    /// Encoded latencies of what completed since the last tick, roughly; empty without any.
    pub latencies: Vec<u8>,
    /// True when all workers of the rank have done their part of the trial.
    pub is_driven: bool,
    /// True in the last tick of a trial, whose count is exact.
    pub is_last: bool,
}

/// The ticks of a rank in one trial.
pub(super) struct Ticker {
    pub(super) trial: u64,
    pub(super) interval_ns: u64,
    /// One for each worker.
    pub(super) pulses: Arc<[Arc<Pulse>]>,
    pub(super) notes: Notes,
    /// True once all workers of the rank have done their part.
    pub(super) is_driven: Arc<AtomicBool>,
    /// Time and number of operations when they were counted last.
    counted: (u64, u64),
    /// Operations that have been told of.
    told: u64,
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
            told: 0,
            latencies: LatencyHistogram::new(),
            next: None,
        }
    }

    /// Counts what has completed until so long after the start, and asks the workers for their latencies.
    pub(super) fn count(&mut self, elapsed_ns: u64) {
        // Before the count: a worker that ends in between is not done yet, rather than done with a part missing.
        let is_driven = self.is_driven.load(Ordering::Acquire);
        let operations: u64 = self.pulses.iter().map(|pulse| pulse.completed()).sum();
        for pulse in self.pulses.iter() {
            // A worker that was late has handed over what this tick has room for, and needs the room.
            pulse.take_latencies(&mut self.latencies);
            pulse.ask();
        }
        let passed = elapsed_ns / self.interval_ns;
        let at_end = self.at_end(elapsed_ns, operations);
        self.counted = (elapsed_ns, operations);
        self.told = self.told.max(at_end);
        self.next = Some(Tick {
            trial: self.trial,
            passed,
            operations: self.told,
            latencies: Vec::new(),
            is_driven,
            is_last: false,
        });
    }

    /// Operations at the end of the interval, after which this thread may have woken late: as many as were there by
    /// then at the rate since the last count. A thread that was late by more than half an interval was kept from
    /// running, and so were the workers perhaps: then all that is there counts, for nobody knows when it came.
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

    /// Returns whether all workers have handed over the latencies that they were asked for, or do so no more.
    pub(super) fn is_answered(&self) -> bool {
        let mut pulses = self.pulses.iter();
        self.is_driven.load(Ordering::Acquire) || pulses.all(|pulse| pulse.is_answered())
    }

    /// Sends the last count, with the latencies that workers have handed over.
    pub(super) fn send(&mut self) -> Result<()> {
        let Some(mut tick) = self.next.take() else {
            return Ok(());
        };
        tick.latencies = self.latencies();
        self.notes.send(pack(&tick)?)
    }

    /// Sends the exact end.
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

    /// Latencies that workers have handed over.
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
