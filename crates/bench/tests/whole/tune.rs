//! Searches with threads as ranks, over engines that lie or have a known bandwidth and delay.

use tonnage_engine::Lists;
use tonnage_record::tune::TuneOutcome;
use tonnage_record::{LatencyKind, Outcome, Record};

use crate::runs::over;
use crate::{far, long};

fn searched(lists: Lists, text: &str) -> Record {
    let table = format!("[[tune]]\n{text}");
    over(lists).tables(2, &table).unwrap().remove(0)
}

/// 1 Gb/s × 20 ms are 2.5 MB, or 38 operations of 64 KiB. A depth of 32 leaves a sixth of the link unused. A depth
/// above 64 gains nothing, unless other processes take the CPU for very long. Therefore up to three searches are made;
/// a defect would make all of them wrong.
#[test]
fn a_window_of_bandwidth_times_delay_is_found() {
    let text = "engine = 'long'\nop = 'write'\nsizes = '64k'\ngoal = 'rate'\ndepth = '8..256'\nqueue-pairs = 1\ntrial-time = '250ms'";
    let wrong: Vec<String> = (0..3)
        .map_while(|_| {
            let record = searched(long::LISTS, text);
            wrong_on_a_long_link(&record).map(|wrong| format!("{wrong}: {record:#?}"))
        })
        .collect();
    assert!(wrong.len() < 3, "{}", wrong.join("\n\n"));
}

/// Returns the first error in a search over the depths from 8 to 256 on this link.
fn wrong_on_a_long_link(record: &Record) -> Option<String> {
    let body = record.tune().unwrap();
    let winner = body.winner.as_ref().unwrap();
    let command = &winner.command;
    let won = |depth: &u32| command.contains(&format!("--depth {depth} "));
    let Some(depth) = [32, 64].into_iter().find(won) else {
        return Some(format!("{command} is too long"));
    };
    // The link's rate is not quite reached, because nothing arrives in the first 20 ms.
    let summary = winner.run.summary.as_ref().unwrap();
    let of_link = summary.message_rate_per_s.mean * 65536.0 / 125e6;
    if !(0.8..1.0).contains(&of_link) {
        return Some(format!("{of_link} of the link"));
    }
    for worse in ["--depth 8", "--depth 16"] {
        let worse = body.tried.iter().find(|it| it.value == worse).unwrap();
        let is_worse = worse.gain.is_some_and(|gain| gain.high < 0.0);
        if worse.outcome != TuneOutcome::Worse || !is_worse {
            return Some(format!("{worse:?} is not worse"));
        }
    }
    // The search starts with 64. If it ends with 32, both must race once more.
    let again = body.tried.iter().any(|it| it.dimension == "together");
    (again == (depth == 64)).then(|| "the result did not race against the start again".into())
}

/// The link delays every operation equally, so a larger depth cannot improve the latency.
#[test]
fn the_shortest_window_has_the_best_latency() {
    let text = "engine = 'long'\nop = 'write'\nsizes = '64k'\ngoal = 'latency'\ndepth = [1, 16, 128]\nqueue-pairs = 1\n\
                trial-time = '100ms'";
    let record = searched(long::LISTS, text);
    let winner = record.tune().unwrap().winner.as_ref().unwrap();
    assert!(winner.command.contains("--depth 1 "), "{record:#?}");
    let latency = winner.run.summary.as_ref().unwrap().latency.as_ref();
    assert_eq!(latency.unwrap().kind, LatencyKind::Operation);
}

/// Races don't check bytes, so only the winner's final run can find a lie.
#[test]
fn a_lie_is_found_in_the_winners_final_run() {
    for (lie, measured) in [("none", true), ("flip-all", false)] {
        let text = format!(
            "engine = 'far'\nop = 'write'\nsizes = '1k'\ngoal = 'rate'\ndepth = [1, 4]\nqueue-pairs = 1\ntrial-time = '2ms'\n\
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
