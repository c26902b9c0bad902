//! All operations return the right results.

use std::sync::Arc;

use tonnage_collective::{Collective, Reduction};
use tonnage_sys::mapping::Arena;

use super::*;
use crate::kinds::collective::torch::{RunOrder, failure};

const ONCE: RunOrder = RunOrder {
    iterations: 1,
    align: true,
    refill_each: true,
    slot: 0,
    poison: true,
};

/// Returns element `at` of the input in an iteration, for the rank with index `place` in its group.
fn input(place: u32, iteration: u32, at: u64) -> i32 {
    (1 + place as i32) * 1000 + 100 * iteration as i32 + (at % 97) as i32
}

/// Returns element `at` of the expected result, for the rank with index `place` in its group.
fn expected(call: &TorchCall, place: u32, iteration: u32, at: u64) -> i32 {
    let shape = call.shape;
    let sum = |at| {
        (0..shape.ranks)
            .map(|from| input(from, iteration, at))
            .sum()
    };
    let (part, within) = (at / shape.block, at % shape.block);
    let mine = u64::from(place) * shape.block;
    match shape.op {
        Collective::AllReduce | Collective::Reduce => sum(at),
        Collective::ReduceScatter => sum(mine + at),
        Collective::AllGather | Collective::Gather => input(part as u32, iteration, within),
        Collective::AllToAll => input(part as u32, iteration, mine + within),
        Collective::Broadcast => input(shape.root, iteration, at),
        Collective::Scatter => input(shape.root, iteration, mine + at),
        Collective::SendRecvPairs | Collective::SendRecvRing => {
            input(shape.receives_from(place).unwrap(), iteration, at)
        }
        Collective::Barrier => 0,
    }
}

fn write(memory: &Arc<Arena>, offset: u64, values: impl Iterator<Item = i32>) {
    let bytes: Vec<u8> = values.flat_map(i32::to_ne_bytes).collect();
    memory.write(offset, &bytes).unwrap();
}

fn read(memory: &Arc<Arena>, offset: u64, elements: u64) -> Vec<i32> {
    let mut bytes = vec![0; elements as usize * 4];
    memory.read(offset, &mut bytes).unwrap();
    let words = bytes.chunks_exact(4);
    words
        .map(|word| i32::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

/// Makes a call three times, each time with different data, and compares the last result. Returns an error if torch
/// does not have this call.
fn check(rank: &mut Rank, worker: &mut TorchWorker, call: &TorchCall) -> tonnage_units::Result<()> {
    let about = format!("{call:?} on rank {}", rank.id());
    worker.probe(rank, call)?;
    let (_, place) = call.group_and_index(rank.id()).unwrap();
    let buffers = worker.prepare(call, 2).map_err(text).expect(&about);
    let (inputs, outputs) = (call.shape.input(place), call.shape.output(place));
    for slot in 0..2 {
        let data = (0..inputs).map(|at| input(place, slot, at));
        write(&buffers.arena, buffers.input_offset(slot), data);
    }
    write(&buffers.arena, buffers.output, (0..outputs).map(|_| -1));
    let order = RunOrder {
        iterations: 3,
        slot: 1,
        ..ONCE
    };
    let ran = worker.run(order);
    failure::agree(rank, "run", ran, TIMEOUT).expect(&about);
    worker.fetch().map_err(text).expect(&about);
    let found = read(&buffers.arena, buffers.output, outputs);
    for (at, found) in (0..).zip(found) {
        assert_eq!(found, expected(call, place, 1, at), "{about}: {at}");
    }
    let mut before_ns = 0;
    for span in (0..3).map(|iteration| worker.span(iteration)) {
        assert!(
            before_ns < span.begin_ns && span.begin_ns <= span.end_ns,
            "{about}"
        );
        before_ns = span.end_ns;
    }
    assert!(before_ns < tonnage_sys::clock::monotonic_ns());
    Ok(())
}

fn all_operations(size: u32) {
    let lacking = with_workers(size, TIMEOUT, move |rank, mut worker| {
        let mut lacking = Vec::new();
        for (op, in_place) in Collective::ALL
            .iter()
            .flat_map(|op| [(*op, false), (*op, true)])
        {
            let mut call = call(op, size, if op == Collective::Barrier { 0 } else { 1001 });
            call.in_place = in_place;
            match check(rank, &mut worker, &call) {
                Ok(()) => {}
                Err(error @ tonnage_units::Error::Unavailable { .. }) => {
                    lacking.push((op, error.to_string()));
                }
                Err(error) => panic!("{op}: {error}"),
            }
        }
        let about = format!("{} of {:?}", worker.found.torch, worker.found.backends);
        worker.close().map_err(text).unwrap();
        (about, lacking)
    });
    let Some(lacking) = lacking else { return };
    println!("{:?}", lacking[0]);
    // Older versions of torch have no reduce-scatter for gloo. All other calls exist since torch 1.13.
    for (_, lacking) in &lacking {
        let others = lacking
            .iter()
            .filter(|(op, _)| *op != Collective::ReduceScatter);
        assert_eq!(others.count(), 0, "{lacking:?}");
    }
}

#[test]
fn every_operation_is_right_with_two_ranks() {
    all_operations(2);
}

#[test]
fn every_operation_is_right_with_three_ranks() {
    all_operations(3);
}

#[test]
fn groups_call_at_the_same_time() {
    with_workers(4, TIMEOUT, |rank, mut worker| {
        for op in [
            Collective::AllReduce,
            Collective::Scatter,
            Collective::SendRecvPairs,
            Collective::SendRecvRing,
        ] {
            let call = TorchCall {
                groups: vec![vec![0, 2], vec![1, 3]],
                ..call(op, 2, 300)
            };
            check(rank, &mut worker, &call).unwrap();
        }
    });
}

#[test]
fn workers_survive_a_call_that_gloo_lacks() {
    let errors = with_workers(2, TIMEOUT, |rank, mut worker| {
        let mut average = call(Collective::AllReduce, 2, 100);
        average.reduction = Reduction::Avg;
        let error = worker.probe(rank, &average).unwrap_err();
        check(rank, &mut worker, &call(Collective::AllReduce, 2, 100)).unwrap();
        error
    });
    for error in errors.into_iter().flatten() {
        assert!(
            matches!(error, tonnage_units::Error::Unavailable { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_worker_without_a_library_measures_its_own_overhead() {
    let Some(python) = python() else { return };
    let medians = run(2, move |mut rank| {
        let mut worker = connected(&mut rank, settings(&python, TorchBackend::Null));
        let call = call(Collective::AllReduce, 2, 2);
        assert_eq!(worker.probe(&mut rank, &call).unwrap(), "nothing");
        worker.prepare(&call, 1).map_err(text).unwrap();
        let order = RunOrder {
            iterations: 10_000,
            refill_each: false,
            ..ONCE
        };
        worker.run(order).map_err(text).unwrap();
        let took = |at| {
            let span = worker.span(at);
            span.end_ns - span.begin_ns
        };
        let mut all: Vec<u64> = (0..10_000).map(took).collect();
        all.sort_unstable();
        worker.close().map_err(text).unwrap();
        rank.close().unwrap();
        all[5000]
    });
    println!("the floor of the worker: {medians:?} ns");
    // The limit is a tenth of the time of gloo's smallest call, and tolerates a busy machine.
    assert!(medians.iter().all(|median| *median < 10_000), "{medians:?}");
}
