//! Starts the program, observes it, and examines its leftovers.

pub mod chromium;
pub mod cpu_share;
pub mod launchers;
pub mod processes;
pub mod program;
pub mod records;
pub mod terminal;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use program::{Ended, Program, Started, tonnage, tonnage_by, tonnage_in, under};

/// Options for a very short measurement.
pub const BRIEF: &str = "--trials 2 --trial-time 5ms --warmup 1ms --bound none";

/// Options for a point that takes longer than any test waits.
pub const LONG: &str = "--trials 1 --trial-time 1h --warmup 0 --bound none";

/// A secret for ranks that an external launcher starts.
pub const SECRET: &str = "correct-horse-battery-staple";

/// Promised time within which all ranks end after a rank is lost.
pub const SOON: Duration = Duration::from_secs(5);

/// Returns the text with single spaces between words, because output may be wrapped anywhere.
pub fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the rows of a table: lines with `N` cells, separated by `=>`.
pub fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let cells = line.split("=>").map(str::trim).collect::<Vec<_>>();
        let row = cells.try_into();
        row.unwrap_or_else(|_| panic!("{line:?} has not {N} cells"))
    })
}

/// Returns the parts of text that a cell requires, separated by ` | `.
pub fn parts(cell: &str) -> Vec<&str> {
    cell.split(" | ").collect()
}

/// Checks that a text contains all parts that a cell requires.
pub fn has(text: &str, cell: &str) {
    for part in parts(cell) {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

/// Waits until r.jsonl has `count` lines.
pub fn wait_for_records(dir: &Path, count: usize) {
    let lines = || fs::read_to_string(dir.join("r.jsonl")).map_or(0, |it| it.matches('\n').count());
    wait_until("there are records", || lines() >= count);
}

/// Polls until `ready` returns true. Panics with `what` after two minutes, which is enough on any busy machine.
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(
            since.elapsed() < Duration::from_secs(120),
            "timed out waiting until {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a test for each case, four at a time. Intended for cases that mostly wait.
pub fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let mut cases = cases.into_iter().peekable();
    while cases.peek().is_some() {
        let some: Vec<T> = cases.by_ref().take(4).collect();
        std::thread::scope(|scope| {
            for case in some {
                scope.spawn(|| test(case));
            }
        });
    }
}

/// Returns an unused TCP port of 127.0.0.1. The next port is unused too, because torchrun leaves it to its ranks. Both
/// ports are below the range that the system assigns to connections. No other test can therefore get one of them in the
/// meantime.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let taken = TAKEN.fetch_add(2, Ordering::Relaxed);
        assert!(taken < 20_000, "no port is free");
        // Test programs that run at the same time start their search at different ports.
        let place = std::process::id().wrapping_mul(200).wrapping_add(taken) % 20_000;
        let port = 10_000 + place as u16;
        if is_free(port) && is_free(port + 1) {
            return port;
        }
    }
}

/// Returns the names of this user's files in /dev/shm.
pub fn shared_memory() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let owner = entry.metadata().map(|metadata| metadata.uid());
            owner.is_ok_and(|uid| uid == rustix::process::getuid().as_raw())
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
