//! Totals of the transfers: one row per engine and operation, regardless of the stress run's duration.

use crate::kinds::transfer::point::PointResults;
use crate::kinds::transfer::summary::latency_kind;
use tonnage_engine::Lists;
use tonnage_plan::stress::{DrawnTransfer, StressPoint};
use tonnage_record::stress::{StressFailure, StressRow};
use tonnage_record::{Latency, LatencyKind, StressBody};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::message::truncate_message;
use tonnage_units::{Error, Result};

/// If this many transfers of an engine were skipped, the engine counts as tried, even if none of its transfers ran.
const SKIPS_MAX: u64 = 64;

/// The totals so far.
pub struct Tally {
    rows: Vec<(StressRow, LatencyHistogram)>,
    first_failure: Option<StressFailure>,
    /// Time since the first transfer was drawn.
    pub elapsed_ns: u64,
}

impl Tally {
    /// Creates a row for each operation of each engine.
    ///
    /// # Errors
    /// `Usage` for an engine that does not exist.
    pub fn new(point: &StressPoint, lists: &Lists) -> Result<Self> {
        let mut rows = Vec::new();
        for engine in point.engines() {
            let ops = point.ops_of(engine, lists)?.into_iter();
            rows.extend(ops.map(|op| (StressRow::new(engine, op), LatencyHistogram::new())));
        }
        Ok(Self {
            rows,
            first_failure: None,
            elapsed_ns: 0,
        })
    }

    fn row(&mut self, draw: &DrawnTransfer) -> Option<&mut (StressRow, LatencyHistogram)> {
        let is_of = |row: &StressRow| row.engine == draw.point.engine && row.op == draw.point.op;
        self.rows.iter_mut().find(|(row, _)| is_of(row))
    }

    /// Returns the number of transfers that ran.
    pub fn draws(&self) -> u64 {
        self.rows.iter().map(|(row, _)| row.draws).sum()
    }

    /// Returns the number of transfers that failed.
    pub fn failures(&self) -> u64 {
        self.rows.iter().map(|(row, _)| row.failures).sum()
    }

    /// Returns whether a transfer of `engine` has run. Also true after `SKIPS_MAX` skipped transfers, because probably
    /// none will run.
    pub fn has_tried(&self, engine: &str) -> bool {
        let own = || self.rows.iter().filter(|(row, _)| row.engine == engine);
        let skipped: u64 = own().map(|(row, _)| row.skipped).sum();
        own().any(|(row, _)| row.draws > 0) || skipped >= SKIPS_MAX
    }

    /// Returns the error of a stress run in which no transfer ran. Such a run is not a success.
    pub fn nothing_tried(&self) -> Option<Error> {
        if self.draws() > 0 {
            return None;
        }
        let mut reasons = self
            .rows
            .iter()
            .filter_map(|(row, _)| row.skipped_why.clone());
        Some(Error::Unavailable {
            what: "every transfer that was drawn".into(),
            why: reasons.next().unwrap_or_else(|| "the time was up".into()),
            how: "Choose another --engine, --op or --memory, or a longer --duration".into(),
        })
    }

    /// Counts a transfer that is about to run.
    pub fn begin(&mut self, draw: &DrawnTransfer) {
        if let Some((row, _)) = self.row(draw) {
            row.draws += 1;
        }
    }

    /// Adds a transfer that succeeded.
    pub fn add(&mut self, draw: &DrawnTransfer, measured: &PointResults) {
        let Some((row, latencies)) = self.row(draw) else {
            return;
        };
        for totals in &measured.totals {
            row.operations += totals.operations;
            row.payload_bytes += totals.payload_bytes;
            row.verified_bytes += totals.verified_bytes;
            row.window_ns += totals.window_ns;
            row.initiator_cpu_ns += totals.initiator_cpu_ns;
        }
        // Latencies of batches and half round trips are not those of single operations, and are left out.
        if latency_kind(&draw.point) == LatencyKind::Operation {
            latencies.merge(&measured.histogram);
        }
    }

    /// Counts a transfer that needs something this machine lacks.
    pub fn skip(&mut self, draw: &DrawnTransfer, why: &Error) {
        if let Some((row, _)) = self.row(draw) {
            row.skipped += 1;
            row.skipped_why
                .get_or_insert_with(|| truncate_message(&why.to_string()).into_owned());
        }
    }

    /// Counts a failed transfer, which `command` repeats. Returns its description if it is the first failure.
    pub fn fail(
        &mut self,
        draw: &DrawnTransfer,
        why: &Error,
        command: String,
    ) -> Option<&StressFailure> {
        if let Some((row, _)) = self.row(draw) {
            row.failures += 1;
        }
        if self.first_failure.is_some() {
            return None;
        }
        let failure = StressFailure {
            draw: self.draws(),
            engine: draw.point.engine.clone(),
            op: draw.point.op,
            why: truncate_message(&why.to_string()).into_owned(),
            command,
        };
        Some(self.first_failure.insert(failure))
    }

    /// Returns the error of the whole stress run; `None` if no transfer failed.
    pub fn failed(&self) -> Option<Error> {
        let failures = self.failures();
        let first = self.first_failure.as_ref().filter(|_| failures > 0)?;
        Some(Error::Failed(format!(
            "{failures} of {} transfers failed; the first of them, {} {}: {}",
            self.draws(),
            first.engine,
            first.op,
            first.why
        )))
    }

    /// Returns the body of the record.
    pub fn into_body(self, point: &StressPoint) -> StressBody {
        let rows = self.rows.into_iter().map(|(row, latencies)| StressRow {
            latency: Latency::summarize(&latencies, LatencyKind::Operation),
            ..row
        });
        StressBody {
            elapsed_ns: self.elapsed_ns,
            rows: rows.collect(),
            first_failure: self.first_failure,
            ..StressBody::new(point.clone())
        }
    }
}
