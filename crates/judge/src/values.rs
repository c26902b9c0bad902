//! Values of a point on one side: of its runs, or of its trials where there are too few runs.

use std::collections::BTreeMap;

use serde::Serialize;
use tonnage_record::figures::Row;
use tonnage_record::{Canary, Outcome};

use crate::metric::Metric;

/// Values of one side of a point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SideValues {
    /// Mean of each run that can be used.
    pub runs: Vec<f64>,
    /// Trials of these runs.
    pub trials: Vec<f64>,
    /// Canary beside these runs, mean of before and after, nanoseconds.
    pub canaries_ns: Vec<f64>,
    /// Runs that were left out because their canary changed.
    pub changed: usize,
    /// Reason why a record was not measured, if one was not.
    pub not_measured: Option<String>,
    /// Kinds of the latency samples, each once.
    pub sample_kinds: Vec<&'static str>,
}

/// Value of one side, as a comparison shows it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SideFigure {
    /// Geometric mean, in the unit of the figure's column of CSV.
    pub value: f64,
    /// Runs that it is of.
    pub runs: usize,
    /// Trials of these runs; 0 where the figure has none of its own.
    pub trials: usize,
}

/// One run's records of a point.
#[derive(Default)]
struct Run {
    values: Vec<f64>,
    trials: Vec<f64>,
    canaries_ns: Vec<f64>,
    changed: bool,
}

impl SideValues {
    /// Collects the values of a metric. Runs whose canary changed are left out unless `keep_changed`.
    pub fn of(rows: &[Row<'_>], metric: &Metric, keep_changed: bool) -> Self {
        let mut values = Self::default();
        let mut runs: BTreeMap<&str, Run> = BTreeMap::new();
        for row in rows {
            if !values.note_outcome(row) {
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
            if run.changed && !keep_changed {
                values.changed += 1;
                continue;
            }
            values.runs.push(mean(&run.values));
            values.trials.extend(run.trials);
            values.canaries_ns.extend(run.canaries_ns);
        }
        values
    }

    /// The reason why nothing of a point was measured.
    pub fn unmeasured(rows: &[Row<'_>]) -> Self {
        let mut values = Self::default();
        for row in rows {
            values.note_outcome(row);
        }
        values
    }

    /// Keeps the reason of a record that was not measured, and returns whether it was.
    fn note_outcome(&mut self, row: &Row<'_>) -> bool {
        let outcome = &row.record.outcome;
        if let Outcome::Skipped { why } | Outcome::Failed { why } = outcome {
            self.not_measured = Some(format!("{}: {why}", outcome.status()));
        }
        *outcome == Outcome::Measured
    }

    /// Value of the side; `None` where nothing can be used.
    pub fn figure(&self) -> Option<SideFigure> {
        let logs: Vec<f64> = self.runs.iter().map(|value| value.ln()).collect();
        (!logs.is_empty()).then(|| SideFigure {
            value: mean(&logs).exp(),
            runs: self.runs.len(),
            trials: self.trials.len(),
        })
    }

    /// Median of the canaries; `None` without any.
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

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
