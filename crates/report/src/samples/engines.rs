//! Records of the same cells by several engines, in tables wider than the screen.

use super::builder::{sample, three_trials};
use tonnage_engine::Verb;
use tonnage_plan::point::Traffic;
use tonnage_plan::published::PublishedCell;
use tonnage_plan::transfer::Pacing;
use tonnage_record::{LatencyKind, Outcome, PublishedRow, Record};

/// Reads by 1 and 8 clients with four engines, one of them missing, with a bound and a published table.
pub fn engines() -> Vec<Record> {
    let read = |engine: &str, initiators: u32| {
        sample(Pacing::Stream { depth: 12 }, 4096).with(|point| {
            (point.roles.traffic, point.roles.ranks, point.op) = (Traffic::FanIn, 9, Verb::Read);
            (point.engine, point.threads) = (engine.to_owned(), 12);
            point.roles.initiators = Some(initiators);
        })
    };
    let beside = |record: &mut Record, initiators: u32| {
        record.published_rows = vec![PublishedRow {
            what: "a paper".to_owned(),
            columns: ["Initiators", "MsgSize (B)", "Msg rate (op/s)"]
                .map(str::to_owned)
                .into(),
            row: vec![
                PublishedCell::Count(initiators.into()),
                PublishedCell::Count(4096),
                PublishedCell::Count(2_866_641),
            ],
        }];
    };
    let measured = |engine: &str, initiators: u32, middle_ns: u64| {
        let bound = Some(("socket stream, polled, the better of 2", 25e9));
        three_trials(read(engine, initiators), middle_ns)
            .summarize(LatencyKind::Operation, bound)
            .record_with(|record| beside(record, initiators))
    };
    let missing = |initiators| {
        let why = "verbs:dc is not available: no device of mlx5".to_owned();
        let skipped = read("verbs:dc", initiators).without_result(Outcome::Skipped { why });
        skipped.record_with(|record| {
            record.optional = true;
            beside(record, initiators);
        })
    };
    vec![
        measured("verbs:rc", 1, 610),
        measured("verbs:rc", 8, 350),
        missing(1),
        missing(8),
        measured("verbs:kernel", 1, 2900),
        measured("verbs:kernel", 8, 770),
        measured("shm", 1, 160),
        measured("shm", 8, 140),
    ]
}
