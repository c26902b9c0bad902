//! Memory of a rank while it writes and reads: the same for small files and large ones, few transfers and many.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::files::in_memory;
use super::support::{Started, tonnage};

/// The most memory that the process has had so far, in KiB.
fn most_kib(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Runs an experiment and returns the most memory that any rank had.
fn peak_kib(dir: &Path, engine: &str, block: &str) -> u64 {
    let arguments = format!(
        "file --ranks 2 --engine {engine} --path {}/t --layout per-process --block {block} --transfer 4k --trials 2 \
         --delay 200ms --limit none",
        dir.display()
    );
    let run: Started = tonnage(dir, &arguments).start();
    let ranks = [run.rank(0).pid, run.rank(1).pid];
    let mut peaks = BTreeMap::new();
    // The peak of a process that has ended cannot be asked for, so that it is looked at again and again until then.
    while let [Some(first), Some(second)] = ranks.map(most_kib) {
        peaks.insert(0, first);
        peaks.insert(1, second);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    peaks.into_values().max().unwrap()
}

#[test]
fn it_does_not_grow_with_files_nor_with_transfers() {
    let Ok(memory) = in_memory() else {
        println!("skip: no /dev/shm to write to");
        return;
    };
    let room = rustix::fs::statvfs(memory.path()).unwrap();
    if room.f_bavail * room.f_frsize < 2 << 30 {
        println!("skip: /dev/shm has no room for two files of 512 MiB");
        return;
    }
    for engine in ["posix", "uring"] {
        if super::files::unavailable(engine) {
            continue;
        }
        // 2048 transfers of each rank, and 131072.
        let few = peak_kib(memory.path(), engine, "8m");
        let many = peak_kib(memory.path(), engine, "512m");
        assert!(many < few + 2048, "{engine}: {few} KiB and {many} KiB");
    }
}
