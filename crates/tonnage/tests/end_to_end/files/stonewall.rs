//! Phases that end by time: data that was moved until then, wear-out, and readers that read only written data.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;
use tonnage_record::Record;

use super::{
    body, experiment, failed, is_empty, measured, on_disk, only, trial, unavailable, walled, why,
};
use crate::support::{has, tonnage};

/// More data than can be written before the stonewall, because each write is synced.
const SLOW: &str = "--block 1G --transfer 4k --fsync each --phases write";

/// Returns the transfers of each rank according to the status file.
fn written(path: &Path) -> Vec<u64> {
    let status: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let transfers = status["transfers"].as_array().unwrap().iter();
    transfers.map(|count| count.as_u64().unwrap()).collect()
}

#[test]
fn a_rank_that_is_cut_off_counts_completed_transfers() {
    let dir = on_disk();
    for more in [
        "",
        "--layout per-process --threads 2",
        "--order shuffled --barriers",
    ] {
        let (ended, record) = walled(dir.path(), &format!("--ranks 2 --path t {SLOW} {more}"));
        let (point, trial) = (&body(&record).point, trial(&record, 0));
        let wall = trial.stonewall.unwrap();
        assert_eq!(wall.after_ns, point.stonewall.unwrap().after_ns);
        assert!(trial.last_done_ns >= wall.after_ns, "{trial:?}");
        // Each thread had at most one transfer in progress.
        let threads = u64::from(point.ranks * point.threads);
        assert!(trial.operations - wall.operations <= threads, "{trial:?}");
        assert!(trial.payload_bytes < 1 << 30, "{trial:?}");
        ended.printing(&["stonewall"]);
    }
}

/// A stonewall after the end of a phase must have no effect.
#[test]
fn a_stonewall_that_never_comes_changes_nothing() {
    let dir = tempdir().unwrap();
    for more in ["", "--wear-out"] {
        let line = "--ranks 2 --path t --block 128k --transfer 4k --stonewall 1h --verify";
        let (_, record) = measured(dir.path(), &format!("{line} {more}"));
        for phase in 0..2 {
            let trial = trial(&record, phase);
            let operations = (trial.operations, trial.stonewall.unwrap().operations);
            assert_eq!(operations, (64, 64));
        }
    }
}

/// A phase in which nothing was moved is not a measurement. Its record must have the reason, and its files must be
/// removed. The number of ranks is doubled until their start takes longer than the stonewall.
#[test]
fn a_stonewall_before_the_first_transfer_fails_the_phase() {
    let dir = tempdir().unwrap();
    for more in ["", "--wear-out", "--layout per-process"] {
        let begun = |ranks: u32| {
            let arguments = format!(
                "--ranks {ranks} --threads 4 --barriers --path t --block 1M --transfer 4k --stonewall 1ms {more}"
            );
            tonnage(dir.path(), &experiment(&arguments)).run()
        };
        let mut runs = [16, 32, 64].into_iter().map(begun);
        let record = || only(&dir.path().join("r.jsonl"));
        let mut runs = runs.by_ref().map(|ended| (ended, record()));
        let (ended, record) = runs.find(|(ended, _)| ended.code != Some(0)).unwrap();
        let why = why(&record, &ended.with_code(1));
        has(
            &why,
            "the write phase of repetition 1 moved nothing: its stonewall came 1ms after the start",
        );
        has(&why, "give it more time");
        assert!(record.file().is_none_or(|file| file.phases.is_empty()));
        is_empty(dir.path());
    }
    // According to this status file, nothing was written.
    fs::write(dir.path().join("t"), vec![1; 1 << 20]).unwrap();
    fs::write(dir.path().join("s.json"), "{\"transfers\":[0,0]}\n").unwrap();
    let read =
        "--ranks 2 --path t --block 64k --transfer 4k --phases read --stonewall-status s.json";
    let (why, _) = failed(dir.path(), read);
    let little = "less had been written before than one transfer of each rank";
    assert!(why.contains(little), "{why}");
}

#[test]
fn after_wearing_out_all_ranks_have_moved_the_same() {
    for (engine, more) in [
        ("posix", "--fsync each"),
        ("posix", "--fsync each --order shuffled --threads 2"),
        ("uring", "--depth 2 --direct"),
        ("posix", "--fsync each --wear-out-transfers 400"),
    ] {
        if unavailable(engine) {
            continue;
        }
        let dir = on_disk();
        let (_, probe) = measured(dir.path(), "--path p --block 4k --transfer 4k");
        let is_direct = body(&probe).storage[0].direct_alignment.is_some();
        let more = more.replace("--direct", if is_direct { "--direct" } else { "" });
        // Data that is not synced goes to memory, so the block is smaller.
        let block = if engine == "uring" { "64M" } else { "1G" };
        let (_, record) = walled(
            dir.path(),
            &format!(
                "--ranks 3 --engine {engine} --path t --block {block} --transfer 4k --phases write \
                 --wear-out --layout per-process --stonewall-status s.json {more}"
            ),
        );
        let trial = trial(&record, 0);
        let wall = trial.stonewall.unwrap();
        let of_rank = wall.worn_out_transfers.unwrap();
        assert_eq!(trial.operations, 3 * of_rank, "{trial:?}");
        assert_eq!(written(&dir.path().join("s.json")), [of_rank; 3]);
        assert!(of_rank * 4096 >= wall.rank_bytes_max, "{trial:?}");
        if more.contains("400") {
            assert!(of_rank >= 400, "{trial:?}");
        }
    }
}

/// A later job must read exactly the data that was written, in any order.
#[test]
fn a_later_job_reads_what_was_written() {
    for more in [
        "",
        "--layout per-process --order shuffled",
        "--layout per-process --threads 2",
    ] {
        let dir = on_disk();
        let common = format!("--ranks 2 --path t --stonewall-status s.json {more}");
        let (_, record) = walled(dir.path(), &format!("{common} {SLOW} --keep"));
        let transfers = written(&dir.path().join("s.json"));
        let all = transfers.iter().sum::<u64>();
        let written_by = |record: &Record| trial(record, 0).operations;
        // With threads, some transfers may be skipped, and the status does not count them.
        let least = if more.contains("--threads") {
            1
        } else {
            written_by(&record)
        };
        assert!(
            (least..=written_by(&record)).contains(&all),
            "{transfers:?} {record:?}"
        );
        let read = "--block 1G --transfer 4k --phases read";
        let again = format!("{common} {read} --verify --read-shift 1");
        let (_, record) = measured(dir.path(), &again);
        let moved = (
            trial(&record, 0).operations,
            trial(&record, 0).verified_bytes,
        );
        assert_eq!(moved, (all, Some(all * 4096)), "{more}");
        // Without the status file, a reader does not know the amount. It then fails, because the rest of the file does
        // not exist.
        let blind = common.replace("--stonewall-status s.json", "");
        let (why, _) = failed(dir.path(), &format!("{blind} {read}"));
        assert!(why.contains("is too short"), "{why}");
        // The status of a run with another number of ranks cannot be used.
        let other = common.replace("--ranks 2", "--ranks 3");
        let (why, _) = failed(dir.path(), &format!("{other} {read}"));
        assert!(!why.is_empty());
    }
}

/// Within one run, a later phase must do the same without a status file.
#[test]
fn a_later_phase_reads_what_was_written() {
    let dir = on_disk();
    for more in [
        "",
        "--order shuffled --threads 2",
        "--read-shift 1 --layout per-process",
    ] {
        let slow = SLOW.replace("--phases write", "--phases write,read");
        let (_, record) = walled(
            dir.path(),
            &format!("--ranks 2 --path t {slow} --verify=write,read {more}"),
        );
        let [write, read] = &body(&record).phases[..] else {
            panic!("{record:#?}")
        };
        assert!(read.summary.operations <= write.summary.operations);
        assert!(read.trials[0].verified_bytes.unwrap() >= read.summary.payload_bytes);
    }
}

#[test]
fn a_status_of_other_ranks_is_refused() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("s.json"), "{\"transfers\":[1,2]}\n").unwrap();
    fs::write(dir.path().join("t"), vec![1; 1 << 20]).unwrap();
    let read =
        "--ranks 3 --path t --block 64k --transfer 4k --phases read --stonewall-status s.json";
    let (why, _) = failed(dir.path(), read);
    assert!(
        why.contains("s.json is of 2 ranks, and there are 3"),
        "{why}"
    );
    fs::write(dir.path().join("s.json"), "nonsense").unwrap();
    let (why, _) = failed(dir.path(), read);
    assert!(
        why.contains("s.json is not a status file of tonnage"),
        "{why}"
    );
}
