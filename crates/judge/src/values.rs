//! Values of a point on one side. They come from runs, or from trials if there are too few runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tonnage_record::figures::Row;
use tonnage_record::{Canary, Outcome};

use crate::judging::counted;
use crate::metric::Metric;

/// Values of one side of a point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SideValues {
    /// Mean of each usable run.
    pub runs: Vec<f64>,
    /// Trials of these runs.
    pub trials: Vec<f64>,
    /// Canary of each of these runs, as the mean of before and after, in nanoseconds.
    pub canaries_ns: Vec<f64>,
    /// Number of runs left out because their canary changed.
    pub changed: usize,
    /// Number of runs that failed or were skipped.
    pub unmeasured: usize,
    /// Reason of the last failed or skipped run.
    pub not_measured: Option<String>,
    /// Distinct kinds of latency samples.
    pub sample_kinds: Vec<&'static str>,
    /// Number of these runs with a lower bound as their value.
    pub lower_bounds: usize,
}

/// Value of one side as displayed in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SideFigure {
    /// Geometric mean of the runs, or of their trials if trials are used, in the unit of the figure's CSV column. If a
    /// value is 0, it is the arithmetic mean.
    pub value: f64,
    /// Number of runs behind the value.
    pub runs: usize,
    /// Number of trials in these runs; 0 if the figure has no per-trial values.
    pub trials: usize,
    /// Whether some of the values are lower bounds: the true value may be higher.
    pub is_lower_bound: bool,
}

/// Values from all records of a point in one run.
#[derive(Default)]
struct RunValue {
    values: Vec<f64>,
    trials: Vec<f64>,
    canaries_ns: Vec<f64>,
    changed: bool,
    unmeasured: bool,
    is_lower_bound: bool,
}

impl SideValues {
    /// Collects the values of a metric. Runs with a changed canary are left out unless `keep_changed`.
    pub fn from_rows(rows: &[Row<'_>], metric: &Metric, keep_changed: bool) -> Self {
        let mut values = Self::default();
        let mut runs: BTreeMap<&str, RunValue> = BTreeMap::new();
        for row in rows {
            if row.record.outcome != Outcome::Measured {
                let lost = values.note_reason(rows, row);
                runs.entry(row.record.run_id.as_str())
                    .or_default()
                    .unmeasured |= lost;
                continue;
            }
            let Some(value) = metric.value(row) else {
                continue;
            };
            if let Some(latency) = row.record.body.any().latency(row.part) {
                let kind = latency.kind.name();
                if !values.sample_kinds.contains(&kind) {
                    values.sample_kinds.push(kind);
                }
            }
            let run = runs.entry(row.record.run_id.as_str()).or_default();
            run.values.push(value);
            run.is_lower_bound |= metric.is_lower_bound(row);
            run.trials.extend(metric.trials(row));
            if let Some(Canary::Measured {
                before_ns,
                after_ns,
                changed,
                ..
            }) = &row.record.canary
            {
                run.canaries_ns.push(f64::midpoint(*before_ns, *after_ns));
                run.changed |= changed;
            }
        }
        for run in runs.into_values() {
            if run.values.is_empty() {
                values.unmeasured += usize::from(run.unmeasured);
                continue;
            }
            if run.changed && !keep_changed {
                values.changed += 1;
                continue;
            }
            values.runs.push(mean_of(&run.values));
            values.lower_bounds += usize::from(run.is_lower_bound);
            values.trials.extend(run.trials);
            values.canaries_ns.extend(run.canaries_ns);
        }
        values
    }

    /// Counts the runs that were not measured, and keeps the last reason.
    pub fn unmeasured(rows: &[Row<'_>]) -> Self {
        let mut values = Self::default();
        let mut runs = BTreeSet::new();
        for row in rows {
            if row.record.outcome != Outcome::Measured && values.note_reason(rows, row) {
                runs.insert(row.record.run_id.as_str());
            }
        }
        values.unmeasured = runs.len();
        values
    }

    /// Returns the number of runs with any outcome.
    pub fn all_runs(&self) -> usize {
        self.runs.len() + self.changed + self.unmeasured
    }

    /// Returns a remark on runs that were not measured.
    pub fn remark(&self, letter: &str) -> Option<String> {
        let why = self.not_measured.as_ref()?;
        Some(match self.unmeasured == self.all_runs() {
            true => format!("{letter} {why}"),
            false => format!(
                "{letter}: {} of {} not measured, the last {why}",
                self.unmeasured,
                counted(self.all_runs(), "run")
            ),
        })
    }

    /// Keeps the reason of a record that was not measured, unless a later attempt succeeded. Returns whether it did so.
    fn note_reason(&mut self, rows: &[Row<'_>], row: &Row<'_>) -> bool {
        let outcome = &row.record.outcome;
        let (Outcome::Skipped { why } | Outcome::Failed { why }) = outcome else {
            return false;
        };
        if was_repeated(rows, row) {
            return false;
        }
        self.not_measured = Some(format!("{}: {why}", outcome.status()));
        true
    }

    /// Returns the value of the side, from runs or trials; `None` if there are none.
    pub fn figure(&self, by_runs: bool) -> Option<SideFigure> {
        let units = if by_runs { &self.runs } else { &self.trials };
        let value = match units.iter().all(|value| *value > 0.0) {
            true => mean_of(&units.iter().map(|value| value.ln()).collect::<Vec<_>>()).exp(),
            false => mean_of(units),
        };
        (!units.is_empty()).then_some(SideFigure {
            value,
            runs: self.runs.len(),
            trials: self.trials.len(),
            is_lower_bound: self.lower_bounds > 0,
        })
    }

    /// Returns the median of the canaries; `None` if there are none.
    pub fn canary_ns(&self) -> Option<f64> {
        let mut sorted = self.canaries_ns.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            count if count.is_multiple_of(2) => {
                Some(f64::midpoint(sorted[middle - 1], sorted[middle]))
            }
            _ => Some(sorted[middle]),
        }
    }
}

/// Returns whether a failed attempt was repeated successfully with --resume. With repetitions, the repeat has the same
/// repetition number. Without, it must be the only run that measured the point, because each of several separate starts
/// in one file counts.
fn was_repeated(rows: &[Row<'_>], row: &Row<'_>) -> bool {
    let later = rows
        .iter()
        .skip_while(|other| !std::ptr::eq(other.record, row.record));
    let mut later = later.filter(|later| later.record.outcome == Outcome::Measured);
    let repetition = row.record.repetition;
    if repetition.is_some() {
        return later.any(|later| later.record.repetition == repetition);
    }
    let measured = rows
        .iter()
        .filter(|row| row.record.outcome == Outcome::Measured);
    let measured: BTreeSet<&str> = measured.map(|row| row.record.run_id.as_str()).collect();
    row.record.side.is_none() && measured.len() == 1 && later.next().is_some()
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
