//! The engine fabric over the providers that every machine has: commands, records, libraries, and what is refused.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use tonnage_engine::Verb;
use tonnage_record::{Outcome, Record};

use super::support::{self, BRIEF, Ended, Program, free_port, records, wait_until};

const PROVIDERS: [&str; 2] = ["shm", "tcp"];

/// The program with the library that it finds.
fn tonnage(dir: &Path, arguments: &str) -> Program {
    support::tonnage(dir, arguments).with_installed_libfabric()
}

/// The installed library, or `None` with the reason printed.
pub(super) fn installed() -> Option<String> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    let mut paths = folders
        .iter()
        .map(|folder| format!("{folder}/libfabric.so.1"));
    let found = paths.find(|path| Path::new(path).exists());
    if found.is_none() {
        println!("skip: no libfabric is installed (run: apt-get install libfabric1)");
    }
    found
}

/// Values of --libfabric on this machine.
fn libraries() -> Vec<String> {
    ["embedded".to_owned()]
        .into_iter()
        .chain(installed())
        .collect()
}

fn run(arguments: &str) -> (TempDir, Ended) {
    let dir = tempdir().unwrap();
    let ended = tonnage(dir.path(), &format!("{arguments} -o r.jsonl")).run();
    (dir, ended)
}

/// Runs a command that must measure this many points, and gives their records.
fn measured(arguments: &str, points: usize) -> Vec<Record> {
    let (dir, ended) = run(arguments);
    assert_eq!(ended.code, Some(0), "{arguments}: {ended:#?}");
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), points, "{arguments}: {ended:#?}");
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{arguments}: {ended:#?}");
    }
    records
}

/// The engine's account, as the record's JSON has it.
fn engine_of(record: &Record) -> Value {
    serde_json::to_value(&record.effective[0].engine).unwrap()
}

fn text<'a>(engine: &'a Value, field: &str) -> &'a str {
    engine[field]
        .as_str()
        .unwrap_or_else(|| panic!("no text {field} in {engine:#}"))
}

fn number(engine: &Value, field: &str) -> u64 {
    engine[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {field} in {engine:#}"))
}

#[test]
fn the_commands_that_are_promised() {
    let brief = "--trials 2 --trial-time 2ms --warmup 0";
    for (arguments, points) in [
        (
            "--engine fabric:shm --op read --sizes 8..1M --batch 128",
            18,
        ),
        (
            "--engine fabric:tcp --op write --sizes 1k --batch 1..32768",
            16,
        ),
        (
            "--engine fabric:tcp --op write-imm --sizes 8,4k --ping-pong",
            2,
        ),
        ("--engine fabric:tcp --op read --sizes 4k --window 32", 1),
        ("--engine fabric:tcp --op write --sizes 1M --window 8", 1),
    ] {
        measured(&format!("transfer {arguments} --ranks 2 {brief}"), points);
    }
}

/// Sizes at which the small, the middle and the large way of every provider begin and end would take minutes here; a
/// few are enough, and `tonnage verify` with its own sizes is one run of each provider.
#[test]
fn verify_is_right_over_every_provider() {
    for (provider, ranks) in [("tcp", 3), ("shm", 2)] {
        let dir = tempdir().unwrap();
        let arguments = format!("verify --engine fabric:{provider} --ranks {ranks} -o v.jsonl");
        let ended = tonnage(dir.path(), &arguments).run().with_code(0);
        assert!(
            ended.stdout.contains("arrived as it was sent"),
            "{ended:#?}"
        );
        let records = records::read(&dir.path().join("v.jsonl"));
        for op in ["write", "write-imm", "read", "send"] {
            let of_op = records
                .iter()
                .filter(|record| record.transfer().unwrap().point.op.name() == op);
            assert!(of_op.count() > 1, "{op}: {ended:#?}");
        }
        assert!(
            records
                .iter()
                .all(|record| record.outcome == Outcome::Measured)
        );
    }
}

#[test]
fn a_send_is_done_when_its_receiver_has_taken_it() {
    let pacings = ["--window 16", "--batch 40", "--window 4 --rate 20000"];
    for provider in PROVIDERS {
        for pacing in pacings {
            let arguments = format!(
                "transfer --engine fabric:{provider} --op send --sizes 256,64k --ranks 2 {pacing} --trials 2 \
                 --duration 60ms --verify"
            );
            for record in measured(&arguments, 2) {
                let counted = engine_of(&record)["sends_counted"].clone();
                assert!(counted.is_string(), "{arguments}: {counted}");
                let summary = record.transfer().unwrap().summary.as_ref().unwrap();
                let latency = summary.latency.as_ref().unwrap();
                assert_eq!(latency.delivered, Some(true), "{arguments}");
            }
        }
    }
}

#[test]
fn counted_sends_of_many_peers_and_points_stay_apart() {
    for traffic in ["fan-in", "fan-out", "all-to-all"] {
        let arguments = format!(
            "transfer --engine fabric:tcp --op send --sizes 64,4k --window 1,32 --ranks 3 --traffic {traffic} --trials 2 \
             --duration 20ms --verify"
        );
        measured(&arguments, 4);
    }
    let (_dir, ended) = run(
        "transfer --engine fabric:tcp --op send --sizes 64 --ranks 2 --ping-pong --duration 20ms",
    );
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

#[test]
fn the_record_says_what_steers_the_result() {
    for library in libraries() {
        for provider in PROVIDERS {
            let arguments = format!(
                "transfer --engine fabric:{provider} --op write --sizes 4k --ranks 2 --libfabric {library} --trials 2 \
                 --trial-time 5ms --warmup 1ms"
            );
            let record = &measured(&arguments, 1)[0];
            let engine = &engine_of(record);
            assert!(text(engine, "provider").starts_with(provider), "{engine:#}");
            let release = text(engine, "version").strip_prefix("libfabric ").unwrap();
            assert!(
                release.starts_with(['1', '2']) && release.contains('.'),
                "{engine:#}"
            );
            assert!(text(engine, "library").contains(&library), "{engine:#}");
            assert_eq!(engine["why_embedded"], Value::Null, "{engine:#}");
            assert!(text(engine, "api_version").contains('.'), "{engine:#}");
            assert!(engine["mr_mode"].is_array(), "{engine:#}");
            let ordering = engine["ordering"].as_array().unwrap();
            assert!(!ordering.is_empty(), "{engine:#}");
            assert!(
                text(engine, "completion").contains("delivery"),
                "{engine:#}"
            );
            assert!(number(engine, "inject_bytes_max") >= 8, "{engine:#}");
            assert!(number(engine, "tx_depth") >= 64, "{engine:#}");
            for part in ["control", "data"] {
                assert!(
                    ["auto", "manual"].contains(&text(&engine["progress"], part)),
                    "{engine:#}"
                );
            }
            let shm_writes = engine["shm_writes"].as_str();
            let writes = matches!(
                record.transfer().unwrap().point.op,
                Verb::Write | Verb::WriteImm
            );
            assert_eq!(
                shm_writes,
                (provider == "shm" && writes).then_some("ordered")
            );
            let limit = record.limit.as_ref().unwrap();
            let kind = match provider {
                "shm" => "memory copy",
                _ => "socket stream",
            };
            assert!(limit.what.starts_with(kind), "{limit:?}");
        }
    }
}

#[test]
fn without_an_installed_library_the_embedded_one_says_why() {
    if installed().is_some() {
        println!("skip: a libfabric is installed, so that the embedded one is not taken by itself");
        return;
    }
    let record = &measured(
        &format!("transfer --engine fabric:tcp --op write --sizes 8 --ranks 2 {BRIEF}"),
        1,
    )[0];
    assert!(text(&engine_of(record), "library").contains("embedded"));
    assert!(!text(&engine_of(record), "why_embedded").is_empty());
}

/// Every operation, pattern and pacing, with several peers and several workers, every byte checked.
#[test]
fn patterns_and_pacings() {
    let ops = "--op write,write-imm,read,send --sizes 8,3001,128k --verify";
    for (provider, traffic, pacing) in [
        ("shm", "pair --ranks 2", "--window 16"),
        ("tcp", "pair --ranks 2 --workers 2", "--batch 8"),
        ("shm", "fan-out --ranks 3 --workers 2", "--window 8"),
        ("tcp", "fan-out --ranks 3", "--rate 2k --window 4"),
        ("shm", "fan-in --ranks 3", "--batch 8"),
        ("tcp", "fan-in --ranks 3", "--ping-pong"),
        ("shm", "all-to-all --ranks 3", "--rate 2k --window 4"),
        ("tcp", "all-to-all --ranks 3", "--window 16"),
    ] {
        let arguments = format!(
            "transfer --engine fabric:{provider} --libfabric embedded --traffic {traffic} {ops} {pacing} {BRIEF}"
        );
        measured(&arguments, 12);
    }
}

/// Small messages are done for the sender at once, so that several peers fill the receiver's queues before it looks.
#[test]
fn messages_that_come_before_their_receives_wait() {
    for library in libraries() {
        for provider in PROVIDERS {
            let arguments = format!(
                "transfer --engine fabric:{provider} --traffic fan-in --ranks 3 --op send --sizes 8,3001 --batch 8 --verify \
                 --libfabric {library} {BRIEF}"
            );
            for _ in 0..3 {
                measured(&arguments, 2);
            }
        }
    }
}

#[test]
fn options_change_what_is_done_and_are_recorded() {
    for library in libraries() {
        let base =
            format!("--ranks 2 --sizes 8,64k --window 8 --verify --libfabric {library} {BRIEF}");
        let cma = format!(
            "transfer --engine fabric:shm --op write,read --engine-option shm-writes=cma {base}"
        );
        for record in measured(&cma, 4) {
            if record.transfer().unwrap().point.op == Verb::Write {
                assert_eq!(text(&engine_of(&record), "shm_writes"), "cma");
            }
            assert_eq!(
                record.transfer().unwrap().point.engine_options["shm-writes"],
                "cma"
            );
        }
        for provider in PROVIDERS {
            let both = format!(
                "transfer --engine fabric:{provider} --op write --engine-option inject=off --engine-option \
                 completion=delivery {base}"
            );
            for record in measured(&both, 2) {
                let engine = &engine_of(&record);
                assert_eq!(number(engine, "inject_bytes_max"), 0);
                assert!(
                    text(engine, "completion").starts_with("delivery: "),
                    "{engine:#}"
                );
            }
        }
    }
}

#[test]
fn each_worker_gets_a_device() {
    let two = "transfer --engine fabric:tcp --op write --sizes 64k --ranks 2 --workers 2 --devices lo,lo --require-path";
    let record = &measured(&format!("{two} {BRIEF}"), 1)[0];
    for effective in &record.effective {
        let devices = &effective.engine.devices;
        assert_eq!(devices.len(), 2, "{effective:#?}");
        assert!(
            devices
                .iter()
                .all(|one| one.device.as_deref() == Some("lo")),
            "{effective:#?}"
        );
    }
    assert!(record.wire_proof.as_ref().unwrap().crossed);
}

#[test]
fn a_plan_holds_everything() {
    let dir = tempdir().unwrap();
    let base = "--engine fabric:shm --engine-option shm-writes=cma --engine-option inject=off --op write --sizes 8,64";
    let printed = tonnage(
        dir.path(),
        &format!("transfer {base} --ranks 2 --window 8 {BRIEF} --print-plan"),
    )
    .succeed();
    assert!(printed.stdout.contains("shm-writes"), "{printed:#?}");
    std::fs::write(dir.path().join("plan.toml"), &printed.stdout).unwrap();
    let again = tonnage(dir.path(), "run plan.toml --print-plan").succeed();
    assert_eq!(again.stdout, printed.stdout);
    tonnage(dir.path(), "run plan.toml -o r.jsonl")
        .run()
        .with_code(0);
    let path = dir.path().join("r.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    for record in records::read(&path) {
        assert_eq!(text(&engine_of(&record), "shm_writes"), "cma");
        assert_eq!(record.transfer().unwrap().point.engine_options.len(), 2);
    }
    // Nothing is left to measure; with another option everything is.
    tonnage(dir.path(), "run plan.toml --resume r.jsonl")
        .run()
        .with_code(0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    let first = whole.split_inclusive('\n').next().unwrap();
    std::fs::write(&path, first).unwrap();
    tonnage(dir.path(), "run plan.toml --resume r.jsonl")
        .run()
        .with_code(0);
    assert_eq!(records::read(&path).len(), 2);
}

/// Recorded as skipped: the exit code is 1, and one note says what is missing and what to do.
#[test]
fn what_is_not_there_is_skipped_with_its_reason() {
    for (what, parts) in [
        (
            "--engine fabric:nope",
            &["was built without it", "There are: ", "tonnage devices"][..],
        ),
        (
            "--engine fabric:cxi --libfabric embedded",
            &["embedded in tonnage", "There are: ", "Slingshot"],
        ),
        (
            "--engine fabric:tcp --devices nope0",
            &["no device nope0", "--devices among", "lo"],
        ),
        (
            "--engine fabric:shm --devices lo",
            &["no device lo", "--devices among shm"],
        ),
        (
            "--engine fabric:tcp --libfabric /nonexistent",
            &["/nonexistent: cannot open", "--libfabric"],
        ),
    ] {
        let (dir, ended) = run(&format!(
            "transfer {what} --op write --sizes 8,64 --ranks 2 {BRIEF}"
        ));
        assert_eq!(ended.code, Some(1), "{what}: {ended:#?}");
        assert_eq!(
            ended.stderr.matches("error: ").count(),
            1,
            "{what}: {ended:#?}"
        );
        let records = records::read(&dir.path().join("r.jsonl"));
        assert_eq!(records.len(), 2, "{what}: {ended:#?}");
        for record in records {
            let Outcome::Skipped { why } = &record.outcome else {
                panic!("{what}: {record:#?}");
            };
            for part in parts {
                assert!(why.contains(part), "no {part:?} in {why}");
            }
        }
        let unwrapped: Vec<_> = ended.stdout.split_whitespace().collect();
        assert!(unwrapped.join(" ").contains(parts[0]), "{what}: {ended:#?}");
    }
}

#[test]
fn what_cannot_be_is_refused_before_a_rank_starts() {
    for (what, parts) in [
        (
            "--engine fabric",
            &["needs a provider", "fabric:shm or fabric:tcp"][..],
        ),
        ("--engine fabric:", &["needs a provider"]),
        (
            "--engine shm --devices lo",
            &["--devices lo has no effect", "leave it out"],
        ),
        (
            "--engine shm --libfabric embedded",
            &["--library libfabric=embedded has no effect"],
        ),
        (
            "--engine fabric:tcp --engine-option inyect=off",
            &["no option \"inyect\"", "did you mean inject"],
        ),
        (
            "--engine fabric:tcp --engine-option completion=soon",
            &["completion=auto|delivery|transmit"],
        ),
        (
            "--engine fabric:tcp --engine-option shm-writes=cma",
            &["shm-writes", "fabric:shm", "leave it out"],
        ),
    ] {
        let (dir, ended) = run(&format!(
            "transfer {what} --op write --sizes 8 --ranks 2 {BRIEF}"
        ));
        assert_eq!(ended.code, Some(2), "{what}: {ended:#?}");
        ended.with_one_error(parts);
        assert!(!dir.path().join("r.jsonl").exists(), "{what} left a file");
    }
}

/// Different releases do not understand each other: tcp would fail, and shm crash.
#[test]
fn two_versions_are_refused_by_name() {
    let Some(installed) = installed() else { return };
    for provider in PROVIDERS {
        let dir = tempdir().unwrap();
        let port = free_port();
        let runs: Vec<_> = ["embedded", &installed]
            .into_iter()
            .zip(0..)
            .map(|(library, rank)| {
                let arguments = format!(
                    "transfer --engine fabric:{provider} --op write --sizes 8 {BRIEF} -o r.jsonl"
                );
                let program = tonnage(dir.path(), &arguments).launched(rank, 2, port);
                program.env("TONNAGE_LIBFABRIC", library).start()
            })
            .collect();
        let ended: Vec<_> = runs.into_iter().map(|run| run.end()).collect();
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        if record.outcome == Outcome::Measured {
            println!("skip: the installed libfabric is of the release that is embedded");
            return;
        }
        let Outcome::Skipped { why } = &record.outcome else {
            panic!("{record:#?}");
        };
        assert_eq!(ended[0].code, Some(1), "{ended:#?}");
        for part in [
            "rank 0 has libfabric 1.22 (embedded",
            "rank 1 has ",
            &installed,
            "--libfabric embedded",
        ] {
            assert!(why.contains(part), "no {part:?} in {why}");
        }
    }
}

/// A library may put handlers of its own in the place of the program's, as PSM does in builds that load it. Little is
/// in flight, for libfabric 1.17 may crash when a peer goes in the middle of a stream.
#[test]
fn a_signal_is_told_whatever_the_library_does_with_signals() {
    for library in libraries() {
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine fabric:tcp --libfabric {library} --op write --ranks 2 --sizes 8,16,32,64 --rate 5 \
             --trials 1 --trial-time 2s --warmup 0 --limit none -o r.jsonl"
        );
        let run = tonnage(dir.path(), &arguments).start();
        wait_until("a point is done", || {
            let text = std::fs::read_to_string(dir.path().join("r.jsonl"));
            text.is_ok_and(|text| text.contains('\n'))
        });
        run.signal_rank(1, Signal::TERM);
        let ended = run.end().with_code(143);
        assert!(ended.stderr.contains("interrupted by signal"), "{ended:#?}");
    }
}
