//! A search over an engine whose bandwidth and delay are known, with threads as ranks.
#![cfg(test)]

mod long;
mod runs;

use tonnage_machine::CpuChoice;
use tonnage_plan::{Plan, Planned};
use tonnage_record::tune::TuneOutcome;
use tonnage_record::{Outcome, Record};

fn points(text: &str) -> Vec<Planned> {
    let text = format!("name = 'tune'\n[[tune]]\n{text}");
    let plan = Plan::from_toml(&text, "tune.toml").unwrap();
    plan.points(2, &long::LISTS).unwrap()
}

fn searched(text: &str) -> Record {
    let records = runs::records(2, points(text), long::LISTS, CpuChoice::None);
    records.unwrap().remove(0)
}

/// 1 Gb/s × 20 ms are 2.5 MB, 38 operations of 64 KiB: a window of 32 leaves a sixth of the link unused, and more than
/// 64 bring nothing.
#[test]
fn a_window_as_long_as_bandwidth_times_delay_is_found() {
    let text = "engine = 'long'\nop = 'write'\nsizes = '64k'\ngoal = 'rate'\nwindow = '8..256'\nqps = 1\ntrial-time = '250ms'";
    let record = searched(text);
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    let body = record.tune().unwrap();
    let winner = body.winner.as_ref().unwrap();
    let command = &winner.command;
    assert!(
        ["--window 32 ", "--window 64 "]
            .iter()
            .any(|window| command.contains(window)),
        "{command}: {:#?}",
        body.tried
    );
    // What the link carries, less the 20 ms before anything has arrived.
    let of_link = winner.goal_mean.unwrap() * 65_536.0 / 125e6;
    assert!((0.8..1.0).contains(&of_link), "{of_link}");
    let of = |value: &str| body.tried.iter().find(|it| it.value == value).unwrap();
    assert_eq!(of("--window 8").outcome, TuneOutcome::Dropped);
    assert_eq!(of("--window 16").outcome, TuneOutcome::Dropped);
}
