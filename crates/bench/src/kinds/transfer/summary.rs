//! Summary of a point's trials: spreads over the trials, percentiles over all operations, and utilization. Aspects such
//! as `paced` add their parts in their own files.

use super::point::PointResults;
use super::totals::{self, TrialTotals};
use super::{background, batching, paced, pairs, rails, verify};
use crate::opening::openings::Openings;
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_ranks::RankInfo;
use tonnage_record::LatencyKind;
use tonnage_record::histogram::Latency;
use tonnage_record::spread::spread;
use tonnage_record::transfer::{Summary, Trial};

/// Properties of all ranks that the summary needs.
pub struct Devices<'a> {
    pub opened: &'a Openings,
    pub ranks: &'a [RankInfo],
    /// Whether the bytes are in the peer's memory when a latency sample ends.
    pub delivered: Option<bool>,
}

/// Combines the trials of a point.
pub fn summarize(point: &TransferPoint, measured: &PointResults, devices: &Devices<'_>) -> Summary {
    let PointResults { trials, totals, .. } = measured;
    let over_trials = |rate: fn(&Trial) -> f64| {
        let rates: Vec<f64> = trials.iter().map(rate).collect();
        spread(&rates)
    };
    let sum = |field: fn(&TrialTotals) -> u64| -> u64 { totals.iter().map(field).sum() };
    let operations = sum(|totals| totals.operations);
    let per_operation = |sum: u64| sum as f64 / operations.max(1) as f64;
    let bandwidth = over_trials(|trial| trial.bandwidth_bytes_per_s);
    let message_rate = over_trials(|trial| trial.message_rate_per_s);
    let latency = Latency::summarize(&measured.histogram, latency_kind(point));
    let bound = measured.bound.as_ref();
    Summary {
        trials: trials.len() as u32,
        operations,
        payload_bytes: sum(|totals| totals.payload_bytes),
        bandwidth_bytes_per_s: bandwidth,
        message_rate_per_s: message_rate,
        latency: latency.map(|latency| Latency {
            delivered: devices.delivered,
            ..latency
        }),
        background: background::background_summary(point, measured.idle.as_ref(), trials),
        batch_phases: measured.phases.as_ref().and_then(batching::batch_phases),
        initiator_cpu_ns_per_operation: per_operation(sum(|totals| totals.initiator_cpu_ns)),
        target_cpu_ns_per_operation: per_operation(sum(|totals| totals.target_cpu_ns)),
        utilization: bound.map(|bound| bandwidth.mean / bound.bytes_per_s),
        merged_operations: batching::merged_operations(point, totals),
        rails: rails::rail_summary(point, &devices.opened.all, totals),
        slow_rail: rails::slow_rail(devices.opened, devices.ranks, totals),
        directions: totals::directions(trials, totals),
        initiators: measured.initiators.clone(),
        pairs: pairs::summary(&measured.pairs),
        matrix: pairs::verdict(point, &measured.pairs),
        swapped_fraction: verify::swapped_fraction(point, totals),
        pace: paced::summarize_pace(point, totals, message_rate.mean),
        converged: measured.converged,
    }
}

/// Returns the kind of latency samples that a point records.
pub fn latency_kind(point: &TransferPoint) -> LatencyKind {
    match point.pacing {
        Pacing::PingPong if point.op.returns_bytes() => LatencyKind::Operation,
        Pacing::PingPong => LatencyKind::OneWay,
        Pacing::Stream { .. } => LatencyKind::Operation,
        Pacing::Batch { .. } => LatencyKind::Batch,
        Pacing::Paced { .. } => LatencyKind::Response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::openings::tests::{opened, openings};
    use tonnage_engine::{BoundKind, Verb};
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::Access;
    use tonnage_record::Bound;

    /// Returns two trials of one second, with 100 and 300 operations of 8 bytes.
    fn measured() -> PointResults {
        let totals = [100, 300].map(|operations| TrialTotals {
            window_ns: 1_000_000_000,
            operations,
            payload_bytes: 8 * operations,
            initiator_cpu_ns: 5 * operations,
            target_cpu_ns: 7 * operations,
            ..TrialTotals::default()
        });
        PointResults {
            trials: totals.iter().map(|each| each.to_record(false)).collect(),
            totals: totals.into(),
            bound: Some(Bound::new("a test", 6400.0)),
            converged: Some(true),
            ..PointResults::default()
        }
    }

    #[test]
    fn trials_are_combined() {
        let devices = Devices {
            opened: &openings(
                &[opened(BoundKind::None, None)],
                point(Access::Sequential, 4).roles,
            ),
            ranks: &[],
            delivered: None,
        };
        let summary = summarize(&point(Access::Sequential, 4), &measured(), &devices);
        assert_eq!((summary.trials, summary.operations), (2, 400));
        assert_eq!(summary.payload_bytes, 3200);
        let bandwidth = summary.bandwidth_bytes_per_s;
        assert_eq!((bandwidth.mean, bandwidth.min), (1600.0, 800.0));
        assert_eq!(summary.message_rate_per_s.mean, 200.0);
        assert_eq!(summary.initiator_cpu_ns_per_operation, 5.0);
        assert_eq!(summary.target_cpu_ns_per_operation, 7.0);
        assert_eq!(summary.utilization, Some(0.25));
        assert_eq!((summary.pace, summary.latency), (None, None));
        assert_eq!(summary.converged, Some(true));
    }

    #[test]
    fn the_pacing_determines_the_kind_of_sample() {
        let kind = |op, pacing| {
            latency_kind(&TransferPoint {
                op,
                pacing,
                ..point(Access::Sequential, 4)
            })
        };
        assert_eq!(kind(Verb::Read, Pacing::PingPong), LatencyKind::Operation);
        assert_eq!(kind(Verb::Send, Pacing::PingPong), LatencyKind::OneWay);
        assert_eq!(
            kind(Verb::Read, Pacing::Batch { batch: 2 }),
            LatencyKind::Batch
        );
    }
}
