//! Sleeping until there are completions, if the provider has a descriptor for it.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tonnage_engine::{ArmOutcome, Completion, Ending, EngineOptions, LaneKind, Verb};

use super::support::{Side, await_one, lane, meet, op, post, request, side_that};

fn pair(provider: &str, sleeps: bool) -> [Side; 2] {
    let none = EngineOptions::new();
    let request = request(provider, &none);
    let mut sides = [
        side_that(&request, 0, &[1], sleeps),
        side_that(&request, 1, &[0], sleeps),
    ];
    meet(&mut sides);
    sides
}

/// Polls until the engine can sleep, and returns whether its descriptor becomes readable within `ms` milliseconds.
fn wakes(side: &mut Side, ms: u64) -> bool {
    let mut done = [Completion::EMPTY; 4];
    loop {
        assert_eq!(side.engine.poll(&mut done).unwrap(), 0);
        match side.engine.arm().unwrap() {
            ArmOutcome::Ready => {}
            ArmOutcome::Sleep(descriptor) => {
                let timeout = Timespec::try_from(Duration::from_millis(ms)).unwrap();
                let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
                return poll(&mut polled, Some(&timeout)).unwrap() == 1;
            }
            ArmOutcome::Unsupported => panic!("tcp has descriptors to sleep on"),
        }
    }
}

#[test]
fn a_sleeper_over_tcp_is_woken_by_what_arrives() {
    let mut sides = pair("tcp", true);
    // First contact may have left completions to poll.
    let mut done = [Completion::EMPTY; 4];
    for _ in 0..100 {
        for side in &mut sides {
            assert_eq!(side.engine.poll(&mut done).unwrap(), 0);
        }
    }
    assert!(
        !wakes(&mut sides[1], 20),
        "it woke although nothing arrived"
    );
    let write = lane(&mut sides[0], LaneKind::Initiate(Verb::WriteImm), 1, false);
    let [near, far] = &mut sides;
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| wakes(far, 5_000));
        std::thread::sleep(Duration::from_millis(50));
        post(near, op(write, 0, 0, 64));
        while !sleeper.is_finished() {
            near.engine.poll(&mut [Completion::EMPTY; 1]).unwrap();
        }
        assert!(sleeper.join().unwrap(), "the arrival did not wake it");
    });
    await_one(&mut sides, 1, Ending::Arrived);
}

#[test]
fn a_worker_that_cannot_sleep_reports_it() {
    for (provider, sleeps) in [("tcp", false), ("shm", false), ("shm", true)] {
        let mut sides = pair(provider, sleeps);
        let armed = sides[0].engine.arm().unwrap();
        assert!(
            matches!(armed, ArmOutcome::Unsupported),
            "{provider} {sleeps}: {armed:?}"
        );
    }
}
