//! File experiments that are impossible on this machine. Each must give one clear error before a clock starts, and
//! leave no files. Foreign files must be kept.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use tempfile::tempdir;

use super::{body, experiment, failed, in_memory, is_empty, measured, names, only, walled, why};
use crate::support::{Ended, Started, at_once, has, rows, tonnage, under, wait_until};

/// Checks that all ranks refuse these arguments for the same reason, and that the directory has no new names.
fn fails_here(dir: &Path, arguments: &str, reason: &str) {
    let before = names(dir);
    let (why, record) = failed(dir, arguments);
    has(&why, reason);
    assert!(body(&record).phases.is_empty(), "{record:#?}");
    assert_eq!(names(dir), before, "{arguments}");
}

#[test]
fn paths_that_cannot_be() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("f"), "x").unwrap();
    for layout in ["", "--layout per-process", "--engine uring"] {
        for [path, reason] in rows(
            "nowhere/t => rank  | nowhere/t | no directory nowhere | mkdir -p nowhere
             f/t       => rank  | f is not a directory",
        ) {
            fails_here(
                dir.path(),
                &format!("--ranks 2 --path {path} {layout}"),
                reason,
            );
        }
    }
    fails_here(dir.path(), "--path d", "d is a directory | d/t.dat");
    fs::create_dir(dir.path().join("d.00000001")).unwrap();
    let own = "--ranks 2 --path d --layout per-process";
    fails_here(dir.path(), own, "rank 1 | d.00000001 is a directory");
}

/// A file that is too short for a whole stamp would look like a foreign file. All larger files must work, even in
/// repeated runs.
#[test]
fn the_smallest_files_that_are_not_refused_work() {
    let cases = "
        --ranks 1 --block 16 --segments 1 --transfer 16 => shared
        --ranks 1 --block 16 --segments 1 --transfer 1  => per-process
        --ranks 3 --block 1 --segments 6 --transfer 1   => shared
        --ranks 2 --block 7 --segments 3 --transfer 1   => shared
        --ranks 2 --block 7 --segments 3 --transfer 7   => per-process
    ";
    for [size, layout] in rows(cases) {
        for engine in super::engines() {
            let dir = tempdir().unwrap();
            for _ in 0..2 {
                let line = format!("{size} --layout {layout} --engine {engine} --path t");
                let (_, record) = measured(dir.path(), &format!("{line} --verify --trials 2"));
                assert_eq!(record.remarks.iter().find(|it| it.contains(" left")), None);
                is_empty(dir.path());
            }
        }
    }
}

/// Starts an experiment with a file `t` of this many bytes, and waits until its first phase is over. The ranks then
/// pause.
fn between_phases(dir: &Path, arguments: &str, bytes: u64) -> Started {
    let line = experiment(&format!("{arguments} --path t --delay 1s"));
    let run = tonnage(dir, &line).start();
    let path = dir.join("t");
    wait_until("the file is written", || {
        fs::metadata(&path).is_ok_and(|found| found.len() == bytes)
    });
    // By now, the file is closed too.
    std::thread::sleep(std::time::Duration::from_millis(300));
    run
}

/// While the ranks pause between phases, a link replaces the file. The run must refuse it by name, and must not touch
/// the linked file.
#[test]
fn a_link_that_replaces_a_file_is_not_followed() {
    type Swap = fn(&Path, &Path);
    let fifo: Swap = |path, _| {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    };
    let swaps: [(Swap, &str); 4] = [
        (
            |path, victim| symlink(victim, path).unwrap(),
            " is a symbolic link",
        ),
        (|path, _| fs::create_dir(path).unwrap(), " is a directory"),
        (fifo, " is a FIFO"),
        (|path, victim| fs::hard_link(victim, path).unwrap(), "t "),
    ];
    let content = vec![b'x'; 128 << 10];
    at_once(swaps, |(swap, part)| {
        let dir = tempdir().unwrap();
        let (path, victim) = (dir.path().join("t"), dir.path().join("victim"));
        fs::write(&victim, &content).unwrap();
        let line = "--ranks 2 --block 64k --transfer 16k --phases write,mixed --read-percent 50";
        let run = between_phases(dir.path(), line, 128 << 10);
        fs::remove_file(&path).unwrap();
        swap(&path, &victim);
        run.end().with_code(1).saying(&[part]);
        assert_eq!(fs::read(&victim).unwrap(), content, "{part}");
        let is_there = fs::symlink_metadata(&path).is_ok();
        assert!(is_there, "{part}: it is not ours to remove");
    });
}

#[test]
fn direct_transfers_where_there_are_none() {
    let Some(memory) = in_memory() else { return };
    for more in [
        "",
        "--layout per-process --directory-per-rank",
        "--engine uring --phases write",
    ] {
        let arguments = format!(
            "--ranks 2 --path {}/t --direct {more}",
            memory.path().display()
        );
        let (why, record) = failed(tempdir().unwrap().path(), &arguments);
        has(&why, "direct I/O on  | it is on tmpfs");
        assert!(body(&record).phases.is_empty());
        assert_eq!(names(memory.path()), Vec::<String>::new(), "{more}");
    }
}

#[test]
fn reads_of_what_is_not_there() {
    let dir = tempdir().unwrap();
    let read = "--ranks 2 --block 64k --transfer 16k --phases read";
    fs::write(dir.path().join("s"), vec![1; 100_000]).unwrap();
    fs::write(dir.path().join("p.00000000"), vec![1; 65536]).unwrap();
    let refused = "
        t                                     => t is to be read and is not there | --prefill
        s                                     => rank 1 | s is too short | 100000 bytes | 131072
        s --order shuffled                    => s is too short
        p --layout per-process                => rank 1 | p.00000001 is to be read and is not there
        p --layout per-process --read-shift 1 => rank 0 | p.00000001 is to be read and is not there
        p --stonewall-status nowhere.json     => cannot read the status file nowhere.json
        s --engine uring                      => rank 1 | s is too short
    ";
    for [more, reason] in rows(refused) {
        fails_here(dir.path(), &format!("{read} --path {more}"), reason);
    }
}

/// Runs an experiment in a directory `m`, which is mounted with these options in a new namespace. Afterwards, lists the
/// directory's content. Returns `None` if the namespace cannot be created.
pub fn on_tmpfs(dir: &Path, options: &str, then: &str, arguments: &str) -> Option<Ended> {
    let script = format!(
        "mount -t tmpfs -o {options} none m || exit 77\n{then}\n\"$@\"\ncode=$?\nls -A m > left\nexit $code\n"
    );
    fs::create_dir_all(dir.join("m")).unwrap();
    fs::write(dir.join("mount.sh"), script).unwrap();
    let ended = under(dir, "unshare -m sh mount.sh", &experiment(arguments)).run();
    let refused = ended.stderr.contains("unshare failed") || ended.code == Some(77);
    if refused || !dir.join("left").exists() {
        println!("skip: no mounts here: {}", ended.stderr);
        return None;
    }
    Some(ended)
}

/// Returns the content of the directory after the run.
pub fn left(dir: &Path) -> String {
    fs::read_to_string(dir.join("left")).unwrap()
}

#[test]
fn places_that_cannot_be_written() {
    let dir = tempdir().unwrap();
    let then = "mkdir m/d && mount -o remount,ro m";
    for path in ["m/t", "m/d/t"] {
        let arguments = format!("--ranks 2 --path {path} --layout per-process");
        let Some(ended) = on_tmpfs(dir.path(), "size=1m", then, &arguments) else {
            return;
        };
        let ended = ended.with_code(1);
        let record = only(&dir.path().join("r.jsonl"));
        let why = why(&record, &ended);
        has(
            &why,
            "rank 0 | m | cannot be written | Read-only file system",
        );
        assert!(body(&record).phases.is_empty());
        assert_eq!(left(dir.path()), "d\n");
    }
}

/// Foreign files must be neither overwritten nor removed, regardless of their first bytes.
#[test]
fn foreign_files_stay() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("letter"), "somebody's letter\n").unwrap();
    let mut image = vec![0; 64 << 10];
    image[1024..2048].fill(0x53);
    fs::write(at("image"), image).unwrap();
    File::create(at("sparse"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    symlink("letter", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    fs::hard_link(at("letter"), at("rank.00000001")).unwrap();
    for (path, name) in [
        ("letter", "letter"),
        ("image", "image"),
        ("sparse", "sparse"),
        ("link", "link"),
        ("dangling", "dangling"),
        ("rank --layout per-process", "rank.00000001"),
    ] {
        let before = fs::read(at(name)).ok();
        for more in ["", "--prefill", "--keep"] {
            let line = format!("--ranks 2 --path {path} --block 64k --transfer 16k {more}");
            fails_here(
                dir.path(),
                &line,
                &format!("rank  | {name} | name another path"),
            );
            assert_eq!(fs::read(at(name)).ok(), before, "{name}");
        }
    }
    // A file written by tonnage must be recognised even if its first bytes were never written.
    walled(
        dir.path(),
        "--path holes --block 64M --transfer 4k --order shuffled --fsync each --phases write --keep",
    );
    assert!(at("holes").exists());
    measured(dir.path(), "--path holes --block 64k --transfer 16k");
    assert!(!at("holes").exists());
}

#[test]
fn a_file_replaced_by_another_user_during_a_run_stays() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 3] = [
        (
            |path| {
                let letters = path.with_file_name("letters");
                fs::write(&letters, vec![b'x'; 1 << 20]).unwrap();
                fs::rename(letters, path).unwrap();
            },
            "it is not the file that this run made there",
        ),
        (
            |path| {
                let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
                file.write_all(b"notes").unwrap();
            },
            "it has 1048581 bytes, and this run wrote at most 1048576",
        ),
        (
            |path| {
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(b"notes", 512).unwrap();
            },
            "at offset 512 it holds what this run did not write",
        ),
    ];
    at_once(changes, |(change, why)| {
        let dir = tempdir().unwrap();
        let line = "--block 1m --transfer 64k --phases write,read";
        let run = between_phases(dir.path(), line, 1 << 20);
        let path = dir.path().join("t");
        change(&path);
        let changed = fs::read(&path).unwrap();
        run.end().with_code(0);
        assert_eq!(fs::read(&path).unwrap(), changed, "{why}");
        let remarks = only(&dir.path().join("r.jsonl")).remarks.join("; ");
        has(&remarks, &format!("t was left | {why}"));
    });
}
