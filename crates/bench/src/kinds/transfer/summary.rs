//! From the trials of a point to its summary: spreads across trials, percentiles over all operations, utilization.

use super::point::Measured;
use tonnage_engine::Verb;
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_record::LatencyKind;
use tonnage_record::spread::spread;
use tonnage_record::transfer::{Pace, Summary};

/// Takes the trials together.
pub fn summarize(point: &TransferPoint, measured: &Measured) -> Summary {
    let bandwidths: Vec<f64> = measured
        .trials
        .iter()
        .map(|trial| trial.bandwidth_bytes_per_s)
        .collect();
    let rates: Vec<f64> = measured
        .trials
        .iter()
        .map(|trial| trial.message_rate_per_s)
        .collect();
    let sum = |field: fn(&super::totals::TrialTotals) -> u64| -> u64 {
        measured.totals.iter().map(field).sum()
    };
    let operations = sum(|totals| totals.operations);
    let per_operation = |ns: u64| ns as f64 / operations.max(1) as f64;
    let bandwidth = spread(&bandwidths);
    let message_rate = spread(&rates);
    Summary {
        trials: measured.trials.len() as u32,
        operations,
        payload_bytes: sum(|totals| totals.payload_bytes),
        bandwidth_bytes_per_s: bandwidth,
        message_rate_per_s: message_rate,
        latency: measured.histogram.summary(latency_kind(point)),
        initiator_cpu_ns_per_operation: per_operation(sum(|totals| totals.initiator_cpu_ns)),
        target_cpu_ns_per_operation: per_operation(sum(|totals| totals.target_cpu_ns)),
        utilization: measured
            .limit
            .as_ref()
            .map(|limit| bandwidth.mean / limit.bytes_per_s),
        pace: pace(point, measured, message_rate.mean),
        converged: measured.converged,
    }
}

/// Kind of a latency sample of a point.
pub fn latency_kind(point: &TransferPoint) -> LatencyKind {
    match point.pacing {
        Pacing::PingPong if point.op == Verb::Read => LatencyKind::Operation,
        Pacing::PingPong => LatencyKind::OneWay,
        Pacing::Stream { .. } => LatencyKind::Operation,
        Pacing::Batch { .. } => LatencyKind::Batch,
        Pacing::Paced { .. } => LatencyKind::Response,
    }
}

fn pace(point: &TransferPoint, measured: &Measured, reached_per_s: f64) -> Option<Pace> {
    let Pacing::Paced { rate_per_s, .. } = point.pacing else {
        return None;
    };
    let initiators = (0..point.ranks)
        .filter(|&rank| !point.traffic.targets(rank, point.ranks).is_empty())
        .count();
    let due: u64 = measured.totals.iter().map(|totals| totals.due).sum();
    let late: u64 = measured.totals.iter().map(|totals| totals.late).sum();
    Some(Pace {
        offered_per_s: rate_per_s * initiators as f64,
        reached_per_s,
        late_fraction: late as f64 / due.max(1) as f64,
    })
}
