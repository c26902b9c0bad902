//! Records of atomic operations.

use super::builder::{sample, three_trials};
use tonnage_engine::Verb;
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::{Pacing, TargetFootprint, Verification};
use tonnage_record::{LatencyKind, Record};

/// Compare-swaps by one and four clients on shared words, verified, then fetch-adds.
pub fn atomics() -> Vec<Record> {
    let of = |op: Verb, initiators: u32, middle_ns: u64, swapped_fraction: Option<f64>| {
        let sample = sample(Pacing::Stream { depth: 12 }, 8).with(|point| {
            (point.roles.traffic, point.roles.ranks, point.op) = (Traffic::FanIn, 5, op);
            (point.roles.initiators, point.verify) = (Some(initiators), Verification::Last);
            point.slots.target_footprint = TargetFootprint::Shared;
        });
        let sample = three_trials(sample, middle_ns).summarize(LatencyKind::Operation, None);
        sample
            .body_with(|body| {
                if let Some(summary) = &mut body.summary {
                    summary.swapped_fraction = swapped_fraction;
                }
            })
            .record()
    };
    vec![
        of(Verb::CompareSwap, 1, 310, Some(1.0)),
        of(Verb::CompareSwap, 4, 850, Some(0.2503)),
        of(Verb::FetchAdd, 4, 730, None),
    ]
}
