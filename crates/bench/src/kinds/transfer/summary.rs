//! From the trials of a point to its summary: spreads across trials, percentiles over all operations, utilization.

use super::paced;
use super::pairs::PAIRS_MAX;
use super::point::Measured;
use super::totals::{TrialTotals, directions};
use tonnage_engine::Verb;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::{BatchMerge, Pacing, TransferPoint};
use tonnage_record::LatencyKind;
use tonnage_record::histogram::Latency;
use tonnage_record::spread::spread;
use tonnage_record::transfer::{
    BackgroundSummary, BatchPhase, BatchPhases, Rail, SlowRail, Summary, Trial, judge,
};
use tonnage_units::histogram::LatencyHistogram;

/// Parts of a summary that follow from the open devices.
#[derive(Default)]
pub struct OfDevices {
    pub rails: Vec<Rail>,
    pub slow_rail: Option<SlowRail>,
    /// Whether the bytes written are in the peer's memory when a latency sample ends.
    pub delivered: Option<bool>,
}

/// Takes the trials together.
pub fn summarize(point: &TransferPoint, measured: &Measured, devices: OfDevices) -> Summary {
    let over_trials = |rate: fn(&Trial) -> f64| {
        let rates: Vec<f64> = measured.trials.iter().map(rate).collect();
        spread(&rates)
    };
    let sum = |field: fn(&TrialTotals) -> u64| -> u64 { measured.totals.iter().map(field).sum() };
    let operations = sum(|totals| totals.operations);
    let per_operation = |sum: u64| sum as f64 / operations.max(1) as f64;
    let bandwidth = over_trials(|trial| trial.bandwidth_bytes_per_s);
    let message_rate = over_trials(|trial| trial.message_rate_per_s);
    let latency = Latency::of(&measured.histogram, latency_kind(point));
    let verdict = || judge(point.roles.ranks, &measured.pairs, point.op == Verb::Read);
    let are_few = measured.pairs.len() <= PAIRS_MAX;
    Summary {
        trials: measured.trials.len() as u32,
        operations,
        payload_bytes: sum(|totals| totals.payload_bytes),
        bandwidth_bytes_per_s: bandwidth,
        message_rate_per_s: message_rate,
        latency: latency.map(|latency| Latency {
            delivered: devices.delivered,
            ..latency
        }),
        background: background(point, measured),
        batch_phases: measured.phases.as_ref().and_then(batch_phases),
        initiator_cpu_ns_per_operation: per_operation(sum(|totals| totals.initiator_cpu_ns)),
        target_cpu_ns_per_operation: per_operation(sum(|totals| totals.target_cpu_ns)),
        utilization: measured
            .limit
            .as_ref()
            .map(|limit| bandwidth.mean / limit.bytes_per_s),
        merged_operations: (point.batching.merge == BatchMerge::On)
            .then(|| sum(|totals| totals.handed_over)),
        rails: devices.rails,
        directions: directions(&measured.trials, &measured.totals),
        initiators: measured.initiators.clone(),
        pairs: measured.pairs.iter().filter(|_| are_few).cloned().collect(),
        matrix: (point.roles.traffic == Traffic::Matrix)
            .then(verdict)
            .flatten(),
        slow_rail: devices.slow_rail,
        pace: paced::pace(point, &measured.totals, message_rate.mean),
        swapped_fraction: (point.op == Verb::CompareSwap && point.verify.is_on())
            .then(|| per_operation(sum(|totals| totals.swapped))),
        converged: measured.converged,
    }
}

/// The load beside a latency and the latency without it, where there was one.
fn background(point: &TransferPoint, measured: &Measured) -> Option<BackgroundSummary> {
    let idle = Latency::of(measured.idle.as_ref()?, latency_kind(point));
    let trials = measured.trials.iter();
    let loads: Vec<_> = trials
        .filter_map(|trial| trial.background.as_ref())
        .collect();
    BackgroundSummary::of(&loads, idle)
}

/// Phases of batches, where there were any.
fn batch_phases(phases: &PhaseHistograms) -> Option<BatchPhases> {
    let of = |histogram: &LatencyHistogram| {
        Some(BatchPhase {
            time_ns_mean: histogram.mean_ns()?,
            time_ns_p50: histogram.quantile_ns(0.5)?,
            time_ns_p99: histogram.quantile_ns(0.99)?,
        })
    };
    Some(BatchPhases {
        prepare: of(&phases.prepare)?,
        post: of(&phases.post)?,
        complete: of(&phases.complete)?,
    })
}

/// Kind of a latency sample of a point.
pub fn latency_kind(point: &TransferPoint) -> LatencyKind {
    match point.pacing {
        Pacing::PingPong if point.op.fetches() => LatencyKind::Operation,
        Pacing::PingPong => LatencyKind::OneWay,
        Pacing::Stream { .. } => LatencyKind::Operation,
        Pacing::Batch { .. } => LatencyKind::Batch,
        Pacing::Paced { .. } => LatencyKind::Response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_plan::roles::Roles;
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::{Addresses, Rate};
    use tonnage_record::Limit;

    /// Two trials of a second: 100 and 300 operations of 8 bytes.
    fn measured() -> Measured {
        let totals = [100, 300].map(|operations| TrialTotals {
            window_ns: 1_000_000_000,
            operations,
            payload_bytes: 8 * operations,
            initiator_cpu_ns: 5 * operations,
            target_cpu_ns: 7 * operations,
            due: 2 * operations,
            late: operations / 2,
            ..TrialTotals::default()
        });
        Measured {
            trials: totals.iter().map(|each| each.trial(false)).collect(),
            totals: totals.into(),
            limit: Some(Limit::new("a test", 6400.0)),
            converged: Some(true),
            ..Measured::default()
        }
    }

    #[test]
    fn trials_are_taken_together() {
        let summary = summarize(
            &point(Addresses::Sequential, 4),
            &measured(),
            OfDevices::default(),
        );
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
    fn what_was_offered_is_the_rate_of_all_who_initiate() {
        for (traffic, ranks, offered_per_s) in [
            (Traffic::Pair, 4, 100.0),
            (Traffic::FanOut, 4, 50.0),
            (Traffic::FanIn, 4, 150.0),
            (Traffic::AllToAll, 4, 200.0),
        ] {
            let point = TransferPoint {
                roles: Roles::new(traffic, ranks),
                pacing: Pacing::Paced {
                    window: 4,
                    rate: Rate::per_s(50.0),
                },
                ..point(Addresses::Sequential, 4)
            };
            let pace = summarize(&point, &measured(), OfDevices::default())
                .pace
                .unwrap();
            assert_eq!(pace.offered_per_s, offered_per_s, "{traffic:?}");
            assert_eq!((pace.reached_per_s, pace.late_fraction), (200.0, 0.25));
        }
    }

    #[test]
    fn a_sample_is_of_the_pacing_s_kind() {
        let kind = |op, pacing| {
            latency_kind(&TransferPoint {
                op,
                pacing,
                ..point(Addresses::Sequential, 4)
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
