//! Records of a search.

use tonnage_engine::Verb;
use tonnage_plan::transfer::Pacing;
use tonnage_plan::tune::{Goal, TuneDimension, TunePoint};
use tonnage_record::tune::{TuneOutcome, TuneTry, TuneWinner};
use tonnage_record::{Outcome, Record, TuneBody};

use super::builder::sample;

fn tried(value: &str, mean: Option<f64>, outcome: TuneOutcome) -> TuneTry {
    TuneTry {
        pass: 1,
        dimension: "pacing".to_owned(),
        value: value.to_owned(),
        rounds: if mean.is_some() { 3 } else { 0 },
        goal_mean: mean,
        goal_ci95: mean.map(|mean| mean / 50.0),
        outcome,
        why: mean
            .is_none()
            .then(|| "the device has too few of them".to_owned()),
    }
}

/// A search with a winner.
pub fn searches() -> Vec<Record> {
    let words = |window: &str| vec!["--window".to_owned(), window.to_owned()];
    let point = TunePoint {
        label: None,
        engine: "shm".to_owned(),
        engine_options: Default::default(),
        op: Verb::Write,
        size_bytes: 65536,
        ranks: 2,
        workers: 1,
        memory: "host".to_owned(),
        goal: Goal::Bandwidth,
        trial_ns: 50_000_000,
        verify: true,
        fixed: vec!["transfer".to_owned()],
        dimensions: vec![TuneDimension {
            name: "pacing".to_owned(),
            values: vec![words("1"), words("16"), words("64"), words("256")],
            start: 2,
        }],
    };
    let body = TuneBody {
        elapsed_ns: 700_000_000,
        tried: vec![
            tried("--window 1", Some(1.5e9), TuneOutcome::Dropped),
            tried("--window 16", Some(9.0e9), TuneOutcome::Won),
            tried("--window 64", Some(9.1e9), TuneOutcome::Tied),
            tried("--window 256", None, TuneOutcome::Refused),
        ],
        winner: Some(TuneWinner {
            goal_mean: Some(9.0e9),
            command: "tonnage transfer --engine shm --op write --sizes 65536 --window 16 --ranks 2"
                .to_owned(),
        }),
        ..TuneBody::new(point)
    };
    vec![sample(Pacing::PingPong, 8).record_with(|record| {
        record.plan = "tune".to_owned();
        (record.outcome, record.canary) = (Outcome::Measured, None);
        record.body = body.into();
    })]
}
