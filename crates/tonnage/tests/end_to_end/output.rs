//! Output files that cannot be written. The error comes before measuring if possible, otherwise at once, and the table
//! is still printed.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::tempdir;

use super::support::terminal::Terminal;
use super::support::{BRIEF, Ended, records, tonnage, wait_for_records, wait_until};

fn transfer(dir: &Path, output: &str) -> Ended {
    let arguments = format!("transfer --engine shm --op write --ranks 2 --sizes 8..64 {BRIEF}");
    tonnage(dir, &format!("{arguments} -o {output}")).run()
}

#[test]
fn predictable_output_errors_are_reported_before_measuring() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (output, code, parts) in [
        ("nowhere/r.jsonl", 2, ["nowhere", "mkdir -p"]),
        (".", 2, ["is a directory", "results.jsonl"]),
        ("file/r.jsonl", 1, ["file/r.jsonl", "Not a directory"]),
        ("/proc/r.jsonl", 1, ["/proc/r.jsonl", "/proc"]),
    ] {
        let ended = transfer(dir.path(), output);
        assert!(ended.stdout.is_empty(), "{output}: {ended:#?}");
        ended.with_code(code).with_one_error(&parts);
    }
}

#[test]
fn a_directory_without_permission() {
    if rustix::process::geteuid().is_root() {
        println!("skip: root may write everywhere");
        return;
    }
    let dir = tempdir().unwrap();
    let ended = transfer(dir.path(), "/r.jsonl");
    assert!(ended.stdout.is_empty(), "{ended:#?}");
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:#?}");
    ended.with_one_error(&["/r.jsonl"]);
}

#[test]
fn a_device_that_is_always_full() {
    let dir = tempdir().unwrap();
    let ended = transfer(dir.path(), "/dev/full").with_code(1);
    assert_eq!(ended.rows().len(), 4, "{ended:#?}");
    ended.with_one_error(&["/dev/full", "No space left"]);
}

/// A small file system, which is unmounted when dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path, bytes: u64) -> Option<Self> {
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        let mounted = mount
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(at)
            .output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn a_disk_that_fills_up() {
    let dir = tempdir().unwrap();
    let at = dir.path().join("disk");
    fs::create_dir(&at).unwrap();
    let Some(disk) = SmallDisk::mount(&at, 4 << 20) else {
        println!("skip: a small file system cannot be mounted here (it needs root)");
        return;
    };
    // The run can begin, but then another file takes the rest of the disk.
    let arguments = "transfer --engine shm --op write --ranks 2 --sizes 8..64 --trials 1 --trial-time 300ms --warmup 0 \
                     --bound none -o disk/r.jsonl";
    let run = tonnage(dir.path(), arguments).start();
    let results = at.join("r.jsonl");
    wait_for_records(&at, 1);
    // This write fails when the disk is full, as intended.
    let _ = fs::write(at.join("filler"), vec![1u8; 8 << 20]);
    let ended = run.end().with_code(1);
    assert_eq!(ended.rows().len(), 4, "{ended:#?}");
    let kept = records::read(&results);
    assert!((1..4).contains(&kept.len()), "{}", kept.len());
    ended.with_one_error(&["disk/r.jsonl", "No space left", "--resume"]);

    let full = transfer(dir.path(), "disk/other.jsonl").with_code(1);
    assert!(full.stdout.is_empty(), "{full:#?}");
    full.with_one_error(&["bytes free", "make room"]);

    fs::remove_file(at.join("filler")).unwrap();
    let resumed = arguments.replace("-o ", "--resume ");
    let run = tonnage(dir.path(), &resumed).succeed();
    assert_eq!(run.rows().len(), 4, "{run:#?}");
    assert_eq!(records::read(&results).len(), 4);
    drop(disk);
}

/// Runs four points, and changes the run's file of records as soon as it contains the first point.
fn changed_during_the_run(change: fn(&Path), expected: &str) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let arguments = "transfer --engine shm --op write --ranks 2 --sizes 8..64 --trials 1 --trial-time 300ms --warmup 0 \
                     --bound none -o r.jsonl";
    let run = tonnage(dir.path(), arguments).start();
    wait_for_records(dir.path(), 1);
    change(&path);
    let ended = run.end().with_code(1);
    assert_eq!(ended.rows().len(), 4, "the table is whole: {ended:#?}");
    ended.with_one_error(&["r.jsonl", expected, "in memory"]);
}

#[test]
fn a_removed_or_truncated_file_of_records_is_reported() {
    changed_during_the_run(
        |path| fs::remove_file(path).unwrap(),
        "was removed or renamed",
    );
    let shrink = |path: &Path| fs::File::create(path).unwrap().set_len(7).unwrap();
    changed_during_the_run(shrink, "to 7 bytes");
}

/// The run has one point. Its record would be written only at the end.
#[test]
fn a_file_of_records_removed_during_a_point_is_reported_at_once() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let arguments = "transfer --engine shm --op write --ranks 2 --sizes 8 --trials 1 --trial-time 1500ms --warmup 0 \
                     --bound none -o r.jsonl";
    let run = tonnage(dir.path(), arguments).start();
    wait_until("the file is there", || path.exists());
    fs::remove_file(&path).unwrap();
    let ended = run.end().with_code(1);
    let lines: Vec<_> = ended.stderr.lines().collect();
    let [warned, lost] = lines[..] else {
        panic!("{ended:#?}");
    };
    assert!(
        warned.starts_with("warn: r.jsonl was removed"),
        "{ended:#?}"
    );
    assert!(lost.starts_with("error: r.jsonl was removed"), "{ended:#?}");
}

/// Neither rank 0 nor the supervisor can write the table. Exactly one of them must report this, and only once.
#[test]
fn a_run_without_a_reader_of_its_table() {
    let dir = tempdir().unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let arguments = format!("transfer --engine shm --op write --ranks 2 --sizes 8 {BRIEF}");
    let run = tonnage(dir.path(), &arguments).stdout(full.unwrap()).run();
    let run = run.with_code(1);
    run.with_one_error(&["rank 0", "cannot write to standard output"]);
}

#[test]
fn on_a_terminal_each_row_appears_when_its_point_is_done() {
    let dir = tempdir().unwrap();
    let length = "--trials 1 --trial-time 1s --warmup 0 --bound none";
    let arguments =
        format!("transfer --engine shm --op write --ranks 2 --sizes 8,4099 {length} -o r.jsonl");
    let (terminal, end) = Terminal::open(30, 100);
    let run = tonnage(dir.path(), &arguments)
        .env("TERM", "xterm")
        .stderr(end)
        .start();
    // After the first point, the progress line still shows 1/2 until the second point starts.
    wait_until("the row of the first point", || {
        let shown = terminal.shown();
        shown.contains("Msg rate") && shown.contains("1/2")
    });
    let shown = terminal.shown();
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 1, "{shown}");
    // The second size may appear on the progress line, but not in the table yet.
    assert!(
        !shown.contains("\n 4099 ") && shown.contains("1/2"),
        "{shown}"
    );
    let ended = run.end().with_code(0);
    assert!(ended.stdout.contains("4099"), "{ended:#?}");
}
