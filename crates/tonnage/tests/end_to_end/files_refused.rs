//! File experiments that cannot be: one clear error each, before a clock starts, and nothing is left. Files of others
//! stay.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use tempfile::tempdir;

use super::files::{in_memory, names};
use super::support::file_records::{experiment, failed, measured, only, walled, why};
use super::support::{Ended, tonnage, under, wait_until};

/// Refused before a rank starts.
fn refused(arguments: &str, parts: &[&str]) {
    let dir = tempdir().unwrap();
    let ended = tonnage(dir.path(), &experiment(arguments)).run();
    let ended = ended.with_code(2).with_one_error(parts);
    assert!(ended.stdout.is_empty(), "{ended:#?}");
    assert_eq!(names(dir.path()), Vec::<String>::new(), "{arguments}");
}

#[test]
fn what_no_machine_could_do() {
    for (arguments, parts) in [
        (
            "--path t --block 10k --transfer 4k",
            &[
                "block 10k is no whole number of transfers of 4k",
                "write block 8k",
            ][..],
        ),
        ("--path t --block 1k --transfer 4k", &["write block 4k"]),
        ("--path t --transfer 0", &["transfer 0 would move nothing"]),
        ("--path t --segments 0", &["the fewest is segments 1"]),
        ("--path d/", &["path d/ is a directory", "d/file"]),
        (
            "--path t --path u",
            &["layout shared", "layout per-process"],
        ),
        ("--path t --hint a=b", &["engine posix does not take hint"]),
        (
            "--path t --collective",
            &["engine posix does not take collective"],
        ),
        (
            "--path t --file-view",
            &["engine posix does not take file-view"],
        ),
        ("--path t --window 8", &["leave window out", "engine uring"]),
        (
            "--path t --engine uring --fsync each",
            &["fsync each", "write fsync end, or use engine posix"],
        ),
        (
            "--path t --direct --block 1000 --transfer 1000",
            &["multiples of 512 bytes", "write transfer 1k"],
        ),
        ("--path t --engine posx", &["did you mean \"posix\"?"]),
        ("--path t --engine shm", &["unknown engine \"shm\""]),
        (
            "--path t --phases write,wirte",
            &["did you mean \"write\"?"],
        ),
        ("--path t --phases read,read", &["phases has read twice"]),
        ("--path t --phases mixed", &["add read-percent 70"]),
        ("--path t --read-percent 100", &["read-percent 100"]),
        ("--path t --read-shift 1", &["one rank", "--ranks 2"]),
        (
            "--path t --ranks 2 --read-shift 2",
            &["read-shift 1 or less"],
        ),
        ("--path t --wear-out", &["add stonewall 30s"]),
        ("--path t --stonewall-status s", &["add stonewall 30s"]),
        ("--path t --stonewall 1us", &["the shortest is"]),
        ("--path t --phases write --drop-caches", &["add phase read"]),
        (
            "--path t --phases write --verify=read",
            &["add read to phases"],
        ),
        ("--path t --directory-per-rank", &["layout per-process"]),
        ("--path t --data compressible=100%", &["compressible=100%"]),
        ("--path t --threads 9", &["threads 9", "threads 4 or less"]),
        ("--path t --block 9999999T", &["9999999T"]),
        ("--block 4k", &["--path"]),
    ] {
        refused(arguments, parts);
    }
}

/// Refused by the ranks, by all of them for one reason; there is nothing in the directory that was not there before.
fn fails_here(dir: &Path, arguments: &str, parts: &[&str]) {
    let before = names(dir);
    let (why, record) = failed(dir, arguments);
    for part in parts {
        assert!(why.contains(part), "no {part:?} in {why}");
    }
    assert!(record.file().unwrap().phases.is_empty(), "{record:#?}");
    assert_eq!(names(dir), before, "{arguments}");
}

#[test]
fn paths_that_cannot_be() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("f"), "x").unwrap();
    for layout in ["", "--layout per-process", "--engine uring"] {
        let on = |path: &str| format!("--ranks 2 --path {path} {layout}");
        fails_here(
            dir.path(),
            &on("nowhere/t"),
            &[
                "rank ",
                "nowhere/t",
                "no directory nowhere",
                "mkdir -p nowhere",
            ],
        );
        fails_here(dir.path(), &on("f/t"), &["rank ", "f is no directory"]);
    }
    fails_here(dir.path(), "--path d", &["d is a directory", "d/t.dat"]);
    fs::create_dir(dir.path().join("d.00000001")).unwrap();
    fails_here(
        dir.path(),
        "--ranks 2 --path d --layout per-process",
        &["rank 1", "d.00000001 is a directory"],
    );
}

/// Files too short for a whole stamp could not be told from those of others. All larger ones work, run after run.
#[test]
fn the_smallest_files_work_or_are_refused() {
    for (ranks, block, segments) in [
        (1, 1, 1),
        (2, 4, 1),
        (1, 15, 1),
        (1, 16, 1),
        (3, 1, 6),
        (2, 7, 3),
    ] {
        for (layout, engine) in [
            ("shared", "posix"),
            ("shared", "uring"),
            ("per-process", "posix"),
            ("per-process", "uring"),
        ] {
            for transfer in BTreeSet::from([1, block]) {
                let blocks = match layout {
                    "shared" => ranks * segments,
                    _ => segments,
                };
                let arguments = format!(
                    "--ranks {ranks} --path t --block {block} --segments {segments} --transfer {transfer} --layout {layout} \
                     --engine {engine} --phases write,read --verify --trials 2"
                );
                if block * blocks < 16 {
                    refused(&arguments, &[&format!("block {block}"), "write block "]);
                    continue;
                }
                let dir = tempdir().unwrap();
                for _ in 0..2 {
                    let (_, record) = measured(dir.path(), &arguments);
                    assert_eq!(record.remarks.iter().find(|it| it.contains(" left")), None);
                    assert_eq!(names(dir.path()), Vec::<String>::new(), "{arguments}");
                }
            }
        }
    }
}

/// What is swapped in between phases, while all ranks wait, is refused by its name, and nothing happens to a file that
/// it leads to.
#[test]
fn what_takes_the_place_of_a_file_is_not_followed() {
    type Swap = fn(&Path, &Path);
    let swaps: [(Swap, &str); 4] = [
        (
            |path, victim| symlink(victim, path).unwrap(),
            " is a symbolic link",
        ),
        (|path, _| fs::create_dir(path).unwrap(), " is a directory"),
        (
            |path, _| {
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            },
            " is a FIFO",
        ),
        (|path, victim| fs::hard_link(victim, path).unwrap(), "t "),
    ];
    for (swap, part) in swaps {
        let dir = tempdir().unwrap();
        let (path, victim) = (dir.path().join("t"), dir.path().join("victim"));
        fs::write(&victim, vec![b'x'; 128 << 10]).unwrap();
        let line = "--ranks 2 --path t --block 64k --transfer 16k --phases write,mixed --read-percent 50 --delay 2s";
        let run = tonnage(dir.path(), &experiment(line)).start();
        wait_until("the first phase is over", || {
            fs::metadata(&path).is_ok_and(|found| found.len() == 128 << 10)
        });
        std::thread::sleep(std::time::Duration::from_millis(500));
        fs::remove_file(&path).unwrap();
        swap(&path, &victim);
        let ended = run.end().with_code(1);
        assert!(ended.stderr.contains(part), "{part}: {ended:#?}");
        assert_eq!(fs::read(&victim).unwrap(), vec![b'x'; 128 << 10], "{part}");
        assert!(
            fs::symlink_metadata(&path).is_ok(),
            "{part}: it is not ours to remove"
        );
    }
}

#[test]
fn direct_transfers_where_there_are_none() {
    let Ok(memory) = in_memory() else {
        println!("skip: no /dev/shm to write to");
        return;
    };
    for more in [
        "",
        "--layout per-process --directory-per-rank",
        "--engine uring --phases write",
    ] {
        let arguments = format!(
            "--ranks 2 --path {}/t --direct {more}",
            memory.path().display()
        );
        let dir = tempdir().unwrap();
        let (why, record) = failed(dir.path(), &arguments);
        assert!(
            why.contains("direct I/O on ") && why.contains("it is on tmpfs"),
            "{why}"
        );
        assert!(record.file().unwrap().phases.is_empty());
        assert_eq!(names(memory.path()), Vec::<String>::new(), "{more}");
    }
}

#[test]
fn reads_of_what_is_not_there() {
    let dir = tempdir().unwrap();
    let read = "--ranks 2 --block 64k --transfer 16k --phases read";
    for engine in ["posix", "uring"] {
        let read = format!("{read} --engine {engine}");
        fails_here(
            dir.path(),
            &format!("{read} --path t"),
            &["t is to be read and is not there", "--prefill"],
        );
        fs::write(dir.path().join("s"), vec![1; 100_000]).unwrap();
        fails_here(
            dir.path(),
            &format!("{read} --path s"),
            &["rank 1", "s is too short", "100000 bytes", "131072"],
        );
        fails_here(
            dir.path(),
            &format!("{read} --path s --order shuffled"),
            &["s is too short"],
        );
        fs::write(dir.path().join("p.00000000"), vec![1; 65536]).unwrap();
        fails_here(
            dir.path(),
            &format!("{read} --path p --layout per-process"),
            &["rank 1", "p.00000001 is to be read and is not there"],
        );
        fails_here(
            dir.path(),
            &format!("{read} --path p --layout per-process --read-shift 1"),
            &["rank 0", "p.00000001 is to be read and is not there"],
        );
        fails_here(
            dir.path(),
            &format!("{read} --path p --stonewall-status nowhere.json"),
            &["cannot read the status file nowhere.json"],
        );
    }
}

/// Runs an experiment in a directory `m` that a new mount namespace shows as these options say, and lists what is left
/// in it. `None` where there can be no such namespace.
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

/// Content of the directory when it had ended.
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
        for part in ["rank 0", "m", "cannot be written", "Read-only file system"] {
            assert!(why.contains(part), "no {part:?} in {why}");
        }
        assert!(record.file().unwrap().phases.is_empty());
        assert_eq!(left(dir.path()), "d\n");
    }
}

/// Files of others are neither written into nor removed, whatever they begin with.
#[test]
fn files_of_others_stay() {
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
    for (path, layout, name) in [
        ("letter", "shared", "letter"),
        ("image", "shared", "image"),
        ("sparse", "shared", "sparse"),
        ("link", "shared", "link"),
        ("dangling", "shared", "dangling"),
        ("rank", "per-process", "rank.00000001"),
    ] {
        let contents = |name: &str| fs::read(at(name)).ok();
        let before = contents(name);
        for more in ["", "--prefill", "--keep"] {
            fails_here(
                dir.path(),
                &format!(
                    "--ranks 2 --path {path} --layout {layout} --block 64k --transfer 16k {more}"
                ),
                &["rank ", name, "name another path"],
            );
            assert_eq!(contents(name), before, "{name}");
        }
    }
    // What tonnage wrote is told from them also when its first bytes were never written.
    walled(
        dir.path(),
        "--path holes --block 64M --transfer 4k --order shuffled --fsync each --phases write --keep",
    );
    assert!(at("holes").exists());
    measured(dir.path(), "--path holes --block 64k --transfer 16k");
    assert!(!at("holes").exists());
}

#[test]
fn what_became_somebody_elses_during_a_run_is_left() {
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
    for (change, why) in changes {
        let dir = tempdir().unwrap();
        // Between the phases there is time.
        let arguments = "--path t --block 1m --transfer 64k --delay 2s --phases write,read";
        let run = tonnage(dir.path(), &experiment(arguments)).start();
        let path = dir.path().join("t");
        wait_until("the file is written", || {
            fs::metadata(&path).is_ok_and(|found| found.len() == 1 << 20)
        });
        std::thread::sleep(std::time::Duration::from_millis(500));
        change(&path);
        let changed = fs::read(&path).unwrap();
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(fs::read(&path).unwrap(), changed, "{why}");
        let record = only(&dir.path().join("r.jsonl"));
        let remarks = record.remarks.join("; ");
        assert!(
            remarks.contains("t was left") && remarks.contains(why),
            "{remarks}"
        );
    }
}
