//! Two sides that are measured alternately, repetitions of a plan, and verdicts from the records of both sides.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

use super::support::{Ended, LONG, parts, rows, tonnage};

const BRIEF: &str = "--duration 6ms --trials 2 --warmup 1ms";

fn run(dir: &Path, arguments: &str) -> Ended {
    tonnage(dir, arguments).run()
}

fn lines(dir: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn texts<'a>(lines: &'a [Value], of: impl Fn(&'a Value) -> &'a Value) -> Vec<&'a str> {
    lines
        .iter()
        .map(|line| of(line).as_str().unwrap())
        .collect()
}

/// One side has a hundred times the rate of the other. Even a busy machine cannot hide this difference.
#[test]
fn two_sides_take_turns_and_are_compared() {
    let dir = tempdir().unwrap();
    let side = |engine: &str, rate: u32| {
        format!(
            "transfer --engine {engine} --op write --ranks 2 --sizes 64,4k --rate {rate} --duration 80ms --trials 2 \
             --warmup 1ms"
        )
    };
    let (slow, fast) = (side("shm", 200), side("null", 20_000));
    let ab = format!("ab --runs 4 -o ab.jsonl -- {slow} -- {fast}");
    run(dir.path(), &ab).with_code(0);
    let records = lines(dir.path(), "ab.jsonl");
    let each_second: Vec<Value> = records.iter().step_by(2).cloned().collect();
    let sides = texts(&each_second, |record| &record["side"]["name"]);
    assert_eq!(sides, ["a", "b", "b", "a", "a", "b", "b", "a"]);
    let turns = each_second
        .iter()
        .map(|record| record["side"]["turn"].as_u64().unwrap());
    assert!(turns.eq(0..8));
    let runs: BTreeSet<&str> = BTreeSet::from_iter(texts(&records, |record| &record["run_id"]));
    assert_eq!((records.len(), runs.len()), (16, 8));

    let compare =
        "compare ab.jsonl --ignore engine,pacing,latency --accept canary --metric message-rate";
    let ended = run(dir.path(), &format!("{compare} --format json")).with_code(0);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let points = found["points"].as_array().unwrap();
    assert_eq!(
        texts(points, |point| &point["verdict"]),
        ["better", "better"]
    );
    assert_eq!(points[0]["differing"][0]["key"], "engine");
    // Compares two files, with the sides in reverse order.
    write_each_side(dir.path());
    let round = compare.replace("ab.jsonl", "b.jsonl a.jsonl");
    run(dir.path(), "compare ab.jsonl a.jsonl")
        .with_code(2)
        .with_one_error(&["ab.jsonl holds both sides"]);
    let ended = run(
        dir.path(),
        &format!("{round} -o verdict.md --format markdown"),
    )
    .with_code(1);
    assert_eq!(ended.stdout, "");
    let page = fs::read_to_string(dir.path().join("verdict.md")).unwrap();
    assert_eq!(page.matches("| worse |").count(), 2, "{page}");
    run(dir.path(), &format!("{round} --fail-on missing,unclear")).with_code(0);
    // Neither output file may be overwritten.
    run(dir.path(), &ab)
        .with_code(2)
        .with_one_error(&["ab.jsonl", "--force"]);
    run(dir.path(), &format!("{round} -o verdict.md"))
        .with_code(2)
        .with_one_error(&["verdict.md", "--force"]);
    run(dir.path(), &format!("{round} -o verdict.md --force")).with_code(1);
}

/// Writes the records of each side in `ab.jsonl` to a separate file.
fn write_each_side(dir: &Path) {
    let own = fs::read_to_string(dir.join("ab.jsonl")).unwrap();
    for side in ["a", "b"] {
        let mark = format!("\"side\":{{\"name\":\"{side}\"");
        let own: Vec<_> = own.lines().filter(|line| line.contains(&mark)).collect();
        fs::write(dir.join(format!("{side}.jsonl")), own.join("\n")).unwrap();
    }
}

/// A variable for side B must reach its runs, and must not prevent the comparison.
#[test]
fn a_variable_is_given_to_one_side() {
    let dir = tempdir().unwrap();
    let line = format!(
        "transfer --engine fabric:shm --op write --ranks 2 --sizes 64 {BRIEF} --libfabric embedded"
    );
    let ab = format!("ab --runs 1 -o ab.jsonl --b-env FI_SHM_TX_SIZE=64 -- {line}");
    run(dir.path(), &ab).with_code(0);
    let records = lines(dir.path(), "ab.jsonl");
    let size = |at: usize| &records[at]["environment"][0]["machine"]["variables"]["FI_SHM_TX_SIZE"];
    assert_eq!((size(0), size(1)), (&Value::Null, &Value::from("64")));
    assert_eq!(records[1]["side"]["varied"][0], "variables.FI_SHM_TX_SIZE");
    let compare = "compare ab.jsonl --accept canary";
    let ended = run(dir.path(), compare).with_code(0);
    assert!(!ended.stdout.contains("not comparable"), "{ended:#?}");
    ended.printing(&["accepted", "1 run a side; use `--runs 5`"]);
    run(dir.path(), &format!("{compare} --fail-on unclear")).with_code(1);
    run(dir.path(), &format!("{compare} --by-trials")).printing(&["of these runs only"]);
}

#[test]
fn a_run_that_cannot_be_measured_is_refused_before_the_first() {
    let dir = tempdir().unwrap();
    // An existing file must not be touched either, although `--force` would allow it.
    fs::write(dir.path().join("ab.jsonl"), "old\n").unwrap();
    let good = "transfer --engine shm --op write --ranks 2 --sizes 64";
    let fabric = "transfer --engine fabric:shm --op write --ranks 2 --sizes 64";
    // G stands for a transfer that can be measured, and F for one over fabric.
    let refused = "
        -- G -- G --depth 0                  => side B | depth
        -- G -- run nowhere.toml              => side B | nowhere.toml
        -- G -- show ab.jsonl                 => side B | not a command that measures
        --b-library libfabrik=/x.so -- F      => side B | libfabric
        -- G -- G --devices mlx5_0            => side B | no effect
    ";
    for [sides, reason] in rows(refused) {
        let sides = sides.replace('G', good).replace('F', fabric);
        let ended = run(dir.path(), &format!("ab --force -o ab.jsonl {sides}")).with_code(2);
        ended.with_one_error(&parts(reason));
        let left = fs::read_to_string(dir.path().join("ab.jsonl")).unwrap();
        assert_eq!(left, "old\n");
    }
    fs::remove_file(dir.path().join("ab.jsonl")).unwrap();
    run(
        dir.path(),
        &format!("ab -o ab.jsonl -- {good} -- run nowhere.toml"),
    )
    .with_code(2);
    assert!(!dir.path().join("ab.jsonl").exists());
    let launched = tonnage(dir.path(), &format!("ab -o ab.jsonl -- {good} -- {good}0"));
    launched
        .launched(0, 2, 29_999)
        .run()
        .with_code(2)
        .with_one_error(&["launcher", "compare"]);
}

/// No other process knows of the run, so the run must end with the process that started it.
#[test]
fn a_run_ends_with_the_process_that_started_it() {
    for signal in [Signal::TERM, Signal::KILL] {
        let dir = tempdir().unwrap();
        let side = format!("transfer --engine shm --op write --ranks 2 --sizes 8 {LONG}");
        let ab = format!("ab -o ab.jsonl --b-env X=1 -- {side}");
        let run = tonnage(dir.path(), &ab).start();
        run.rank(1);
        run.signal(signal);
        // `end` checks that no processes are left.
        let ended = run.end();
        assert_ne!(ended.code, Some(0), "{ended:#?}");
    }
}

/// Each repetition must be a separate run with its own order. Resuming a file must complete it.
#[test]
fn a_plan_is_measured_several_times() {
    let dir = tempdir().unwrap();
    let line = format!("transfer --engine shm --op write --ranks 2 --sizes 8..256*2 {BRIEF}");
    let csv = run(
        dir.path(),
        &format!("{line} --runs 2 -o r.jsonl --format csv"),
    )
    .with_code(0);
    assert_eq!(csv.stdout.lines().count(), 1 + 12);
    run(dir.path(), &format!("{line} --runs 3 --resume r.jsonl")).with_code(0);
    let records = lines(dir.path(), "r.jsonl");
    let of = |repetition: u64| {
        let own = records
            .iter()
            .filter(|record| record["repetition"] == repetition);
        own.collect::<Vec<_>>()
    };
    let orders = [0, 1, 2].map(|repetition| {
        let sizes = of(repetition)
            .into_iter()
            .map(|it| it["point"]["size_bytes"].as_u64().unwrap());
        sizes.collect::<Vec<_>>()
    });
    assert_ne!(orders[0], orders[1]);
    for mut order in orders {
        order.sort_unstable();
        assert_eq!(order, [8, 16, 32, 64, 128, 256]);
    }
    let ids = BTreeSet::from([0, 1, 2].map(|repetition| of(repetition)[0]["run_id"].to_string()));
    assert_eq!(ids.len(), 3);
    let printed = run(dir.path(), &format!("{line} --runs 2 --print-plan"));
    printed.with_code(2).with_one_error(&["--runs"]);
}

/// Every run must start with the full set of CPUs, although each run pins the main thread.
#[test]
fn workers_have_the_same_cpus_in_each_run() {
    let allowed = tonnage_machine::Topology::read().allowed;
    let [first, second, ..] = allowed[..] else {
        println!("skip: this process may use CPU {allowed:?} alone");
        return;
    };
    let transfer = format!("--op write --ranks 2 --threads 2 --sizes 64 {BRIEF} --bound none");
    let lines = [
        format!("transfer --engine shm {transfer}"),
        format!("transfer --engine fabric:tcp --libfabric embedded {transfer}"),
        format!("transfer --engine shm {transfer} --cpus {second},{first}"),
        "file --engine posix,uring --ranks 1 --threads 2 --path f --block 64k --transfer 4k --bound none".to_owned(),
        "collective --backend native:shm --op all-reduce --sizes 4k --ranks 2 --trials 2 --trial-time 5ms --bound none"
            .to_owned(),
        "connect --engine shm --ranks 2 --threads 2 --duration 20ms --trials 2".to_owned(),
        "stress --engine shm,fabric:shm --libfabric embedded --ranks 2 --duration 100ms --max-size 4k --seed 7".to_owned(),
        "tune --engine shm --op write --sizes 4k --goal bandwidth --ranks 2 --trial-time 2ms --threads 2 --depth 16"
            .to_owned(),
    ];
    for line in lines {
        let dir = tempdir().unwrap();
        run(dir.path(), &format!("{line} --runs 2 -o r.jsonl")).with_code(0);
        let records = super::support::records::read(&dir.path().join("r.jsonl"));
        let of = |repetition: u32| {
            let own = records
                .iter()
                .filter(|it| it.repetition == Some(repetition));
            let places = own.map(|record| {
                let of_ranks = record.effective.iter();
                let of_ranks = of_ranks.map(|it| (&it.ranks, &it.cpus, &it.sockets, it.yielding));
                let hosts = record.environment.iter();
                let hosts = hosts.map(|group| (&group.machine.cpu, &group.machine.variables));
                let (of_ranks, hosts): (Vec<_>, Vec<_>) = (of_ranks.collect(), hosts.collect());
                format!("{of_ranks:?} {hosts:?}")
            });
            places.collect::<BTreeSet<_>>()
        };
        assert!(!of(0).is_empty(), "{line}: {records:#?}");
        assert_eq!(of(1), of(0), "{line}");
    }
}

/// Writes a file with two points and a file with one.
fn two_files(dir: &Path) {
    for (name, sizes) in [("a.jsonl", "64,128"), ("b.jsonl", "64")] {
        let line = format!("transfer --engine null --op write --ranks 2 --sizes {sizes} {BRIEF}");
        run(dir, &format!("{line} -o {name}")).with_code(0);
    }
}

#[test]
fn what_cannot_be_compared_has_one_clear_message() {
    let dir = tempdir().unwrap();
    two_files(dir.path());
    let path = |name: &str| dir.path().join(name);
    fs::copy(path("a.jsonl"), path("copy.jsonl")).unwrap();
    std::os::unix::fs::symlink("a.jsonl", path("link.jsonl")).unwrap();
    fs::write(path("empty.jsonl"), "").unwrap();
    fs::write(path("junk.jsonl"), "junk\n").unwrap();
    let all = fs::read_to_string(path("a.jsonl")).unwrap();
    fs::write(path("other.jsonl"), all.lines().last().unwrap()).unwrap();
    let cases = "
        a.jsonl a.jsonl                 => the same file
        a.jsonl link.jsonl              => the same file
        a.jsonl copy.jsonl              => both hold records of run
        a.jsonl                         => belong to no side | tonnage ab
        a.jsonl nowhere.jsonl           => nowhere.jsonl
        a.jsonl empty.jsonl             => empty.jsonl holds no records
        a.jsonl junk.jsonl              => junk.jsonl holds no records that can be read | line 1
        b.jsonl other.jsonl             => no points in common | size (64 B, 128 B) | --ignore
        a.jsonl b.jsonl --ignore siz    => --ignore | \"size\"
        a.jsonl b.jsonl --accept kernle => --accept | \"kernel\"
        a.jsonl b.jsonl --metric busbw  => busbw | message-rate
        a.jsonl b.jsonl --margin 150%   => margin
    ";
    for [arguments, reason] in rows(cases) {
        run(dir.path(), &format!("compare {arguments}"))
            .with_code(2)
            .with_one_error(&parts(reason));
    }
}

/// Tests a point that one side lacks, a single run, and lines that are broken or from a newer version.
#[test]
fn missing_and_broken_lines_are_reported_and_counted() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    two_files(dir.path());
    let text = fs::read_to_string(path("b.jsonl")).unwrap();
    let newer = text.replacen("\"schema_version\":3", "\"schema_version\":9", 1);
    fs::write(path("b.jsonl"), format!("{{\"schema_ver\n{text}{newer}")).unwrap();
    let compare = "compare a.jsonl b.jsonl --accept canary --metric message-rate";
    let ended = run(dir.path(), &format!("{compare} --fail-on missing")).with_code(1);
    ended.printing(&["1 run a side", "only A has it"]).saying(&[
        "2 of 3 lines of b.jsonl left out",
        "line 1:",
        "line 3: schema version 9",
    ]);
    run(
        dir.path(),
        &format!("{compare} --fail-on worse --margin 99%"),
    )
    .with_code(0);
}

/// A record of schema version 2, and the same measurement of another run as the current version writes it.
#[test]
fn records_of_two_schema_versions_are_shown_and_compared_together() {
    let dir = tempdir().unwrap();
    let old = include_str!("../../../record/src/tests/schema_2.jsonl");
    fs::write(dir.path().join("old.jsonl"), old).unwrap();
    let current = tonnage(dir.path(), "show old.jsonl --json")
        .succeed()
        .stdout;
    let mut current: Value = serde_json::from_str(&current).unwrap();
    assert_eq!(current["schema_version"], 3);
    current["run_id"] = "run-2".into();
    // A changed line is read only without its checksum.
    current.as_object_mut().unwrap().remove("checksum");
    let new = format!("{current}\n");
    fs::write(dir.path().join("new.jsonl"), &new).unwrap();
    fs::write(dir.path().join("mixed.jsonl"), format!("{old}{new}")).unwrap();
    let shown = tonnage(dir.path(), "show mixed.jsonl --format csv").succeed();
    let rows: Vec<_> = shown.stdout.lines().skip(1).collect();
    assert_eq!(rows.len(), 2, "{shown:#?}");
    let line = "compare old.jsonl new.jsonl --by-trials --ignore window";
    run(dir.path(), line)
        .with_code(0)
        .printing(&["1 of 1 points"]);
    let line = "baseline old.jsonl new.jsonl --min-runs 2 -o b.toml";
    run(dir.path(), line).with_code(0);
}
