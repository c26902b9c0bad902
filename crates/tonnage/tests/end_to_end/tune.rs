//! Searches. The documented command must end with a command line that works, and an impossible search must be refused
//! with each reason.

use std::path::Path;

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::tune::{TuneOutcome, TuneTry};
use tonnage_record::{Outcome, Record};

use super::support::{records, tonnage};

fn read(dir: &Path) -> Record {
    records::read(&dir.join("r.jsonl")).remove(0)
}

/// Checks that each comparison of values has exactly one winner. The outcomes of all other values must follow from
/// their intervals.
fn races_are_sound(tried: &[TuneTry]) {
    let race = |it: &TuneTry| (it.pass, it.dimension.clone());
    for race in tried.chunk_by(|one, other| race(one) == race(other)) {
        let won = |it: &TuneTry| it.outcome == TuneOutcome::Won;
        let winner = race.iter().position(won).unwrap();
        assert_eq!(race.iter().filter(|it| won(it)).count(), 1, "{race:#?}");
        for (at, it) in race.iter().enumerate() {
            let high = it.gain.map(|gain| gain.high);
            let is_right = match it.outcome {
                TuneOutcome::Won => it.gain.is_none(),
                TuneOutcome::Worse => high.is_some_and(|high| high < 0.0),
                TuneOutcome::AsGood => at > winner && high.is_some_and(|high| high <= 0.03),
                TuneOutcome::Tied | TuneOutcome::LeftOut => high.is_none_or(|high| high >= 0.0),
                TuneOutcome::Refused => it.why.is_some(),
                TuneOutcome::Unfinished => false,
            };
            assert!(is_right, "{it:#?} in {race:#?}");
        }
    }
}

#[test]
fn a_search_ends_with_a_command_line_that_runs() {
    for (engine, goal) in [
        ("fabric:tcp", "bandwidth"),
        ("shm", "rate"),
        ("null", "latency"),
    ] {
        let dir = tempdir().unwrap();
        let line = format!(
            "tune --engine {engine} --op write --sizes 4k --goal {goal} --ranks 2 --trial-time 5ms --depth 1,16 --queue-pairs 1,2 \
             --rails single -o r.jsonl"
        );
        let run = tonnage(dir.path(), &line).succeed();
        let record = read(dir.path());
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        let body = record.tune().unwrap();
        let winner = body.winner.as_ref().unwrap();
        races_are_sound(&body.tried);
        if engine == "fabric:tcp" {
            assert!(record.wire_proof.is_some() && record.canary.is_some());
        }
        let summary = winner.run.summary.as_ref().unwrap();
        assert!(summary.operations > 0);
        assert_eq!(run.stdout.lines().last(), Some(&*winner.command));
        let arguments = winner.command.strip_prefix("tonnage ").unwrap();
        tonnage(
            dir.path(),
            &format!("{arguments} --trials 1 --trial-time 5ms"),
        )
        .succeed();
        records::shown(dir.path(), &run);
    }
}

/// Only the machine can refuse these values. The reason must be printed once, and the exit code must be that of a
/// refused plan.
#[test]
fn a_value_that_no_candidate_supports_is_reported_once() {
    let dir = tempdir().unwrap();
    for options in ["--engine fabric:nope", "--engine fabric:tcp --rails stripe"] {
        let line = format!("tune {options} --op write --sizes 64k --ranks 2");
        let ended = tonnage(dir.path(), &line).run().with_code(2);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        // The reason may be in the results and in the error that explains the exit code.
        for stream in [&ended.stdout, &ended.stderr] {
            assert!(stream.matches("cannot be used here").count() <= 1, "{said}");
        }
        assert!(said.contains("cannot be used here"), "{said}");
        assert!(said.lines().count() < 10, "{said}");
    }
}

/// A refused value must not prevent the search over other options, wherever it is in its list.
#[test]
fn a_refused_value_leaves_the_others() {
    let dir = tempdir().unwrap();
    for (options, won) in [
        (
            "--engine shm --queue-pairs 0,1 --depth 1,4",
            "--queue-pairs 1",
        ),
        (
            "--engine fabric:tcp --rails round-robin,single --depth 4 --queue-pairs 1 \
             --engine-option completion=auto --engine-option inject=auto",
            "--rails single",
        ),
    ] {
        let line = format!(
            "tune {options} --op write --sizes 4k --goal rate --ranks 2 --trial-time 2ms -o {}.jsonl",
            won.trim_start_matches('-').replace(' ', "-")
        );
        let run = tonnage(dir.path(), &line).succeed();
        let command = run.stdout.lines().last().unwrap_or_default();
        assert!(command.contains(won), "{}", run.stdout);
    }
}

/// Values must not compete if their latencies end with different events, such as arrival.
#[test]
fn only_latencies_of_the_same_kind_compete() {
    let dir = tempdir().unwrap();
    let line = "tune --engine fabric:tcp --op write --sizes 4k --goal latency --ranks 2 --trial-time 2ms --queue-pairs 1 \
                --rails single --engine-option inject=auto -o r.jsonl";
    let run = tonnage(dir.path(), line).succeed();
    let record = read(dir.path());
    let tried = &record.tune().unwrap().tried;
    let delivery = tried
        .iter()
        .find(|it| it.value.contains("completion=delivery"));
    assert_eq!(
        delivery.unwrap().outcome,
        TuneOutcome::Refused,
        "{tried:#?}"
    );
    run.printing(&["latency from post to local completion of one operation"]);
}

#[test]
fn a_search_that_is_interrupted_has_no_winner() {
    let dir = tempdir().unwrap();
    let line = "tune --engine shm --op write --sizes 64k --ranks 2 --trial-time 200ms -o r.jsonl --log-level debug";
    let run = tonnage(dir.path(), line).start();
    run.wait_until_said("race of pacing");
    run.signal(Signal::INT);
    let ended = run.end().with_code(130);
    let record = read(dir.path());
    let body = record.tune().unwrap();
    assert_eq!(body.winner, None);
    let mut outcomes = body.tried.iter().map(|it| it.outcome);
    assert!(
        !body.tried.is_empty() && outcomes.all(|it| it == TuneOutcome::Unfinished),
        "{body:#?}"
    );
    assert!(!ended.stdout.contains("won"), "{}", ended.stdout);
}
