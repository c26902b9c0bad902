//! Records of a search.

use tonnage_engine::Verb;
use tonnage_plan::transfer::{Pacing, Verification};
use tonnage_plan::tune::{Goal, TuneDimension, TunePoint};
use tonnage_record::tune::{TuneGain, TuneOutcome, TuneTry, TuneWinner};
use tonnage_record::{Body, LatencyKind, Outcome, Record, TuneBody};

use super::builder::sample;

fn tried(value: &str, outcome: TuneOutcome) -> TuneTry {
    TuneTry {
        pass: 1,
        dimension: "pacing".to_owned(),
        value: value.to_owned(),
        rounds: 0,
        goal_mean: None,
        gain: None,
        outcome,
        why: None,
    }
}

/// A candidate that was measured at about 9 GB/s. The last argument holds its relative gain and the half-width of the
/// gain's interval.
fn raced(value: &str, outcome: TuneOutcome, rounds: u32, (gain, half): (f64, f64)) -> TuneTry {
    TuneTry {
        rounds,
        goal_mean: Some(9.0e9 * (1.0 + gain)),
        gain: (outcome != TuneOutcome::Won).then_some(TuneGain {
            mean: gain,
            low: gain - half,
            high: gain + half,
        }),
        ..tried(value, outcome)
    }
}

fn lacks(value: &str) -> TuneTry {
    TuneTry {
        why: Some("the device has too few of them".to_owned()),
        ..tried(value, TuneOutcome::Refused)
    }
}

/// A search with a winner.
pub fn searches() -> Vec<Record> {
    let words = |depth: &str| vec!["--depth".to_owned(), depth.to_owned()];
    let point = TunePoint {
        label: None,
        engine: "shm".to_owned(),
        engine_options: Default::default(),
        op: Verb::Write,
        size_bytes: 65536,
        ranks: 2,
        threads: 1,
        memory: "host".to_owned(),
        goal: Goal::Bandwidth,
        trial_ns: 50_000_000,
        verify: true,
        fixed: [
            "transfer",
            "--engine",
            "shm",
            "--op",
            "write",
            "--traffic",
            "all-to-all",
        ]
        .map(str::to_owned)
        .into(),
        dimensions: vec![TuneDimension {
            name: "pacing".to_owned(),
            values: vec![
                words("1"),
                words("16"),
                words("64"),
                words("128"),
                words("256"),
                words("512"),
            ],
            start: 2,
        }],
    };
    let run = sample(Pacing::Stream { depth: 16 }, 65536)
        .with(|point| point.verify = Verification::Last)
        .trial(&[7_000, 7_100])
        .trial(&[7_050, 7_200])
        .trial(&[7_100, 7_150])
        .summarize(LatencyKind::Operation, None);
    let transfer = run.record();
    let body = TuneBody {
        elapsed_ns: 700_000_000,
        tried: vec![
            raced("--depth 1", TuneOutcome::Worse, 3, (-0.83, 0.02)),
            raced("--depth 16", TuneOutcome::Won, 8, (0.0, 0.0)),
            raced("--depth 64", TuneOutcome::AsGood, 8, (0.004, 0.011)),
            raced("--depth 128", TuneOutcome::Tied, 8, (-0.02, 0.063)),
            lacks("--depth 256"),
            lacks("--depth 512"),
        ],
        winner: transfer.transfer().map(|run| TuneWinner {
            command: "tonnage transfer --engine shm --op write --sizes 65536 --depth 16 --ranks 2"
                .to_owned(),
            run: run.clone(),
        }),
        ..TuneBody::new(point)
    };
    vec![search(body, Outcome::Measured)]
}

/// A search that could not start.
pub fn refused() -> Vec<Record> {
    let Body::Tune(body) = searches().swap_remove(0).body else {
        unreachable!("a sample of searches");
    };
    let why = "rails stripe cannot be used here: there is one device. Name another".to_owned();
    vec![search(TuneBody::new(body.point), Outcome::Skipped { why })]
}

fn search(body: TuneBody, outcome: Outcome) -> Record {
    sample(Pacing::PingPong, 8).record_with(|record| {
        record.plan = "tune".to_owned();
        record.outcome = outcome;
        record.body = body.into();
    })
}
