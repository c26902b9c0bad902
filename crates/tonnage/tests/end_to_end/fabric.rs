//! The engine fabric over the providers that every machine has: commands, records, libraries, and skips.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;
use tonnage_engine::Verb;
use tonnage_record::{Outcome, Record};

use super::support::records::{are_skipped, body, summary};
use super::support::{self, BRIEF, Program, free_port, parts, records, rows, wait_for_records};

const PROVIDERS: [&str; 2] = ["shm", "tcp"];

/// Returns the program, set up to use the installed library.
fn tonnage(dir: &Path, arguments: &str) -> Program {
    support::tonnage(dir, arguments).with_installed_libfabric()
}

/// Returns the path of the installed library. If there is none, prints the reason and returns `None`.
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

/// Values of --libfabric that this machine supports.
fn libraries() -> Vec<String> {
    std::iter::once("embedded".to_owned())
        .chain(installed())
        .collect()
}

/// Runs a transfer that must measure this many points, and returns their records.
fn measured(arguments: &str, points: usize) -> Vec<Record> {
    let dir = tempdir().unwrap();
    let ended = tonnage(dir.path(), &format!("transfer {arguments} -o r.jsonl")).run();
    let ended = ended.with_code(0);
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), points, "{arguments}: {ended:#?}");
    assert!(
        records.iter().all(|it| it.outcome == Outcome::Measured),
        "{ended:#?}"
    );
    records
}

/// Returns the engine's report as in the record's JSON.
fn engine_of(record: &Record) -> Value {
    serde_json::to_value(&record.effective[0].engine).unwrap()
}

fn text<'a>(engine: &'a Value, field: &str) -> &'a str {
    let text = engine[field].as_str();
    text.unwrap_or_else(|| panic!("no text {field} in {engine:#}"))
}

fn number(engine: &Value, field: &str) -> u64 {
    let number = engine[field].as_u64();
    number.unwrap_or_else(|| panic!("no number {field} in {engine:#}"))
}

#[test]
fn the_commands_that_are_promised() {
    for (arguments, points) in [
        ("shm --op read --sizes 8..1M*4 --batch 128", 9),
        ("tcp --op write --sizes 1k --batch 1,64,32768", 3),
        ("tcp --op write-imm --sizes 8,4k --ping-pong", 2),
        ("tcp --op read --sizes 4k --depth 32", 1),
        ("tcp --op write --sizes 1M --depth 8", 1),
    ] {
        let brief = "--ranks 2 --trials 1 --trial-time 2ms --warmup 0 --bound none";
        measured(&format!("--engine fabric:{arguments} {brief}"), points);
    }
}

/// A provider switches between methods for small, medium and large messages. Testing every size at a switch would take
/// minutes, so each provider gets a few sizes and one `tonnage verify`.
#[test]
fn verify_is_right_over_every_provider() {
    for (provider, ranks) in [("tcp", 3), ("shm", 2)] {
        let dir = tempdir().unwrap();
        let arguments = format!("verify --engine fabric:{provider} --ranks {ranks} -o v.jsonl");
        let ended = tonnage(dir.path(), &arguments).run().with_code(0);
        ended.printing(&["arrived as sent"]);
        let records = records::read(&dir.path().join("v.jsonl"));
        assert!(
            records.iter().all(|it| it.outcome == Outcome::Measured),
            "{records:#?}"
        );
        for op in ["write", "write-imm", "read", "send"] {
            let of_op = records.iter().filter(|it| body(it).point.op.name() == op);
            assert!(of_op.count() > 1, "{op}: {records:#?}");
        }
    }
}

#[test]
fn a_send_is_done_when_its_receiver_has_taken_it() {
    for provider in PROVIDERS {
        for pacing in ["--depth 16", "--batch 40", "--depth 4 --rate 20000"] {
            let arguments = format!(
                "--engine fabric:{provider} --op send --sizes 256,64k --ranks 2 {pacing} --trials 2 --duration 20ms --verify \
                 --bound none"
            );
            for record in measured(&arguments, 2) {
                let counted = engine_of(&record)["sends_counted"].clone();
                assert!(counted.is_string(), "{arguments}: {counted}");
                let latency = summary(&record).latency.as_ref().unwrap();
                assert_eq!(latency.delivered, Some(true), "{arguments}");
            }
        }
    }
}

#[test]
fn counted_sends_of_many_peers_and_points_stay_apart() {
    let send = "--engine fabric:tcp --op send --sizes 64,4k --trials 2 --duration 20ms --verify --bound none";
    for traffic in ["fan-in", "fan-out", "all-to-all"] {
        measured(
            &format!("{send} --depth 1,32 --ranks 3 --traffic {traffic}"),
            4,
        );
    }
    measured(&format!("{send} --ranks 2 --ping-pong"), 2);
}

#[test]
fn the_record_says_what_steers_the_result() {
    for library in libraries() {
        for (provider, bound) in [("shm", "memory copy"), ("tcp", "socket stream")] {
            let arguments = format!(
                "--engine fabric:{provider} --op write --sizes 4k --ranks 2 --libfabric {library} --trials 2 \
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
            assert!(
                !engine["ordering"].as_array().unwrap().is_empty(),
                "{engine:#}"
            );
            assert!(
                text(engine, "completion").contains("delivery"),
                "{engine:#}"
            );
            assert!(number(engine, "inject_bytes_max") >= 8, "{engine:#}");
            assert!(number(engine, "tx_depth") >= 64, "{engine:#}");
            for part in ["control", "data"] {
                let progress = text(&engine["progress"], part);
                assert!(["auto", "manual"].contains(&progress), "{engine:#}");
            }
            let ordered = (provider == "shm").then_some("ordered");
            assert_eq!(engine["shm_writes"].as_str(), ordered);
            let what = &record.bound.as_ref().unwrap().what;
            assert!(what.starts_with(bound), "{what}");
        }
    }
}

#[test]
fn without_an_installed_library_the_embedded_one_says_why() {
    if installed().is_some() {
        println!("skip: a libfabric is installed, so the embedded one is not the default");
        return;
    }
    let line = format!("--engine fabric:tcp --op write --sizes 8 --ranks 2 {BRIEF}");
    let engine = engine_of(&measured(&line, 1)[0]);
    assert!(text(&engine, "library").contains("embedded"));
    assert!(!text(&engine, "why_embedded").is_empty());
}

/// Runs every operation, pattern and pacing, with several peers and several threads. Every byte is checked.
#[test]
fn patterns_and_pacings() {
    let ops = "--op write,write-imm,read,send --sizes 8,128k --verify";
    for (provider, traffic, pacing) in [
        ("shm", "pair --ranks 2", "--depth 16"),
        ("tcp", "pair --ranks 2 --threads 2", "--batch 8"),
        ("shm", "fan-out --ranks 3 --threads 2", "--depth 8"),
        ("tcp", "fan-out --ranks 3", "--rate 2k --depth 4"),
        ("shm", "fan-in --ranks 3", "--batch 8"),
        ("tcp", "fan-in --ranks 3", "--ping-pong"),
        ("shm", "all-to-all --ranks 3", "--rate 2k --depth 4"),
        ("tcp", "all-to-all --ranks 3", "--depth 16"),
    ] {
        let engine = format!("--engine fabric:{provider} --libfabric embedded");
        measured(
            &format!("{engine} --traffic {traffic} {ops} {pacing} {BRIEF}"),
            8,
        );
    }
}

/// Small messages complete at the sender at once. Several peers can therefore fill the receiver's queues before it
/// polls.
#[test]
fn messages_that_come_before_their_receives_wait() {
    for library in libraries() {
        for provider in PROVIDERS {
            let arguments = format!(
                "--engine fabric:{provider} --traffic fan-in --ranks 3 --op send --sizes 8,3001 --batch 8 --verify \
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
            format!("--ranks 2 --sizes 8,64k --depth 8 --verify --libfabric {library} {BRIEF}");
        let cma =
            format!("--engine fabric:shm --op write,read --engine-option shm-writes=cma {base}");
        for record in measured(&cma, 4) {
            let point = &body(&record).point;
            if point.op == Verb::Write {
                assert_eq!(text(&engine_of(&record), "shm_writes"), "cma");
            }
            assert_eq!(point.engine_options["shm-writes"], "cma");
        }
        for provider in PROVIDERS {
            let both = format!(
                "--engine fabric:{provider} --op write --engine-option inject=off --engine-option completion=delivery {base}"
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
    let two = "--engine fabric:tcp --op write --sizes 64k --ranks 2 --threads 2 --devices lo,lo --require-path";
    let record = &measured(&format!("{two} {BRIEF}"), 1)[0];
    for effective in &record.effective {
        let devices = effective
            .engine
            .devices
            .iter()
            .map(|one| one.device.as_deref());
        assert!(devices.eq([Some("lo"); 2]), "{effective:#?}");
    }
    assert!(record.wire_proof.as_ref().unwrap().crossed);
}

#[test]
fn a_plan_holds_everything() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let run = |arguments: &str| tonnage(dir.path(), arguments).run().with_code(0).stdout;
    let base = "--engine fabric:shm --engine-option shm-writes=cma --engine-option inject=off --op write --sizes 8,64";
    let printed = run(&format!(
        "transfer {base} --ranks 2 --depth 8 {BRIEF} --print-plan"
    ));
    assert!(printed.contains("shm-writes"), "{printed}");
    std::fs::write(dir.path().join("plan.toml"), &printed).unwrap();
    assert_eq!(run("run plan.toml --print-plan"), printed);
    run("run plan.toml -o r.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    for record in records::read(&path) {
        assert_eq!(text(&engine_of(&record), "shm_writes"), "cma");
        assert_eq!(body(&record).point.engine_options.len(), 2);
    }
    // At first, no point is left to measure. Then one line is removed, and one point is left.
    run("run plan.toml --resume r.jsonl");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    std::fs::write(&path, whole.split_inclusive('\n').next().unwrap()).unwrap();
    run("run plan.toml --resume r.jsonl");
    assert_eq!(records::read(&path).len(), 2);
}

/// The point must be recorded as skipped, and the exit code must be 1. One note must name the missing library or
/// provider, and how to get it.
#[test]
fn a_missing_library_or_provider_is_skipped_with_its_reason() {
    let missing = "
        fabric:nope                            => was built without it | Available providers:  | tonnage devices
        fabric:cxi --libfabric embedded        => embedded in tonnage | Available providers:  | Slingshot
        fabric:tcp --devices nope0             => no device nope0 | --devices among | lo
        fabric:shm --devices lo                => no device lo | --devices among shm
        fabric:tcp --libfabric /nonexistent    => /nonexistent: cannot open | --libfabric
    ";
    for [what, reason] in rows(missing) {
        let dir = tempdir().unwrap();
        let line = format!("transfer --engine {what} --op write --sizes 8,64 --ranks 2 {BRIEF}");
        let ended = tonnage(dir.path(), &format!("{line} -o r.jsonl")).run();
        let errors = ended.stderr.matches("error: ").count();
        assert_eq!(errors, 1, "{what}: {ended:#?}");
        ended.with_code(2).saying(&parts(reason)[..1]);
        let records = records::read(&dir.path().join("r.jsonl"));
        assert_eq!(records.len(), 2, "{what}");
        are_skipped(&records, reason);
    }
}

/// Different releases are incompatible (tcp would fail and shm would crash), so they must be refused.
#[test]
fn two_versions_are_refused_by_name() {
    let Some(installed) = installed() else { return };
    for provider in PROVIDERS {
        let dir = tempdir().unwrap();
        let port = free_port();
        let line =
            format!("transfer --engine fabric:{provider} --op write --sizes 8 {BRIEF} -o r.jsonl");
        let runs = [(0, "embedded"), (1, &installed)].map(|(rank, library)| {
            let program = tonnage(dir.path(), &line).launched(rank, 2, port);
            program.env("TONNAGE_LIBFABRIC", library).start()
        });
        let ended = runs.map(|run| run.end());
        let records = records::read(&dir.path().join("r.jsonl"));
        if records[0].outcome == Outcome::Measured {
            println!("skip: the installed libfabric is of the release that is embedded");
            return;
        }
        assert_eq!(ended[0].code, Some(2), "{ended:#?}");
        let both = "rank 0 has libfabric 1.22 (embedded | rank 1 has  | --libfabric embedded";
        are_skipped(&records, &format!("{both} | {installed}"));
    }
}

/// A library may replace the program's signal handlers, as builds with PSM do. Few operations are in flight, because
/// libfabric 1.17 may crash if a peer disappears under load.
#[test]
fn a_signal_is_reported_even_if_the_library_replaces_handlers() {
    for library in libraries() {
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine fabric:tcp --libfabric {library} --op write --ranks 2 --sizes 8,16,32,64 --rate 20 \
             --trials 1 --trial-time 500ms --warmup 0 --bound none -o r.jsonl"
        );
        let run = tonnage(dir.path(), &arguments).start();
        wait_for_records(dir.path(), 1);
        run.signal_rank(1, Signal::TERM);
        run.end().with_code(143).saying(&["interrupted by signal"]);
    }
}
