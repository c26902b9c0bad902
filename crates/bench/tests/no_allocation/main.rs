//! The timed loops neither allocate nor free memory, at the initiator or at the target. Each loop runs thousands of
//! operations over the real engines, under a counting allocator. Every latency is recorded. Latencies are handed over
//! in between, as at the end of an interval. [`native_calls`] tests the loops that time collectives, and [`files`]
//! those for files.

mod files;
mod native_calls;
mod sides;

use sides::{Side, doubles_of_drivers, flows, receives, sides, table};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tonnage_bench::kinds::transfer::layout::answers;
use tonnage_bench::loop_parameters::flow_slots;
use tonnage_engine::paths::{Cut, Division};
use tonnage_engine::testing::{TestEngine, TestScript, ends_at_once};
use tonnage_engine::{Ending, Engine, Entry, Lane, Verb, WORD_BYTES, find};
use tonnage_engines::ENGINES;
use tonnage_loops::Scratch;
use tonnage_loops::batch::{BatchLoop, SharedBatches};
use tonnage_loops::flow::Flow;
use tonnage_loops::flow_length::FlowLoads;
use tonnage_loops::loop_progress::{LoopProgress, WorkerProgress};
use tonnage_loops::paced::Timetable;
use tonnage_loops::ping_pong::{PingPongEnd, return_all};
use tonnage_loops::port::Port;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_loops::serve::serve;
use tonnage_loops::timed_loop::{LoopKind, LoopResults, Recording, TimedLoop};
use tonnage_loops::until::Until;
use tonnage_machine::devices::RdmaDevice;
use tonnage_machine::kernel_files::Tree;
use tonnage_plan::point::BoundChoice;
use tonnage_plan::testing::{iterations, transfer_point};
use tonnage_plan::transfer::{
    Access, BatchOf, Batching, CallsPerBatch, Pacing, Rate, SessionUse, Slots, TransferApi,
    TransferPoint,
};
use tonnage_sys::clock::Clock;
use tonnage_sys::counting_alloc::{Counting, Counts, counts};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Result};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of operations of a stream or a timetable. A ping-pong makes an eighth of these round trips.
const OPERATIONS: u64 = 16_000;

/// Number of batches of a loop. With [`BATCH`] operations each, this is about [`OPERATIONS`].
const BATCHES: u64 = 150;

/// Number of operations of a batch. It is larger than the number that is posted at once, and not a multiple of it.
const BATCH: u32 = 100;

/// With the first size, `shm` has a single method of copying. With the second, it tries out its methods during the
/// loop.
const SIZES: [u32; 2] = [8, 4096];

const NOTHING: Counts = Counts {
    allocations: 0,
    allocated_bytes: 0,
    frees: 0,
};

/// Counts of both sides, and the number of recorded samples.
struct Outcome {
    initiator: Counts,
    target: Counts,
    samples: u64,
}

fn point(engine: &str, op: Verb, size_bytes: u32, pacing: Pacing) -> TransferPoint {
    TransferPoint {
        engine: engine.into(),
        op,
        pacing,
        slots: Slots {
            size_bytes,
            footprint_bytes: u64::from(size_bytes) * 64,
            stride_bytes: size_bytes.into(),
            access: Access::Random,
            ..transfer_point().slots
        },
        bound: BoundChoice::None,
        length: iterations(OPERATIONS),
        ..transfer_point()
    }
}

/// Returns every engine that can run both sides as threads of one process, with each variant that is available on every
/// machine. Engines for GPUs run over simulated drivers.
fn engines() -> Vec<(&'static Entry, String)> {
    let mut all = Vec::new();
    let has_gpus = !doubles_of_drivers().is_empty();
    for entry in ENGINES {
        // Engines that need two processes are tested in tonnage-engines (`tests/cuda/ipc.rs`).
        if entry.name.ends_with("-ipc") || (entry.device_memory.is_some() && !has_gpus) {
            continue;
        }
        match entry.variant {
            None => all.push((entry, entry.name.to_owned())),
            Some(variant) => {
                let names = variant.everywhere.iter();
                all.extend(names.map(|name| (entry, format!("{}:{name}", entry.name))));
            }
        }
    }
    all
}

/// State that both sides share during a loop.
struct Shared {
    /// Number of sides that are ready.
    ready: AtomicU32,
    over: AtomicBool,
    stop: AtomicBool,
    /// The progress of the initiator's loop. While the target serves, it requests its latencies, as at the end of an interval.
    loop_progress: Arc<LoopProgress>,
}

impl Shared {
    /// Waits until both sides are ready. All receives are then posted, and no signal of an earlier loop is left.
    fn both_ready(&self) -> Result<()> {
        self.ready.fetch_add(1, Ordering::AcqRel);
        while self.ready.load(Ordering::Acquire) < 2 {
            if self.stop.load(Ordering::Acquire) {
                return Err(Error::Failed("the other side failed".into()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Returns the load of the single flow, for a point with a traffic file.
fn flow_loads(point: &TransferPoint, clock: Clock) -> FlowLoads {
    let flushes = matches!(point.op, Verb::Write | Verb::WriteImm);
    let mut loads = FlowLoads::new(1, flushes, clock);
    loads.set(clock, [point.load_operations(0, 1, 0)].into_iter());
    loads
}

fn initiate(
    point: &TransferPoint,
    side: &Side,
    engine: &mut dyn Engine,
    shared: &Shared,
) -> Result<(Counts, u64)> {
    let (mut table, mut flows) = if answers(point) {
        (Some(table(point, side, engine)?), Vec::new())
    } else {
        (None, flows(point, side, engine)?)
    };
    let receives = receives(point, side, engine)?;
    let mut port = Port::new(engine, Clock::new(), &shared.stop, true);
    port.post_receives(receives, 64)?;
    let (mut phases, mut whole) = (PhaseHistograms::default(), LatencyHistogram::new());
    let mut worker = WorkerProgress::new(Arc::clone(&shared.loop_progress));
    let recording = Recording {
        latencies: Some(&mut worker.latencies),
        phases: Some(&mut phases),
        loop_progress: Some(&worker.loop_progress),
    };
    shared.both_ready()?;
    let (_, counted) = drive(point, &mut port, table.as_mut(), &mut flows, recording)?;
    worker.finish(&mut whole, |_| {});
    let mut handed_over = LatencyHistogram::new();
    worker.loop_progress.take_latencies(&mut handed_over);
    assert_eq!(handed_over.count(), whole.count());
    Ok((counted, whole.count()))
}

/// Runs the loop for a point's pacing as the program does, and counts allocations meanwhile.
fn drive(
    point: &TransferPoint,
    port: &mut Port<'_>,
    table: Option<&mut PingPongEnd>,
    flows: &mut [Flow],
    recording: Recording<'_>,
) -> Result<(LoopResults, Counts)> {
    let (clock, depth) = (port.clock, point.depth() as usize);
    let mut scratch =
        Scratch::for_paced(flows.len().max(1), depth).with_batches(point.batching.in_flight, depth);
    let alone = SharedBatches::new(1, point.batching.in_flight, None);
    let mut loads = flow_loads(point, clock);
    let timetable = Timetable {
        start_ns: clock.now_ns(),
        rate_per_s: 1e6,
        burst: 1,
        operations: OPERATIONS,
        end_ns: 0,
        give_up_ns: u64::MAX,
    };
    let batching = BatchLoop {
        size: point.batch_share(0),
        in_flight: point.batching.in_flight,
        one_call: point.batching.call == CallsPerBatch::One,
        merged_bytes_max: None,
    };
    let (operations, pace) = match (point.pacing, table) {
        (Pacing::Batch { .. }, _) => match point.batching.of {
            BatchOf::Thread => (BATCHES, LoopKind::Batch(batching)),
            BatchOf::Rank => (BATCHES, LoopKind::SharedBatch(batching, &alone, 0)),
        },
        (Pacing::Paced { .. }, _) => (OPERATIONS, LoopKind::Paced(&timetable)),
        (Pacing::PingPong, Some(table)) => (OPERATIONS / 8, LoopKind::PingPong(table)),
        (Pacing::PingPong, None) => (OPERATIONS, LoopKind::ReadInTurn),
        (Pacing::Stream { .. }, _) => {
            let loads = point.loads.is_some().then_some(&mut loads);
            (OPERATIONS, LoopKind::Stream(loads))
        }
    };
    let timed_loop = TimedLoop {
        pace,
        port,
        flows,
        scratch: &mut scratch,
        until: &mut Until::operations(operations),
    };
    let before = counts();
    let driven = timed_loop.run(recording)?;
    Ok((driven, counts().since(before)))
}

fn serve_peers(point: &TransferPoint, mut side: Side, shared: &Shared) -> Result<Counts> {
    let mut engine = side.driven(point)?;
    let engine = engine.as_mut();
    let mut table = match answers(point) {
        true => Some(table(point, &side, engine)?),
        false => None,
    };
    let receives = receives(point, &side, engine)?;
    if point.op == Verb::WriteImm {
        engine.expect(0, Some(point.slots.size_bytes))?;
    }
    let mut port = Port::new(engine, Clock::new(), &shared.stop, true);
    port.post_receives(receives, 64)?;
    shared.both_ready()?;
    let before = counts();
    let mut over = || {
        shared.loop_progress.request_latencies();
        shared.over.load(Ordering::Acquire)
    };
    match &mut table {
        Some(table) => return_all(&mut port, table, &mut over).map(|_| ())?,
        None => serve(&mut port, &mut over)?,
    }
    Ok(counts().since(before))
}

/// Drives one point between two threads, and counts on both sides. If a side fails, the other one stops.
fn run(point: &TransferPoint) -> Result<Outcome> {
    // The initiator must outlive the target, because libfabric's shm reads messages of a side that is already closed.
    let [mut initiator, target] = sides(point)?;
    let mut engine = initiator.driven(point)?;
    let shared = Shared {
        ready: AtomicU32::new(0),
        over: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        loop_progress: Arc::default(),
    };
    std::thread::scope(|scope| {
        let target = scope.spawn(|| {
            let result = serve_peers(point, target, &shared);
            shared.stop.fetch_or(result.is_err(), Ordering::Release);
            result
        });
        let initiated = initiate(point, &initiator, engine.as_mut(), &shared);
        shared.stop.fetch_or(initiated.is_err(), Ordering::Release);
        shared.over.store(true, Ordering::Release);
        let dead = |_| Error::Failed("the target's thread died".into());
        let target = target.join().map_err(dead)?;
        let (initiator, samples) = initiated?;
        Ok(Outcome {
            initiator,
            target: target?,
            samples,
        })
    })
}

/// Checks that a point records `samples` samples, and that neither side allocates.
fn nothing(point: &TransferPoint, samples: u64, what: &str) -> Result<()> {
    let outcome = run(point).map_err(|error| Error::Failed(format!("{what}: {error}")))?;
    assert_eq!(outcome.samples, samples, "{what}");
    assert_eq!(outcome.initiator, NOTHING, "{what}, initiator");
    assert_eq!(outcome.target, NOTHING, "{what}, target");
    Ok(())
}

/// Checks all engines, operations and sizes with one pacing. `samples` returns the expected number for an operation.
fn nothing_is_allocated(pacing: Pacing, samples: impl Fn(Verb) -> u64) -> Result<()> {
    let mut all = engines().into_iter();
    all.try_for_each(|(entry, engine)| nothing_by(entry, &engine, pacing, &samples))
}

/// Checks all operations and sizes of one engine.
fn nothing_by(
    entry: &Entry,
    engine: &str,
    pacing: Pacing,
    samples: &impl Fn(Verb) -> u64,
) -> Result<()> {
    for &op in entry.verbs {
        if pacing == Pacing::PingPong && op == Verb::Write && !entry.ordered_writes {
            continue;
        }
        for size_bytes in SIZES {
            if op.is_atomic() && size_bytes != WORD_BYTES {
                continue;
            }
            let point = point(engine, op, size_bytes, pacing);
            let what = format!("{engine} {} of {size_bytes} B", op.name());
            nothing(&point, samples(op), &what)?;
        }
    }
    Ok(())
}

#[test]
fn a_stream_allocates_nothing() {
    nothing_is_allocated(Pacing::Stream { depth: 64 }, |_| OPERATIONS).unwrap();
}

/// This engine needs an RDMA device. `make test-rdma` runs this test in its guest.
#[test]
fn a_stream_over_verbs_allocates_nothing() {
    if RdmaDevice::all(&Tree::host()).is_empty() {
        println!(
            "skip: this host has no RDMA device; `make test-rdma` runs this where there are two"
        );
        return;
    }
    let entry = find(ENGINES, "verbs:rc").unwrap();
    let stream = Pacing::Stream { depth: 64 };
    nothing_by(entry, "verbs:rc", stream, &|_| OPERATIONS).unwrap();
}

/// A point with a load from a traffic file. Its flow ends inside the loop.
#[test]
fn a_load_allocates_nothing() {
    for engine in ["null", "shm", "fabric:tcp", "fabric:shm"] {
        for op in [Verb::Write, Verb::WriteImm, Verb::Read, Verb::Send] {
            let mut point = point(engine, op, 64, Pacing::Stream { depth: 16 });
            let rows = vec![vec![0, 64 * OPERATIONS], vec![0, 0]];
            point.loads = Some(rows.try_into().unwrap());
            let what = format!("{engine} {}", op.name());
            nothing(&point, OPERATIONS, &what).unwrap();
        }
    }
}

/// Neither several queue pairs nor operations that are cut, with merged arrivals, may cause allocations.
#[test]
fn paths_allocate_nothing() {
    let cut = Cut {
        chunk_bytes: 1024,
        chunks_max: 8,
    };
    for (queue_pairs, cut) in [(3, None), (1, Some(cut)), (2, Some(cut))] {
        for op in [Verb::Write, Verb::WriteImm, Verb::Read] {
            for engine in ["null", "shm", "fabric:tcp"] {
                let point = TransferPoint {
                    division: Division {
                        queue_pairs,
                        cut,
                        ..Division::NONE
                    },
                    ..point(engine, op, 4096, Pacing::Stream { depth: 16 })
                };
                let what = format!("{engine} {} over {:?}", op.name(), point.division);
                nothing(&point, OPERATIONS, &what).unwrap();
            }
        }
    }
}

/// The library must not allocate: neither with tickets, with or without a session, nor with futures. With `fresh` and
/// `register`, the engine creates objects for each operation and may allocate, so these are not tested.
#[test]
fn the_library_allocates_nothing() {
    let ways = [
        (TransferApi::Poll, SessionUse::On),
        (TransferApi::Poll, SessionUse::Off),
        (TransferApi::Async, SessionUse::On),
    ];
    let pacings = [
        (Pacing::Stream { depth: 16 }, OPERATIONS),
        (Pacing::Batch { batch: BATCH }, BATCHES),
        (Pacing::PingPong, OPERATIONS / 8),
    ];
    for (api, session) in ways {
        for (pacing, samples) in pacings {
            for op in [Verb::WriteImm, Verb::Read] {
                if (op, pacing) == (Verb::Read, Pacing::PingPong) {
                    continue;
                }
                for engine in ["null", "shm", "fabric:tcp"] {
                    let point = TransferPoint {
                        api,
                        session: Some(session),
                        ..point(engine, op, 64, pacing)
                    };
                    let what = format!("{engine} {} {pacing}, {api}, session {session}", op.name());
                    let outcome = run(&point).unwrap();
                    assert_eq!(outcome.samples, samples, "{what}");
                    for counts in [outcome.initiator, outcome.target] {
                        // Two allocations occur once: the first lookup of an operation opens its lane, and the first
                        // batch creates a list that the library keeps.
                        let looked_up = if session == SessionUse::Off { 8 } else { 0 };
                        let is_batch = matches!(pacing, Pacing::Batch { .. });
                        let once = looked_up + if is_batch { 4 } else { 0 };
                        assert!(counts.allocations <= once, "{what}: {counts:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn batches_allocate_nothing() {
    nothing_is_allocated(Pacing::Batch { batch: BATCH }, |_| BATCHES).unwrap();
    for in_flight in [1, 3] {
        let batching = Batching {
            of: BatchOf::Rank,
            in_flight,
            ..Batching::default()
        };
        let point = TransferPoint {
            batching,
            ..point("shm", Verb::Write, 64, Pacing::Batch { batch: BATCH })
        };
        nothing(&point, BATCHES, "shared batches").unwrap();
    }
}

#[test]
fn a_timetable_allocates_nothing() {
    let pacing = Pacing::Paced {
        depth: 64,
        rate: Rate::per_s(1e6),
    };
    nothing_is_allocated(pacing, |_| OPERATIONS).unwrap();
}

/// Runs a loop over a test engine. Returns the number of operations, and the counts of allocations.
fn over(engine: &mut TestEngine, pacing: Pacing) -> Result<(u64, Counts)> {
    let point = point("null", Verb::Write, 8, pacing);
    let (clock, stop) = (Clock::new(), AtomicBool::new(false));
    let slots = flow_slots(&point);
    let mut flows = [0, 1, 2].map(|lane| Flow::new(&slots, 0, lane + 1, Lane(lane), 0, 0));
    let mut port = Port::new(engine, clock, &stop, false);
    let recording = Recording {
        latencies: Some(&mut LatencyHistogram::new()),
        phases: None,
        loop_progress: None,
    };
    let (driven, counted) = drive(&point, &mut port, None, &mut flows, recording)?;
    Ok((driven.operations, counted))
}

/// The engine refuses operations of each of three lanes for a while, one lane after the other. Each lane catches up
/// later.
#[test]
fn a_timetable_that_falls_behind_allocates_nothing() {
    let (depth, mut asked) = (64, 0);
    let mut engine = TestEngine::new(TestScript {
        takes: Some(Box::new(move |op| {
            asked += 1;
            op.lane != Lane(asked / 200 % 4)
        })),
        ends: Some(ends_at_once()),
        in_flight: VecDeque::with_capacity(3 * depth as usize),
        ..TestScript::default()
    });
    let pacing = Pacing::Paced {
        depth,
        rate: Rate::per_s(1e6),
    };
    let counted = over(&mut engine, pacing).unwrap();
    assert_eq!(counted, (OPERATIONS, NOTHING));
    assert!(engine.lock().refused > 0);
}

/// Checks that allocations inside a loop are counted at all. Otherwise the other tests would prove nothing.
#[test]
fn an_allocation_for_each_operation_is_counted() {
    let mut engine = TestEngine::new(TestScript {
        ends: Some(Box::new(|_| {
            drop(std::hint::black_box(Box::new(0u64)));
            Some(Ending::Done)
        })),
        in_flight: VecDeque::with_capacity(200),
        ..TestScript::default()
    });
    let one_each = Counts {
        allocations: OPERATIONS,
        allocated_bytes: OPERATIONS * 8,
        frees: OPERATIONS,
    };
    let stream = Pacing::Stream { depth: 64 };
    let counted = over(&mut engine, stream).unwrap();
    assert_eq!(counted, (OPERATIONS, one_each));
}

#[test]
fn a_ping_pong_allocates_nothing() {
    nothing_is_allocated(Pacing::PingPong, |op| match op {
        Verb::Read | Verb::FetchAdd | Verb::CompareSwap => OPERATIONS,
        _ => OPERATIONS / 8,
    })
    .unwrap();
}
