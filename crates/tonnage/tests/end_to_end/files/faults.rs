//! File experiments that a full disk, the death of a rank, or a signal cuts off. Measured points must be kept, created
//! files must be removed, and no process may wait forever.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_plan::files::Phase;
use tonnage_record::Outcome;

use super::refused::{left, on_tmpfs};
use super::{body, experiment, failed, is_empty, names, on_disk, only, unavailable, walled, why};
use crate::killing::{nothing_new, pids};
use crate::ssh_stand_in::write as stand_in;
use crate::support::processes::Process;
use crate::support::{SOON, Started, has, rows, shared_memory, tonnage, wait_until};

/// A phase that is longer than any test waits. It makes small synced writes, so that the disk does not fill up.
const ENDLESS: &str = "--block 1G --transfer 4k --fsync each --stonewall 1h --phases write";

/// The third of three repetitions has no room. The figures of two complete repetitions must be kept.
#[test]
fn a_disk_that_is_full_in_the_middle_of_a_phase() {
    for (engine, keep) in [("posix", ""), ("uring", ""), ("posix", "--keep")] {
        if unavailable(engine) {
            continue;
        }
        let dir = tempdir().unwrap();
        let arguments = format!(
            "--ranks 3 --engine {engine} --path m/t --layout per-process --block 1m --transfer 64k --segments 2 \
             --trials 3 --file-per-trial --stonewall 1h {keep}"
        );
        let Some(ended) = on_tmpfs(dir.path(), "size=16m", "", &arguments) else {
            return;
        };
        let ended = ended.with_code(1);
        assert!(ended.took < SOON, "{ended:#?}");
        let record = only(&dir.path().join("r.jsonl"));
        let why = why(&record, &ended);
        has(
            &why,
            "rank  |  bytes at offset  | m/t.0000000 | .2 | No space left on device",
        );
        has(&why, &format!(" on {}: ", tonnage_sys::host::name()));
        let ended = ended.saying(&["No space left on device"]);
        assert_eq!(ended.stderr.matches("error: ").count(), 1, "{ended:#?}");
        let phases = body(&record).phases.iter();
        let phases = phases.map(|phase| (phase.phase, phase.trials.len()));
        assert!(phases.eq([(Phase::Write, 2), (Phase::Read, 2)]));
        let left = left(dir.path());
        assert_eq!(left.is_empty(), keep.is_empty(), "{left}");
    }
}

#[test]
fn a_disk_that_is_too_small_from_the_beginning() {
    let dir = tempdir().unwrap();
    // A stonewall could end the writing before the disk is full, but these do not. In the last case, a file system that
    // compresses would have room.
    let cases = "
                                                                 => the files in m take 8 MiB | are free | --stonewall
        --prefill --stonewall 1h                                 => are free
        --layout per-process --directory-per-rank                => are free
        --data compressible=10%                                  => are free
        --stonewall 1h                                           => No space left on device
        --stonewall 1h --threads 2 --barriers                    => No space left on device
        --stonewall 1h --layout per-process --directory-per-rank => No space left on device
        --data compressible=99%                                  => No space left on device
    ";
    for [more, reason] in rows(cases) {
        let arguments = format!("--ranks 2 --path m/t --block 4m --transfer 64k {more}");
        let Some(ended) = on_tmpfs(dir.path(), "size=2m", "", &arguments) else {
            return;
        };
        let ended = ended.with_code(1);
        assert!(ended.took < SOON, "{ended:#?}");
        let record = only(&dir.path().join("r.jsonl"));
        let why = why(&record, &ended);
        has(&why, reason);
        assert!(body(&record).phases.is_empty());
        // The run knew in advance that the data would not fit. If it measured nevertheless, it must have remarked this.
        let refused = why.contains("are free");
        let mut remarks = record.remarks.iter();
        let is_known = refused || remarks.any(|remark| remark.contains("are free"));
        assert!(is_known, "{record:#?}");
        assert_eq!(left(dir.path()), "", "{more}");
    }
}

#[test]
fn files_that_no_disk_has_room_for() {
    let dir = on_disk();
    for size in ["--segments 4294967295", "--block 1024T"] {
        let begun = Instant::now();
        let (why, record) = failed(dir.path(), &format!("--ranks 2 --path t {size}"));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(why.contains("are free"), "{why}");
        assert!(body(&record).phases.is_empty());
        is_empty(dir.path());
    }
    let bounded = "--path t --block 1024T --transfer 4k --fsync each --phases write";
    walled(dir.path(), bounded);
}

/// The bytes of an existing file count as free if a new file replaces it.
#[test]
fn a_file_that_fills_the_disk_is_written_again() {
    let dir = tempdir().unwrap();
    let arguments = "--ranks 2 --path m/t --block 1m --transfer 64k --keep --phases write";
    let then = format!(
        "{} file --bound none {arguments}",
        env!("CARGO_BIN_EXE_tonnage")
    );
    let Some(ended) = on_tmpfs(dir.path(), "size=3m", &then, arguments) else {
        return;
    };
    ended.with_code(0);
    let mut files = left(dir.path());
    assert_eq!(files.split_off(1), "\n");
    fs::remove_file(dir.path().join("r.jsonl")).unwrap();
}

/// Starts a run that writes to files named `t` or `t` with a suffix. Waits until both ranks have written something.
fn writing(dir: &Path, arguments: &str) -> Started {
    let run = tonnage(dir, &experiment(arguments)).start();
    wait_until("ranks are there", || run.processes().iter().any(is_rank));
    wait_until("the ranks write", || {
        let folders = [dir.to_owned(), dir.join("0"), dir.join("1")];
        let entries = folders
            .into_iter()
            .filter_map(|it| fs::read_dir(it).ok())
            .flatten()
            .flatten();
        // Existing files that the run writes into have one byte at first.
        let is_written = |entry: &fs::DirEntry| {
            let found = entry
                .metadata()
                .ok()
                .filter(|it| it.is_file() && it.len() > 1);
            found.is_some() && entry.file_name().to_string_lossy().starts_with('t')
        };
        let written: Vec<_> = entries.filter(is_written).collect();
        written.len() > 1 || written.iter().any(|it| it.file_name() == "t")
    });
    // Wait until the phase is well under way.
    std::thread::sleep(Duration::from_millis(50));
    run
}

#[test]
fn a_rank_that_is_killed_while_it_writes() {
    for (rank, options) in [
        (0, ""),
        (1, ""),
        (0, "--layout per-process --directory-per-rank"),
        (1, "--layout per-process --directory-per-rank --threads 2"),
        (1, "--layout per-process --order shuffled --wear-out"),
        (0, "--engine uring --layout per-process"),
        (1, "--layout per-process --keep"),
    ] {
        if unavailable(options) {
            continue;
        }
        let dir = on_disk();
        let before = shared_memory();
        let mut arguments = format!("--ranks 2 --path t {ENDLESS} {options}");
        if options.contains("uring") {
            arguments = arguments.replace("--fsync each", "--depth 1");
        }
        let run = writing(dir.path(), &arguments);
        let pids = pids(&run);
        let ended = run.kill_rank(rank);
        // Rank 0 writes the record, unless it was killed.
        let path = dir.path().join("r.jsonl");
        if rank == 0 {
            fs::remove_file(path).unwrap();
        } else {
            let record = only(&path);
            let lost = format!("rank {rank} on {}", tonnage_sys::host::name());
            assert!(why(&record, &ended).contains(&lost), "{record:#?}");
            assert!(body(&record).phases.is_empty());
        }
        let kept: &[&str] = match options.contains("--keep") {
            true => &["t.00000000", "t.00000001"],
            false => &[],
        };
        assert_eq!(names(dir.path()), kept, "{options}");
        nothing_new(&before, &pids);
    }
}

/// Returns whether a process is a rank, including ranks that `--hosts` starts.
fn is_rank(process: &Process) -> bool {
    process.rank.is_some() || process.command_line.contains(" host-rank")
}

/// Kills processes. All are stopped first, so that none sees another one end.
fn kill_all(run: &Started, is_hit: impl Fn(&Process) -> bool) {
    let processes = run.processes();
    let hit = || processes.iter().filter(|process| is_hit(process));
    for signal in [Signal::STOP, Signal::KILL] {
        for process in hit() {
            run.signal_process(process, signal);
        }
    }
}

/// The process that started the ranks is their supervisor or, with `--hosts`, their host's agent. It must remove the
/// ranks' files and report each file.
#[test]
fn all_ranks_that_are_killed_while_they_write() {
    let folder = tempdir().unwrap();
    // This stand-in for ssh keeps the environment, because the tests identify a run's processes by a variable.
    let ssh = stand_in(
        folder.path(),
        "for last; do :; done\nexec /bin/sh -c \"$last\"",
    );
    let by_agent = format!("--hosts h:2 --ssh {ssh}");
    let per_rank = "--layout per-process --directory-per-rank";
    for (ranks, options) in [
        ("--ranks 2", ""),
        ("--ranks 2", per_rank),
        (&*by_agent, per_rank),
    ] {
        let dir = on_disk();
        let arguments = format!("{ranks} --path t {ENDLESS} {options}");
        let run = writing(dir.path(), &arguments);
        kill_all(&run, is_rank);
        let ended = run.end_soon().with_code(1);
        for rank in 0..2 {
            let told = format!("rank {rank} on ");
            assert!(ended.stderr.contains(&told), "{ended:#?}");
        }
        drop(fs::remove_file(dir.path().join("r.jsonl")));
        assert_eq!(names(dir.path()), Vec::<String>::new(), "{ranks} {options}");
    }
}

/// No process is left to remove the files, so the next run must report them.
#[test]
fn the_supervisor_that_is_killed_with_all_ranks() {
    let dir = on_disk();
    let each = "--ranks 2 --path t --layout per-process --directory-per-rank";
    let run = writing(dir.path(), &format!("{each} {ENDLESS}"));
    kill_all(&run, |_| true);
    assert_eq!(run.end().signal, Some(9));
    drop(fs::remove_file(dir.path().join("r.jsonl")));
    assert_eq!(names(dir.path()), ["0/", "1/"]);
    let next = format!("{each} --block 64k --transfer 4k --trials 2 --phases write");
    tonnage(dir.path(), &experiment(&next)).run().with_code(0);
    let record = only(&dir.path().join("r.jsonl"));
    let told = "2 files that an earlier run of tonnage had left or kept were removed before they were written anew, such \
                as 0/t.00000000, 1/t.00000001; directories of ranks were there as well, and stay";
    assert!(
        record.remarks.iter().any(|it| it == told),
        "{:#?}",
        record.remarks
    );
}

/// Waits until a process has a file of its own open in a directory. The process uses this file to probe the storage.
fn probing(pid: i32, dir: &Path) {
    let dir = dir.canonicalize().unwrap();
    wait_until("a file of its own is open", || {
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let mut names = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        names.any(|name| {
            let shown = name.to_string_lossy();
            let is_scratch = shown.contains("/.tonnage-bound-") || shown.ends_with("(deleted)");
            name.starts_with(&dir) && is_scratch
        })
    });
}

/// Only rank 0 knows the file that measures the storage's bound. The file is unnamed, so that nothing is left if rank 0
/// dies.
#[test]
fn rank_0_that_is_killed_while_the_bound_is_measured() {
    for options in ["", "--layout per-process --directory-per-rank"] {
        let dir = on_disk();
        let arguments =
            format!("file --ranks 2 --path t --block 64k --transfer 64k --bound auto {options}");
        let run = tonnage(dir.path(), &arguments).start();
        probing(run.rank(0).pid, dir.path());
        run.kill_rank(0);
        assert_eq!(names(dir.path()), Vec::<String>::new(), "{options}");
    }
}

/// Existing files that are written into must be kept, whichever process dies.
#[test]
fn a_rank_that_is_killed_while_it_writes_into_a_file_of_others() {
    let dir = on_disk();
    fs::write(dir.path().join("t"), "x").unwrap();
    let run = writing(
        dir.path(),
        &format!("--ranks 2 --path t --existing {ENDLESS}"),
    );
    run.kill_rank(1);
    let record = only(&dir.path().join("r.jsonl"));
    assert!(matches!(record.outcome, Outcome::Failed { .. }));
    assert_eq!(names(dir.path()), ["t"]);
}

#[test]
fn a_signal_while_it_writes() {
    for (to_rank, signal, code) in [
        (None, Signal::INT, 130),
        (None, Signal::TERM, 143),
        (Some(1), Signal::INT, 130),
    ] {
        let dir = on_disk();
        let arguments = format!("--ranks 2 --path t --layout per-process {ENDLESS}");
        let run = writing(dir.path(), &arguments);
        match to_rank {
            None => run.signal(signal),
            Some(rank) => run.signal_rank(rank, signal),
        }
        run.end_soon().with_code(code);
        fs::remove_file(dir.path().join("r.jsonl")).unwrap();
        assert_eq!(
            names(dir.path()),
            Vec::<String>::new(),
            "{to_rank:?} {signal:?}"
        );
    }
}

/// If the supervisor is killed, its ranks must end by themselves and remove their files.
#[test]
fn the_supervisor_that_is_killed() {
    let dir = on_disk();
    let before = shared_memory();
    let arguments = format!("--ranks 2 --path t --layout per-process {ENDLESS}");
    let run = writing(dir.path(), &arguments);
    let pids = pids(&run);
    run.signal(Signal::KILL);
    let ended = run.end();
    assert_eq!(ended.signal, Some(9), "{ended:#?}");
    nothing_new(&before, &pids);
    drop(fs::remove_file(dir.path().join("r.jsonl")));
    is_empty(dir.path());
}
