//! The repetitions of a phase on rank 0, and the phase's record.

use tonnage_plan::files::{FilePoint, Fsync, Phase};
use tonnage_record::files::{PhaseRecord, PhaseSummary, PhaseTrial, TransferLatency};
use tonnage_record::spread::spread;
use tonnage_record::{Bound, HistogramData, Latency, LatencyKind};
use tonnage_units::histogram::LatencyHistogram;

/// If more than this fraction of the data was cached, the bandwidth is not compared with the storage's bound.
const WARM_FRACTION: f64 = 0.05;

/// A phase with its repetitions so far.
pub struct PhaseRepetitions {
    pub phase: Phase,
    /// The phase's repetitions so far.
    pub trials: Vec<PhaseTrial>,
    /// Latencies of reads, over all ranks and repetitions.
    pub reads: LatencyHistogram,
    /// Latencies of writes, over all ranks and repetitions.
    pub writes: LatencyHistogram,
}

impl PhaseRepetitions {
    /// Creates a phase without repetitions.
    pub fn new(phase: Phase) -> Self {
        Self {
            phase,
            trials: Vec::new(),
            reads: LatencyHistogram::new(),
            writes: LatencyHistogram::new(),
        }
    }

    /// Returns the record of the phase; `None` if it has no repetitions.
    pub(super) fn record(
        &self,
        point: &FilePoint,
        bound: Option<Bound>,
        in_memory: bool,
    ) -> Option<PhaseRecord> {
        if self.trials.is_empty() {
            return None;
        }
        let latency = |write: bool, histogram: &LatencyHistogram| {
            Some(TransferLatency {
                write,
                latency: Latency::summarize(histogram, LatencyKind::Operation)?,
                histogram: HistogramData::from_histogram(histogram),
            })
        };
        let latencies = [latency(false, &self.reads), latency(true, &self.writes)];
        Some(PhaseRecord {
            phase: self.phase,
            trials: self.trials.clone(),
            summary: self.summary(bound, in_memory || !self.is_of_memory(point)),
            latencies: latencies.into_iter().flatten().collect(),
        })
    }

    /// Returns whether the page cache served the reads or absorbed the writes.
    fn is_of_memory(&self, point: &FilePoint) -> bool {
        let unsynced = self.phase.writes() && !point.direct && point.fsync == Fsync::None;
        unsynced || self.trials.iter().any(is_warm)
    }

    /// Summarizes the repetitions. `comparable` is false if the bandwidth is not the storage's, for example because of
    /// the page cache.
    fn summary(&self, bound: Option<Bound>, comparable: bool) -> PhaseSummary {
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
            utilization: bound
                .as_ref()
                .filter(|_| comparable)
                .map(|bound| bandwidth.mean / bound.bytes_per_s),
            bound,
        }
    }
}

/// Returns whether more than a small part of the data to read was in the page cache before the phase.
fn is_warm(trial: &PhaseTrial) -> bool {
    trial.cache.as_ref().is_some_and(|cache| {
        !cache.direct && cache.resident_bytes as f64 > WARM_FRACTION * cache.bytes as f64
    })
}

/// Returns `ns` / `count`; 0 if `count` is 0.
fn per(ns: u64, count: f64) -> f64 {
    if count > 0.0 { ns as f64 / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::files::testing::point;
    use crate::kinds::files::totals::tests::rank;
    use tonnage_record::files::CacheState;

    /// Returns the utilization of a phase with a single repetition.
    fn utilization(phase: Phase, point: &FilePoint, in_memory: bool) -> Option<f64> {
        let mut sums = PhaseRepetitions::new(phase);
        sums.trials
            .push(rank(0, 1_000_000_100, 4).trial(point, None, 0, &[]));
        sums.record(point, Some(Bound::new("stated", 128.0)), in_memory)?
            .summary
            .utilization
    }

    #[test]
    fn writes_into_the_page_cache_have_no_utilization() {
        let mut point = point(1);
        assert_eq!(utilization(Phase::Write, &point, false), None);
        assert_eq!(utilization(Phase::Mixed, &point, false), None);
        assert!(utilization(Phase::Read, &point, false).is_some());
        // For files in memory, there is a utilization if the user states a bound.
        assert!(utilization(Phase::Write, &point, true).is_some());
        for fsync in [Fsync::End, Fsync::Each] {
            point.fsync = fsync;
            assert!(utilization(Phase::Write, &point, false).is_some());
        }
        (point.fsync, point.direct) = (Fsync::None, true);
        assert!(utilization(Phase::Write, &point, false).is_some());
    }

    #[test]
    fn sums_are_divided_by_operations_gibibytes_and_the_bound() {
        let point = point(1);
        let mut trial = rank(0, 1_000_000_100, 4).trial(&point, None, 0, &[]);
        (trial.operations, trial.transfer_cpu_ns) = (4, 100);
        (trial.payload_bytes, trial.cpu_ns) = (2 << 30, 30);
        trial.bandwidth_bytes_per_s = 64.0;
        let mut sums = PhaseRepetitions::new(Phase::Read);
        sums.trials.push(trial);
        let summary = sums
            .record(&point, Some(Bound::new("stated", 128.0)), false)
            .unwrap()
            .summary;
        assert_eq!(summary.cpu_ns_per_operation, 25.0);
        assert_eq!(summary.cpu_ns_per_gib, 15.0);
        assert_eq!(summary.utilization, Some(0.5));
        assert_eq!(per(7, 0.0), 0.0);
    }

    #[test]
    fn a_read_is_warm_by_its_cached_part_unless_direct() {
        let mut trial = rank(0, 1_000_000_100, 4).trial(&point(1), None, 0, &[]);
        trial.cache = None;
        assert!(!is_warm(&trial));
        for (resident_bytes, direct, expected) in
            [(5, false, false), (6, false, true), (6, true, false)]
        {
            trial.cache = Some(CacheState {
                bytes: 100,
                resident_bytes,
                how: "mincore".into(),
                known: true,
                dropped: true,
                direct,
            });
            assert_eq!(is_warm(&trial), expected, "{resident_bytes} {direct}");
        }
    }
}
