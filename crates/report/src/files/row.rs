//! Source of a value in a column of a file experiment.

use tonnage_record::FileRecord;
use tonnage_record::files::{PhaseRecord, PhaseSummary, PhaseTrial, TransferLatency};
use tonnage_record::{Latency, Outcome};

use super::super::columns::Value;

/// One row of a table or of CSV.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The experiment.
    pub record: FileRecord<'a>,
    /// The phase; `None` where none was measured.
    pub phase: Option<&'a PhaseRecord>,
    /// One repetition of it; `None` for all of them together.
    pub trial: Option<&'a PhaseTrial>,
    /// Transfers whose latencies are wanted: writes or reads.
    pub write: Option<bool>,
}

impl<'a> Row<'a> {
    /// A phase, or one repetition of it.
    pub fn of(
        record: FileRecord<'a>,
        phase: &'a PhaseRecord,
        trial: Option<&'a PhaseTrial>,
    ) -> Self {
        Self {
            record,
            phase: Some(phase),
            trial,
            write: None,
        }
    }

    /// All rows of an experiment in CSV: one for each repetition of each phase, and one for an experiment without any.
    pub fn all(record: FileRecord<'a>) -> Vec<Self> {
        let phases = record.body.phases.iter();
        let trials = phases.flat_map(|phase| {
            let trials = phase.trials.iter();
            trials.map(move |trial| Self::of(record, phase, Some(trial)))
        });
        let rows: Vec<_> = trials.collect();
        if !rows.is_empty() {
            return rows;
        }
        vec![Self {
            record,
            phase: None,
            trial: None,
            write: None,
        }]
    }

    /// The same row, looking at the latencies of its writes or of its reads.
    pub fn with_transfers(self, write: bool) -> Self {
        Self {
            write: Some(write),
            ..self
        }
    }

    /// A figure of the repetition, or its mean over all of them.
    pub fn figure(&self, of: fn(&PhaseTrial) -> f64) -> Value {
        self.known(|trial| Some(of(trial)))
    }

    /// Figure, as [`Row::figure`], that not every repetition has.
    pub fn known(&self, of: impl Fn(&PhaseTrial) -> Option<f64>) -> Value {
        if let Some(trial) = self.trial {
            return of(trial).into();
        }
        let trials = self.phase.iter().flat_map(|phase| &phase.trials);
        let values: Vec<f64> = trials.filter_map(of).collect();
        if values.is_empty() {
            return Value::Unknown;
        }
        Value::Number(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Value that only a single repetition has.
    pub fn single<T: Into<Value>>(&self, of: fn(&PhaseTrial) -> T) -> Value {
        self.trial.map_or(Value::Unknown, |trial| of(trial).into())
    }

    /// A figure of all repetitions together.
    pub fn summary<T: Into<Value>>(&self, of: fn(&PhaseSummary) -> T) -> Value {
        self.phase
            .map_or(Value::Unknown, |phase| of(&phase.summary).into())
    }

    /// A figure of the latencies of the row's transfers.
    pub fn latency<T: Into<Value>>(&self, of: fn(&Latency) -> T) -> Value {
        let mut latencies = self.phase.iter().flat_map(|phase| &phase.latencies);
        let wanted = |one: &&TransferLatency| Some(one.write) == self.write;
        latencies
            .find(wanted)
            .map_or(Value::Unknown, |one| of(&one.latency).into())
    }

    /// Bandwidth as a part of the storage's limit; none where the record says none, as for reads from the page cache.
    pub fn utilization(&self) -> Option<f64> {
        let summary = &self.phase?.summary;
        match self.trial {
            None => summary.utilization,
            Some(trial) => {
                let limit = summary
                    .limit
                    .as_ref()
                    .filter(|limit| limit.bytes_per_s > 0.0 && summary.utilization.is_some())?;
                Some(trial.bandwidth_bytes_per_s / limit.bytes_per_s)
            }
        }
    }

    /// Outcome of the experiment, and the reason if it was not measured.
    pub fn outcome(&self) -> (&'static str, Option<&'a str>) {
        match &self.record.record.outcome {
            Outcome::Measured => ("measured", None),
            Outcome::Skipped { why } => ("skipped", Some(why)),
            Outcome::Failed { why } => ("failed", Some(why)),
        }
    }
}
