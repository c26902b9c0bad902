use std::sync::atomic::AtomicBool;

use super::super::stall::StallWatch;
use super::*;
use crate::testing::{Counter, flow, mock, silent_port, slots};
use tonnage_engine::testing::{CAPS, arrival};
use tonnage_engine::{Access, Peer};
use tonnage_sys::mapping::{Pages, Sharing};

const OUT: u64 = 64;
const INTO: u64 = 256;

/// Two slots of 8 bytes in each direction, 16 bytes apart.
fn signal() -> LastByteSignal {
    let slots = FlowSlots {
        stride_bytes: 16,
        ..slots(Access::Sequential, 2)
    };
    let arena = Arena::allocate(4096, Pages::Normal, Sharing::Private, None).unwrap();
    LastByteSignal::new(&slots, 0, 1, Arc::new(arena), OUT, INTO)
}

fn table(peers: u32, signals: Vec<LastByteSignal>, answers: bool) -> PingPongEnd {
    let flows = (1..=peers).map(|peer| flow(peer, peer)).collect();
    PingPongEnd::new(flows, signals, answers, &CAPS)
}

fn issued(flows: &[Flow]) -> Vec<u64> {
    flows.iter().map(|flow| flow.issued).collect()
}

/// A clock that advances by ten at each reading.
#[derive(Default)]
struct TensClock(Counter);

impl Recorder for TensClock {
    fn now_ns(&self) -> u64 {
        10 * self.0.now_ns()
    }

    fn sample(&mut self, latency_ns: u64) {
        self.0.sample(latency_ns);
    }
}

#[test]
fn the_last_byte_of_a_slot_counts_how_often_it_was_written() {
    let mut signal = signal();
    let byte = |signal: &LastByteSignal, at| signal.arena.load_byte(at).unwrap();
    for (slot, count) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
        signal.write_count().unwrap();
        assert_eq!(byte(&signal, OUT + 16 * slot + 7), count);
    }
    for (slot, count) in [(0, 1), (1, 1), (0, 2)] {
        assert!(!signal.arrived().unwrap());
        let at = INTO + 16 * slot + 7;
        signal.arena.store_byte(at, count).unwrap();
        assert!(signal.arrived().unwrap());
    }
    // Another trial may have filled the slots.
    for at in INTO..INTO + 32 {
        signal.arena.store_byte(at, 99).unwrap();
    }
    let mut table = table(1, vec![signal], false);
    table.reset_incoming().unwrap();
    let signal = &mut table.signals[0];
    assert_eq!(byte(signal, INTO + 7), 2);
    assert_eq!(byte(signal, INTO + 16 + 7), 1);
    assert!(!signal.arrived().unwrap());
}

#[test]
fn an_engine_that_needs_polls_is_polled_after_each_check() {
    let polls = Caps {
        arrives_by_polling: true,
        ..CAPS
    };
    let of = |caps| PingPongEnd::new(Vec::new(), Vec::new(), false, caps).looks_per_poll;
    assert_eq!((of(&polls), of(&CAPS)), (1, LOOKS_PER_POLL));
}

#[test]
fn round_trips_go_round_the_peers_with_a_bound_of_what_is_in_flight() {
    let (mut mock, stop) = (mock(1), AtomicBool::new(false));
    mock.lock().answers = Some(Box::new(|peer, _| Some(arrival(peer, 0, 0))));
    mock.lock().busy = 2;
    let mut port = silent_port(&mut mock, &stop);
    let (mut table, mut tens) = (table(3, Vec::new(), false), TensClock::default());
    let mut until = Until::operations(42);
    let trips = serve_first(&mut port, &mut table, &mut until, &mut tens).unwrap();
    assert_eq!(trips, 42);
    assert_eq!(issued(&table.flows), [14, 14, 14]);
    assert_eq!(tens.0.samples, [5; 42], "half of the ten that each took");
    assert_eq!((port.awaited, port.answered), (0, 42));
    assert!(table.unanswered.is_empty());
    let script = mock.lock();
    assert_eq!((script.posted, script.in_flight.len()), (42, 0));
    assert_eq!(script.most_in_flight as u64, OUTSTANDING_MAX);
}

#[test]
fn a_missing_answer_ends_the_loop() {
    for signals in [vec![], vec![signal()]] {
        let (mut mock, stop) = (mock(1), AtomicBool::new(false));
        let watch = StallWatch::new(100_000_000, 0, 1);
        let mut port = silent_port(&mut mock, &stop).with_watch(watch);
        let mut table = table(1, signals, false);
        let mut until = Until::operations(1);
        let tens = &mut TensClock::default();
        let error = serve_first(&mut port, &mut table, &mut until, tens).unwrap_err();
        assert!(error.to_string().contains("with 1 in flight"), "{error}");
    }
}

/// A peer that answers each operation by writing to the slots in turn, at most three times to each.
fn echo(arena: Arc<Arena>) -> impl FnMut(Peer, &Op) -> Option<Completion> {
    let mut written = 0;
    move |_, _| {
        if written < 6 {
            let at = INTO + 16 * (written % 2) + 7;
            arena.store_byte(at, 1 + (written / 2) as u8).unwrap();
        }
        written += 1;
        None
    }
}

#[test]
fn bytes_that_change_are_answers_and_are_answered() {
    let (mut mock, stop) = (mock(1), AtomicBool::new(false));
    let signal = signal();
    let arena = Arc::clone(&signal.arena);
    mock.lock().answers = Some(Box::new(echo(Arc::clone(&arena))));
    let mut port = silent_port(&mut mock, &stop);
    let mut first = table(1, vec![signal], false);
    let (mut until, tens) = (Until::operations(6), &mut TensClock::default());
    let trips = serve_first(&mut port, &mut first, &mut until, tens).unwrap();
    assert_eq!((trips, arena.load_byte(OUT + 7).unwrap()), (6, 3));

    // The answering side, with the same memory: the peer writes to the first slot a fourth time.
    let mut rounds = 0;
    let mut over = || {
        rounds += 1;
        if rounds == 1 {
            arena.store_byte(INTO + 7, 4).unwrap();
        }
        rounds > 1
    };
    let answers = return_all(&mut port, &mut first, &mut over).unwrap();
    assert_eq!((answers, arena.load_byte(OUT + 7).unwrap()), (1, 4));
    let script = mock.lock();
    assert_eq!((script.posted, script.in_flight.len()), (7, 0));
}

#[test]
fn each_arrival_is_answered_to_the_peer_that_it_came_from() {
    let (mut mock, stop) = (mock(1), AtomicBool::new(false));
    mock.lock().done = [3, 2, 3, 3].map(|peer| arrival(peer, 0, 0)).into();
    let mut port = silent_port(&mut mock, &stop);
    let mut table = table(3, Vec::new(), true);
    let mut rounds = 0;
    let mut over = || {
        rounds += 1;
        rounds > 4
    };
    let answers = return_all(&mut port, &mut table, &mut over).unwrap();
    assert_eq!(answers, 4);
    assert_eq!(issued(&table.flows), [0, 1, 3]);
    assert_eq!((port.arrivals.count, mock.lock().in_flight.len()), (4, 0));
}

#[test]
fn an_arrival_from_an_unknown_rank_is_an_error() {
    let (mut mock, stop) = (mock(1), AtomicBool::new(false));
    mock.lock().done.push_back(arrival(9, 0, 0));
    let mut port = silent_port(&mut mock, &stop);
    let error = return_all(&mut port, &mut table(3, Vec::new(), true), &mut || false).unwrap_err();
    assert!(error.to_string().contains("rank 9"), "{error}");
}

#[test]
fn reads_go_round_the_peers_one_at_a_time() {
    let (mut mock, stop) = (mock(9), AtomicBool::new(false));
    let mut flows: Vec<_> = (1..=3).map(|peer| flow(peer, peer)).collect();
    let (mut until, mut tens) = (Until::operations(7), TensClock::default());
    let mut port = silent_port(&mut mock, &stop);
    let reads = read_round_robin(&mut port, &mut flows, &mut until, &mut tens).unwrap();
    assert_eq!(reads, 7);
    assert_eq!(issued(&flows), [3, 2, 2]);
    assert_eq!(tens.0.samples, [10; 7]);
    let script = mock.lock();
    assert_eq!((script.posted, script.most_in_flight), (7, 1));
}
