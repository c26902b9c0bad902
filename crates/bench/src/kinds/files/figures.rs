//! Sums of a phase's repetitions on rank 0, and its record.

use tonnage_plan::files::Phase;
use tonnage_record::files::{PhaseRecord, PhaseSummary, PhaseTrial, TransferLatency};
use tonnage_record::histogram::LatencyHistogram;
use tonnage_record::spread::spread;
use tonnage_record::{LatencyKind, Limit};

/// Part of cached bytes from which on a bandwidth is not compared with the storage's limit.
const WARM_FRACTION: f64 = 0.05;

/// A phase and its repetitions so far.
pub struct Sums {
    /// The phase.
    pub phase: Phase,
    /// Its repetitions.
    pub trials: Vec<PhaseTrial>,
    /// Latencies of reads, all ranks and repetitions.
    pub reads: LatencyHistogram,
    /// Latencies of writes.
    pub writes: LatencyHistogram,
}

impl Sums {
    /// Makes an empty one.
    pub fn new(phase: Phase) -> Self {
        Self {
            phase,
            trials: Vec::new(),
            reads: LatencyHistogram::new(),
            writes: LatencyHistogram::new(),
        }
    }

    /// The record of the phase; `None` without a repetition.
    pub(super) fn record(&self, limit: Option<Limit>, in_memory: bool) -> Option<PhaseRecord> {
        if self.trials.is_empty() {
            return None;
        }
        let latency = |write: bool, histogram: &LatencyHistogram| {
            Some(TransferLatency {
                write,
                latency: histogram.summary(LatencyKind::Operation)?,
                histogram: histogram.to_data(),
            })
        };
        let latencies = [latency(false, &self.reads), latency(true, &self.writes)];
        Some(PhaseRecord {
            phase: self.phase,
            trials: self.trials.clone(),
            summary: self.summary(limit, in_memory),
            latencies: latencies.into_iter().flatten().collect(),
        })
    }

    fn summary(&self, limit: Option<Limit>, in_memory: bool) -> PhaseSummary {
        // What came out of the page cache says nothing about the storage, unless that is memory anyhow.
        let from_memory = !in_memory && self.trials.iter().any(is_warm);
        let values =
            |of: fn(&PhaseTrial) -> f64| -> Vec<f64> { self.trials.iter().map(of).collect() };
        let sum = |of: fn(&PhaseTrial) -> u64| -> u64 { self.trials.iter().map(of).sum() };
        let bandwidth = spread(&values(|trial| trial.bandwidth_bytes_per_s));
        let (operations, payload_bytes) = (
            sum(|trial| trial.operations),
            sum(|trial| trial.payload_bytes),
        );
        let gib = payload_bytes as f64 / (1u64 << 30) as f64;
        PhaseSummary {
            trials: self.trials.len() as u32,
            operations,
            payload_bytes,
            bandwidth_bytes_per_s: bandwidth,
            operations_per_s: spread(&values(|trial| trial.operations_per_s)),
            cpu_ns_per_operation: per(sum(|trial| trial.transfer_cpu_ns), operations as f64),
            cpu_ns_per_gib: per(sum(|trial| trial.cpu_ns), gib),
            utilization: limit
                .as_ref()
                .filter(|_| !from_memory)
                .map(|limit| bandwidth.mean / limit.bytes_per_s),
            limit,
        }
    }
}

/// Returns whether a good part of what was read lay in the page cache before.
fn is_warm(trial: &PhaseTrial) -> bool {
    trial.cache.as_ref().is_some_and(|cache| {
        !cache.direct && cache.resident_bytes as f64 > WARM_FRACTION * cache.bytes as f64
    })
}

/// 0 where there is nothing to divide by.
fn per(ns: u64, count: f64) -> f64 {
    if count > 0.0 { ns as f64 / count } else { 0.0 }
}
