//! Published figures next to measured ones, in shipped plans and in small ones, and plans for hardware that is missing.

use std::fs;

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::records::{are_skipped, body, summary};
use super::support::{records, tonnage};

const PLANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");

#[test]
fn missing_hardware_is_a_skip_and_not_a_failure() {
    let none = "this version of tonnage has no memory of that name";
    for (arguments, reason) in [
        (
            "transfer --engine shm --op write --sizes 8 --memory vram",
            none,
        ),
        (
            "transfer --engine fabric:nope --op write --sizes 8",
            "was built without it",
        ),
        ("connect --engine shm --memory vram", none),
    ] {
        let dir = tempdir().unwrap();
        let line = format!("{arguments} --ranks 2 --optional -o r.jsonl");
        let run = tonnage(dir.path(), &line).succeed();
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        assert!(record.optional, "{record:#?}");
        are_skipped(std::slice::from_ref(record), reason);
        run.printing(&["skipped (optional)"]);
    }
}

#[test]
fn published_figures_are_compared_with_ours() {
    let dir = tempdir().unwrap();
    let plan = |columns: &str, row: &str| {
        let text = format!(
            "name = 'p'\nranks = 2\n[[transfer]]\nengine = 'shm'\nop = 'write'\nsizes = '8,64'\nbatch = 4\n\
             trials = 2\ntrial-time = '5ms'\nwarmup = '1ms'\nbound = 'none'\n\
             published = {{ what = 'elsewhere', columns = {columns}, rows = [{row}] }}\n"
        );
        fs::write(dir.path().join("p.toml"), text).unwrap();
    };
    plan(
        "['MsgSize (B)', 'BatchSize', 'Avg BW (Gb/s)']",
        "[64, 4, 12.25], [64, 8, 99.5]",
    );
    let run = tonnage(dir.path(), "run p.toml -o r.jsonl").succeed();
    let records = records::shown(dir.path(), &run);
    let rows = records.iter().map(|record| record.published_rows.len());
    assert!(rows.eq([0, 1]));
    let ours = summary(&records[1]).bandwidth_bytes_per_s.mean * 8e-9;
    let beside = run.stdout.split("beside elsewhere:").nth(1).unwrap();
    let cells: Vec<&str> = beside.lines().nth(4).unwrap().split_whitespace().collect();
    let [size, batch, shown, theirs, ratio] = cells[..] else {
        panic!("{run:#?}");
    };
    assert_eq!((size, batch, theirs), ("64", "4", "12.25"));
    for (text, value) in [(shown, ours), (ratio, ours / 12.25)] {
        let shown: f64 = text.parse().unwrap();
        assert!((shown / value - 1.0).abs() < 0.02, "{shown} for {value}");
    }
    // Published figures are not part of the point, so a run with other figures can resume the file.
    plan("['MsgSize (B)', 'Avg Lat (us)']", "[8, 1]");
    tonnage(dir.path(), "run p.toml --resume r.jsonl").succeed();
    assert_eq!(records::read(&dir.path().join("r.jsonl")).len(), 2);
    plan("['MsgSize (B)', 'Avg BV (GB/s)']", "[8, 1]");
    let run = tonnage(dir.path(), "run p.toml").run();
    run.with_code(2)
        .saying(&["did you mean \"Avg BW (GB/s)\"?"]);
}

/// Published columns must be checked before anything is measured or printed.
#[test]
fn plans_that_ship_name_existing_columns() {
    let dir = tempdir().unwrap();
    for name in [
        "mori-io-read",
        "mori-io-write",
        "efa-write",
        "one-sided-read",
        "torch-distributed",
    ] {
        let run = tonnage(dir.path(), &format!("run {PLANS}/{name}.toml --print-plan")).succeed();
        run.printing(&["published = "]);
    }
}

#[test]
fn rails_and_memory_of_gpus_are_skipped_where_they_are_not() {
    let dir = tempdir().unwrap();
    let text = fs::read_to_string(format!("{PLANS}/efa-write.toml")).unwrap();
    assert!(text.contains("256k..1G"), "it has other sizes");
    fs::write(
        dir.path().join("p.toml"),
        text.replace("256k..1G", "256k..1M"),
    )
    .unwrap();
    let run = "run p.toml --engine fabric:tcp --ranks 4 --scale 0.01";
    for (devices, measured) in [("lo", 3), ("lo,lo", 9)] {
        let file = format!("{measured}.jsonl");
        let ended = tonnage(dir.path(), &format!("{run} --devices {devices} -o {file}")).succeed();
        let records = records::shown_as(
            &dir.path().join(&file),
            &ended,
            tonnage_report::Format::Table,
        );
        assert_eq!(records.len(), 18);
        let (done, skipped): (Vec<_>, Vec<_>) = records
            .iter()
            .partition(|record| record.outcome == Outcome::Measured);
        assert_eq!(done.len(), measured, "{ended:#?}");
        assert!(skipped.iter().all(|record| record.is_fine()));
        assert!(
            records.iter().all(|it| it.published_rows.len() == 1),
            "{ended:#?}"
        );
        assert_eq!(ended.stdout.contains("rails stripe over lo"), measured == 3);
        ended.printing(&["memory cuda "]);
    }
}

/// Compares the rows for this number of clients with two published tables.
#[test]
fn clients_of_one_server_are_compared_with_two_tables() {
    let dir = tempdir().unwrap();
    let arguments =
        format!("run {PLANS}/one-sided-read.toml --engine null --ranks 5 --scale 0.01 -o r.jsonl");
    let ended = tonnage(dir.path(), &arguments).run().with_code(0);
    // The note is printed once, and not by each rank.
    let left_out =
        "leaves out what is optional and has options of other engines: transfer 3 (64 B, the first";
    assert_eq!(ended.stderr.matches(left_out).count(), 1, "{ended:#?}");
    let published = |record: &Record| {
        let point = &body(record).point;
        let tables = match (
            point.slots.size_bytes,
            point.depth(),
            point.roles.initiators.unwrap(),
        ) {
            (64, 1, 1 | 4) | (4096, 1, 1) => 2,
            // Figures of the RC transport are compared only with the signalling mode in which they were measured.
            (64, 12, 1 | 4) => 1,
            _ => 0,
        };
        assert_eq!(record.published_rows.len(), tables, "{point:?}");
    };
    let records = records::shown(dir.path(), &ended);
    records.iter().for_each(published);
}
