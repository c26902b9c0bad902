use super::super::mock::{Counter, Mock, flow, silent_port};
use super::*;
use std::sync::atomic::AtomicBool;

const PLAIN: BatchLoop = BatchLoop {
    size: 8,
    in_flight: 1,
    call: BatchCall::One,
    merged_bytes_max: None,
};

/// Runs batches on two flows; returns what came of them, and the samples.
fn run(mock: &mut Mock, batching: &BatchLoop, batches: u64, room: usize) -> (Batched, Vec<u64>) {
    let stop = AtomicBool::new(false);
    let mut recorder = Counter::default();
    let mut flows = [flow(0, 1), flow(1, 2)];
    let batched = batch(
        &mut silent_port(mock, &stop),
        &mut flows,
        batching,
        &mut Scratch::new(2, 1).with_batches(batching.in_flight, room),
        &mut Until::operations(batches),
        &mut recorder,
    );
    let issued = batches * u64::from(batching.size);
    assert_eq!(flows.map(|flow| flow.issued), [issued; 2]);
    (batched.unwrap(), recorder.samples)
}

#[test]
fn each_batch_is_complete_before_the_next_and_timed_once() {
    for size in [1, 3, 64, 1000] {
        // An engine that takes seven at a time.
        let mut mock = Mock::new(7);
        let batching = BatchLoop { size, ..PLAIN };
        let (batched, samples) = run(&mut mock, &batching, 5, 2 * size as usize);
        let operations = 5 * 2 * u64::from(size);
        assert_eq!(batched.completed, operations);
        assert_eq!(batched.handed_over, operations);
        assert_eq!(samples, [1; 5]);
        assert!(mock.most_in_flight <= 2 * size as usize);
    }
}

#[test]
fn a_batch_is_one_call_or_one_for_each_operation() {
    for (call, calls, most) in [(BatchCall::One, 5, 16), (BatchCall::Many, 5 * 16, 1)] {
        let mut mock = Mock::new(usize::MAX);
        let batching = BatchLoop { call, ..PLAIN };
        let (batched, _) = run(&mut mock, &batching, 5, 16);
        assert_eq!(batched.completed, 5 * 16);
        assert_eq!((mock.calls, mock.most_handed), (calls, most), "{call:?}");
    }
    // One that is larger than the room for it takes as many calls as that needs.
    let mut mock = Mock::new(usize::MAX);
    let (batched, samples) = run(&mut mock, &PLAIN, 5, 6);
    assert_eq!((mock.calls, mock.most_handed), (5 * 3, 6));
    assert_eq!((batched.completed, samples.len()), (5 * 16, 5));
}

#[test]
fn so_many_batches_are_in_flight_and_each_is_timed() {
    for (in_flight, batches) in [(1, 40), (2, 40), (3, 41), (64, 5)] {
        let mut mock = Mock::new(usize::MAX);
        let batching = BatchLoop { in_flight, ..PLAIN };
        let (batched, samples) = run(&mut mock, &batching, batches, 16);
        assert_eq!(batched.completed, batches * 16);
        assert_eq!(samples.len() as u64, batches);
        let together = u64::from(in_flight).min(batches) as usize;
        let most = mock.most_in_flight;
        assert!(most <= together * 16, "{most} of {together}");
        // Five complete with each poll, of which there is one for each batch that begins.
        assert!(
            most + 5 * together > (together - 1) * 16,
            "{most} of {together}"
        );
    }
}

#[test]
fn neighbours_become_one_operation_up_to_the_engines_longest() {
    // Slots of 8 bytes, and a footprint of 8 of them: the ninth begins anew.
    for (size, bytes_max, each) in [
        (4, u32::MAX, 1),
        (8, u32::MAX, 1),
        (16, u32::MAX, 2),
        (8, 24, 3),
    ] {
        let mut mock = Mock::new(usize::MAX);
        let batching = BatchLoop {
            size,
            merged_bytes_max: Some(bytes_max),
            ..PLAIN
        };
        let (batched, samples) = run(&mut mock, &batching, 4, 64);
        assert_eq!(batched.completed, 4 * 2 * u64::from(size));
        assert_eq!(batched.handed_over, 4 * 2 * each, "{size} {bytes_max}");
        assert_eq!(mock.posted, batched.handed_over);
        assert_eq!(samples.len(), 4);
    }
}

#[test]
fn only_what_is_adjacent_at_both_ends_follows() {
    let op = |lane, local, remote| Op {
        lane: tonnage_engine::Lane(lane),
        tag: 0,
        local,
        remote,
        len: 8,
        imm: 0,
    };
    let last = op(1, 0, 100);
    assert!(follows(&last, &op(1, 8, 108), 16));
    assert!(!follows(&last, &op(1, 8, 108), 15));
    assert!(!follows(&last, &op(2, 8, 108), 16));
    assert!(!follows(&last, &op(1, 16, 108), 16));
    assert!(!follows(&last, &op(1, 8, 116), 16));
    assert!(!follows(&last, &op(1, 0, 108), 16));
}
