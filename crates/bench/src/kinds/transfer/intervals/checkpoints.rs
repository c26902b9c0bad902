//! Checkpoints of a trial: the record as it would be if the run were lost now.

use crate::observer::CheckpointKeeper;
use crate::run::unix_ns;
use tonnage_record::transfer::{BrokenOff, Trial, TrialSeries};
use tonnage_record::{Body, Outcome, Record};
use tonnage_units::Nanos;

/// Checkpoints of a point.
pub(super) struct Checkpoints {
    pub(super) every_ns: u64,
    /// The record of the point, of which each checkpoint is a copy with the series so far.
    pub(super) record: Record,
    pub(super) keeper: CheckpointKeeper,
    /// Those of the trial that were written.
    written: u64,
}

impl Checkpoints {
    pub(super) fn new(every_ns: u64, record: Record, keeper: CheckpointKeeper) -> Self {
        Self {
            every_ns,
            record,
            keeper,
            written: 0,
        }
    }

    /// Begins a trial, after those that have ended.
    pub(super) fn begin(&mut self, ended: &[Trial]) {
        self.written = 0;
        if let Body::Transfer(body) = &mut self.record.body {
            body.trials = ended.to_vec();
        }
    }

    /// Writes what a trial has moved so far, if it is time to.
    pub(super) fn look(
        &mut self,
        trial: u64,
        elapsed_ns: u64,
        series: impl FnOnce() -> TrialSeries,
    ) {
        let due = elapsed_ns / self.every_ns;
        if due <= self.written {
            return;
        }
        self.written = due;
        let elapsed = Nanos(elapsed_ns);
        self.record.outcome = Outcome::Failed {
            why: format!(
                "it had not ended when this checkpoint was written, {elapsed} after trial {trial} began"
            ),
        };
        self.record.time_unix_ns = unix_ns();
        if let Body::Transfer(body) = &mut self.record.body {
            let series = series();
            body.broken_off = Some(BrokenOff { trial, series });
        }
        (self.keeper)(&self.record);
    }
}
