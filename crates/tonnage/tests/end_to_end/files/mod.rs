//! File experiments that succeed: the documented commands at a small size, and the effect of each option on files and
//! figures.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use rustix::fs::inotify;
use tempfile::{TempDir, tempdir, tempdir_in};
use tonnage_plan::files::Phase;
use tonnage_record::files::{CacheState, FileBody, PhaseTrial};
use tonnage_record::{Outcome, Record};
use tonnage_testbed::Hosts;

use crate::hosts::{all_good, end, hosts, start};
use crate::support::{Ended, Started, records, rows, tonnage, tonnage_by, words};

mod faults;
mod refused;
mod stonewall;
mod verify;

const MIB: u64 = 1 << 20;

/// Runs an experiment that must succeed. Returns the ended run and its one record, and removes the record's file.
fn measured(dir: &Path, arguments: &str) -> (Ended, Record) {
    let ended = tonnage(dir, &experiment(arguments)).succeed();
    let record = drawn_again(dir, &ended);
    assert_eq!(record.outcome, Outcome::Measured, "{ended:#?}");
    (ended, record)
}

/// Returns the only record of a run. Checks that printing the record's table gives the run's output again.
fn drawn_again(dir: &Path, ended: &Ended) -> Record {
    records::shown(dir, ended);
    only(&dir.join("r.jsonl"))
}

/// Measures with the shortest stonewall that leaves time to open the files, even on a busy disk.
fn walled(dir: &Path, arguments: &str) -> (Ended, Record) {
    for wall_ms in [60, 240, 960] {
        let arguments = experiment(&format!("{arguments} --stonewall {wall_ms}ms"));
        let ended = tonnage(dir, &arguments).run();
        let record = drawn_again(dir, &ended);
        if record.outcome == Outcome::Measured {
            return (ended.with_code(0), record);
        }
        let why = why(&record, &ended);
        assert!(why.contains("its stonewall came"), "{why}");
    }
    panic!("no file could be opened within a second");
}

/// Runs an experiment that must fail, or be refused because it cannot be measured here. Returns the reason in its one record, and the record.
fn failed(dir: &Path, arguments: &str) -> (String, Record) {
    let ended = tonnage(dir, &experiment(arguments)).run();
    let record = only(&dir.join("r.jsonl"));
    let is_skipped = matches!(record.outcome, Outcome::Skipped { .. });
    let ended = ended.with_code(if is_skipped { 2 } else { 1 });
    (why(&record, &ended), record)
}

/// Returns why an experiment failed or was skipped. The run must have printed the same reason.
pub fn why(record: &Record, ended: &Ended) -> String {
    let why = records::why(record).to_owned();
    let printed = words(&format!("{} {}", ended.stdout, ended.stderr));
    assert!(printed.contains(&words(&why)), "{why} in {ended:#?}");
    why
}

/// Returns the command line of an experiment with its records in r.jsonl.
fn experiment(arguments: &str) -> String {
    match arguments.contains("--bound") {
        true => format!("file -o r.jsonl {arguments}"),
        false => format!("file --bound none -o r.jsonl {arguments}"),
    }
}

/// Returns the only record of a file, and removes the file.
pub fn only(path: &Path) -> Record {
    let mut records = records::read(path);
    assert_eq!(records.len(), 1, "{records:#?}");
    fs::remove_file(path).unwrap();
    records.remove(0)
}

fn body(record: &Record) -> &FileBody {
    record.file().unwrap()
}

/// Returns the first trial of a phase of the record.
fn trial(record: &Record, phase: usize) -> &PhaseTrial {
    &body(record).phases[phase].trials[0]
}

/// A directory in the build tree, which is more often on a disk than /tmp.
fn on_disk() -> TempDir {
    tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A directory in memory. Its name starts with this process's PID, so that other tests do not count it as a leftover.
fn in_memory() -> Option<TempDir> {
    let prefix = format!("{}:", std::process::id());
    let dir = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in("/dev/shm");
    if dir.is_err() {
        println!("skip: no /dev/shm to write to");
    }
    dir.ok()
}

/// Returns the names in a directory, sorted; directories get a trailing slash.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let name = |entry: fs::DirEntry| {
        let slash = if entry.path().is_dir() { "/" } else { "" };
        format!("{}{slash}", entry.file_name().to_str().unwrap())
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort_unstable();
    names
}

fn is_empty(dir: &Path) {
    assert_eq!(names(dir), Vec::<String>::new());
}

fn payloads(record: &Record) -> Vec<(Phase, u64)> {
    let phases = body(record).phases.iter();
    phases
        .map(|phase| (phase.phase, phase.summary.payload_bytes))
        .collect()
}

/// Returns whether the engine cannot run here, and prints why.
fn unavailable(engine: &str) -> bool {
    static URING: LazyLock<Result<(), String>> = LazyLock::new(|| {
        let dir = tempdir().unwrap();
        let line = "file --engine uring --path t --block 4k --transfer 4k --bound none";
        let tried = tonnage(dir.path(), line).run();
        (tried.code == Some(0)).then_some(()).ok_or(tried.stdout)
    });
    if engine.contains("uring")
        && let Err(why) = &*URING
    {
        println!("skip: no io_uring here: {why}");
        return true;
    }
    false
}

/// Returns the engines that can run here.
fn engines() -> impl Iterator<Item = &'static str> {
    ["posix", "uring"]
        .into_iter()
        .filter(|engine| !unavailable(engine))
}

#[test]
fn the_commands_of_the_plan_at_a_small_size() {
    let dir = on_disk();
    let write_and_read = |bytes: u64| vec![(Phase::Write, bytes), (Phase::Read, bytes)];
    let (_, record) = measured(
        dir.path(),
        "--ranks 2 --path t.dat --layout per-process --block 256k --transfer 256k --segments 4 --phases write,read \
         --fsync end --barriers --numa 0",
    );
    assert_eq!(payloads(&record), write_and_read(2 * MIB));
    assert_eq!(body(&record).phases[0].summary.operations, 8);
    let memory = &record.effective[0].memory.all()[0];
    assert_eq!(memory.numa_asked, Some(0), "{memory:?}");
    let storage = &body(&record).storage[0];
    if storage.direct_alignment.is_none() {
        println!("skip: no direct I/O on {}", storage.file_system);
    } else if !unavailable("uring") {
        let (_, record) = measured(
            dir.path(),
            "--ranks 2 --engine uring --direct --path t.dat --block 1m --transfer 4k --order shuffled --depth 32 \
             --stonewall 5s",
        );
        assert_eq!(payloads(&record), write_and_read(2 * MIB));
        let engine = &record.effective[0].engine;
        assert_eq!(engine.name, "uring");
        let is_cached = Some(&tonnage_engine::Fact::Flag(false));
        assert_ne!(engine.facts.get("direct"), is_cached);
    }
    let (_, record) = measured(
        dir.path(),
        "--ranks 4 --path t.dat --block 64k --transfer 16k --segments 3 --order shuffled --threads 2 --verify --fsync each",
    );
    assert_eq!(payloads(&record), write_and_read((12 * 64) << 10));
    assert_eq!(trial(&record, 1).verified_bytes, Some((12 * 64) << 10));
    is_empty(dir.path());
}

#[test]
fn every_engine_layout_and_order() {
    let dir = tempdir().unwrap();
    for engine in engines() {
        for (layout, order, more) in [
            ("shared", "sequential", ""),
            ("shared", "sequential", "--read-shift 1 --trials 2"),
            ("shared", "shuffled", "--threads 2 --barriers"),
            ("per-process", "sequential", "--threads 2 --barriers"),
            ("per-process", "shuffled", ""),
            ("per-process", "shuffled", "--read-shift 1 --trials 2"),
        ] {
            let arguments = format!(
                "--ranks 2 --engine {engine} --path t --layout {layout} --order {order} --block 48k --transfer 3k \
                 --segments 2 --verify=write,read {more}"
            );
            let (_, record) = measured(dir.path(), &arguments);
            let operations = 64 * u64::from(body(&record).point.trials);
            let read = &body(&record).phases[1].summary;
            assert_eq!(read.operations, operations, "{arguments}");
            let verified = [0, 1].map(|phase| trial(&record, phase).verified_bytes);
            assert_eq!(verified, [Some(192 << 10); 2], "{arguments}");
        }
    }
    is_empty(dir.path());
}

#[test]
fn figures_are_compared_with_the_storages_own_bound() {
    let dir = on_disk();
    let arguments = "--ranks 2 --path t --block 1m --transfer 256k";
    let (_, record) = measured(
        dir.path(),
        &format!("{arguments} --fsync end --bound 2GB/s"),
    );
    let summary = |record: &Record, phase: usize| body(record).phases[phase].summary.clone();
    let bounds = [0, 1].map(|phase| summary(&record, phase).bound.unwrap().bytes_per_s);
    assert_eq!(bounds, [2e9; 2]);
    assert!(summary(&record, 0).utilization.is_some());
    let (ended, record) = measured(
        dir.path(),
        &format!("{arguments} --bound 2GB/s --phases write"),
    );
    assert_eq!(summary(&record, 0).utilization, None);
    ended.printing(&["write was not flushed; use --fsync end"]);
    let events = Events::of(dir.path());
    let auto = format!("{arguments} --fsync end --bound auto --phases write");
    let summary = summary(&measured(dir.path(), &auto).1, 0);
    assert!(summary.bound.unwrap().bytes_per_s > 0.0 && summary.utilization.is_some());
    is_empty(dir.path());
    // A stream that measured the bound earlier would change the caches that the phases find. The stream's file is
    // unnamed, and the system reports its name as a number.
    let names = events.names();
    let last_of = |begin: char| names.iter().rposition(|name| name.starts_with(begin));
    let (file, stream) = (last_of('t'), last_of('#').or(last_of('.')));
    assert!(file.unwrap() < stream.unwrap(), "{names:?}");
}

/// The stream that measures the bound reads the file before the phase removes it.
#[test]
fn a_read_that_removes_its_file_has_a_limit() {
    let dir = on_disk();
    let table = "[[file]]\npath = 't'\nblock = '1m'\ntransfer = '256k'\nphases";
    let plan =
        format!("name = 'p'\n{table} = 'write'\nkeep = true\nbound = 'none'\n{table} = 'read'\n");
    fs::write(dir.path().join("p.toml"), plan).unwrap();
    let ended = tonnage(dir.path(), "run p.toml --ranks 2 -o r.jsonl").succeed();
    assert_eq!(names(dir.path()), ["p.toml", "r.jsonl"]);
    assert!(!ended.stdout.contains("bound is not known"), "{ended:#?}");
    let records = records::read(&dir.path().join("r.jsonl"));
    let body = body(&records[1]);
    if body.storage.iter().any(|it| it.direct_alignment.is_none()) {
        return println!(
            "skip: this file system has no direct transfers, and so no stream to read"
        );
    }
    let bound = body.phases[0].summary.bound.as_ref();
    assert!(bound.unwrap().bytes_per_s > 0.0, "{body:#?}");
}

/// Reports files that are created, opened or removed in a directory from now on.
struct Events(OwnedFd);

impl Events {
    fn of(directory: &Path) -> Self {
        let events = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let made =
            inotify::WatchFlags::CREATE | inotify::WatchFlags::OPEN | inotify::WatchFlags::DELETE;
        inotify::add_watch(&events, directory, made).unwrap();
        Self(events)
    }

    /// Returns the file names of the events in their order.
    fn names(&self) -> Vec<String> {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut room);
        let mut names = Vec::new();
        while let Ok(event) = events.next() {
            let name = event.file_name().map(|name| name.to_string_lossy());
            names.extend(name.map(|name| name.into_owned()));
        }
        names
    }
}

#[test]
fn files_in_memory_have_no_bound_and_the_record_gives_the_reason() {
    let Some(dir) = in_memory() else { return };
    let arguments = "--ranks 2 --path t --block 1m --transfer 256k";
    let (ended, record) = measured(dir.path(), &format!("{arguments} --bound auto"));
    for phase in &body(&record).phases {
        let bound = (&phase.summary.bound, phase.summary.utilization);
        assert_eq!(bound, (&None, None));
    }
    let why = "no bound: files on tmpfs are in memory";
    assert!(
        record.remarks.iter().any(|it| it.starts_with(why)),
        "{:?}",
        record.remarks
    );
    ended.printing(&[why]);
    let (_, record) = measured(dir.path(), &format!("{arguments} --bound 2GB/s"));
    assert!(body(&record).phases[0].summary.utilization.is_some());
}

/// Cached bytes must be dropped if the kernel can do so. A file system in memory cannot, and this must be reported.
#[test]
fn a_read_reports_how_much_was_cached() {
    let dir = on_disk();
    let cache = |record: &Record| trial(record, 1).cache.clone().unwrap();
    let arguments = "--ranks 2 --layout per-process --block 1m --transfer 64k --fsync end --path";
    let (ended, record) = measured(dir.path(), &format!("{arguments} t"));
    let warm = cache(&record);
    assert!(warm.known && !warm.dropped, "{warm:?}");
    assert_eq!((warm.bytes, warm.resident_bytes), (2 * MIB, 2 * MIB));
    ended.printing(&["warm 100 %"]);
    if body(&record).storage[0].file_system == "tmpfs" {
        println!("skip: nothing can be dropped on tmpfs, and no disk is known");
    } else {
        for more in ["", "--order shuffled --read-shift 1", "--trials 2"] {
            let line = format!("{arguments} t --drop-caches {more}");
            let (ended, record) = measured(dir.path(), &line);
            for trial in &body(&record).phases[1].trials {
                let cache = trial.cache.clone().unwrap();
                assert!(cache.known && cache.dropped, "{cache:?}");
                assert_eq!((cache.bytes, cache.resident_bytes), (2 * MIB, 0), "{more}");
            }
            ended.printing(&["cold"]);
        }
    }
    let Some(memory) = in_memory() else { return };
    let arguments = format!("{arguments} {}/t --drop-caches", memory.path().display());
    let (ended, record) = measured(dir.path(), &arguments);
    let kept = cache(&record);
    assert_eq!((kept.bytes, kept.resident_bytes), (2 * MIB, 2 * MIB));
    assert!(kept.dropped, "{kept:?}");
    ended.printing(&["warm 100 %"]);
    is_empty(memory.path());
}

#[test]
fn a_mixed_phase_has_its_share_of_reads_exactly() {
    let dir = tempdir().unwrap();
    for (percent, order) in [(70, "sequential"), (1, "shuffled"), (99, "shuffled")] {
        for engine in engines() {
            let (_, record) = measured(
                dir.path(),
                &format!(
                    "--ranks 2 --engine {engine} --path t --prefill --read-percent {percent} --block 800k --transfer 4k \
                     --order {order} --verify"
                ),
            );
            assert_eq!(body(&record).phases.len(), 1);
            let mixed = trial(&record, 0);
            assert_eq!((mixed.operations, mixed.reads), (400, 4 * percent));
            assert_eq!(mixed.verified_bytes, Some(1600 << 10));
        }
    }
}

#[test]
fn ranks_read_other_ranks_data_and_the_record_rates_the_proof() {
    let dir = tempdir().unwrap();
    for choice in [
        "shared --read-shift 1",
        "shared --read-shuffled 5",
        "per-process --read-shift 2",
    ] {
        let line = "--ranks 3 --path t --block 64k --transfer 16k --verify --layout";
        let (ended, record) = measured(dir.path(), &format!("{line} {choice}"));
        assert_eq!(trial(&record, 1).verified_bytes, Some(192 << 10));
        let is_rated = |it: &String| it.contains("on one host") && it.contains("proves nothing");
        assert!(record.remarks.iter().any(is_rated), "{record:#?}");
        // The table may wrap its notes anywhere, so only one word is checked.
        ended.printing(&["proves"]);
    }
}

#[test]
fn files_are_where_and_as_many_as_they_were_asked_for() {
    let dir = tempdir().unwrap();
    let cases = "
        a => --ranks 2 --path a/t                                             => t
        b => --ranks 2 --path b/t --layout per-process                        => t.00000000 t.00000001
        c => --ranks 3 --path c/t --path c/u --layout per-process             => t.00000000 t.00000002 u.00000001
        d => --ranks 2 --path d/t --trials 2 --file-per-trial                 => t.0 t.1
        e => --ranks 2 --path e/t --layout per-process --directory-per-rank   => 0/ 1/
    ";
    for [name, arguments, files] in rows(cases) {
        let files: Vec<_> = files.split(' ').collect();
        fs::create_dir(dir.path().join(name)).unwrap();
        let arguments = format!("{arguments} --block 64k --transfer 16k --segments 2 --verify");
        let (_, record) = measured(dir.path(), &format!("{arguments} --keep"));
        assert_eq!(names(&dir.path().join(name)), files);
        let point = &body(&record).point;
        let written = u64::from(point.trials * point.ranks) * (128 << 10);
        assert_eq!(body(&record).phases[0].summary.payload_bytes, written);
        // Files written by tonnage may be replaced, and are removed without --keep. Existing directories are kept.
        measured(dir.path(), &arguments);
        let mut before = files;
        before.retain(|name| name.ends_with('/'));
        assert_eq!(names(&dir.path().join(name)), before);
        let removed = fs::remove_dir(dir.path().join(name).join("0"));
        assert_eq!(removed.is_ok(), name == "e");
    }
    fs::create_dir(dir.path().join("f")).unwrap();
    measured(
        dir.path(),
        "--ranks 2 --path f/t --layout per-process --directory-per-rank --block 64k --transfer 16k --keep",
    );
    let length = |name: &str| fs::metadata(dir.path().join(name)).unwrap().len();
    let both = length("f/0/t.00000000") + length("f/1/t.00000001");
    assert_eq!(both, 128 << 10);
}

#[test]
fn existing_files_are_written_into_and_stay() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("t");
    let foreign = vec![0xab; 300 << 10];
    fs::write(&path, &foreign).unwrap();
    let arguments = "--ranks 2 --path t --block 128k --transfer 32k --verify";
    let (why, _) = failed(dir.path(), arguments);
    assert!(why.contains("was not written by tonnage"), "{why}");
    assert_eq!(fs::read(&path).unwrap(), foreign);
    measured(dir.path(), &format!("{arguments} --existing"));
    let now = fs::read(&path).unwrap();
    assert_eq!(now.len(), foreign.len());
    assert_ne!(now[..256 << 10], foreign[..256 << 10]);
    assert_eq!(now[256 << 10..], foreign[256 << 10..]);
    // A missing file is created, and removed afterwards.
    measured(
        dir.path(),
        "--ranks 2 --path u --block 128k --transfer 32k --existing",
    );
    assert_eq!(names(dir.path()), ["t"]);
}

/// Returns the compressed size of a file in percent; `None` if no compressor is installed.
fn compressed_percent(path: &Path) -> Option<f64> {
    let bytes = fs::metadata(path).unwrap().len();
    let output = Command::new("gzip")
        .args(["-9", "-c"])
        .arg(path)
        .output()
        .ok()?;
    Some(output.stdout.len() as f64 * 100.0 / bytes as f64)
}

#[test]
fn data_compresses_as_far_as_it_was_asked_to() {
    let dir = tempdir().unwrap();
    for (data, expected) in [
        ("random", 98.0..101.0),
        ("compressible=30%", 69.0..71.5),
        ("compressible=90%", 9.0..12.0),
    ] {
        measured(
            dir.path(),
            &format!("--path t --block 2m --transfer 64k --phases write --data {data} --keep"),
        );
        let Some(percent) = compressed_percent(&dir.path().join("t")) else {
            println!("skip: no gzip here");
            return;
        };
        assert!(expected.contains(&percent), "{data}: {percent} % are left");
    }
}

#[test]
fn repetitions_pause_and_end_in_time() {
    let dir = tempdir().unwrap();
    let line = "--ranks 2 --path t --block 64k --transfer 16k";
    let (ended, record) = measured(dir.path(), &format!("{line} --trials 3 --delay 100ms"));
    let writes = &body(&record).phases[0].trials;
    let seeds: BTreeSet<_> = writes
        .iter()
        .map(|trial| trial.data_seed.unwrap())
        .collect();
    assert_eq!(
        (writes.len(), seeds.len()),
        (3, 3),
        "each write has data of its own"
    );
    assert!(ended.took.as_millis() >= 500, "{ended:#?}");
    let bounded = "--trials 100 --delay 50ms --max-duration 60ms --data-seed 7";
    let (_, record) = measured(dir.path(), &format!("{line} {bounded}"));
    let reads = body(&record).phases[1].trials.len();
    assert!((1..100).contains(&reads), "{reads}");
    assert_eq!(trial(&record, 0).data_seed, Some(7));
}

/// For engines with queues, the record has the actual number of transfers in flight.
#[test]
fn the_actual_queue_depth_is_in_the_record() {
    let dir = tempdir().unwrap();
    if unavailable("uring") {
        return;
    }
    // Waiting for the common start takes CPU time too. That time must not count as time of the transfers.
    let arguments = "--engine uring --path t --block 64k --transfer 64k --depth 256 --trials 20";
    let (_, record) = measured(dir.path(), arguments);
    for phase in &body(&record).phases {
        let within = |trial: &&PhaseTrial| trial.transfer_cpu_ns <= trial.total_ns;
        assert!(
            phase.trials.iter().filter(within).count() > 10,
            "{phase:#?}"
        );
        // The file has fewer transfers than the depth.
        assert!(
            phase
                .trials
                .iter()
                .all(|trial| trial.in_flight_max == Some(1))
        );
    }
    let most = |arguments: &str, phase: usize| {
        let (_, record) = measured(
            dir.path(),
            &format!("--path t --block 1m --transfer 4k {arguments}"),
        );
        trial(&record, phase).in_flight_max.unwrap()
    };
    for phase in [0, 1] {
        assert!((2..=32).contains(&most("--engine uring --depth 32", phase)));
    }
    assert_eq!(most("--threads 3", 0), 1);
}

/// Writes and reads a shared file of 16 MiB, with a rank on each host.
const SHARED: &str =
    "file -o r.jsonl --path t --block 512k --transfer 64k --segments 8 --bound none";

fn cache_of_read(dir: &Path) -> CacheState {
    let record = only(&dir.join("r.jsonl"));
    trial(&record, 1).cache.clone().unwrap()
}

/// Starts a rank that takes its host for a separate machine, because the boot ID differs.
fn rank_of_another_machine(hosts: &Hosts, rank: usize, dir: &Path, arguments: &str) -> Started {
    let boot_id = dir.join(format!("boot-{rank}"));
    let id = format!("00000000-0000-4000-8000-00000000000{rank}\n");
    fs::write(&boot_id, id).unwrap();
    let mut command = hosts.command(rank, "unshare");
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec \"$@\"",
        boot_id.display()
    );
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    tonnage_by(command, dir, arguments)
        .on_hosts(hosts, rank, hosts.count())
        .start()
}

#[test]
fn a_page_cache_is_counted_once_however_many_hosts_a_machine_plays() {
    let Some(hosts) = hosts(4, None) else { return };
    let dir = on_disk();
    let is_whole = |order: &str| {
        let cache = cache_of_read(dir.path());
        let bytes = (cache.bytes, cache.resident_bytes);
        assert_eq!(bytes, (16 * MIB, 16 * MIB), "{order}: {cache:?}");
    };
    all_good(&end(start(&hosts, dir.path(), SHARED)));
    is_whole("one machine");
    // The record tells the machines apart, and counts the bytes that the ranks of each machine read.
    for order in ["sequential", "shuffled"] {
        let arguments = format!("{SHARED} --order {order}");
        let start = |rank| rank_of_another_machine(&hosts, rank, dir.path(), &arguments);
        all_good(&end((0..4).map(start).collect()));
        is_whole(order);
    }
}

/// Returns the peak memory of a process so far, in KiB.
fn most_kib(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Runs an experiment and returns the larger peak memory of its two ranks.
fn peak_kib(dir: &Path, engine: &str, block: &str) -> u64 {
    let arguments = format!(
        "file --ranks 2 --engine {engine} --path {}/t --layout per-process --block {block} --transfer 4k --trials 2 \
         --delay 200ms --bound none",
        dir.display()
    );
    let run: Started = tonnage(dir, &arguments).start();
    let ranks = [run.rank(0).pid, run.rank(1).pid];
    let mut peak = 0;
    // The peak of a process cannot be read after its end, so it is polled until then.
    while let [Some(first), Some(second)] = ranks.map(most_kib) {
        peak = first.max(second);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    run.end().with_code(0);
    assert!(peak > 0, "the run was over before it was looked at");
    peak
}

#[test]
fn memory_of_ranks_does_not_grow_with_files_nor_with_transfers() {
    let Some(memory) = in_memory() else { return };
    let room = rustix::fs::statvfs(memory.path()).unwrap();
    if room.f_bavail * room.f_frsize < 1 << 30 {
        println!("skip: /dev/shm has no room for two files of 256 MiB");
        return;
    }
    for engine in engines() {
        // First 2048 transfers per rank, then 65536.
        let few = peak_kib(memory.path(), engine, "8m");
        let many = peak_kib(memory.path(), engine, "256m");
        assert!(many < few + 1024, "{engine}: {few} KiB and {many} KiB");
    }
}
