//! A peer may write as soon as its own first contact is complete, while the other side still waits for a third rank.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tonnage_engine::{Completion, Ending, EngineOptions, Lane, LaneKind, Op, Verb};

use super::support::{Side, introduced, lane, op, post, side};

#[test]
fn arrivals_during_first_contact_are_reported_after_it() {
    for provider in ["tcp", "shm"] {
        let none = EngineOptions::new();
        let mut sides = [
            side(provider, &none, 0, &[1, 2]),
            side(provider, &none, 1, &[0]),
            side(provider, &none, 2, &[0]),
        ];
        let addresses = introduced(&mut sides);
        for (side, peers) in sides.iter_mut().zip(addresses) {
            side.engine.connect(&peers).unwrap();
        }
        let [first, early, late] = &mut sides;
        std::thread::scope(|scope| {
            scope.spawn(|| first.engine.meet(&|| false).unwrap());
            let (has_written, wait) = channel();
            scope.spawn(move || {
                early.engine.meet(&|| false).unwrap();
                let write = lane(early, LaneKind::Initiate(Verb::WriteImm), 0, false);
                for number in [1, 2] {
                    let number = Op {
                        imm: number,
                        ..op(write, 0, 1000, 64)
                    };
                    post(early, number);
                    let mut done = [Completion::EMPTY; 1];
                    while early.engine.poll(&mut done).unwrap() == 0 {}
                    assert_eq!(done[0].ending, Ending::Done, "{provider}");
                }
                has_written.send(()).unwrap();
            });
            // The late peer takes part in first contact only after the early peer's writes.
            scope.spawn(move || {
                wait.recv().unwrap();
                late.engine.meet(&|| false).unwrap();
            });
        });
        // The early peer writes once more. The arrivals must be reported in order.
        let write = lane(&mut sides[1], LaneKind::Initiate(Verb::WriteImm), 0, false);
        let last = Op {
            imm: 3,
            ..op(write, 0, 1000, 64)
        };
        post(&mut sides[1], last);
        assert_eq!(arrivals(&mut sides, 3), [1, 2, 3], "{provider}");
    }
}

/// Returns the immediates of `count` arrivals at the first side, in the order in which they are reported.
fn arrivals(sides: &mut [Side], count: usize) -> Vec<u32> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut reported = Vec::new();
    while reported.len() < count {
        assert!(Instant::now() < deadline, "only {reported:?} arrived");
        for (index, side) in sides.iter_mut().enumerate() {
            let mut done = [Completion::EMPTY; 4];
            let polled = side.engine.poll(&mut done).unwrap();
            let arrived = |it: &&Completion| index == 0 && it.ending == Ending::Arrived;
            reported.extend(done[..polled].iter().filter(arrived).map(|it| {
                assert_eq!(it.lane, Lane(1));
                it.imm
            }));
        }
    }
    reported
}
