//! Searches: the command of the documentation ends with a line that runs, and what cannot be is refused with each
//! reason.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::tune::TuneOutcome;
use tonnage_record::{Outcome, Record};

use super::support::{records, tonnage, wait_until};

fn read(path: &std::path::Path) -> Record {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().next().unwrap();
    records::allowed(line);
    serde_json::from_str(line).unwrap()
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
            "tune --engine {engine} --op write --sizes 4k --goal {goal} --ranks 2 --trial-time 5ms --window 1,16,64 --qps 1,2 \
             --rails single -o r.jsonl"
        );
        let run = tonnage(dir.path(), &line).succeed();
        let record = read(&dir.path().join("r.jsonl"));
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        let body = record.tune().unwrap();
        let winner = body.winner.as_ref().unwrap();
        let won = body
            .tried
            .iter()
            .filter(|it| it.outcome == TuneOutcome::Won);
        assert!(won.count() >= 2, "{body:#?}");
        for it in body
            .tried
            .iter()
            .filter(|it| it.outcome != TuneOutcome::Refused)
        {
            assert!(
                (1..=8).contains(&it.rounds) && it.goal_mean.is_some(),
                "{it:#?}"
            );
        }
        assert!(
            run.stdout.ends_with(&format!("{}\n", winner.command)),
            "{}",
            run.stdout
        );
        let arguments = winner.command.strip_prefix("tonnage ").unwrap();
        tonnage(
            dir.path(),
            &format!("{arguments} --trials 1 --trial-time 5ms"),
        )
        .succeed();
        let shown = tonnage(dir.path(), "show r.jsonl").succeed();
        assert_eq!(shown.stdout, run.stdout);
    }
}

#[test]
fn candidates_that_are_all_refused_are_named_with_their_reasons() {
    let dir = tempdir().unwrap();
    for (options, reason) in [
        ("--window 2000000,3000000", "the largest window is"),
        ("--goal speed", "speed"),
        ("--traffic-file m.txt", "m.txt"),
        ("--trial-time 1ns", "trial-time"),
    ] {
        let line = format!("tune --engine shm --op write --sizes 64k --ranks 2 {options}");
        tonnage(dir.path(), &line)
            .run()
            .with_code(2)
            .saying(&[reason]);
    }
    let line = "tune --engine shm --op write --sizes 64k --ranks 2 --window 2000000,3000000";
    let ended = tonnage(dir.path(), line).run().with_code(2);
    for value in ["--window 2000000", "--window 3000000"] {
        assert!(ended.stderr.contains(value), "{ended:#?}");
    }
}

#[test]
fn a_rank_that_is_killed_in_a_race_is_named() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("messages");
    let messages = fs::File::create(&path).unwrap();
    let line =
        "tune --engine shm --op write --sizes 64k --ranks 2 --trial-time 1s --log-level debug";
    let run = tonnage(dir.path(), line).stderr(messages.into()).start();
    std::thread::sleep(Duration::from_secs(1));
    wait_until("it runs", || run.processes().len() >= 2);
    run.signal_rank(1, Signal::KILL);
    let killed = Instant::now();
    let ended = run.end();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(killed.elapsed() < Duration::from_secs(5));
    let said = fs::read_to_string(&path).unwrap();
    assert!(said.contains("rank 1"), "{said}");
}
