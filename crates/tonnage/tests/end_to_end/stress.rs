//! Random transfers from a seed: several engines in turn, every byte checked, a command line that repeats a transfer.
//! Also the record of a run that was killed or interrupted.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::{Outcome, Record, StressBody};

use super::support::{Ended, Started, records, tonnage};

/// Returns the only record of r.jsonl and its body. Reading checks the record against the schema.
fn read(dir: &Path) -> (Record, StressBody) {
    let mut all = records::read(&dir.join("r.jsonl"));
    assert_eq!(all.len(), 1, "{all:#?}");
    let record = all.remove(0);
    let body = record.stress().unwrap().clone();
    (record, body)
}

fn draws(body: &StressBody) -> u64 {
    body.sum(|row| row.draws)
}

#[test]
fn several_engines_are_tried_in_turn_and_every_byte_is_right() {
    let dir = tempdir().unwrap();
    let arguments = "stress --engine fabric:shm,fabric:tcp --ranks 3 --duration 2s --max-size 64k --libfabric embedded \
                     -o r.jsonl";
    let run = tonnage(dir.path(), arguments).succeed();
    assert!(run.took >= Duration::from_secs(2));
    records::shown(dir.path(), &run);
    let (record, body) = read(dir.path());
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    assert_eq!(body.rows.len(), 8, "{body:#?}");
    for engine in ["fabric:shm", "fabric:tcp"] {
        let mut rows = body.rows.iter().filter(|row| row.engine == engine);
        assert!(rows.any(|row| row.draws > 0), "{body:#?}");
    }
    let result = format!("PASS  {} transfers in ", draws(&body));
    run.printing(&[&result, "seed 1; 2 s drawn"]);
}

/// Returns the command lines of the random transfers that a run started, according to its debug messages.
fn drawn(ended: &Ended) -> Vec<String> {
    let lines = ended.stderr.lines();
    let commands = lines.filter_map(|line| line.strip_prefix("debug: transfer "));
    commands
        .filter_map(|line| Some(line.split_once(": ")?.1.to_owned()))
        .collect()
}

#[test]
fn the_same_seed_draws_the_same_and_each_command_line_is_a_transfer() {
    let dir = tempdir().unwrap();
    let run = |seed: u32| {
        let arguments = format!(
            "stress --engine shm --ranks 2 --duration 300ms --max-size 16k --memory host,small --seed {seed} --log-level \
             debug"
        );
        drawn(&tonnage(dir.path(), &arguments).run().with_code(0))
    };
    let (first, again, other) = (run(4), run(4), run(5));
    let both = first.len().min(again.len());
    assert!(both > 0 && !other.is_empty());
    assert_eq!(first[..both], again[..both]);
    assert_ne!(first[0], other[0]);
    for command in first.iter().take(3) {
        let arguments = command.strip_prefix("tonnage ").unwrap();
        let ended = tonnage(dir.path(), &format!("{arguments} --format jsonl")).succeed();
        let record = records::allowed(ended.stdout.trim_end());
        assert!(record["point"]["verify"] == true, "{record:#?}");
    }
}

/// The command line that repeats a transfer must contain all run options that affect its engine, and no others.
#[test]
fn a_repeat_command_has_only_the_options_that_have_an_effect() {
    let dir = tempdir().unwrap();
    let arguments = "stress --engine shm,fabric:tcp --devices lo --cpus 1,0 --ranks 2 --duration 300ms --max-size 4k \
                     --log-level debug";
    let ended = tonnage(dir.path(), arguments).run();
    if ended.stderr.contains("cpus") {
        println!("skip: this machine does not have CPUs 0 and 1");
        return;
    }
    let commands = drawn(&ended.with_code(0));
    for engine in ["shm", "fabric:tcp"] {
        let own = format!("--engine {engine} ");
        let command = commands.iter().find(|command| command.contains(&own));
        let command = command.unwrap_or_else(|| panic!("{engine}: {commands:#?}"));
        let is_tcp = engine == "fabric:tcp";
        assert_eq!(command.contains("--devices lo"), is_tcp, "{command}");
        assert!(command.contains("--cpus 1,0"), "{command}");
        tonnage(dir.path(), command.strip_prefix("tonnage ").unwrap()).succeed();
    }
}

/// Starts a long stress, and waits until it has started a few transfers.
fn drawing(dir: &Path) -> Started {
    let arguments =
        "stress --engine shm --ranks 3 --duration 10m --max-size 4k --log-level debug -o r.jsonl";
    let run = tonnage(dir, arguments).start();
    run.wait_until_said("debug: transfer 5: ");
    run
}

#[test]
fn a_killed_rank_is_named_and_results_are_kept() {
    let dir = tempdir().unwrap();
    let ended = drawing(dir.path()).kill_rank(1);
    let (record, body) = read(dir.path());
    assert!(matches!(record.outcome, Outcome::Failed { .. }));
    assert!(draws(&body) >= 5, "{body:#?}");
    assert!(ended.stdout.starts_with("FAIL  "), "{ended:#?}");
    // The transfer during which the rank was killed may be recorded as the first failure. Repeating it must succeed.
    if let Some(failure) = &body.first_failure {
        assert!(ended.stdout.ends_with(&format!("{}\n", failure.command)));
        let arguments = failure.command.strip_prefix("tonnage ").unwrap();
        tonnage(dir.path(), arguments).succeed();
    }
}

#[test]
fn an_interrupted_stress_reports_its_results_and_blames_no_transfer() {
    let dir = tempdir().unwrap();
    let run = drawing(dir.path());
    run.signal(Signal::INT);
    let ended = run.end_soon().with_code(130);
    let (record, body) = read(dir.path());
    assert!(matches!(record.outcome, Outcome::Failed { .. }));
    assert_eq!(body.first_failure, None);
    let until_then = format!("until then {} transfers", draws(&body));
    assert!(
        ended.stdout.starts_with("FAIL  stopped early: ") && ended.stdout.contains(&until_then),
        "{ended:#?}"
    );
}

/// A missing provider must be refused before any transfer is drawn.
#[test]
fn an_engine_that_cannot_be_opened_is_skipped_with_the_reason() {
    let dir = tempdir().unwrap();
    let arguments =
        "stress --engine fabric:efa --ranks 2 --duration 10m --libfabric embedded -o r.jsonl";
    let ended = tonnage(dir.path(), arguments).run().with_code(2);
    let (record, body) = read(dir.path());
    assert!(
        matches!(record.outcome, Outcome::Skipped { .. }),
        "{record:#?}"
    );
    assert!(body.rows.is_empty());
    ended.saying(&["error: fabric:efa cannot be used here"]);
}
