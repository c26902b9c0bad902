//! `tonnage ior` must accept IOR's command lines as IOR does, and its result block must agree with the record.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use super::files::names;
use super::support::{Ended, tonnage};

const MIB: f64 = 1_048_576.0;

fn ior(dir: &Path, arguments: &str) -> Ended {
    tonnage(dir, &format!("ior --ranks 2 {arguments}")).run()
}

/// Returns the only record that a run has written.
fn record(dir: &Path, file: &str) -> Value {
    let text = fs::read_to_string(dir.join(file)).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Returns the rows of the first table, split at the column positions that IOR uses.
fn passes(stdout: &str) -> Vec<Vec<&str>> {
    let starts = [0, 10, 21, 32, 44, 55, 66, 77, 88, 99, 110];
    let lines = stdout
        .lines()
        .skip_while(|line| !line.starts_with("------    ---------"));
    let rows = lines.skip(1).take_while(|line| !line.starts_with("Max "));
    rows.map(|line| {
        let ends = starts.iter().skip(1).copied().chain([line.len()]);
        starts
            .iter()
            .zip(ends)
            .map(|(&start, end)| line[start..end].trim())
            .collect()
    })
    .collect()
}

fn near(shown: &str, value: f64) -> bool {
    let shown: f64 = shown.parse().unwrap();
    (shown - value).abs() <= value.abs() * 0.01 + 1e-6
}

#[test]
fn the_result_block_agrees_with_the_record() {
    let dir = tempdir().unwrap();
    let line = "-a POSIX -F -e -g -C -t 4k -b 256k -s 2 -i 2 -o t.z -v -z --output r.jsonl";
    let ended = ior(dir.path(), line).with_code(0);
    let record = record(dir.path(), "r.jsonl");
    let mut rows = passes(&ended.stdout);
    let kinds: Vec<_> = rows.iter().map(|row| (row[0], row[10])).collect();
    let of_each = ["write", "read", "remove"];
    let expected = ["0", "1"].map(|trial| of_each.map(|kind| (kind, trial)));
    assert_eq!(kinds, expected.concat());
    rows.retain(|row| row[0] != "remove");
    for (at, row) in rows.iter().enumerate() {
        let trial = &record["phases"][at % 2]["trials"][at / 2];
        let figure = |name: &str| trial[name].as_f64().unwrap();
        for (column, name, unit) in [
            (1, "bandwidth_bytes_per_s", MIB),
            (2, "operations_per_s", 1.0),
            (6, "open_ns", 1e9),
            (7, "transfer_ns", 1e9),
            (8, "close_ns", 1e9),
            (9, "total_ns", 1e9),
        ] {
            assert!(
                near(row[column], figure(name) / unit),
                "{name} {row:?} {trial}"
            );
        }
        assert_eq!((row[4], row[5]), ("256.00", "4.00"));
        assert_eq!(figure("payload_bytes"), 2.0 * 2.0 * 256.0 * 1024.0);
    }
    ended.printing(&[
        "Max Write: ",
        "Max Read:  ",
        "Summary of all tests:",
        "ordering inter file : constant task offset",
    ]);
    let shift = serde_json::json!({"kind": "shift", "ranks": 1});
    assert_eq!(record["point"]["read_from"], shift);
    assert_eq!(
        names(dir.path()),
        ["r.jsonl"],
        "files are removed without -k"
    );
}

#[test]
fn writing_and_reading_may_be_runs_of_their_own() {
    let dir = tempdir().unwrap();
    ior(dir.path(), "-w -k -F -b 64k -t 16k -o d.dat").with_code(0);
    for rank in 0..2 {
        let path = dir.path().join(format!("d.dat.0000000{rank}"));
        assert_eq!(path.metadata().unwrap().len(), 64 << 10);
    }
    let read = "-R -k -C -F -b 64k -t 16k -o d.dat --output r.jsonl";
    let read = ior(dir.path(), read).with_code(0).printing(&["Max Read:"]);
    assert!(!read.stdout.contains("Max Write:"), "{read:#?}");
    let trial = &record(dir.path(), "r.jsonl")["phases"][0]["trials"][0];
    assert_eq!(trial["verified_bytes"], 128 << 10, "{trial}");
}

#[test]
fn summaries_are_json_or_csv_for_scripts() {
    let dir = tempdir().unwrap();
    let base = "-F -b 64k -t 16k -o s.dat -O summaryFormat";
    let json = ior(dir.path(), &format!("{base}=JSON")).with_code(0);
    let whole: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(whole["tests"][0]["Results"].as_array().unwrap().len(), 2);
    assert_eq!(whole["summary"][0]["operation"], "write");
    let csv = ior(dir.path(), &format!("{base}=CSV")).with_code(0);
    let lines: Vec<_> = csv.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{csv:#?}");
    assert!(
        lines.iter().all(|line| line.split(',').count() == 12),
        "{csv:#?}"
    );
    let aside = format!("{base}=CSV -O summaryFile=sum.csv --format jsonl");
    let aside = ior(dir.path(), &aside).with_code(0);
    let summary = fs::read_to_string(dir.path().join("sum.csv")).unwrap();
    assert_eq!(summary.lines().count(), 3, "{summary}");
    let record: Value = serde_json::from_str(&aside.stdout).unwrap();
    assert_eq!(record["plan"], "ior");
}

#[test]
fn a_summary_takes_the_place_of_nothing_but_a_summary() {
    let dir = tempdir().unwrap();
    let summary = dir.path().join("sum");
    for format in ["default", "JSON", "CSV"] {
        let line =
            format!("-F -w -b 64k -t 16k -o s.dat -O summaryFormat={format} -O summaryFile=sum");
        // The file is empty at first, and has a block of the same kind at the second run.
        fs::write(&summary, "").unwrap();
        for _ in 0..2 {
            ior(dir.path(), &line).with_code(0);
        }
        let mut letters = fs::read_to_string(&summary).unwrap();
        assert!(!letters.is_empty());
        letters.push_str("somebody's letters\n");
        for letters in [&*letters, "somebody's letters\n"] {
            fs::write(&summary, letters).unwrap();
            let refused = ior(dir.path(), &line).with_code(2);
            refused.with_one_error(&["summaryFile=sum", "not a result block"]);
            assert_eq!(fs::read_to_string(&summary).unwrap(), letters);
        }
    }
}

#[test]
fn help_and_dry_runs_touch_nothing() {
    let dir = tempdir().unwrap();
    let help = tonnage(dir.path(), "ior --help").succeed();
    help.printing(&["-b SIZE", "--ranks <N>"]);
    let dry = tonnage(dir.path(), "ior --dryRun -N 2 -F -b 64k -t 16k -o n.dat").succeed();
    dry.printing(&["[[file]]", "ranks = 2"]);
    assert_eq!(names(dir.path()), Vec::<String>::new());
}
