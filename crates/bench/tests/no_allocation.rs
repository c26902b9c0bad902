//! The timed loops allocate nothing and free nothing, neither at the initiator nor at the target: each loop runs for
//! thousands of operations over the real engines, with every latency recorded, under an allocator that counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tonnage_bench::drive::Scratch;
use tonnage_bench::drive::batch::batch;
use tonnage_bench::drive::flow::{Flow, Receives};
use tonnage_bench::drive::paced::{Timetable, paced};
use tonnage_bench::drive::ping_pong::{Signal, Table, return_all, serve_first};
use tonnage_bench::drive::port::Port;
use tonnage_bench::drive::recorder::{PerOperation, Recorder};
use tonnage_bench::drive::serve::serve;
use tonnage_bench::drive::stream::stream;
use tonnage_bench::drive::until::Until;
use tonnage_bench::kinds::transfer::layout::{SliceLayout, answers};
use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::paths::{Cut, divided};
use tonnage_engine::{
    Caps, Card, Descriptor, Engine, Entry, LaneKind, LaneSpec, Libraries, Neighbor, OpenRequest,
    Region, Verb, WorkerConfig, find, split_name,
};
use tonnage_engines::ENGINES;
use tonnage_engines::memory::HOST;
use tonnage_plan::point::{LimitChoice, Traffic};
use tonnage_plan::transfer::{Addresses, Pacing, PointLength, TransferPoint, TrialLength};
use tonnage_record::histogram::LatencyHistogram;
use tonnage_sys::clock::Clock;
use tonnage_sys::counting_alloc::{Counting, Counts, counts};
use tonnage_units::{Error, Result};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Operations of a stream or timetable; batches and round trips are an eighth of it.
const OPERATIONS: u64 = 16_000;

/// A size that is always copied the same way, and one for which `shm` tries the methods out while the loop runs.
const SIZES: [u32; 2] = [8, 4096];

const NOTHING: Counts = Counts {
    allocations: 0,
    allocated_bytes: 0,
    frees: 0,
};

/// Work that is counted, beside the loop itself.
#[derive(Clone, Copy, PartialEq)]
enum Extra {
    Nothing,
    /// One allocation for each sample, which the counts must show.
    OneForEachSample,
}

/// Counted on either side, and the samples that were recorded.
struct Outcome {
    initiator: Counts,
    target: Counts,
    samples: u64,
}

/// One rank of the two.
struct Side {
    rank: u32,
    memory: Arc<dyn Memory>,
    engine: Box<dyn Engine>,
    region: Region,
    /// The other side's region.
    far: Descriptor,
    caps: Caps,
}

fn point(engine: &str, op: Verb, size_bytes: u32, pacing: Pacing) -> TransferPoint {
    TransferPoint {
        label: None,
        engine: engine.into(),
        engine_options: Default::default(),
        op,
        traffic: Traffic::Pair,
        ranks: 2,
        initiators: None,
        target_shift: 0,
        workers: 1,
        rails: tonnage_engine::paths::Rails::Single,
        rail_shift: 0,
        cq: tonnage_plan::transfer::CqMode::Busy,
        queue_pairs: 1,
        cut: None,
        place: None,
        size_bytes,
        pacing,
        memory: "host".into(),
        footprint_bytes: u64::from(size_bytes) * 64,
        target_footprint: tonnage_plan::transfer::TargetFootprint::Own,
        stride_bytes: u64::from(size_bytes),
        addresses: Addresses::Random,
        local_addresses: None,
        seed: 1,
        latency: true,
        verify: false,
        limit: LimitChoice::None,
        length: PointLength {
            trials: 1,
            trial: TrialLength::Iterations(OPERATIONS),
            warmup_ns: 0,
            until_ci: None,
            max_duration_ns: None,
        },
    }
}

fn sides(point: &TransferPoint) -> Result<[Side; 2]> {
    let mut sides = [side(point, 0)?, side(point, 1)?];
    let mut cards = Vec::new();
    for (peer, side) in [1u32, 0].into_iter().zip(&mut sides) {
        cards.extend(side.engine.cards(&[peer])?);
    }
    let far = [0, 1].map(|side: usize| sides[1 - side].region.descriptor.clone());
    for (side, far) in sides.iter_mut().zip(far) {
        side.far = far;
    }
    let [zero, one] = &mut sides;
    // Both at once, as ranks do: a transport may need the other side to connect.
    std::thread::scope(|scope| {
        let other = scope.spawn(|| connect(one, (0, &cards[0])));
        let own = connect(zero, (1, &cards[1]));
        let dead = |_| Error::Failed("the connecting thread died".into());
        other.join().map_err(dead)?.and(own)
    })?;
    Ok(sides)
}

fn connect(side: &mut Side, (peer, card): (u32, &Card)) -> Result<()> {
    let neighbor = Neighbor::beside(peer, card.clone());
    side.engine.connect(&[neighbor])?;
    side.engine.meet(&|| false)
}

/// Every engine, with each variant that every machine has.
fn engines() -> Vec<(&'static Entry, String)> {
    let mut all = Vec::new();
    for entry in ENGINES {
        match entry.variant {
            None => all.push((entry, entry.name.to_owned())),
            Some(variant) => all.extend(
                variant
                    .everywhere
                    .iter()
                    .map(|name| (entry, format!("{}:{name}", entry.name))),
            ),
        }
    }
    all
}

fn side(point: &TransferPoint, rank: u32) -> Result<Side> {
    let entry = find(ENGINES, &point.engine)?;
    // Debian's libfabric 1.17 can crash when an endpoint closes that has messages waiting.
    let libraries = Libraries::from([("libfabric".to_owned(), "embedded".into())]);
    let domains = (entry.open)(&OpenRequest {
        variant: split_name(&point.engine).1,
        libraries: &libraries,
        ..OpenRequest::default()
    })?;
    let domains = divided(domains, point.division());
    let domain = &domains[0];
    let bytes = SliceLayout::new(point, rank).bytes();
    let memory = (HOST.allocate)(&Request {
        bytes,
        shared: domain.caps().shared_memory,
        ..Request::default()
    })?;
    let config = WorkerConfig {
        rank,
        worker: 0,
        peers_max: 1,
        sleeps: false,
        depth: point.depth(),
        clock: tonnage_sys::clock::Clock::new(),
    };
    let mut engine = domain.worker(&config)?;
    Ok(Side {
        rank,
        region: engine.register(&memory)?,
        far: Descriptor::default(),
        engine,
        memory,
        caps: *domain.caps(),
    })
}

/// The flows and signals of one side, as `run` makes them for a point.
fn flows(point: &TransferPoint, side: &mut Side) -> Result<Vec<Flow>> {
    let layout = SliceLayout::new(point, side.rank);
    let mut flows = Vec::new();
    for (index, &peer) in layout.out.iter().enumerate() {
        let lane = side.engine.lane(&LaneSpec {
            kind: LaneKind::Initiate(point.op),
            peer,
            local: side.region.id,
            remote: &side.far,
            ordered: answers(point) && point.op == Verb::Write,
            in_order: false,
            delivered: false,
        })?;
        let remote = SliceLayout::new(point, peer).into_origin_of(side.rank);
        let remote = remote.ok_or_else(|| Error::Failed("no place at the peer".into()))?;
        let local = layout.out_origin(index);
        flows.push(Flow::new(point, side.rank, peer, lane, local, remote));
    }
    Ok(flows)
}

fn table(point: &TransferPoint, side: &mut Side) -> Result<Table> {
    let layout = SliceLayout::new(point, side.rank);
    let peer = 1 - side.rank;
    let mut signals = Vec::new();
    if point.op == Verb::Write {
        signals.push(Signal::new(
            point,
            side.rank,
            peer,
            Arc::clone(side.memory.mapped(&point.engine)?),
            layout.out_origin(0),
            layout.into_origin(0),
        ));
    }
    let table = Table::new(flows(point, side)?, signals, side.rank == 1, &side.caps);
    table.rearm()?;
    Ok(table)
}

fn receives(point: &TransferPoint, side: &mut Side) -> Result<Vec<Receives>> {
    let layout = SliceLayout::new(point, side.rank);
    let mut receives = Vec::new();
    if point.op == Verb::Send && side.caps.moves_bytes {
        for (index, &peer) in layout.into.iter().enumerate() {
            let lane = side.engine.lane(&LaneSpec {
                kind: LaneKind::Receive,
                peer,
                local: side.region.id,
                remote: &side.far,
                ordered: false,
                in_order: false,
                delivered: false,
            })?;
            let origin = layout.into_origin(index);
            receives.push(Receives::new(point, peer, side.rank, lane, origin));
        }
    }
    Ok(receives)
}

/// Records as the program does, and allocates if asked to.
struct Counted<'a> {
    inner: PerOperation<'a>,
    extra: Extra,
}

impl Recorder for Counted<'_> {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn sample(&mut self, latency_ns: u64) {
        if self.extra == Extra::OneForEachSample {
            drop(std::hint::black_box(Box::new(latency_ns)));
        }
        self.inner.sample(latency_ns);
    }
}

/// State that both sides share while they run.
struct Shared {
    /// Sides that are prepared.
    ready: AtomicU32,
    over: AtomicBool,
    stop: AtomicBool,
}

impl Shared {
    /// Waits until both sides are prepared: no receive is missing, no signal is out of date.
    ///
    /// # Errors
    /// When the other side failed before.
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

fn initiate(
    point: &TransferPoint,
    side: &mut Side,
    extra: Extra,
    shared: &Shared,
) -> Result<(Counts, u64)> {
    let (mut table, mut flows, receives) = if answers(point) {
        let table = table(point, side)?;
        (Some(table), Vec::new(), receives(point, side)?)
    } else {
        (None, flows(point, side)?, receives(point, side)?)
    };
    let clock = Clock::new();
    let mut port = Port::new(side.engine.as_mut(), clock, &shared.stop, true);
    port.post_receives(receives, 64)?;
    let mut scratch = Scratch::new(1, point.depth() as usize);
    let mut histogram = LatencyHistogram::new();
    let mut recorder = Counted {
        inner: PerOperation {
            clock,
            histogram: &mut histogram,
        },
        extra,
    };
    shared.both_ready()?;
    let before = counts();
    let (port, scratch, recorder) = (&mut port, &mut scratch, &mut recorder);
    match (point.pacing, &mut table) {
        (Pacing::Batch { batch: size }, _) => {
            let mut until = Until::operations(OPERATIONS / 8);
            batch(port, &mut flows, size, scratch, &mut until, recorder)?;
        }
        (Pacing::Paced { rate_per_s, .. }, _) => {
            let timetable = Timetable {
                start_ns: clock.now_ns(),
                rate_per_s,
                operations: OPERATIONS,
                give_up_ns: u64::MAX,
            };
            paced(port, &mut flows, &timetable, scratch, recorder)?;
        }
        (Pacing::PingPong, Some(table)) => {
            let mut until = Until::operations(OPERATIONS / 8);
            serve_first(port, table, &mut until, recorder)?;
        }
        (Pacing::Stream { .. } | Pacing::PingPong, _) => {
            let mut until = Until::operations(OPERATIONS);
            stream(port, &mut flows, scratch, &mut until, recorder)?;
        }
    }
    Ok((counts().since(before), histogram.count()))
}

fn serve_peers(point: &TransferPoint, mut side: Side, shared: &Shared) -> Result<Counts> {
    let mut table = answers(point)
        .then(|| table(point, &mut side))
        .transpose()?;
    let receives = receives(point, &mut side)?;
    if point.op == Verb::WriteImm {
        side.engine.expect(0, Some(point.size_bytes))?;
    }
    let mut port = Port::new(side.engine.as_mut(), Clock::new(), &shared.stop, true);
    port.post_receives(receives, 64)?;
    shared.both_ready()?;
    let before = counts();
    let over = || shared.over.load(Ordering::Acquire);
    match &mut table {
        Some(table) => return_all(&mut port, table, over).map(|_| ())?,
        None => serve(&mut port, over)?,
    }
    Ok(counts().since(before))
}

/// Drives one point between two threads and counts on either. A side that fails stops the other.
fn run(point: &TransferPoint, extra: Extra) -> Result<Outcome> {
    // The initiator stays until the target has closed: libfabric's shm looks at messages of a side that is gone.
    let [mut initiator, target] = sides(point)?;
    let shared = Shared {
        ready: AtomicU32::new(0),
        over: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let target = scope.spawn(|| {
            let result = serve_peers(point, target, &shared);
            shared.stop.fetch_or(result.is_err(), Ordering::Release);
            result
        });
        let initiated = initiate(point, &mut initiator, extra, &shared);
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

/// All engines, operations and sizes under one pacing: `samples` each, and nothing counted.
fn nothing_is_allocated(pacing: Pacing, samples: impl Fn(Verb) -> u64) -> Result<()> {
    for (entry, engine) in engines() {
        for &op in entry.verbs {
            if pacing == Pacing::PingPong && op == Verb::Write && !entry.ordered_writes {
                continue;
            }
            for size_bytes in SIZES {
                let point = point(&engine, op, size_bytes, pacing);
                let what = format!("{engine} {} of {size_bytes} B", op.name());
                let outcome = run(&point, Extra::Nothing)
                    .map_err(|error| Error::Failed(format!("{what}: {error}")))?;
                assert_eq!(outcome.samples, samples(op), "{what}");
                assert_eq!(outcome.initiator, NOTHING, "{what}, initiator");
                assert_eq!(outcome.target, NOTHING, "{what}, target");
            }
        }
    }
    Ok(())
}

#[test]
fn a_stream_allocates_nothing() {
    nothing_is_allocated(Pacing::Stream { window: 64 }, |_| OPERATIONS).unwrap();
}

/// Several queue pairs, and parts, of which the arrivals are put together.
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
                    queue_pairs,
                    cut,
                    ..point(engine, op, 4096, Pacing::Stream { window: 16 })
                };
                let what = format!("{engine} {} over {:?}", op.name(), point.division());
                let outcome = run(&point, Extra::Nothing).unwrap();
                assert_eq!(outcome.samples, OPERATIONS, "{what}");
                assert_eq!(outcome.initiator, NOTHING, "{what}, initiator");
                assert_eq!(outcome.target, NOTHING, "{what}, target");
            }
        }
    }
}

#[test]
fn batches_allocate_nothing() {
    // Larger than what is handed over at a time, and not a multiple of it.
    nothing_is_allocated(Pacing::Batch { batch: 100 }, |_| OPERATIONS / 8).unwrap();
}

#[test]
fn a_timetable_allocates_nothing() {
    let pacing = Pacing::Paced {
        window: 64,
        rate_per_s: 1e6,
    };
    nothing_is_allocated(pacing, |_| OPERATIONS).unwrap();
}

#[test]
fn a_ping_pong_allocates_nothing() {
    nothing_is_allocated(Pacing::PingPong, |op| match op {
        Verb::Read => OPERATIONS,
        _ => OPERATIONS / 8,
    })
    .unwrap();
}

/// Shows that allocations are counted; else the tests above could pass because nothing is.
#[test]
fn an_allocation_inside_the_loop_is_counted() {
    let one_each = Counts {
        allocations: OPERATIONS,
        allocated_bytes: OPERATIONS * 8,
        frees: OPERATIONS,
    };
    for (_, engine) in engines() {
        let point = point(&engine, Verb::Write, 8, Pacing::Stream { window: 64 });
        let outcome = run(&point, Extra::OneForEachSample).unwrap();
        assert_eq!(outcome.initiator, one_each, "{engine}");
        assert_eq!(outcome.target, NOTHING, "{engine}");
    }
}
