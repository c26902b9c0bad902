//! Figures of others beside ours, and what a machine may lack: plans that ship, and small ones.

use std::fs;
use std::path::Path;

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::{records, tonnage};

const PLANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");

const TRANSFER: &str = "transfer --engine shm --op write --ranks 2 --sizes 8";

/// A plan that ships, up to messages of `most` bytes.
fn smaller(dir: &Path, name: &str, sizes: &str, most: &str) {
    let text = fs::read_to_string(format!("{PLANS}/{name}.toml")).unwrap();
    assert!(text.contains(sizes), "{name} has other sizes");
    fs::write(dir.join("p.toml"), text.replace(sizes, most)).unwrap();
}

#[test]
fn what_a_machine_may_lack_is_a_skip_and_no_failure() {
    for (arguments, reason) in [
        (
            format!("{TRANSFER} --memory vram"),
            "this version of tonnage has no memory of that name",
        ),
        (
            "transfer --engine fabric:nope --op write --sizes 8 --ranks 2".to_owned(),
            "was built without it",
        ),
        (
            "connect --engine shm --memory vram --ranks 2".to_owned(),
            "no memory of that name",
        ),
    ] {
        let dir = tempdir().unwrap();
        let run = tonnage(dir.path(), &format!("{arguments} --optional -o r.jsonl")).succeed();
        let line = fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
        let record: Record = serde_json::from_value(records::allowed(&line)).unwrap();
        let Outcome::Skipped { why } = &record.outcome else {
            panic!("{record:#?}");
        };
        assert!(record.optional && why.contains(reason), "{why}");
        assert!(
            run.stdout.contains("skipped, which the plan allows"),
            "{run:#?}"
        );
    }
}

#[test]
fn a_slip_of_the_hand_is_no_lack() {
    let dir = tempdir().unwrap();
    for (memory, hint) in [
        ("hots --optional", "did you mean \"host\"?"),
        ("vram", "memories: host"),
    ] {
        let run = tonnage(dir.path(), &format!("{TRANSFER} --memory {memory}")).run();
        assert_eq!(run.code, Some(2), "{run:#?}");
        assert!(run.stderr.contains(hint), "{run:#?}");
    }
}

#[test]
fn published_figures_stand_beside_ours() {
    let dir = tempdir().unwrap();
    let plan = |columns: &str, row: &str| {
        let text = format!(
            "name = 'p'\nranks = 2\n[[transfer]]\nengine = 'shm'\nop = 'write'\nsizes = '8,64'\nbatch = 4\n\
             trials = 2\ntrial-time = '5ms'\nwarmup = '1ms'\nlimit = 'none'\n\
             published = {{ what = 'elsewhere', columns = {columns}, rows = [{row}] }}\n"
        );
        fs::write(dir.path().join("p.toml"), text).unwrap();
    };
    plan(
        "['MsgSize (B)', 'BatchSize', 'Avg BW (Gb/s)']",
        "[64, 4, 12.25], [64, 8, 99.5]",
    );
    let run = tonnage(dir.path(), "run p.toml -o r.jsonl").succeed();
    let records = records::shown(dir.path(), "r.jsonl", &run, "table");
    let rows: Vec<_> = records
        .iter()
        .map(|record| record.published_rows.len())
        .collect();
    assert_eq!(rows, [0, 1]);
    let bandwidth = records[1].transfer().unwrap().summary.as_ref().unwrap();
    let ours = bandwidth.bandwidth_bytes_per_s.mean * 8e-9;
    let beside = run.stdout.split("beside elsewhere:").nth(1).unwrap();
    let cells: Vec<&str> = beside.lines().nth(4).unwrap().split_whitespace().collect();
    let [size, batch, shown, theirs, ratio] = cells[..] else {
        panic!("{run:#?}");
    };
    assert_eq!((size, batch, theirs), ("64", "4", "12.25"));
    let near = |text: &str, value: f64| {
        let shown: f64 = text.parse().unwrap();
        assert!((shown / value - 1.0).abs() < 0.02, "{shown} for {value}");
    };
    near(shown, ours);
    near(ratio, ours / 12.25);
    // What others measured is no part of the point.
    plan("['MsgSize (B)', 'Avg Lat (us)']", "[8, 1]");
    tonnage(dir.path(), "run p.toml --resume r.jsonl").succeed();
    assert_eq!(records::read(&dir.path().join("r.jsonl")).len(), 2);
    plan("['MsgSize (B)', 'Avg BV (GB/s)']", "[8, 1]");
    let run = tonnage(dir.path(), "run p.toml").run();
    assert_eq!(run.code, Some(2), "{run:#?}");
    assert!(
        run.stderr.contains("did you mean \"Avg BW (GB/s)\"?"),
        "{run:#?}"
    );
}

/// Published columns are checked before anything is measured or printed.
#[test]
fn plans_that_ship_name_columns_that_there_are() {
    let dir = tempdir().unwrap();
    for name in [
        "mori-io-read",
        "mori-io-write",
        "efa-write",
        "one-sided-read",
        "torch-distributed",
    ] {
        let run = tonnage(dir.path(), &format!("run {PLANS}/{name}.toml --print-plan")).succeed();
        assert!(run.stdout.contains("published = "), "{name}");
    }
}

#[test]
fn rails_and_memory_of_gpus_are_skipped_where_they_are_not() {
    let dir = tempdir().unwrap();
    smaller(dir.path(), "efa-write", "256k..1G", "256k..1M");
    let run = "run p.toml --engine fabric:tcp --ranks 4 --scale 0.01";
    for (devices, measured) in [("lo", 3), ("lo,lo", 9)] {
        let file = format!("{measured}.jsonl");
        let ended = tonnage(dir.path(), &format!("{run} --devices {devices} -o {file}")).succeed();
        let records = records::shown(dir.path(), &file, &ended, "table");
        assert_eq!(records.len(), 18);
        let (done, skipped): (Vec<_>, Vec<_>) = records
            .iter()
            .partition(|record| record.outcome == Outcome::Measured);
        assert_eq!(done.len(), measured, "{ended:#?}");
        assert!(skipped.iter().all(|record| record.is_fine()));
        let has_row = |record: &Record| record.published_rows.len() == 1;
        assert!(records.iter().all(has_row), "{ended:#?}");
        assert!(ended.stdout.contains("memory cuda "), "{ended:#?}");
        assert_eq!(ended.stdout.contains("rails stripe over lo"), measured == 3);
    }
}

/// All clients' rows are there that this many ranks have.
#[test]
fn clients_of_one_server_are_beside_two_tables() {
    let dir = tempdir().unwrap();
    let plan = format!("{PLANS}/one-sided-read.toml");
    let arguments = format!("run {plan} --engine null --ranks 5 --scale 0.01 -o r.jsonl");
    let ended = tonnage(dir.path(), &arguments).run().with_code(0);
    // Once, and not by each of the ranks.
    let left_out =
        "leaves out what is optional and has options of other engines: transfer 3 (64 B, the first";
    assert_eq!(ended.stderr.matches(left_out).count(), 1, "{ended:#?}");
    let records = records::shown(dir.path(), "r.jsonl", &ended, "table");
    let rows: Vec<_> = records
        .iter()
        .map(|record| {
            let point = &record.transfer().unwrap().point;
            (
                (point.size_bytes, point.depth()),
                point.initiators.unwrap(),
                record.published_rows.len(),
            )
        })
        .collect();
    for (size, clients, tables) in rows {
        let published = match (size, clients) {
            ((64, 1), 1 | 4) | ((4096, 1), 1) => 2,
            // Those of RC are beside the way of signalling that they were measured in.
            ((64, 12), 1 | 4) => 1,
            _ => 0,
        };
        assert_eq!(tables, published, "{size:?} {clients}");
    }
}
