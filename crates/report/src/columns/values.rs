//! Values of columns, found in a record or computed from it.

use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_record::transfer::Summary;
use tonnage_record::{Canary, Latency, LatencyKind, Outcome, TransferRecord};

use super::Value;

/// A figure of the summary, unknown where nothing was measured.
pub fn summary<T: Into<Value>>(record: TransferRecord<'_>, of: fn(&Summary) -> T) -> Value {
    record
        .body
        .summary
        .as_ref()
        .map_or(Value::Unknown, |summary| of(summary).into())
}

/// A figure of the latencies, unknown where none were recorded.
pub fn latency<T: Into<Value>>(record: TransferRecord<'_>, of: fn(&Latency) -> T) -> Value {
    let latency = record
        .body
        .summary
        .as_ref()
        .and_then(|summary| summary.latency.as_ref());
    latency.map_or(Value::Unknown, |latency| of(latency).into())
}

/// Ranks that initiate, and the targets of each. Counted without listing them: a file may name any number of ranks.
fn initiators(point: &TransferPoint) -> (u64, u64) {
    let (initiators, targets) = point.traffic.initiating(point.ranks);
    (initiators.into(), targets.into())
}

/// Lanes over which operations are posted at once: pairs of initiator and target, times workers.
pub fn lanes(point: &TransferPoint) -> u64 {
    let (initiators, targets) = initiators(point);
    initiators
        .saturating_mul(targets)
        .saturating_mul(point.workers.into())
}

/// Operations of one batch.
pub fn batch(point: &TransferPoint) -> Option<u32> {
    match point.pacing {
        Pacing::Batch { batch } => Some(batch),
        _ => None,
    }
}

/// Payload bytes of one batch on one lane.
pub fn batch_bytes(point: &TransferPoint) -> Option<u64> {
    batch(point).map(|batch| u64::from(batch) * u64::from(point.size_bytes))
}

/// Bytes per second of the fastest batch, where one lane has the path for itself.
pub fn fastest_batch_bytes_per_s(record: TransferRecord<'_>) -> Option<f64> {
    let latency = record.body.summary.as_ref()?.latency.as_ref()?;
    let alone = lanes(&record.body.point) == 1 && latency.kind == LatencyKind::Batch;
    let bytes = batch_bytes(&record.body.point).filter(|_| alone && latency.latency_ns_min > 0)?;
    Some(bytes as f64 * 1e9 / latency.latency_ns_min as f64)
}

/// Operations per second that all initiating ranks together are asked for.
pub fn offered_per_s(point: &TransferPoint) -> Option<f64> {
    let Pacing::Paced { rate_per_s, .. } = point.pacing else {
        return None;
    };
    Some(rate_per_s * initiators(point).0 as f64)
}

/// Name of a kind of latency sample, as in records.
pub fn latency_kind_name(kind: LatencyKind) -> &'static str {
    match kind {
        LatencyKind::Operation => "operation",
        LatencyKind::Batch => "batch",
        LatencyKind::OneWay => "one_way",
        LatencyKind::Response => "response",
        LatencyKind::Step => "step",
    }
}

/// Outcome of the point, and the reason if it was not measured.
pub fn outcome<'a>(record: TransferRecord<'a>) -> (&'static str, &'a str) {
    match &record.record.outcome {
        Outcome::Measured => ("measured", ""),
        Outcome::Skipped { why } => ("skipped", why),
        Outcome::Failed { why } => ("failed", why),
    }
}

/// The part of the trials' time that the initiating workers had a CPU; they never sleep, so what is missing was taken by
/// others. `None` where the workers share CPUs among themselves, and where nothing was measured.
pub fn cpu_share(record: TransferRecord<'_>) -> Option<f64> {
    let point = &record.body.point;
    if record.body.trials.is_empty() || record.effective.iter().any(|ranks| ranks.yielding) {
        return None;
    }
    let begins = |rank: &u32| !point.traffic.targets(*rank, point.ranks).is_empty();
    let workers = (0..point.ranks).filter(begins).count() as f64 * f64::from(point.workers);
    let cpu_ns: u64 = record
        .body
        .trials
        .iter()
        .map(|trial| trial.initiator_cpu_ns)
        .sum();
    let window_ns: u64 = record.body.trials.iter().map(|trial| trial.window_ns).sum();
    Some(cpu_ns as f64 / (window_ns.max(1) as f64 * workers))
}

/// The canary's median before or after the point.
pub fn canary_ns(record: TransferRecord<'_>, after: bool) -> Option<f64> {
    match record.canary {
        Some(Canary::Measured {
            before_ns,
            after_ns,
            ..
        }) => Some(if after { after_ns } else { before_ns }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tonnage_plan::point::Traffic;

    use super::super::super::samples::sample;
    use super::*;

    #[test]
    fn ranks_are_counted_as_the_traffic_lists_them() {
        for traffic in Traffic::ALL {
            for ranks in [2, 4, 6] {
                let record = sample(Pacing::PingPong, 8).with(|point| {
                    (point.traffic, point.ranks, point.workers) = (traffic, ranks, 3);
                });
                let point = record.record().transfer().unwrap().point.clone();
                let targets: Vec<_> = (0..ranks)
                    .map(|rank| traffic.targets(rank, ranks).len())
                    .collect();
                assert_eq!(lanes(&point), 3 * targets.iter().sum::<usize>() as u64);
                let initiating = targets.iter().filter(|&&targets| targets > 0).count();
                assert_eq!(initiators(&point).0, initiating as u64);
            }
        }
    }
}
