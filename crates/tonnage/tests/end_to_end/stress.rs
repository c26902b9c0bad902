//! Transfers drawn from a seed: several engines in turn, every byte right, a command line that repeats a transfer, and
//! what is left of a run that was killed or interrupted.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::read::read_records;
use tonnage_record::{Outcome, Record, StressBody};

use super::support::{Ended, Started, records, tonnage, wait_until};

/// Ranks end within this time after one of them was lost.
const SOON: Duration = Duration::from_secs(5);

/// The one record of a file, allowed by the schema, and its body.
fn read(path: &Path) -> (Record, StressBody) {
    let text = fs::read_to_string(path).unwrap();
    text.lines().for_each(|line| drop(records::allowed(line)));
    let mut all = read_records(path).unwrap().records;
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
    let begun = Instant::now();
    let run = tonnage(dir.path(), arguments).succeed();
    assert!(begun.elapsed() >= Duration::from_secs(2));
    let (record, body) = read(&dir.path().join("r.jsonl"));
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    assert_eq!(body.rows.len(), 8, "{body:#?}");
    let drawn = |engine: &str| {
        let rows = body.rows.iter().filter(|row| row.engine == engine);
        rows.map(|row| row.draws).sum::<u64>()
    };
    assert!(
        drawn("fabric:shm") > 0 && drawn("fabric:tcp") > 0,
        "{body:#?}"
    );
    let verdict = format!("verdict: {} transfers in ", draws(&body));
    assert!(run.stdout.contains(&verdict), "{run:#?}");
    assert!(run.stdout.contains("seed 1; 2 s drawn"), "{run:#?}");
    let shown = tonnage(dir.path(), "show r.jsonl").succeed();
    assert_eq!(shown.stdout, run.stdout);
}

/// The transfers that a run drew, as its messages say them.
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

/// A line that repeats a transfer has those options of the run that its engine has, and no others.
#[test]
fn options_of_the_run_are_said_where_they_have_an_effect() {
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
        assert_eq!(
            command.contains("--devices lo"),
            engine == "fabric:tcp",
            "{command}"
        );
        assert!(command.contains("--cpus 1,0"), "{command}");
        tonnage(dir.path(), command.strip_prefix("tonnage ").unwrap()).succeed();
    }
}

/// Starts a long stress, does something to it once it has drawn a few transfers, and returns its end and its messages.
fn disturbed(dir: &Path, disturb: impl Fn(&Started)) -> (Ended, String) {
    let arguments =
        "stress --engine shm --ranks 3 --duration 10m --max-size 4k --log-level debug -o r.jsonl";
    let path = dir.join("messages");
    let messages = fs::File::create(&path).unwrap();
    let run = tonnage(dir, arguments).stderr(messages.into()).start();
    let said = || fs::read_to_string(&path).unwrap();
    wait_until("a stress draws", || said().contains("debug: transfer 5: "));
    disturb(&run);
    let since = Instant::now();
    let ended = run.end();
    assert!(since.elapsed() < SOON, "{:?}: {ended:#?}", since.elapsed());
    (ended, said())
}

#[test]
fn a_rank_that_is_killed_is_named_and_what_was_found_is_kept() {
    let dir = tempdir().unwrap();
    let (ended, said) = disturbed(dir.path(), |run| run.signal_rank(1, Signal::KILL));
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let name = format!("error: rank 1 on {}", tonnage_sys::host::name());
    assert!(said.lines().any(|line| line.starts_with(&name)), "{said}");
    let (record, body) = read(&dir.path().join("r.jsonl"));
    assert!(matches!(record.outcome, Outcome::Failed { .. }));
    assert!(draws(&body) >= 5, "{body:#?}");
    assert!(ended.stdout.contains("verdict: "), "{ended:#?}");
    // The transfer that it was killed in is as good as any other.
    if let Some(failure) = &body.first_failure {
        assert!(ended.stdout.ends_with(&format!("{}\n", failure.command)));
        let arguments = failure.command.strip_prefix("tonnage ").unwrap();
        tonnage(dir.path(), arguments).succeed();
    }
}

#[test]
fn an_interrupted_stress_says_what_it_found_and_blames_no_transfer() {
    let dir = tempdir().unwrap();
    let (ended, _) = disturbed(dir.path(), |run| run.signal(Signal::INT));
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let (record, body) = read(&dir.path().join("r.jsonl"));
    assert!(matches!(record.outcome, Outcome::Failed { .. }));
    assert_eq!(body.first_failure, None);
    let early = format!("verdict: ended early after {} transfers", draws(&body));
    assert!(ended.stdout.contains(&early), "{ended:#?}");
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let dir = tempdir().unwrap();
    for (arguments, message) in [
        ("--engine shn --ranks 2", "did you mean \"shm\"?"),
        ("--engine null --ranks 2", "use one that does, such as shm"),
        ("--engine shm,shm --ranks 2", "is named twice"),
        ("--engine shm", "use --ranks 2 to --ranks"),
        ("--engine shm --ranks 1", "use --ranks 2 to --ranks"),
        (
            "--engine shm --ranks 2 --duration 0",
            "the shortest is duration 1ms",
        ),
        (
            "--engine shm --ranks 2 --duration 1000h",
            "the longest is duration 168h",
        ),
        ("--engine shm --ranks 2 --seed one", "is not a number"),
        (
            "--engine shm --ranks 2 --max-size 0",
            "the smallest is max-size 1",
        ),
        (
            "--engine shm --ranks 2 --max-size 2G",
            "the largest is max-size 1G",
        ),
        (
            "--engine shm --ranks 2 --workers 0",
            "write workers 1 to workers 1024",
        ),
        (
            "--engine shm --ranks 2 --memory hots",
            "did you mean \"host\"?",
        ),
        ("--engine shm --ranks 2 --op wirte", "write"),
        ("--engine shm --ranks 2 --devices eth0", "leave it out"),
    ] {
        let ended = tonnage(dir.path(), &format!("stress {arguments}"))
            .run()
            .with_code(2);
        assert!(ended.stderr.contains(message), "{arguments}: {ended:#?}");
    }
}

/// A provider that is not here is refused before anything is drawn.
#[test]
fn an_engine_that_cannot_be_opened_is_skipped_with_the_reason() {
    let dir = tempdir().unwrap();
    let arguments =
        "stress --engine fabric:efa --ranks 2 --duration 10m --libfabric embedded -o r.jsonl";
    let ended = tonnage(dir.path(), arguments).run().with_code(1);
    let (record, body) = read(&dir.path().join("r.jsonl"));
    assert!(
        matches!(record.outcome, Outcome::Skipped { .. }),
        "{record:#?}"
    );
    assert!(body.rows.is_empty());
    assert!(ended.stdout.contains("skipped: "), "{ended:#?}");
}
