//! Measures the library's cost per operation over the `null` engine, which moves no bytes. The benchmark compares raw
//! post and poll, tickets, futures, and calls without a session. The measurements alternate, so that changes of the
//! machine's speed affect all of them.
//!
//! Each interface is measured with one operation in flight and with 64. The reported figures are medians over the
//! rounds. In each round, an interface is also compared with raw; its goal limits the median of these differences.

use std::hint::black_box;
use std::time::Duration;

use tonnage_engine::{
    Completion, Descriptor, Engine, Lane, LaneKind, LaneSpec, Op, OpenRequest, RegionId, Verb,
    WorkerConfig,
};
use tonnage_sys::clock::Clock;
use tonnage_transfer::{
    AsyncSession, EndpointConfig, Executor, Extent, LaneSource, LocalMemory, QueuedExtent,
    RemoteId, Session, Ticket, TicketEnd, TransferEndpoint, TransferError, Transport,
    TransportOptions,
};

/// Operations of one measurement.
const OPERATIONS: u64 = 1 << 18;
const ROUNDS: usize = 31;
const DEPTH: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(60);

/// The measured interfaces and their goals, in nanoseconds above raw.
const WAYS: [(&str, Option<f64>); 12] = [
    ("raw", None),
    ("poll", Some(10.0)),
    ("async", Some(60.0)),
    ("look-up", None),
    ("fresh", None),
    ("register", None),
    ("raw, depth 64", None),
    ("poll, depth 64", Some(10.0)),
    ("async, depth 64", Some(60.0)),
    ("batch of 64", None),
    ("queue, depth 64", Some(10.0)),
    ("list, depth 64", Some(10.0)),
];

/// State of the measurements.
struct Bench {
    clock: Clock,
    engine: Box<dyn Engine + Send>,
    lane: Lane,
    session: Session,
    asynchronous: AsyncSession,
    endpoint: TransferEndpoint,
    memory: LocalMemory,
    remote: RemoteId,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo test --benches` only checks that the benchmark runs.
    let is_test = !std::env::args().any(|argument| argument == "--bench");
    let rounds = if is_test { 1 } else { ROUNDS };
    let mut bench = Bench::open()?;
    let mut rows = Vec::new();
    for _ in 0..=rounds {
        rows.push(bench.round()?);
    }
    // The first round is a warm-up.
    rows.remove(0);
    report(&rows);
    Ok(())
}

impl Bench {
    fn open() -> Result<Self, Box<dyn std::error::Error>> {
        let clock = Clock::new();
        let domains = (tonnage_engines::null::ENTRY.open)(&OpenRequest::default())?;
        let mut engine = domains[0].worker(&WorkerConfig {
            rank: 0,
            worker: 0,
            peers_max: 1,
            depth: 64,
            queue_pairs: 1,
            sleeps: false,
            clock,
        })?;
        let lane = engine.lane(&LaneSpec {
            kind: LaneKind::Initiate(Verb::Write),
            peer: 1,
            local: RegionId(0),
            remote: &Descriptor::default(),
            ordered: false,
            in_order: false,
            delivered: false,
        })?;
        let transport = Transport::open("null", &TransportOptions::default())?;
        let endpoint = transport.endpoint(&EndpointConfig::new(0))?;
        let peer = transport.endpoint(&EndpointConfig::new(1))?;
        endpoint.connect(&[peer.address_for(0)?], TIMEOUT)?;
        let (memory, far) = (
            endpoint.allocate("host", 4096)?,
            peer.allocate("host", 4096)?,
        );
        Ok(Self {
            clock,
            engine,
            lane,
            session: endpoint.session(&memory, far.remote())?,
            asynchronous: AsyncSession::new(endpoint.session(&memory, far.remote())?),
            remote: endpoint.add_remote(far.remote()),
            endpoint,
            memory,
        })
    }

    /// Measures nanoseconds per operation of each interface.
    fn round(&mut self) -> Result<[f64; WAYS.len()], TransferError> {
        let clock = self.clock;
        let mut row = [0.0; WAYS.len()];
        let mut measure = |place: usize, work: &mut dyn FnMut() -> Result<(), TransferError>| {
            let begin_ns = clock.now_ns();
            work()?;
            row[place] = (clock.now_ns() - begin_ns) as f64 / OPERATIONS as f64;
            Ok::<(), TransferError>(())
        };
        measure(0, &mut || {
            raw(self.engine.as_mut(), self.lane);
            Ok(())
        })?;
        measure(1, &mut || poll(&self.session))?;
        measure(2, &mut || tasks(&self.endpoint, &self.asynchronous, 1))?;
        let sources = [LaneSource::LookUp, LaneSource::Fresh, LaneSource::Register];
        for (place, source) in (3..).zip(sources) {
            measure(place, &mut || {
                named(&self.endpoint, source, &self.memory, self.remote)
            })?;
        }
        measure(6, &mut || {
            raw_window(self.engine.as_mut(), self.lane);
            Ok(())
        })?;
        measure(7, &mut || depth(&self.session))?;
        measure(8, &mut || {
            tasks(&self.endpoint, &self.asynchronous, DEPTH as u64)
        })?;
        measure(9, &mut || batches(&self.session))?;
        measure(10, &mut || queued(&self.endpoint, &self.session))?;
        measure(11, &mut || listed(&self.endpoint, &self.session))?;
        Ok(row)
    }
}

fn op(lane: Lane, at: u64) -> Op {
    Op {
        lane,
        tag: at as u32,
        local: at % 512 * 8,
        remote: at % 512 * 8,
        len: 8,
        imm: 0,
    }
}

fn raw(engine: &mut dyn Engine, lane: Lane) {
    let mut done = [Completion::EMPTY; DEPTH];
    for at in 0..OPERATIONS {
        let mut ended = engine.post(&[op(lane, at)]).is_err();
        while !ended {
            ended = engine.poll(&mut done).is_ok_and(|count| count > 0);
        }
        black_box(&done);
    }
}

fn raw_window(engine: &mut dyn Engine, lane: Lane) {
    let mut done = [Completion::EMPTY; DEPTH];
    let (mut posted, mut ended) = (0, 0);
    while ended < OPERATIONS {
        while posted < OPERATIONS && posted - ended < DEPTH as u64 {
            posted += engine.post(&[op(lane, posted)]).unwrap_or(0) as u64;
        }
        ended += engine.poll(&mut done).unwrap_or(0) as u64;
        black_box(&done);
    }
}

fn poll(session: &Session) -> Result<(), TransferError> {
    for at in 0..OPERATIONS {
        let offset = at % 512 * 8;
        let ticket = session.write(offset, offset, 8)?;
        while !ticket.poll()? {}
    }
    Ok(())
}

fn depth(session: &Session) -> Result<(), TransferError> {
    let mut tickets: [Option<Ticket>; DEPTH] = [const { None }; DEPTH];
    for at in 0..OPERATIONS {
        let offset = at % 512 * 8;
        let place = &mut tickets[at as usize % DEPTH];
        if let Some(ticket) = place.take() {
            while !ticket.poll()? {}
        }
        *place = Some(session.write(offset, offset, 8)?);
    }
    for ticket in tickets.into_iter().flatten() {
        while !ticket.poll()? {}
    }
    Ok(())
}

fn tasks(
    endpoint: &TransferEndpoint,
    session: &AsyncSession,
    count: u64,
) -> Result<(), TransferError> {
    let write = async |operations: u64| {
        for at in 0..operations {
            let offset = at % 512 * 8;
            session.write(offset, offset, 8).await?;
        }
        Ok(())
    };
    let mut executor = Executor::new(endpoint);
    if count == 1 {
        return executor.block_on(write(OPERATIONS), TIMEOUT)?;
    }
    for _ in 0..count {
        executor.spawn(async {
            let done: Result<(), TransferError> = write(OPERATIONS / count).await;
            assert!(done.is_ok());
        });
    }
    executor.run(TIMEOUT)
}

fn named(
    endpoint: &TransferEndpoint,
    source: LaneSource,
    memory: &LocalMemory,
    remote: RemoteId,
) -> Result<(), TransferError> {
    for at in 0..OPERATIONS {
        let offset = at % 512 * 8;
        let extent = Extent::new(offset, offset, 8);
        let ticket = endpoint.transfer(source, Verb::Write, (memory.id(), remote), &[extent])?;
        while !ticket.poll()? {}
    }
    Ok(())
}

fn batches(session: &Session) -> Result<(), TransferError> {
    let extents: Vec<_> = (0..DEPTH as u64)
        .map(|at| Extent::new(at * 8, at * 8, 8))
        .collect();
    for _ in 0..OPERATIONS / DEPTH as u64 {
        let ticket = session.batch(Verb::Write, &extents)?;
        while !ticket.poll()? {}
    }
    Ok(())
}

fn queued(endpoint: &TransferEndpoint, session: &Session) -> Result<(), TransferError> {
    let mut ends = [const { TicketEnd::NONE }; DEPTH];
    let (mut posted, mut ended) = (0, 0);
    while ended < OPERATIONS {
        while posted < OPERATIONS && posted - ended < DEPTH as u64 {
            let offset = posted % 512 * 8;
            let extent = Extent::new(offset, offset, 8);
            session.post_queued(Verb::Write, &extent, posted)?;
            posted += 1;
        }
        ended += endpoint.poll_ended(&mut ends)? as u64;
        black_box(&ends);
    }
    Ok(())
}

/// Posts a new operation for each that has ended, all in one call.
fn listed(endpoint: &TransferEndpoint, session: &Session) -> Result<(), TransferError> {
    let mut ends = [const { TicketEnd::NONE }; DEPTH];
    let mut list = [QueuedExtent::default(); DEPTH];
    let (mut posted, mut ended) = (0, 0);
    while ended < OPERATIONS {
        let room = (DEPTH as u64 - (posted - ended)).min(OPERATIONS - posted);
        for (at, queued) in (posted..posted + room).zip(&mut list) {
            let offset = at % 512 * 8;
            queued.extent = Extent::new(offset, offset, 8);
            queued.token = at;
        }
        posted += session.post_list_queued(Verb::Write, &list[..room as usize])? as u64;
        ended += endpoint.poll_ended(&mut ends)? as u64;
        black_box(&ends);
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(rows: &[[f64; WAYS.len()]]) {
    println!("{:<18} {:>8} {:>10}", "", "ns each", "above raw");
    for (place, (name, goal)) in WAYS.into_iter().enumerate() {
        let raw = if place < 6 { 0 } else { 6 };
        let cost_ns = median(rows.iter().map(|row| row[place]).collect());
        let above_ns = median(rows.iter().map(|row| row[place] - row[raw]).collect());
        let verdict = goal.map_or_else(String::new, |goal| {
            let met = if above_ns <= goal { "met" } else { "MISSED" };
            format!("  goal {goal:.0}: {met}")
        });
        println!("{name:<18} {cost_ns:>8.1} {above_ns:>10.1}{verdict}");
    }
}
