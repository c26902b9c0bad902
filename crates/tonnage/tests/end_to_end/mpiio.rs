//! File experiments with the engine mpiio, under the mpirun of each installed MPI and without mpirun.
//!
//! `crates/engines/tests/mpiio/` tests the engine's calls one by one. The tests here cover whole runs, their records,
//! and how runs end.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::launchers::{MPICH, OPEN_MPI, is_there, under_mpirun};
use super::support::records::{self, why};
use super::support::{tonnage, wait_until};

const POINT: &str = "file --engine mpiio --path t.dat --block 256k --transfer 64k --segments 3 --phases write,read \
                     --read-shift 1 --fsync end --barriers --bound none --verify -o r.jsonl";

/// Launchers, and the names of their libraries.
const MPIS: [(&str, &str); 2] = [(OPEN_MPI, "Open MPI"), (MPICH, "MPICH")];

fn installed() -> impl Iterator<Item = (&'static str, &'static str)> {
    MPIS.into_iter().filter(|(launcher, _)| is_there(launcher))
}

fn read(dir: &Path) -> Vec<Record> {
    records::read(&dir.join("r.jsonl"))
}

/// Returns the part of the engine's report that all ranks share.
fn engine(record: &Record) -> Value {
    // The ranks differ only in their CPUs.
    let first = &record.effective[0].engine;
    let same = record.effective.iter().all(|ranks| ranks.engine == *first);
    assert!(same, "all ranks say the same: {record:#?}");
    serde_json::to_value(first).unwrap()
}

/// Runs under mpirun, which must succeed and must not complain about how its processes ended.
fn measured(dir: &Path, launcher: &str, arguments: &str) -> Vec<Record> {
    let ended = under_mpirun(dir, launcher, arguments).run().with_code(0);
    for complaint in ["error", "inalize", "mpirun detected"] {
        assert!(!ended.stderr.contains(complaint), "{ended:#?}");
    }
    let records = read(dir);
    let is_measured = |record: &Record| record.outcome == Outcome::Measured;
    assert!(records.iter().all(is_measured), "{records:#?}");
    assert!(!dir.join("t.dat").exists(), "files are removed");
    records
}

#[test]
fn ranks_write_and_read_each_for_itself_and_all_together() {
    for (launcher, dialect) in installed() {
        for (options, calls) in [("", "independent"), ("--collective", "collective")] {
            let dir = tempdir().unwrap();
            // The run has two points, but starts MPI only once.
            let arguments =
                format!("{POINT} --transfer 64k,128k {options}").replacen("--transfer 64k ", "", 1);
            let records = measured(dir.path(), launcher, &arguments);
            assert_eq!(records.len(), 2);
            for record in &records {
                let engine = engine(record);
                assert_eq!(engine["dialect"], dialect);
                assert_eq!(engine["calls"], calls);
                assert!(engine["library"].as_str().unwrap().starts_with('/'));
                let trials = record
                    .file()
                    .unwrap()
                    .phases
                    .iter()
                    .flat_map(|it| &it.trials);
                let bytes = 6 * (256 << 10);
                assert!(trials.clone().all(|trial| trial.payload_bytes == bytes));
                assert!(
                    trials
                        .clone()
                        .any(|trial| trial.verified_bytes == Some(bytes))
                );
            }
        }
    }
}

#[test]
fn each_rank_sees_its_own_part_of_the_file() {
    for (launcher, _) in installed() {
        let dir = tempdir().unwrap();
        let arguments = format!("{POINT} --collective --file-view");
        let records = measured(dir.path(), launcher, &arguments);
        assert_eq!(engine(&records[0])["file_view"], true);
        // In a shared file, a shuffled order mixes the transfers of all blocks, which a file view cannot express.
        let dir = tempdir().unwrap();
        let shuffled = format!("{POINT} --file-view --order shuffled");
        let ended = under_mpirun(dir.path(), launcher, &shuffled).run();
        assert!(ended.code != Some(0), "{ended:#?}");
        let records = read(dir.path());
        let why = why(&records[0]);
        assert!(why.contains("--order sequential"), "{why}");
    }
}

#[test]
fn hints_are_in_the_record_and_so_are_those_that_are_not_taken() {
    for (launcher, dialect) in installed() {
        let dir = tempdir().unwrap();
        let hints = "--hint romio_cb_write=disable --hint tonnage_nonsense=1";
        let arguments = format!("{POINT} --collective {hints} --engine-option preallocate=on");
        let records = measured(dir.path(), launcher, &arguments);
        let engine = engine(&records[0]);
        assert_eq!(engine["preallocate"], true);
        let vain = &engine["hints_not_taken"];
        assert!(vain["tonnage_nonsense"].is_string(), "{engine:#}");
        let is_romio = dialect == "MPICH";
        assert_eq!(vain["romio_cb_write"].is_null(), is_romio, "{engine:#}");
        if is_romio {
            assert_eq!(engine["hints"]["romio_cb_write"], "disable");
        }
    }
}

#[test]
fn ranks_that_no_mpirun_has_started_are_refused() {
    if installed().count() == 0 {
        return;
    }
    let dir = tempdir().unwrap();
    tonnage(dir.path(), &format!("{POINT} --ranks 2"))
        .run()
        .with_code(1);
    let records = read(dir.path());
    let why = why(&records[0]);
    for part in [
        "rank 0 of 1",
        "rank 0 of 2",
        "libmpi",
        "mpirun did not start the ranks",
    ] {
        assert!(why.contains(part), "{why}");
    }
    // A single rank needs no launcher.
    std::fs::remove_file(dir.path().join("r.jsonl")).unwrap();
    let alone = POINT.replace("--read-shift 1 ", "");
    tonnage(dir.path(), &format!("{alone} --ranks 1"))
        .run()
        .with_code(0);
    let one = read(dir.path());
    assert_eq!(one[0].outcome, Outcome::Measured, "{one:#?}");
}

#[test]
fn a_library_of_another_mpi_is_refused_with_both_sizes() {
    if !is_there(MPICH) || !is_there(OPEN_MPI) {
        return;
    }
    let dir = tempdir().unwrap();
    let arguments = format!("{POINT} --mpi libmpi.so.40");
    let ended = under_mpirun(dir.path(), MPICH, &arguments).run();
    assert!(ended.code != Some(0), "{ended:#?}");
    let records = read(dir.path());
    let why = why(&records[0]);
    for part in [
        "libmpi.so.40",
        "rank 0 of 1",
        "rank 0 of 2",
        "does not belong to the launcher",
    ] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_missing_library_is_reported_with_the_search_path() {
    let (dir, alone) = (tempdir().unwrap(), POINT.replace("--read-shift 1 ", ""));
    let run = |arguments: &str, variable: &str| {
        let _ = std::fs::remove_file(dir.path().join("r.jsonl"));
        let ended = tonnage(dir.path(), arguments)
            .env("TONNAGE_MPI", variable)
            .run();
        assert!(ended.code != Some(0), "{ended:#?}");
        why(&read(dir.path())[0]).to_owned()
    };
    let by_option = run(
        &format!("{alone} --ranks 1 --mpi /nonexistent/libmpi.so.40"),
        "",
    );
    for part in ["/nonexistent/libmpi.so.40", "pip install"] {
        assert!(by_option.contains(part), "{by_option}");
    }
    let by_variable = run(&format!("{alone} --ranks 1"), "/proc/self/status");
    let advice = "With TONNAGE_MPI, name the libmpi.so that belongs to the mpirun";
    assert!(by_variable.contains(advice), "{by_variable}");
    let other = run(&format!("{alone} --ranks 1 --mpi libc.so.6"), "");
    assert!(other.contains("MPI_Get_library_version"), "{other}");
}

#[test]
fn a_killed_rank_ends_the_others_inside_mpi() {
    for (launcher, _) in installed() {
        for options in ["--collective", ""] {
            let dir = tempdir().unwrap();
            // Each trial writes the same small file again.
            let arguments = format!(
                "file --engine mpiio --path t.dat --block 64k --transfer 16k --segments 4 --phases write --existing \
                 --trials 100000 --bound none {options}"
            );
            let run = under_mpirun(dir.path(), launcher, &arguments).start();
            wait_until("the ranks write", || dir.path().join("t.dat").exists());
            std::thread::sleep(Duration::from_millis(200));
            run.signal_rank(1, Signal::KILL);
            let since = Instant::now();
            let ended = run.end();
            assert!(ended.code != Some(0), "{ended:#?}");
            assert!(since.elapsed() < Duration::from_secs(20), "{ended:#?}");
            // An mpirun may end the other ranks before they can report. It then prints the reason itself.
            let said = format!("{}{}", ended.stdout, ended.stderr);
            let of = ["rank 1 on", "signal 9 (Killed)", "Killed (signal 9)"];
            assert!(of.iter().any(|of| said.contains(of)), "{ended:#?}");
        }
    }
}
