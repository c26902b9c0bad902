//! With `--time-limit`, a command must end in time. It must keep the results so far, and mark that they are incomplete.

use std::time::{Duration, Instant};

use tempfile::tempdir;
use tonnage_record::{Outcome, Record, SideName};

use super::support::{records, tonnage};

/// Time beyond the limit that a busy machine may need to start and end the ranks.
const SLACK: Duration = Duration::from_secs(6);

fn is_marked(record: &Record) -> bool {
    record.out_of_time || records::is_cut_short(record)
}

#[test]
fn a_sweep_ends_in_time_and_is_resumed() {
    let dir = tempdir().unwrap();
    let line =
        "transfer --engine shm --op write --ranks 2 --sizes 8..1k*2 --trials 2 --trial-time 400ms";
    let began = Instant::now();
    let run = tonnage(dir.path(), &format!("{line} --time-limit 4s -o r.jsonl")).run();
    assert!(began.elapsed() < Duration::from_secs(4) + SLACK);
    let run = run.with_code(0);
    assert!(run.stderr.contains("--resume r.jsonl"), "{}", run.stderr);
    let cut = records::read(&dir.path().join("r.jsonl"));
    let (last, measured) = cut.split_last().unwrap();
    assert!(last.out_of_time && !measured.is_empty(), "{cut:#?}");
    assert!(measured.iter().all(|it| it.outcome == Outcome::Measured));
    let Outcome::Skipped { why } = &last.outcome else {
        panic!("{last:#?}");
    };
    let unmeasured = 8 - measured.len();
    let others = match unmeasured - 1 {
        0 => "for this point".to_owned(),
        1 => "and 1 other point".to_owned(),
        others => format!("and {others} other points"),
    };
    assert!(why.ends_with(&others), "{why}: {} measured", measured.len());
    assert!(
        run.stdout.contains("out of time: the time limit of 4s"),
        "{}",
        run.stdout
    );
    tonnage(dir.path(), &format!("{line} --resume r.jsonl")).succeed();
    let all = records::read(&dir.path().join("r.jsonl"));
    let measured = all.iter().filter(|it| it.outcome == Outcome::Measured);
    assert_eq!(measured.count(), 8);
}

/// The time of a number of operations is unknown in advance, so the limit must stop the trial.
#[test]
fn a_trial_of_unknown_length_is_stopped() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --ranks 2 --trials 1 --time-limit 3s";
    let began = Instant::now();
    let run = tonnage(
        dir.path(),
        &format!("{line} --sizes 8,1M --iters 400k -o r.jsonl"),
    );
    run.run().with_code(0);
    let both = records::read(&dir.path().join("r.jsonl"));
    let outcomes: Vec<_> = both
        .iter()
        .map(|it| (it.outcome == Outcome::Measured, it.out_of_time))
        .collect();
    assert_eq!(outcomes, [(true, false), (false, true)]);
    let nothing = tonnage(dir.path(), &format!("{line} --sizes 8 --iters 100G"));
    let nothing = nothing.run().with_code(1);
    let errors = nothing.stderr.matches("error: ").count();
    assert!(
        errors == 1
            && nothing
                .stderr
                .contains("passed before the first point was measured"),
        "{}",
        nothing.stderr
    );
    assert!(began.elapsed() < 2 * (Duration::from_secs(3) + SLACK));
}

#[test]
fn every_kind_ends_in_time_and_is_marked() {
    for line in [
        "file --path t.dat --block 1m --transfer 64k --trials 100000",
        "collective --backend native:shm --op all-reduce --sizes 8,64M --iters 20k --trials 1",
        "stress --engine shm --duration 60s",
        "tune --engine shm --op write --sizes 4k --goal rate",
        "verify --engine shm --sizes 1..64k+16",
    ] {
        let dir = tempdir().unwrap();
        let began = Instant::now();
        let run = tonnage(
            dir.path(),
            &format!("{line} --ranks 2 --time-limit 4s -o r.jsonl"),
        );
        run.run().with_code(0);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(4) + SLACK, "{line}: {took:?}");
        let all = records::read(&dir.path().join("r.jsonl"));
        assert!(all.iter().any(is_marked), "{line}");
        assert!(
            all.iter().any(|it| it.outcome == Outcome::Measured),
            "{line}"
        );
    }
}

#[test]
fn sides_that_take_turns_end_with_a_whole_pair() {
    let dir = tempdir().unwrap();
    let side =
        "transfer --engine null --op write --ranks 2 --sizes 8 --trials 1 --trial-time 100ms";
    let began = Instant::now();
    let line = format!("ab --runs 100 --time-limit 5s -o ab.jsonl -- {side} -- {side} --depth 1");
    let run = tonnage(dir.path(), &line).run();
    assert!(began.elapsed() < Duration::from_secs(5) + SLACK);
    let run = run.with_code(0);
    assert!(
        run.stderr.contains("leaves no time for more than"),
        "{}",
        run.stderr
    );
    let all = records::read(&dir.path().join("ab.jsonl"));
    let of = |name| {
        let sides = all.iter().filter_map(|it| it.side.as_ref());
        sides.filter(|side| side.name == name).count()
    };
    assert!(of(SideName::A) > 0 && of(SideName::A) == of(SideName::B));
}
