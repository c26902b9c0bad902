//! Tests both loops with an in-memory file that can be slow, short of room, or damaged.

use std::collections::VecDeque;

use tonnage_sys::mapping::{Pages, Sharing};

use super::*;
use crate::files::differences::{CandidateFiles, DataDifferences};
use crate::files::sequence::FilePattern;
use tonnage_engine::calls::file_of;
use tonnage_engine::calls::{FileLayout, FileOrder};

const LEN: u64 = 1000;
const COUNT: u64 = 40;
const SEED: u64 = 11;
/// Values of `read_percent`: reads per 100 transfers.
const WRITES: u32 = 0;
const MIXED: u32 = 70;
const READS: u32 = 100;
/// Much longer than a few transfers in memory.
const SOON_NS: u64 = 200_000_000;

/// Owns everything that a task borrows.
struct Bench {
    memory: Arc<Arena>,
    buffers: BufferLayout,
    pool: ContentPool,
    clock: Clock,
    start_ns: u64,
    watched: AtomicU64,
    stop: [Arc<AtomicBool>; 2],
}

impl Bench {
    /// Memory for one transfer at a time.
    fn blocking() -> Self {
        let bench = Self::new(BufferLayout::new(LEN, 1, true));
        let BufferLayout { source, slots, .. } = bench.buffers;
        bench
            .pool
            .copy_into(&bench.memory, source, 0, slots)
            .unwrap();
        bench
    }

    /// Memory for `slots` transfers in flight.
    fn queued(slots: u32) -> Self {
        Self::new(BufferLayout::new(LEN, slots, false))
    }

    fn new(buffers: BufferLayout) -> Self {
        let bytes = buffers.bytes() as usize;
        let memory = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap();
        let clock = Clock::new();
        Self {
            memory: Arc::new(memory),
            buffers,
            pool: ContentPool::new(SEED, 0),
            clock,
            start_ns: clock.now_ns(),
            watched: AtomicU64::new(0),
            stop: Default::default(),
        }
    }

    /// A task with `read_percent` reads per 100 transfers.
    fn task(&self, read_percent: u32) -> ThreadTask<'_> {
        let pattern = FilePattern {
            ranks: 1,
            layout: FileLayout::PerProcess,
            order: FileOrder::Sequential,
            block_bytes: LEN * COUNT,
            transfer_bytes: LEN,
            segments: 1,
            read_percent,
            seed: 1,
        };
        ThreadTask {
            places: Sequence::new(&pattern, 0),
            first: 0,
            step: 1,
            file: 0,
            name: "data/t",
            transfer_bytes: LEN,
            data: (read_percent < READS).then_some((FileKey::new(SEED, 0), &self.pool)),
            sync_each: false,
            memory: &self.memory,
            buffers: self.buffers,
            clock: self.clock,
            start_ns: self.start_ns,
            wall_ns: None,
            beyond_wall: false,
            stop: [&self.stop[0], &self.stop[1]],
            watched_bytes: &self.watched,
        }
    }
}

/// A call that a loop made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    Read(u64),
    Write(u64),
    Sync,
}

/// A file in memory, for the blocking loop and the queued loop.
struct Disk {
    memory: Arc<Arena>,
    bytes: Vec<u8>,
    did: Vec<Did>,
    /// Begin and end of each transfer, on the loops' clock.
    times: Vec<(u64, u64)>,
    clock: Clock,
    /// The transfer with this index is delayed until this time.
    slow: Option<(usize, u64)>,
    /// The transfer with this index fails with this code.
    fails: Option<(usize, i32)>,
    /// The run is stopped during the transfer with this index.
    stops: Option<(usize, Arc<AtomicBool>)>,
    /// No transfer completes, and the run is stopped after this number of waits.
    hangs: Option<(usize, Arc<AtomicBool>)>,
    sync_ns: u64,
    in_flight: VecDeque<Op>,
    most_in_flight: usize,
    waits: usize,
}

impl Disk {
    fn new(bench: &Bench) -> Self {
        Self {
            memory: bench.memory.clone(),
            bytes: vec![0; (LEN * COUNT) as usize],
            did: Vec::new(),
            times: Vec::new(),
            clock: bench.clock,
            slow: None,
            fails: None,
            stops: None,
            hangs: None,
            sync_ns: 0,
            in_flight: VecDeque::new(),
            most_in_flight: 0,
            waits: 0,
        }
    }

    fn move_bytes(&mut self, write: bool, local: u64, offset: u64, len: u64) {
        let begin_ns = self.clock.now_ns();
        let bytes = &mut self.bytes[offset as usize..(offset + len) as usize];
        if write {
            self.memory.read(local, bytes).unwrap();
            self.did.push(Did::Write(offset));
        } else {
            self.memory.write(local, bytes).unwrap();
            self.did.push(Did::Read(offset));
        }
        if let Some((_, until_ns)) = self.slow.filter(|(at, _)| *at == self.times.len()) {
            while self.clock.now_ns() <= until_ns {
                std::hint::spin_loop();
            }
        }
        let stops = self.stops.as_ref();
        if let Some((_, stop)) = stops.filter(|(at, _)| *at == self.times.len()) {
            stop.store(true, Ordering::Relaxed);
        }
        self.times.push((begin_ns, self.clock.now_ns()));
    }

    fn failure(&self) -> Option<i32> {
        let found = self.fails.filter(|(at, _)| *at == self.times.len());
        found.map(|(_, code)| code)
    }
}

impl FileCalls for Disk {
    fn call(&mut self, call: &FileCall<'_>) -> Result<u64> {
        let (write, transfer) = match call {
            FileCall::Read(transfer) => (false, transfer),
            FileCall::Write(transfer) => (true, transfer),
            FileCall::Sync { .. } => {
                let until_ns = self.clock.now_ns() + self.sync_ns;
                while self.clock.now_ns() < until_ns {
                    std::hint::spin_loop();
                }
                self.did.push(Did::Sync);
                return Ok(0);
            }
            FileCall::Open(_) | FileCall::Close { .. } => {
                return Err(Error::Failed("not here".into()));
            }
        };
        if let Some(code) = self.failure() {
            return Err(Error::Failed(format!("the disk returns {code}")));
        }
        self.move_bytes(write, transfer.local, transfer.offset, transfer.len);
        Ok(transfer.len)
    }
}

impl FileQueue for Disk {
    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        // Accepts at most three operations per call.
        let taken = ops.len().min(3);
        let slots = |op: &Op| self.in_flight.iter().all(|other| other.local != op.local);
        assert!(
            ops[..taken].iter().all(slots),
            "a slot was given away twice"
        );
        self.in_flight.extend(&ops[..taken]);
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
        Ok(taken)
    }

    /// Completes the most recently posted operations first, two per call.
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        // The first poll finds nothing, so the loop has to wait.
        if self.waits == 0 || self.hangs.is_some() {
            return Ok(0);
        }
        let mut count = 0;
        while count < 2
            && let Some(op) = self.in_flight.pop_back()
        {
            let ending = match self.failure() {
                Some(code) => Ending::Failed(code),
                None => Ending::Done,
            };
            self.move_bytes(file_of(op.lane).1, op.local, op.remote, u64::from(op.len));
            done[count] = Completion {
                tag: op.tag,
                lane: op.lane,
                len: op.len,
                imm: 0,
                ending,
            };
            count += 1;
        }
        Ok(count)
    }

    fn wait(&mut self) -> Result<()> {
        self.waits += 1;
        if let Some((_, stop)) = self.hangs.as_ref().filter(|(at, _)| *at == self.waits) {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn take_most_in_flight(&mut self) -> u32 {
        self.most_in_flight as u32
    }
}

fn one_by_one(
    disk: &mut Disk,
    task: &ThreadTask<'_>,
    until: u64,
    samples: &mut Samples,
) -> Result<()> {
    run_blocking(disk, task, until, samples, None, None)
}

/// Runs the blocking loop until a vote ends it.
fn together(disk: &mut Disk, task: &ThreadTask<'_>, samples: &mut Samples, vote: Vote<'_>) {
    run_blocking(disk, task, COUNT, samples, None, Some(vote)).unwrap();
}

fn windowed(
    disk: &mut Disk,
    task: &ThreadTask<'_>,
    until: u64,
    samples: &mut Samples,
) -> Result<()> {
    let mut slots = TransfersInFlight::new(task.buffers.count);
    run_queued(disk, task, until, (samples, &mut slots), None)
}

type Drive = fn(&mut Disk, &ThreadTask<'_>, u64, &mut Samples) -> Result<()>;

/// Both loops, with a bench for each.
fn both() -> [(Bench, Drive); 2] {
    [
        (Bench::blocking(), one_by_one),
        (Bench::queued(5), windowed),
    ]
}

/// Checks the first `len` bytes of the file and returns the findings.
fn wrong_of(disk: &Disk, (key, pool): (FileKey, &ContentPool), len: u64) -> DataDifferences {
    let bytes = &disk.bytes[..len as usize];
    let arena = Arena::allocate(bytes.len(), Pages::Normal, Sharing::Private, None).unwrap();
    arena.write(0, bytes).unwrap();
    let files = CandidateFiles {
        path: std::path::Path::new("data/t"),
        count: 1,
        bytes: len,
    };
    let mut found = DataDifferences::default();
    pool.check(&arena, 0, key, (&files, 0), len, &mut found)
        .unwrap();
    found
}

/// Verifies each read and counts the calls.
struct Check<'a> {
    bench: &'a Bench,
    found: DataDifferences,
    looks: u64,
}

impl InspectRead for Check<'_> {
    fn inspect(&mut self, local: u64, place: TransferPlace) -> Result<()> {
        self.looks += 1;
        let files = CandidateFiles {
            path: std::path::Path::new("data/t"),
            count: 1,
            bytes: LEN * COUNT,
        };
        let (pool, memory) = (&self.bench.pool, &self.bench.memory);
        let at = (&files, place.offset);
        pool.check(
            memory,
            local,
            FileKey::new(SEED, 0),
            at,
            LEN,
            &mut self.found,
        )
    }
}

#[test]
fn written_data_is_correct_and_verified() {
    for (bench, drive) in both() {
        let mut disk = Disk::new(&bench);
        let mut samples = Samples::default();
        drive(&mut disk, &bench.task(WRITES), COUNT, &mut samples).unwrap();
        let data = (FileKey::new(SEED, 0), &bench.pool);
        assert_eq!(wrong_of(&disk, data, LEN * COUNT).wrong_bytes, 0);
        assert_eq!((samples.transfers, samples.reads), (COUNT, 0));
        assert_eq!(bench.watched.load(Ordering::Relaxed), LEN * COUNT);
        let mut check = Check {
            bench: &bench,
            found: DataDifferences::default(),
            looks: 0,
        };
        let (task, mut samples) = (bench.task(READS), Samples::default());
        // Swap two bytes within one transfer.
        disk.bytes.swap(7012, 7013);
        if bench.buffers.slots > 0 {
            run_blocking(
                &mut disk,
                &task,
                COUNT,
                &mut samples,
                Some(&mut check),
                None,
            )
            .unwrap();
        } else {
            let mut slots = TransfersInFlight::new(task.buffers.count);
            let into = (&mut samples, &mut slots);
            run_queued(&mut disk, &task, COUNT, into, Some(&mut check)).unwrap();
        }
        assert_eq!((check.looks, samples.reads), (COUNT, COUNT));
        assert_eq!(check.found.checked_bytes, LEN * COUNT);
        assert_eq!(check.found.wrong_bytes, 2, "{:?}", check.found);
        assert!(check.found.first[0].contains("offset 7012"));
    }
}

#[test]
fn transfers_are_in_order_and_continue_where_they_stopped() {
    for (bench, drive) in both() {
        let mut disk = Disk::new(&bench);
        let (mut task, mut samples) = (bench.task(WRITES), Samples::default());
        // Thread 1 of 3.
        (task.first, task.step) = (1, 3);
        drive(&mut disk, &task, 4, &mut samples).unwrap();
        drive(&mut disk, &task, 4, &mut samples).unwrap();
        drive(&mut disk, &task, 13, &mut samples).unwrap();
        let mut offsets: Vec<_> = disk
            .did
            .iter()
            .map(|did| match did {
                Did::Write(offset) => offset / LEN,
                other => panic!("{other:?}"),
            })
            .collect();
        if bench.buffers.slots == 0 {
            // The disk completes the last posted transfer first.
            offsets.sort_unstable();
        }
        assert_eq!(offsets, (0..13).map(|n| 1 + 3 * n).collect::<Vec<_>>());
        assert_eq!(samples.transfers, 13);
    }
}

#[test]
fn a_queue_keeps_all_slots_in_flight() {
    let bench = Bench::queued(7);
    let mut disk = Disk::new(&bench);
    let mut samples = Samples::default();
    windowed(&mut disk, &bench.task(WRITES), COUNT, &mut samples).unwrap();
    // The disk accepts three operations per call, and the loop posts the other four later.
    assert_eq!(disk.most_in_flight, 7);
    assert_eq!(samples.in_flight_max, 7);
    assert!(disk.waits > 0);
    assert!(disk.in_flight.is_empty());
}

#[test]
fn slots_forget_what_they_hold_before_other_data() {
    let mut bench = Bench::queued(1);
    let mut slots = TransfersInFlight::new(1);
    for seed in [SEED, SEED + 1] {
        let key = FileKey::new(seed, 0);
        bench.pool = ContentPool::new(seed, 0);
        slots.forget();
        let (mut disk, mut samples) = (Disk::new(&bench), Samples::default());
        let task = ThreadTask {
            data: Some((key, &bench.pool)),
            ..bench.task(WRITES)
        };
        // Both transfers use the same offset and slot, so `forget` alone makes the loop fill the slot again.
        run_queued(&mut disk, &task, 1, (&mut samples, &mut slots), None).unwrap();
        assert_eq!(wrong_of(&disk, (key, &bench.pool), LEN).wrong_bytes, 0);
    }
}

#[test]
fn a_source_of_writes_has_room_for_a_transfer_from_the_pools_end() {
    let layout = BufferLayout::new(LEN, 3, true);
    assert!(layout.slots >= layout.source + POOL_BYTES + LEN);
    assert_eq!(layout.bytes(), layout.slots + 3 * layout.stride);
    assert_eq!(BufferLayout::new(LEN, 3, false).slots, 0);
}

#[test]
fn each_transfer_has_one_latency() {
    for (bench, drive) in both() {
        let mut disk = Disk::new(&bench);
        let mut samples = Samples::default();
        drive(&mut disk, &bench.task(MIXED), COUNT, &mut samples).unwrap();
        let reads = disk
            .did
            .iter()
            .filter(|did| matches!(did, Did::Read(_)))
            .count() as u64;
        assert_eq!((samples.transfers, samples.reads), (COUNT, reads));
        assert_eq!(reads, 28);
        assert_eq!(samples.read_latencies.count(), reads);
        assert_eq!(samples.write_latencies.count(), COUNT - reads);
        assert_eq!(
            samples.timeline.intervals().iter().sum::<u64>(),
            LEN * COUNT
        );
        assert_eq!(samples.before_wall, COUNT, "without a stonewall all count");
    }
}

#[test]
fn latencies_of_sequential_transfers_add_up_to_the_total_time() {
    let bench = Bench::blocking();
    let mut disk = Disk::new(&bench);
    disk.slow = Some((3, bench.clock.now_ns() + SOON_NS / 10));
    let (task, mut samples) = (bench.task(READS), Samples::default());
    let begin_ns = bench.clock.now_ns();
    one_by_one(&mut disk, &task, COUNT, &mut samples).unwrap();
    let took_ns = bench.clock.now_ns() - begin_ns;
    let sum_ns = samples.read_latencies.mean_ns().unwrap() * COUNT as f64;
    // No time between two transfers is lost, because each latency begins where the previous one ends.
    assert!(sum_ns <= took_ns as f64, "{sum_ns} of {took_ns}");
    assert!(sum_ns >= (disk.times[COUNT as usize - 1].1 - disk.times[0].0) as f64 * 0.999);
}

#[test]
fn the_stonewall_is_exact_to_the_nanosecond() {
    let bench = Bench::blocking();
    let mut task = bench.task(WRITES);
    let wall_ns = bench.start_ns + SOON_NS;
    task.wall_ns = Some(wall_ns);
    let mut samples = Samples::default();
    samples.add(&task, true, 5, wall_ns);
    assert_eq!((samples.transfers, samples.before_wall), (1, 1));
    samples.add(&task, true, 5, wall_ns + 1);
    assert_eq!((samples.transfers, samples.before_wall), (2, 1));
    assert!(!task.is_over(wall_ns - 1) && task.is_over(wall_ns));
    task.beyond_wall = true;
    assert!(!task.is_over(wall_ns));
    samples.add(&task, true, 5, wall_ns + 2);
    assert_eq!((samples.transfers, samples.before_wall), (3, 1));
}

#[test]
fn transfers_in_flight_at_the_stonewall_finish_uncounted() {
    const SLOW: u64 = 6;
    for (bench, drive) in both() {
        let mut disk = Disk::new(&bench);
        let mut task = bench.task(WRITES);
        let wall_ns = bench.clock.now_ns() + SOON_NS;
        task.wall_ns = Some(wall_ns);
        disk.slow = Some((SLOW as usize, wall_ns));
        let mut samples = Samples::default();
        drive(&mut disk, &task, COUNT, &mut samples).unwrap();
        let before = disk.times.iter().filter(|(_, end)| *end <= wall_ns).count() as u64;
        // The loops read the clock after a transfer has ended, so they may count fewer transfers than the disk.
        assert!(
            samples.before_wall <= before,
            "{} {before}",
            samples.before_wall
        );
        assert!(samples.transfers > samples.before_wall);
        assert_eq!(samples.transfers, disk.times.len() as u64);
        assert!(samples.transfers < COUNT, "it went on after the stonewall");
        if bench.buffers.slots > 0 {
            assert_eq!(samples.transfers, samples.before_wall + 1);
        }
        assert!(disk.in_flight.is_empty());
        // With `beyond_wall`, the loop continues and doesn't change the count before the stonewall.
        let before_wall = samples.before_wall;
        task.beyond_wall = true;
        drive(&mut disk, &task, COUNT - 5, &mut samples).unwrap();
        assert_eq!(
            (samples.transfers, samples.before_wall),
            (COUNT - 5, before_wall)
        );
        let mut written: Vec<_> = disk.did.clone();
        written.sort_unstable_by_key(|did| match did {
            Did::Write(offset) => *offset,
            _ => u64::MAX,
        });
        let expected: Vec<_> = (0..COUNT - 5).map(|n| Did::Write(n * LEN)).collect();
        assert_eq!(written, expected);
    }
}

#[test]
fn a_stonewall_that_has_passed_leaves_nothing_to_do() {
    for (bench, drive) in both() {
        let mut disk = Disk::new(&bench);
        let mut task = bench.task(READS);
        task.wall_ns = Some(bench.start_ns);
        let mut samples = Samples::default();
        drive(&mut disk, &task, COUNT, &mut samples).unwrap();
        assert_eq!((samples.transfers, disk.times.len()), (0, 0));
    }
}

#[test]
fn ranks_that_move_together_end_by_vote() {
    let bench = Bench::blocking();
    let mut disk = Disk::new(&bench);
    let mut task = bench.task(WRITES);
    task.wall_ns = Some(u64::MAX);
    let mut asked = Vec::new();
    let mut vote = |over: bool| {
        asked.push(over);
        // Another rank wants to stop before the sixth transfer.
        Ok(asked.len() > 5)
    };
    let mut samples = Samples::default();
    together(&mut disk, &task, &mut samples, &mut vote);
    assert_eq!(samples.transfers, 5);
    assert_eq!(asked, [false; 6]);
    // This rank wants to stop, but continues until all ranks agree.
    task.wall_ns = Some(bench.start_ns);
    let mut left = 3;
    let mut vote = |over: bool| {
        assert!(over);
        left -= 1;
        Ok(left == 0)
    };
    together(&mut disk, &task, &mut samples, &mut vote);
    assert_eq!((samples.transfers, samples.before_wall), (7, 5));
}

#[test]
fn a_sync_follows_each_write_and_is_not_in_its_latency() {
    let bench = Bench::blocking();
    let mut disk = Disk::new(&bench);
    disk.sync_ns = 2_000_000;
    let mut task = bench.task(MIXED);
    task.sync_each = true;
    let mut samples = Samples::default();
    one_by_one(&mut disk, &task, COUNT, &mut samples).unwrap();
    let writes = COUNT - samples.reads;
    assert_eq!(
        disk.did.iter().filter(|&&did| did == Did::Sync).count() as u64,
        writes
    );
    let follows = disk.did.windows(2).all(|pair| match pair[0] {
        Did::Write(_) => pair[1] == Did::Sync,
        Did::Read(_) | Did::Sync => pair[1] != Did::Sync,
    });
    assert!(follows, "{:?}", disk.did);
    assert!(samples.sync_ns >= writes * disk.sync_ns);
    // If latencies included syncs, even the shortest would exceed `sync_ns`.
    assert!(samples.write_latencies.min_ns().unwrap() < disk.sync_ns);
}

#[test]
fn failures_name_the_file_the_offset_and_the_reason() {
    for (code, reads, expected) in [
        (
            28,
            WRITES,
            "writing 1000 bytes at offset 3000 of data/t: No space left on device",
        ),
        (
            5,
            READS,
            "reading 1000 bytes at offset 3000 of data/t: Input/output error",
        ),
        (
            0,
            READS,
            "reading 1000 bytes at offset 3000 of data/t: the file ends before",
        ),
    ] {
        let bench = Bench::queued(1);
        let mut disk = Disk::new(&bench);
        disk.fails = Some((3, code));
        let mut samples = Samples::default();
        let error = windowed(&mut disk, &bench.task(reads), COUNT, &mut samples).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(samples.transfers, 3);
    }
    let bench = Bench::blocking();
    let mut disk = Disk::new(&bench);
    disk.fails = Some((3, 28));
    let mut samples = Samples::default();
    let error = one_by_one(&mut disk, &bench.task(WRITES), COUNT, &mut samples).unwrap_err();
    assert_eq!(error.to_string(), "the disk returns 28");
    assert_eq!((samples.transfers, samples.write_latencies.count()), (3, 3));
}

#[test]
fn a_run_that_is_stopped_ends_at_the_next_transfer() {
    for flag in [0, 1] {
        for (bench, drive) in both() {
            let mut disk = Disk::new(&bench);
            disk.stops = Some((5, bench.stop[flag].clone()));
            let mut samples = Samples::default();
            let task = bench.task(WRITES);
            let error = drive(&mut disk, &task, COUNT, &mut samples).unwrap_err();
            assert_eq!(error.to_string(), "data/t: the run was stopped");
            // A queue also completes transfers that are already in flight.
            assert!((6..12).contains(&disk.times.len()), "{}", disk.times.len());
        }
    }
}

#[test]
fn a_queue_that_hangs_can_be_stopped() {
    let bench = Bench::queued(3);
    let mut disk = Disk::new(&bench);
    disk.hangs = Some((50, bench.stop[0].clone()));
    let mut samples = Samples::default();
    let error = windowed(&mut disk, &bench.task(READS), COUNT, &mut samples).unwrap_err();
    assert_eq!(error.to_string(), "data/t: the run was stopped");
    assert_eq!((samples.transfers, disk.waits), (0, 50));
}

#[test]
fn writing_needs_something_to_write() {
    for (bench, drive) in both() {
        let mut disk = Disk::new(&bench);
        let mut task = bench.task(WRITES);
        task.data = None;
        let error = drive(&mut disk, &task, COUNT, &mut Samples::default()).unwrap_err();
        assert!(error.to_string().contains("no data to write"), "{error}");
        assert_eq!(disk.times.len(), 0);
    }
}
