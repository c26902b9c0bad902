//! A peer that has met all of its own writes at once, while the other side still waits for somebody else.

use std::sync::mpsc::channel;

use tonnage_engine::{Completion, Ending, EngineOptions, Lane, LaneKind, Verb};

use super::support::{await_one, introduced, lane, op, post, side};

#[test]
fn what_arrives_during_first_contact_is_told_after_it() {
    for provider in ["tcp", "shm"] {
        let none = EngineOptions::new();
        let mut sides = [
            side(provider, &none, 0, &[1, 2]),
            side(provider, &none, 1, &[0]),
            side(provider, &none, 2, &[0]),
        ];
        let cards = introduced(&mut sides);
        for (side, peers) in sides.iter_mut().zip(cards) {
            side.engine.connect(&peers).unwrap();
        }
        let [first, early, late] = &mut sides;
        std::thread::scope(|scope| {
            scope.spawn(|| first.engine.meet(&|| false).unwrap());
            let (has_written, wait) = channel();
            scope.spawn(move || {
                early.engine.meet(&|| false).unwrap();
                let write = lane(early, LaneKind::Initiate(Verb::WriteImm), 0, false);
                post(early, op(write, 0, 1000, 64));
                let mut done = [Completion::EMPTY; 1];
                while early.engine.poll(&mut done).unwrap() == 0 {}
                assert_eq!(done[0].ending, Ending::Done, "{provider}");
                has_written.send(()).unwrap();
            });
            // Only after that is there anybody whom the first can still meet.
            scope.spawn(move || {
                wait.recv().unwrap();
                late.engine.meet(&|| false).unwrap();
            });
        });
        let arrived = await_one(&mut sides, 0, Ending::Arrived);
        assert_eq!(
            (arrived.imm, arrived.lane),
            (0xfeed_beef, Lane(1)),
            "{provider}"
        );
    }
}
