use super::*;
use crate::testing::{flow, mock, silent_port, slots};
use tonnage_engine::testing::arrival;
use tonnage_engine::{Access, Lane};

#[test]
fn arrivals_are_counted_at_once_and_dated_before_they_are_taken() {
    for idle_polls in [0, 1] {
        let (mut mock, stop) = (mock(1), AtomicBool::new(false));
        mock.lock().done.push_back(arrival(0, 7, 0));
        let mut port = silent_port(&mut mock, &stop);
        let mut done = [Completion::EMPTY; BURST];
        let before_ns = port.clock.now_ns();
        assert_eq!(port.poll(&mut done).unwrap(), 1);
        assert_eq!(
            (port.arrivals.count, port.arrivals.set),
            (1, arrival_mix(0, 7))
        );
        for _ in 0..idle_polls {
            assert_eq!(port.poll(&mut done).unwrap(), 0);
        }
        let idle_ns = port.clock.now_ns();
        let arrivals = port.take_arrivals();
        assert!(arrivals.last_ns >= before_ns, "{arrivals:?}");
        assert!(idle_polls == 0 || arrivals.last_ns <= idle_ns);
        port.poll(&mut done).unwrap();
        assert_eq!(port.take_arrivals(), Arrivals::default());
    }
}

#[test]
fn operations_that_never_complete_end_the_loop() {
    let (mut mock, stop) = (mock(7), AtomicBool::new(false));
    mock.lock().ends = None;
    let op = flow(3, 1).next_op(0);
    let watch = StallWatch::new(50_000_000, 0, 1);
    let mut port = silent_port(&mut mock, &stop).with_watch(watch);
    let error = port
        .complete(&[op], &mut [Completion::EMPTY; BURST])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no operation has ended for 0.1 s, with 1 in flight"),
        "{error}"
    );
    assert!(
        port.idle_turns.is_multiple_of(LOOK_TURNS[0]),
        "the clock is read only when idle"
    );
    let stall = port.stall().unwrap();
    assert!(
        stall.quiet_ns > 50_000_000 && stall.in_flight == 1,
        "{stall:?}"
    );
}

#[test]
fn a_flush_waits_until_it_is_accepted_and_completed() {
    let (mut mock, stop) = (mock(7), AtomicBool::new(false));
    let mut written = flow(3, 1);
    written.next_op(0);
    let flows = [written.clone(), flow(4, 2), written];
    silent_port(&mut mock, &stop).flush(&flows).unwrap();
    assert_eq!(
        mock.lock().flushes,
        3,
        "two flushes, and one retry because the engine was busy"
    );
    assert_eq!(mock.lock().in_flight.len(), 0);
}

#[test]
fn a_flush_is_not_done_because_something_arrives() {
    let (mut mock, stop) = (mock(7), AtomicBool::new(false));
    mock.lock().flush_answers.clear();
    mock.lock().done.push_back(arrival(3, 0, 0));
    let mut written = flow(3, 1);
    written.next_op(0);
    silent_port(&mut mock, &stop).flush(&[written]).unwrap();
    let script = mock.lock();
    assert_eq!((script.flushes, script.in_flight.len()), (1, 0));
}

#[test]
fn completing_ends_with_the_last_operation() {
    let (mut mock, stop) = (mock(3), AtomicBool::new(false));
    let mut flow = flow(3, 1);
    let ops: Vec<_> = (0..8).map(|tag| flow.next_op(tag)).collect();
    let mut port = silent_port(&mut mock, &stop);
    port.complete(&ops, &mut [Completion::EMPTY; BURST])
        .unwrap();
    assert_eq!(port.completed, 8);
    assert_eq!(port.take_arrivals(), Arrivals::default());
    let script = mock.lock();
    assert_eq!((script.posted, script.in_flight.len()), (8, 0));
}

fn receives(peers: u32) -> Vec<Receives> {
    let slots = slots(Access::Sequential, 8);
    let of = |peer| Receives::new(&slots, peer, 0, Lane(peer), 0);
    (0..peers).map(of).collect()
}

#[test]
fn receives_are_all_posted_and_have_room_for_a_burst_of_arrivals() {
    for (peers, depth) in [(1, 1), (2, 3)] {
        let (mut mock, stop) = (mock(4), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        port.post_receives(receives(peers), depth).unwrap();
        let room = port.staged.capacity();
        let needed = (peers * depth) as usize + BURST;
        assert!(room >= needed, "{room}: loops allocate nothing");
        assert_eq!(mock.lock().posted, u64::from(peers * depth));
    }
}

#[test]
fn an_arrival_reposts_its_receive_until_they_are_used_up() {
    let (mut mock, stop) = (mock(4), AtomicBool::new(false));
    let peer = mock.clone();
    let mut port = silent_port(&mut mock, &stop);
    port.receives = receives(1);
    let mut done = [Completion::EMPTY; BURST];
    for is_last in [false, true] {
        if is_last {
            port.use_up_receives();
        }
        peer.lock().done.push_back(arrival(0, 0, 0));
        port.poll(&mut done).unwrap();
    }
    assert_eq!(port.arrivals.count, 2);
    assert_eq!(mock.lock().posted, 1);
}

#[test]
fn a_receive_that_found_no_room_is_handed_over_when_idle() {
    let (mut mock, stop) = (mock(4), AtomicBool::new(false));
    mock.lock().busy = 1;
    mock.lock().done.push_back(arrival(0, 0, 0));
    let mut port = silent_port(&mut mock, &stop);
    port.receives = receives(1);
    let mut done = [Completion::EMPTY; BURST];
    port.poll(&mut done).unwrap();
    assert_eq!(port.staged.len(), 1);
    port.poll(&mut done).unwrap();
    assert_eq!(port.staged.len(), 0);
    assert_eq!(mock.lock().posted, 1);
}

#[test]
fn a_stopped_run_ends_even_if_every_poll_completes_something() {
    let (mut mock, stop) = (mock(4), AtomicBool::new(true));
    mock.lock().done.push_back(arrival(0, 0, 0));
    let mut port = silent_port(&mut mock, &stop);
    let error = port.poll(&mut [Completion::EMPTY; BURST]).unwrap_err();
    assert!(error.to_string().contains("stopped"), "{error}");
}

#[test]
fn credits_return_when_idle_and_when_they_are_settled() {
    for idle_polls in [0, 3] {
        let (mut mock, stop) = (mock(4), AtomicBool::new(false));
        let mut credits = super::super::credits::tests::credits();
        mock.lock().done.push_back(arrival(1, 0, 0));
        let mut port = silent_port(&mut mock, &stop).with_credits(&mut credits);
        let mut done = [Completion::EMPTY; BURST];
        for _ in 0..=idle_polls {
            port.poll(&mut done).unwrap();
        }
        if idle_polls == 0 {
            port.settle_credits().unwrap();
            assert!(credits.is_settled());
        }
        assert_eq!(mock.lock().posted, 1);
    }
}

#[test]
fn an_awaited_answer_counts_as_in_flight_and_its_arrival_as_progress() {
    let (mut mock, stop) = (mock(4), AtomicBool::new(false));
    let watch = StallWatch::new(100_000_000, 0, 1);
    let mut port = silent_port(&mut mock, &stop).with_watch(watch);
    let mut done = [Completion::EMPTY; BURST];
    port.awaited = 1;
    let end_ns = port.clock.now_ns() + 200_000_000;
    while port.clock.now_ns() < end_ns {
        port.answered += 1;
        port.poll(&mut done).unwrap();
    }
    let error = loop {
        if let Err(error) = port.poll(&mut done) {
            break error.to_string();
        }
    };
    assert!(error.contains("with 1 in flight"), "{error}");
    port.restart_watch();
    assert_eq!(port.awaited, 0);
}

#[test]
fn a_stalled_flow_ends_the_loop_but_not_across_trials() {
    let (mut mock, stop) = (mock(4), AtomicBool::new(false));
    let watch = StallWatch::new(1_000_000_000, 0, 1);
    let mut port = silent_port(&mut mock, &stop).with_watch(watch);
    let flows = [flow(3, 1)];
    let end_ns = port.clock.now_ns() + 1_200_000_000;
    while port.clock.now_ns() < end_ns {
        port.restart_watch();
        port.check_stalled_flows(&flows, |_| Some(0)).unwrap();
    }
    while port.check_stalled_flows(&flows, |_| Some(0)).is_ok() {}
    assert_eq!(port.stall().and_then(|stall| stall.peer), Some(1));
}
