//! Native collectives: neither the loops that time calls nor refilling of inputs may allocate.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tonnage_bench::kinds::collective::backend::Buffers;
use tonnage_bench::kinds::collective::data::RankData;
use tonnage_bench::kinds::collective::native::candidates::Candidate;
use tonnage_bench::kinds::collective::native::open::{aligning_barrier, barrier_algorithm};
use tonnage_bench::loop_parameters::call_position;
use tonnage_collective::Reduction;
use tonnage_collective::steps::{Program, program};
use tonnage_engine::{Lane, Verb};
use tonnage_engines::LISTS;
use tonnage_loops::calls::{CallSpan, Caller, time_aligned_calls, time_back_to_back_calls};
use tonnage_loops::collective::executor::{CallState, StepExecutor};
use tonnage_loops::collective::immediate::CallStream;
use tonnage_loops::collective::layout::{MemoryLayout, MemoryNeeds};
use tonnage_loops::collective::script::{Script, ScriptParts};
use tonnage_plan::collective::{Align, CollectivePoint};
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_plan::{Plan, Point};
use tonnage_sys::clock::Clock;
use tonnage_sys::counting_alloc::{Counts, counts};
use tonnage_units::{Error, Result};

use super::NOTHING;
use super::sides::{Side, sides};

/// Number of calls of a loop. It is larger than the number of different call numbers in immediates, so that these
/// repeat.
const CALLS: u64 = 3000;

/// Time limit for a call.
const TIMEOUT_NS: u64 = 10_000_000_000;

/// Type of the loops that time calls.
type TimedLoop = fn(
    &mut dyn Caller,
    &Clock,
    u64,
    &mut dyn FnMut(u64) -> Result<()>,
    &mut Vec<CallSpan>,
) -> Result<()>;

/// Returns points with one call each, with and without alignment. They are made from a plan.
fn points(engine: &str) -> Result<Vec<CollectivePoint>> {
    let mut all = Vec::new();
    for align in ["barrier", "none"] {
        let text = format!(
            "name = 'calls'\n[[collective]]\nbackend = 'native:{engine}'\nop = ['all-reduce', 'all-to-all', 'barrier']\n\
             sizes = [8, 6000]\nchunk = 1024\nalign = '{align}'\n"
        );
        let planned = Plan::from_toml(&text, "calls.toml")?.points(2, &LISTS)?;
        for asked in planned {
            match asked.point {
                Point::Collective(point) => all.push(point),
                other => return Err(Error::Failed(format!("another kind: {other:?}"))),
            }
        }
    }
    Ok(all)
}

/// Returns algorithm and chunk size for the calls of a point.
fn way_of(point: &CollectivePoint) -> Candidate {
    let barrier = barrier_algorithm(point);
    Candidate {
        chunk_bytes: point.chunk_bytes.unwrap_or(barrier.chunk_bytes),
        ..barrier
    }
}

fn steps(point: &CollectivePoint, way: Candidate, rank: u32) -> Result<Program> {
    let (shape, reduction) = (point.shape(), point.reduction.unwrap_or(Reduction::Sum));
    program(
        &shape,
        reduction,
        way.algorithm,
        rank,
        way.chunk_bytes,
        false,
    )
}

/// Makes calls in the same way as the program.
struct Calls<'a> {
    executor: StepExecutor<'a>,
    barrier: Script,
    call: Script,
}

impl Caller for Calls<'_> {
    fn align(&mut self) -> Result<()> {
        self.executor.call(&self.barrier)
    }

    fn call(&mut self) -> Result<()> {
        self.executor.call(&self.call)
    }
}

/// Returns the layout of both ranks' memories.
fn layout_of(point: &CollectivePoint) -> Result<MemoryLayout> {
    let mut needs = MemoryNeeds::for_shape(&point.shape(), false);
    let barrier = aligning_barrier(point);
    for rank in [0, 1] {
        for (point, way) in [
            (point, way_of(point)),
            (&barrier, barrier_algorithm(&barrier)),
        ] {
            needs.scratch = needs.scratch.max(steps(point, way, rank)?.scratch_bytes);
        }
    }
    Ok(MemoryLayout::new(needs))
}

/// Returns the scripts of the barrier and of the call. They use this rank's lane.
fn scripts(point: &CollectivePoint, rank: u32, lane: Lane) -> Result<[Script; 2]> {
    let barrier = aligning_barrier(point);
    let script = |stream, point: &CollectivePoint, way| {
        let parts = ScriptParts {
            position: call_position(point.grouping().position(rank)),
            stream,
            shape: point.shape(),
            in_place: false,
            reduction: point.reduction,
            lanes: &[(1 - rank, lane)],
        };
        Script::new(&steps(point, way, rank)?, parts)
    };
    Ok([
        script(CallStream::Aligning, &barrier, barrier_algorithm(&barrier))?,
        script(CallStream::Measured, point, way_of(point))?,
    ])
}

/// Times the calls of one rank, and counts allocations meanwhile. If `extra`, there is one more allocation before each
/// call.
fn rank_of_calls(
    point: &CollectivePoint,
    (mut side, transfer): (Side, &TransferPoint),
    stop: &AtomicBool,
    extra: bool,
) -> Result<Counts> {
    let (rank, layout) = (side.rank, layout_of(point)?);
    let mut engine = side.driven(transfer)?;
    let lane = side.lane_to_the_other(&mut *engine, Verb::WriteImm)?;
    let [barrier, call] = scripts(point, rank, lane)?;
    let mut state = CallState::new(&[1 - rank]);
    state.prepare_for_scripts(&call, &barrier);
    let view = side.view(&transfer.engine, layout)?;
    let buffers = Buffers {
        arena: Arc::clone(&view.arena),
        input: layout.input,
        output: layout.output,
    };
    let data = RankData::new(point, rank, false)?;
    let mut before = |call: u64| {
        if extra {
            drop(std::hint::black_box(Box::new(call)));
        }
        data.fill(call + 1, &buffers)
    };
    let mut calls = Calls {
        executor: StepExecutor::new(&mut *engine, &view, &mut state, stop, TIMEOUT_NS),
        barrier,
        call,
    };
    // A barrier that is not counted comes first, so that both ranks are ready.
    calls.align()?;
    let (timed, last_input): (TimedLoop, u64) = match point.align {
        Align::Barrier => (time_aligned_calls, CALLS),
        Align::None => (time_back_to_back_calls, 1),
    };
    let (clock, mut spans) = (Clock::new(), Vec::with_capacity(CALLS as usize));
    let begin = counts();
    timed(&mut calls, &clock, CALLS, &mut before, &mut spans)?;
    let counted = counts().since(begin);
    // No rank may close its engine while the other one is inside a call.
    calls.align()?;
    data.check(last_input, &buffers)?;
    Ok(counted)
}

/// Returns the counts of both ranks for a point.
fn both(engine: &str, point: &CollectivePoint, extra: bool) -> Result<[Counts; 2]> {
    // A transfer provides connected engines, and memories that are large enough.
    let bytes = layout_of(point)?.bytes;
    let transfer = super::point(engine, Verb::WriteImm, 4096, Pacing::Stream { depth: 64 });
    assert!(bytes <= transfer.slots.footprint_bytes, "{bytes}");
    let (transfer, stop) = (&transfer, &AtomicBool::new(false));
    let [one, other] = sides(transfer)?;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || rank_of_calls(point, (other, transfer), stop, extra));
        let one = rank_of_calls(point, (one, transfer), stop, extra);
        let dead = |_| Error::Failed("the other rank's thread died".into());
        Ok([one?, other.join().map_err(dead)??])
    })
}

#[test]
fn calls_of_native_collectives_allocate_nothing() {
    for engine in ["shm", "fabric:tcp"] {
        for point in points(engine).unwrap() {
            let what = format!(
                "{engine} {} of {} B, align {}",
                point.op,
                point.size_bytes,
                point.align.name()
            );
            let counted = both(engine, &point, false);
            assert_eq!(counted.unwrap(), [NOTHING; 2], "{what}");
        }
    }
}

/// Checks that allocations inside a loop are counted at all.
#[test]
fn an_allocation_before_each_call_is_counted() {
    let point = points("shm").unwrap().remove(0);
    assert_eq!(point.align, Align::Barrier);
    for counted in both("shm", &point, true).unwrap() {
        assert_eq!((counted.allocations, counted.frees), (CALLS, CALLS));
    }
}
