//! Searches over engines whose bandwidth and delay are known, or that lie, with threads as ranks.

use tonnage_engine::Lists;
use tonnage_record::tune::TuneOutcome;
use tonnage_record::{LatencyKind, Outcome, Record};

use crate::runs::over;
use crate::{far, long};

fn searched(lists: Lists, text: &str) -> Record {
    let table = format!("[[tune]]\n{text}");
    over(lists).tables(2, &table).unwrap().remove(0)
}

/// 1 Gb/s × 20 ms are 2.5 MB, 38 operations of 64 KiB: a window of 32 leaves a sixth of the link unused, and more than
/// 64 bring nothing, unless others take the CPU for so long that 64 run dry. A search that is broken is wrong each
/// time.
#[test]
fn a_window_as_long_as_bandwidth_times_delay_is_found() {
    let text = "engine = 'long'\nop = 'write'\nsizes = '64k'\ngoal = 'rate'\nwindow = '8..256'\nqps = 1\ntrial-time = '250ms'";
    let wrong: Vec<String> = (0..3)
        .map_while(|_| {
            let record = searched(long::LISTS, text);
            wrong_on_a_long_link(&record).map(|wrong| format!("{wrong}: {record:#?}"))
        })
        .collect();
    assert!(wrong.len() < 3, "{}", wrong.join("\n\n"));
}

/// Words for the first thing that is wrong with a search of windows of 8 to 256 on the long link.
fn wrong_on_a_long_link(record: &Record) -> Option<String> {
    let body = record.tune().unwrap();
    let winner = body.winner.as_ref().unwrap();
    let command = &winner.command;
    let won = |window: &u32| command.contains(&format!("--window {window} "));
    let Some(window) = [32, 64].into_iter().find(won) else {
        return Some(format!("{command} is too long"));
    };
    // What the link carries, less the 20 ms before anything has arrived.
    let summary = winner.run.summary.as_ref().unwrap();
    let of_link = summary.message_rate_per_s.mean * 65536.0 / 125e6;
    if !(0.8..1.0).contains(&of_link) {
        return Some(format!("{of_link} of the link"));
    }
    for worse in ["--window 8", "--window 16"] {
        let worse = body.tried.iter().find(|it| it.value == worse).unwrap();
        let is_worse = worse.gain.is_some_and(|gain| gain.high < 0.0);
        if worse.outcome != TuneOutcome::Worse || !is_worse {
            return Some(format!("{worse:?} is not worse"));
        }
    }
    // What is found instead of the start meets it once more; a tie goes to the better one.
    let again = body.tried.iter().any(|it| it.dimension == "together");
    (again == (window == 64)).then(|| "what was found did not meet the start again".into())
}

/// The delay is the same for every window that the link keeps up with: what is longer is not better.
#[test]
fn the_shortest_window_has_the_best_latency() {
    let text = "engine = 'long'\nop = 'write'\nsizes = '64k'\ngoal = 'latency'\nwindow = [1, 16, 128]\nqps = 1\n\
                trial-time = '100ms'";
    let record = searched(long::LISTS, text);
    let winner = record.tune().unwrap().winner.as_ref().unwrap();
    assert!(winner.command.contains("--window 1 "), "{record:#?}");
    let latency = winner.run.summary.as_ref().unwrap().latency.as_ref();
    assert_eq!(latency.unwrap().kind, LatencyKind::Operation);
}

/// The races do not look at bytes, so that only the winner's last run can find a lie.
#[test]
fn a_lie_is_found_in_the_winner_s_last_run() {
    for (lie, measured) in [("none", true), ("flip-all", false)] {
        let text = format!(
            "engine = 'far'\nop = 'write'\nsizes = '1k'\ngoal = 'rate'\nwindow = [1, 4]\nqps = 1\ntrial-time = '2ms'\n\
             engine-options = {{ lie = '{lie}', at = '4' }}"
        );
        let record = searched(far::LISTS, &text);
        let body = record.tune().unwrap();
        assert_eq!(body.winner.is_some(), measured, "{record:#?}");
        assert!(!body.tried.is_empty());
        match &record.outcome {
            Outcome::Measured => assert!(measured),
            outcome => assert!(
                format!("{outcome:?}").contains("bytes are wrong"),
                "{outcome:?}"
            ),
        }
        if let Some(winner) = &body.winner {
            let moved = winner.run.trials.iter().map(|trial| trial.verified_bytes);
            assert!(moved.into_iter().all(|bytes| bytes > Some(0)));
            assert_eq!(winner.run.trials.len(), 5);
        }
    }
}
