//! Baselines from records, and checks of hosts against them: verdicts, exit codes, and the time budget.
//!
//! The measured figures are offered rates, which even a busy machine reaches.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

use super::support::{Ended, free_port, rows, tonnage};

/// Options of a paced point, which reaches the offered rate.
const PACED: &str = "transfer --engine null --op write --ranks 2 --rate 2k --duration 60ms --trials 2 --warmup 1ms \
                     --bound none";

pub fn run(dir: &Path, arguments: &str) -> Ended {
    tonnage(dir, arguments).run()
}

pub fn last_line(ended: &Ended) -> &str {
    ended.stdout.lines().last().unwrap_or_default()
}

/// Returns the report that a check wrote.
pub fn report(dir: &Path, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join(name)).unwrap()).unwrap()
}

/// Returns the last line, which has the check's verdict, after checking that it starts with `begin`.
pub fn verdict_line<'a>(ended: &'a Ended, begin: &str) -> &'a str {
    let line = last_line(ended);
    assert!(line.starts_with(begin), "{ended:#?}");
    line
}

/// Runs the point, and writes a baseline with a hand-set rate, so that noise on a busy machine does not matter.
pub fn paced_baseline(dir: &Path) {
    run(dir, &format!("{PACED} --sizes 64 -o r.jsonl")).with_code(0);
    by_hand(dir, "r.jsonl", 2000.0, "b.toml");
}

/// Writes a baseline of some records with this rate. A check fails below a tenth of the rate.
pub fn by_hand(dir: &Path, records: &str, rate_per_s: f64, file: &str) {
    let text = format!(
        "[[value]]\npoint = {{ engine = 'null', op = 'write' }}\nmetric = 'message-rate'\nvalue = {rate_per_s}\n\
         source = 'the rate that is offered'\n"
    );
    fs::write(dir.join("hand.toml"), text).unwrap();
    let options = "--by-hand hand.toml --metric message-rate --fail 90% --warn 80%";
    run(dir, &format!("baseline {records} {options} -o {file}")).with_code(0);
}

#[test]
fn a_host_is_checked_beside_its_own_baseline() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    by_hand(dir, "r.jsonl", 100_000.0, "fast.toml");
    let passed = run(dir, "check --baseline b.toml --time-limit 20s -o v.json").with_code(0);
    verdict_line(&passed, "pass: ");
    let verdicts = report(dir, "v.json");
    assert_eq!(verdicts["verdict"], "pass");
    assert_eq!(verdicts["entries"][0]["verdict"], "pass");
    // A figure that fails is measured a second time.
    fs::create_dir(dir.join("state")).unwrap();
    let failing =
        "check --baseline fast.toml --time-limit 20s --state state --cache 10m --nodelist failed";
    let failed = run(dir, &format!("{failing} -o f.json")).with_code(1);
    assert!(
        verdict_line(&failed, "fail: null write 64 ").len() <= 80,
        "{failed:#?}"
    );
    let verdicts = report(dir, "f.json");
    assert_eq!(verdicts["entries"][0]["tries"].as_array().unwrap().len(), 2);
    let nodes = fs::read_to_string(dir.join("failed")).unwrap();
    assert_eq!(verdicts["hosts"][0], nodes.trim());
    // The cached verdict must be printed again, even with other exit codes.
    let again = run(dir, &format!("{failing} --force --exit nagios")).with_code(2);
    assert!(last_line(&again).ends_with(" s ago"), "{again:#?}");
    assert!(again.took < Duration::from_secs(2), "{again:#?}");
    // Compares a baseline with itself, and with another baseline.
    run(dir, "baseline --diff b.toml b.toml")
        .with_code(0)
        .printing(&["1 same"]);
    run(dir, "baseline --diff fast.toml b.toml")
        .with_code(1)
        .printing(&["1 failing"]);
}

#[test]
fn what_cannot_be_measured_is_an_error_and_drains_nothing() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    let long = PACED.replace("--duration 60ms", "--duration 2s");
    // The disk is full.
    let full = "check --baseline b.toml -o /dev/full --force --exit prolog";
    verdict_line(&run(dir, full).with_code(0), "error: ");
    // A library is missing.
    let tcp = "transfer --engine fabric:tcp --op write --ranks 2 --sizes 64 --duration 10ms --trials 2 --bound none";
    run(dir, &format!("{tcp} -o t.jsonl")).with_code(0);
    run(dir, "baseline t.jsonl --min-runs 1 -o t.toml").with_code(0);
    let gone = "check --baseline t.toml --libfabric /nowhere/libfabric.so.1";
    verdict_line(
        &run(dir, &format!("{gone} --exit prolog")).with_code(0),
        "error: ",
    );
    run(dir, gone).with_code(1);
    // A rank is stopped, in a run that lasts longer than the remaining budget.
    run(dir, &format!("{long} --sizes 64 -o l.jsonl")).with_code(0);
    by_hand(dir, "l.jsonl", 2000.0, "l.toml");
    let line = "check --baseline l.toml --time-limit 12s --exit prolog --retest 0";
    let stopped = tonnage(dir, line).start();
    stopped.signal_rank(1, Signal::STOP);
    let ended = stopped.end().with_code(0);
    assert!(ended.took < Duration::from_secs(12), "{ended:#?}");
    verdict_line(&ended, "error: ");
}

/// Under a launcher, each process supervises its own rank, and rank 0 prints the verdict.
#[test]
fn ranks_of_a_launcher_are_checked_together() {
    let dir = tempdir().unwrap();
    paced_baseline(dir.path());
    for (option, expected) in [
        ("", "pass: 1 figure"),
        // Both ranks are on one host. The first of them checks the host with ranks of its own.
        ("--each-host -o each.json", ": 1 figure within the baseline"),
    ] {
        let port = free_port();
        let start = |rank| {
            let arguments = format!("check --baseline b.toml --time-limit 30s {option}");
            let check = tonnage(dir.path(), &arguments);
            check.launched(rank, 2, port).start()
        };
        let [first, second] = [start(0), start(1)].map(|run| run.end().with_code(0));
        assert!(
            verdict_line(&first, "pass: ").contains(expected),
            "{first:#?}"
        );
        assert_eq!(second.stdout, "", "{second:#?}");
    }
    let each = report(dir.path(), "each.json")["each"].clone();
    assert_eq!(each.as_array().unwrap().len(), 1);
    assert_eq!(each[0]["report"]["verdict"], "pass");
}

#[test]
fn a_history_shows_runs_of_files_and_directories() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("results")).unwrap();
    run(
        dir,
        &format!("{PACED} --sizes 64,4k --runs 3 -o results/a.jsonl"),
    )
    .with_code(0);
    let shown = run(dir, "history results results/a.jsonl --metric message-rate").with_code(0);
    let marks = shown
        .stdout
        .lines()
        .filter(|line| line.contains("###"))
        .count();
    assert!(
        marks == 6 && shown.stdout.starts_with("RESULT  0 changes in 2 points\n"),
        "{shown:#?}"
    );
    let csv = run(dir, "history results --only size=4KiB --format csv").with_code(0);
    assert_eq!(csv.stdout.lines().count(), 4, "{csv:#?}");
    run(dir, "history . ")
        .with_code(2)
        .saying(&["has no results files"]);
    let none = run(dir, "history results --only shm").with_code(2);
    none.saying(&["no point name matches"]);
}

/// Even a short budget is kept.
#[test]
fn a_check_ends_within_its_budget() {
    let dir = tempdir().unwrap();
    paced_baseline(dir.path());
    let short = "check --baseline b.toml --time-limit 5s --retest 0 --exit prolog";
    let ended = run(dir.path(), short).with_code(0);
    assert!(ended.took < Duration::from_secs(5), "{ended:#?}");
}

/// The baseline is that of a slow machine. It leaves time only for the first of three points.
#[test]
fn more_points_follow_as_long_as_there_is_time() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    run(dir, &format!("{PACED} --sizes 64,128,256 -o r.jsonl")).with_code(0);
    by_hand(dir, "r.jsonl", 2000.0, "b.toml");
    let text = fs::read_to_string(dir.join("b.toml")).unwrap();
    let lines = text
        .lines()
        .map(|line| match line.starts_with("takes-s = ") {
            true => "takes-s = 14.0",
            false => line,
        });
    let slow = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(slow.matches("takes-s = 14.0").count(), 3);
    fs::write(dir.join("b.toml"), slow).unwrap();
    run(
        dir,
        "check --baseline b.toml --time-limit 30s --retest 0 -o v.json",
    )
    .with_code(0);
    let verdicts = report(dir, "v.json");
    assert_eq!(verdicts["entries"].as_array().unwrap().len(), 3);
    assert_eq!(verdicts["not_measured"], Value::Array(Vec::new()));
}

/// A reader that blocks must not delay a check. Files of an earlier check must not pass for its result.
#[test]
fn a_check_that_ends_in_an_error_leaves_no_old_verdict() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    for name in ["v.json", "failed"] {
        fs::write(dir.join(name), "n7\n").unwrap();
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    let line = "check --baseline b.toml --time-limit 3s --retest 9 -o v.json --nodelist failed --force --exit nagios";
    let ended = tonnage(dir, line).stdout(writer).run().with_code(3);
    assert!(ended.took < Duration::from_secs(3), "{ended:#?}");
    drop(reader);
    for name in ["v.json", "failed"] {
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), "", "{name}");
    }
}

#[test]
fn errors_before_a_check_have_the_code_of_its_style() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let early =
        tonnage(dir, "check --baseline b.toml --exit prolog").env("TONNAGE_STEP_TIMEOUT", "abc");
    verdict_line(&early.run().with_code(0), "error: ");
    run(dir, "check --exit nagios -h").with_code(0);
}

/// Writes `other.toml`: a copy of `b.toml` for hosts other than this one.
fn of_other_hosts(dir: &Path) {
    let other = fs::read_to_string(dir.join("b.toml")).unwrap();
    let other = other.lines().map(|line| match line.split(" = ").next() {
        Some("cpu") => "cpu = \"1 x Z80\"",
        // Only the list of hosts changes, and not a single host name.
        Some("hosts") if line.contains('[') => "hosts = [\"elsewhere\"]",
        _ => line,
    });
    let other: Vec<_> = other.collect();
    fs::write(dir.join("other.toml"), other.join("\n")).unwrap();
}

#[test]
fn wrong_requests_are_refused_with_the_code_of_their_style() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    of_other_hosts(dir);
    fs::create_dir(dir.join("open")).unwrap();
    fs::set_permissions(dir.join("open"), Permissions::from_mode(0o777)).unwrap();
    let cases = "
        --baseline none.toml                      => cannot be read
        --baseline b.toml --only shm              => its points are null write
        --baseline b.toml --hosts a,b,c           => no point of 3 ranks on 3 hosts
        --baseline b.toml --time-limit 3s --retest 9  => the shortest needs
        --baseline b.toml --time-limit 1s             => too short
        --baseline b.toml --devices eth7          => nothing over eth7
        --baseline b.toml --state open --cache 1m => may be written by others
        --baseline b.toml -o b.toml               => --force
        --baseline b.toml -o b.toml --force       => b.toml is the baseline
        --baseline b.toml --time-limt 3s          => did you mean --time-limit?
    ";
    for [arguments, part] in rows(cases) {
        for (style, code) in [("plain", 2), ("prolog", 0)] {
            let ended = run(dir, &format!("check {arguments} --exit {style}")).with_code(code);
            verdict_line(&ended.saying(&[part]), "error: ");
        }
    }
    // The baseline does not cover hosts like this one.
    for (style, code) in [("plain", 1), ("nagios", 3), ("prolog", 0)] {
        let line = format!("check --baseline other.toml --exit {style}");
        let skipped = run(dir, &line).with_code(code);
        verdict_line(&skipped.saying(&["it is of 1 x Z80"]), "skip: ");
    }
    for (arguments, part) in [
        ("r.jsonl r.jsonl -o x.toml", "named twice"),
        ("r.jsonl -o b.toml", "--force"),
    ] {
        run(dir, &format!("baseline {arguments}"))
            .with_code(2)
            .saying(&[part]);
    }
}
