//! Compares the rows of the result block with IOR 4's output for the same amounts and times, including blanks.

use serde_json::{Value, json};
use tonnage_record::{Body, FileRecord, Record};

use super::{RunFacts, render};
use crate::options::{IorOptions, words};

fn options(line: &str) -> IorOptions {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    words::read(&words, &[]).unwrap().ior
}

fn run() -> RunFacts {
    RunFacts {
        command: ["tonnage", "ior", "-F", "-w"].map(str::to_owned).to_vec(),
        began_unix_ns: 1_700_000_000_000_000_000,
        version: "0.1.0".to_owned(),
    }
}

/// Nanoseconds of opening, of the transfers, of closing, and in total.
struct Times(u64, u64, u64, u64);

/// One repetition with `operations` transfers of 4 KiB on two ranks.
fn trial(trial: u32, operations: u64, times: &Times) -> Value {
    let Times(open, transfer, close, total) = times;
    let of_rank = |ns: u64| json!({"ns_min": ns, "ns_mean": ns as f64, "ns_max": ns, "slowest": 0});
    let bytes = operations * 4096;
    json!({
        "trial": trial, "operations": operations, "reads": 0, "payload_bytes": bytes,
        "total_ns": total, "bandwidth_bytes_per_s": bytes as f64 / *total as f64 * 1e9,
        "transfer_ns": transfer, "operations_per_s": operations as f64 / *transfer as f64 * 1e9,
        "open_ns": open, "close_ns": close, "open_of_rank": of_rank(*open),
        "transfer_of_rank": of_rank(*transfer), "close_of_rank": of_rank(*close),
        "cpu_ns": 1, "transfer_cpu_ns": 1, "first_done_ns": 1, "first_done_bytes": 1, "last_done_ns": 1,
        "series": {"interval_ns": 1, "bytes": []},
    })
}

fn phase(name: &str, trials: Vec<Value>) -> Value {
    let spread = json!({"mean": 1.0, "min": 1.0, "max": 1.0});
    json!({
        "phase": name, "trials": trials, "latencies": [],
        "summary": {
            "trials": 1, "operations": 1, "payload_bytes": 1, "bandwidth_bytes_per_s": spread,
            "operations_per_s": spread, "cpu_ns_per_operation": 1.0, "cpu_ns_per_gib": 1.0,
        },
    })
}

fn record(options: &IorOptions, phases: Vec<Value>) -> Record {
    serde_json::from_value(json!({
        "schema_version": 3, "run_id": "x", "plan": "ior", "kind": "file", "time_unix_ns": 1_700_000_001_000_000_000u64,
        "tonnage": {"version": "0.1.0", "git_revision": "unknown"},
        "point": {
            "engine": "posix", "ranks": 2, "threads": 1, "paths": ["t"], "layout": "per-process",
            "block_bytes": options.block_bytes, "transfer_bytes": options.transfer_bytes,
            "segments": options.segments, "order": "sequential", "seed": 1, "phases": ["write", "read"],
            "read_from": {"kind": "own"}, "fsync": "none", "direct": false, "collective": false,
            "file_view": false, "barriers": false, "keep": false, "existing": false, "depth": 1,
            "prefill": false, "data": {"kind": "random"}, "drop_caches": false,
            "trials": options.repetitions, "bound": {"kind": "none"},
        },
        "effective": [], "environment": [], "storage": [], "outcome": {"status": "measured"}, "phases": phases,
    }))
    .unwrap()
}

fn file(record: &Record) -> FileRecord<'_> {
    record.as_file().unwrap()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

fn sample(more: &str) -> (IorOptions, Record) {
    let options = options(&format!("-F -b 512m -t 4k -o /dev/shm/t -v {more}"));
    let write = trial(0, 262_144, &Times(16_000, 527_846_000, 35_000, 527_867_000));
    let read = trial(0, 262_144, &Times(8_000, 293_691_000, 131_000, 293_703_000));
    let record = record(
        &options,
        vec![phase("write", vec![write]), phase("read", vec![read])],
    );
    (options, record)
}

/// The expected bandwidths and times are from IOR 4.0.0's own output for -F -b 512m -t 4k on two tasks.
#[test]
fn rows_are_those_of_ior() {
    let (options, record) = sample("");
    let text = render(&options, &run(), file(&record));
    for line in [
        "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter",
        "------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----",
        "write     1939.88    496630     0.000004    524288     4.00       0.000016   0.527846   0.000035   0.527867   0   ",
        "read      3486.52    892584     0.000002    524288     4.00       0.000008   0.293691   0.000131   0.293703   0   ",
        "Max Write: 1939.88 MiB/sec (2034.11 MB/sec)",
        "Max Read:  3486.52 MiB/sec (3655.88 MB/sec)",
        "Summary of all tests:",
        "Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum",
        "write        1939.88    1939.88    1939.88       0.00  496609.94  496609.94  496609.94       0.00    0.52787         NA            NA     0      2   2    1   1     0        1         0    0      1 536870912     4096    1024.0 POSIX      0",
    ] {
        assert!(lines(&text).contains(&line), "{line}\n{text}");
    }
}

#[test]
fn the_block_reads_from_top_to_bottom() {
    let (options, record) = sample("-C -Q 3 -D 30 -O stoneWallingWearOut=1");
    insta::assert_snapshot!(render(&options, &run(), file(&record)));
}

/// This run never reaches its stonewall at 1 s. For it, IOR prints 0.51 s and 995.63 MiB/s per rank.
#[test]
fn a_stonewall_that_was_never_reached_ends_with_the_last_transfer() {
    let options = options("-F -b 512m -t 4k -D 1 -O stoneWallingWearOut=1");
    let mut write = trial(0, 262_144, &Times(21_000, 514_379_000, 41_000, 514_401_000));
    let wall = |after_ns: u64| {
        json!({
            "after_ns": after_ns, "operations": 262_144, "payload_bytes": 1u64 << 30, "rank_bytes_min": 1u64 << 29,
            "rank_bytes_max": 1u64 << 29, "bandwidth_bytes_per_s": 1.0,
        })
    };
    write["last_done_ns"] = json!(514_250_000);
    write["stonewall"] = wall(1_000_000_000);
    let record_of = |write: &Value| record(&options, vec![phase("write", vec![write.clone()])]);
    let text = render(&options, &run(), file(&record_of(&write)));
    let row = "    0.51440       0.51        995.62 ";
    assert!(text.contains(row), "{text}");
    write["stonewall"] = wall(400_000_000);
    let text = render(&options, &run(), file(&record_of(&write)));
    let row = "    0.51440       0.40       1280.00 ";
    assert!(text.contains(row), "{text}");
}

#[test]
fn removed_files_have_a_row_with_verbose() {
    let removed = |line: &str| {
        let options = options(&format!("-b 512m -t 4k -i 2 {line}"));
        let trials = [0, 1].map(|at| trial(at, 262_144, &Times(1, 1_000_000, 1, 1_000_000)));
        let record = record(&options, vec![phase("write", trials.to_vec())]);
        let text = render(&options, &run(), file(&record));
        let rows = lines(&text)
            .into_iter()
            .filter(|line| line.starts_with("remove"));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let row = "remove    -          -          -           -          -          -          -          -          -          ";
    assert_eq!(
        removed("-w -v"),
        [format!("{row}0   "), format!("{row}1   ")]
    );
    assert!(removed("-w").is_empty() && removed("-w -v -k").is_empty());
}

#[test]
fn repetitions_alternate_and_are_summarized_as_by_ior() {
    let options = options("-F -b 512m -t 4k -i 2");
    let times = |total| Times(1, total, 1, total);
    let write =
        [(0, 1_000_000_000), (1, 2_000_000_000)].map(|(at, ns)| trial(at, 262_144, &times(ns)));
    let read = [(0, 500_000_000), (1, 500_000_000)].map(|(at, ns)| trial(at, 262_144, &times(ns)));
    let record = record(
        &options,
        vec![phase("write", write.to_vec()), phase("read", read.to_vec())],
    );
    let text = render(&options, &run(), file(&record));
    let rows = lines(&text);
    let rows = rows
        .iter()
        .skip_while(|line| !line.starts_with("------"))
        .skip(1);
    let begins: Vec<_> = rows
        .take(4)
        .map(|line| (&line[..5], line.trim_end().ends_with('1')))
        .collect();
    let expected = [
        ("write", false),
        ("read ", false),
        ("write", true),
        ("read ", true),
    ];
    assert_eq!(begins, expected);
    // The standard deviation is that of the population: it divides by the count, not by the count minus one.
    let summary = "write        1024.00     512.00     768.00     256.00  262144.00  131072.00  196608.00   65536.00    1.50000 ";
    assert!(text.contains(summary), "{text}");
}

#[test]
fn unmeasured_phases_have_no_row() {
    let options = options("-w -F -b 512m -t 4k");
    let write = trial(0, 262_144, &Times(1, 1_000_000, 1, 1_000_000));
    let record = record(
        &options,
        vec![phase("write", vec![write]), phase("read", vec![])],
    );
    let text = render(&options, &run(), file(&record));
    assert!(text.contains("Max Write:"), "{text}");
    assert!(
        !text.contains("Max Read:") && !text.contains("\nread"),
        "{text}"
    );
}

#[test]
fn hints_are_shown_when_asked_for() {
    let (_, mut record) = sample("");
    let Body::File(body) = &mut record.body else {
        panic!("not of files")
    };
    body.point.hints = [("cb_nodes".to_owned(), "4".to_owned())].into();
    let engine = json!({"hints": {"cb_nodes": "1", "romio_cb_write": "automatic"}});
    let effective =
        json!({"ranks": "0-1", "engine": engine, "memory": {}, "cpus": [], "yielding": false});
    record.effective = vec![serde_json::from_value(effective).unwrap()];
    let shown = "hints passed to MPI_File_open() {\n\tcb_nodes = 4\n}\n\nhints returned from opened file {\n\
                 \tcb_nodes = 1\n\tromio_cb_write = automatic\n}\n\naccess ";
    let text = render(&options("-a MPIIO -H"), &run(), file(&record));
    assert!(text.contains(shown), "{text}");
    let text = render(&options("-a MPIIO"), &run(), file(&record));
    assert!(!text.contains("hints"), "{text}");
    let text = render(
        &options("-a MPIIO -H -O summaryFormat=JSON"),
        &run(),
        file(&record),
    );
    let whole: Value = serde_json::from_str(&text).unwrap();
    let hints = &whole["tests"][0]["Hints"];
    assert_eq!(hints["passed"], json!({"cb_nodes": "4"}));
    assert_eq!(hints["returned"]["romio_cb_write"], "automatic");
}

#[test]
fn csv_is_that_of_ior() {
    let (mut options, record) = sample("-O summaryFormat=CSV");
    options.verbose = 0;
    assert_eq!(
        render(&options, &run(), file(&record)),
        "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter\n\
         write,1939.8826,496629.6988,0.0000,524288.0000,4.0000,0.0000,0.5278,0.0000,0.5279,2,0\n\
         read,3486.5153,892584.3829,0.0000,524288.0000,4.0000,0.0000,0.2937,0.0001,0.2937,2,0\n"
    );
}

#[test]
fn json_has_the_keys_of_ior() {
    let (options, record) = sample("-O summaryFormat=JSON");
    let whole: Value = serde_json::from_str(&render(&options, &run(), file(&record))).unwrap();
    let test = &whole["tests"][0];
    let first = test["Results"][0].as_object().unwrap();
    let mut keys: Vec<_> = first.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected =
        "access blockKiB bwMiB closeTime iops latency openTime totalTime wrRdTime xferKiB";
    assert_eq!(keys.join(" "), expected);
    assert_eq!(test["Options"]["aggregate filesize"], "1 GiB");
    assert_eq!(test["Parameters"]["blockSize"], 536_870_912);
    assert_eq!(test["Parameters"]["memoryPerTask"], 0);
    let summary = &whole["summary"][1];
    assert_eq!(
        (&summary["operation"], &summary["numTasks"]),
        (&json!("read"), &json!(2))
    );
    assert!((summary["bwMaxMIB"].as_f64().unwrap() - 3486.52).abs() < 0.01);
    assert!((test["max"]["readMB"].as_f64().unwrap() - 3655.88).abs() < 0.01);
    assert_eq!(whole["Began"], "Tue Nov 14 22:13:20 2023");
}
