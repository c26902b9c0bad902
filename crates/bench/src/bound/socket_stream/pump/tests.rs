//! Tests of single steps of a stream. A step must count bytes only within the measured interval. These tests put the
//! interval in the past, in the future, or around the present.

use std::time::Instant;

use super::super::tests::{pair, stream};
use super::*;
use rustix::fs::{OFlags, fcntl_getfl};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Returns an interval, given its times relative to now.
fn window(clock: &Clock, from_ns: i64, until_ns: i64, stop_ns: i64) -> StreamInterval {
    let at = |ns: i64| clock.now_ns().saturating_add_signed(ns);
    StreamInterval {
        start_ns: 0,
        from_ns: at(from_ns),
        until_ns: at(until_ns),
        stop_ns: at(stop_ns),
    }
}

const LATER: i64 = HOUR_NS as i64;

fn one<'a>(stream: Stream, window: &'a StreamInterval, clock: &'a Clock) -> StreamPump<'a> {
    prepare_socket(&stream.socket, false).unwrap();
    StreamPump {
        counted: vec![(stream.direction == StreamDirection::In).then_some(0)],
        streams: vec![Some(stream)],
        parts: [0; PARTS],
        block: vec![0; BLOCK_BYTES],
        window,
        clock,
        began_ns: None,
        ended_ns: None,
    }
}

#[test]
fn counting_begins_after_the_lead() {
    let window = StreamInterval::new(1_000, 200, 600, 7);
    let StreamInterval {
        start_ns,
        from_ns,
        until_ns,
        stop_ns,
    } = window;
    assert_eq!((start_ns, from_ns, until_ns), (1_000, 1_200, 1_800));
    assert_eq!(stop_ns, 1_800 + MARGIN_NS + 7);
    assert_eq!(window.part_ns(), 120.0);
    // If the difference between clocks is unbounded, a sender does not stop early.
    let clock = Clock::new();
    let endless = StreamInterval::new(clock.now_ns(), 0, 1, u64::MAX);
    assert_eq!(endless.stop_ns, u64::MAX);
    let pump = one(stream(pair().0, StreamDirection::Out), &endless, &clock);
    assert!(pump.may_be_over());
}

#[test]
fn rates_are_bytes_over_the_time_that_was_counted() {
    let clock = Clock::new();
    let window = StreamInterval::new(0, 0, 5_000_000, 0);
    let mut pump = one(stream(pair().0, StreamDirection::In), &window, &clock);
    pump.counted = vec![Some(300), None, Some(0), Some(100)];
    pump.parts = [1, 2, 3, 4, 5];
    (pump.began_ns, pump.ended_ns) = (Some(1_000), Some(3_000));
    let streamed = pump.result();
    assert_eq!((streamed.streams, streamed.silent), (3, 1));
    assert_eq!(streamed.bytes_per_s, 400.0 * 1e9 / 2_000.0);
    assert_eq!(streamed.parts_bytes_per_s, [1e3, 2e3, 3e3, 4e3, 5e3]);
    // Counting never ended, so the rate is practically 0.
    pump.ended_ns = None;
    assert!(pump.result().bytes_per_s < 1.0);
}

#[test]
fn only_bytes_received_within_the_window_count() {
    let clock = Clock::new();
    for (from_ns, until_ns, counted) in [(LATER, LATER, 0), (-1_000_000, LATER, 10)] {
        let (mut near, far) = pair();
        let window = window(&clock, from_ns, until_ns, LATER);
        let mut pump = one(stream(far, StreamDirection::In), &window, &clock);
        near.write_all(&[1; 10]).unwrap();
        let since = Instant::now();
        while !pump.step(0).unwrap() && since.elapsed().as_secs() < 20 {}
        assert_eq!(pump.counted, [Some(counted)]);
        assert_eq!(pump.parts, [counted, 0, 0, 0, 0]);
        assert_eq!(pump.began_ns.is_some(), counted > 0);
        assert!(pump.ended_ns.is_none() && pump.streams[0].is_some());
    }
    // When the counted time is over, a step closes the stream and records the end, once.
    let (_near, far) = pair();
    let window = window(&clock, -2_000_000, -1_000_000, LATER);
    let mut pump = one(stream(far, StreamDirection::In), &window, &clock);
    assert!(!pump.step(0).unwrap());
    assert!(pump.streams[0].is_none() && pump.ended_ns.is_some());
    let ended_ns = pump.ended_ns;
    assert!(!pump.step(0).unwrap());
    assert_eq!(pump.ended_ns, ended_ns);
}

/// If a receiver closes within the possible difference of the clocks, the sender must not report an error.
#[test]
fn a_sender_stops_at_its_time_or_with_its_receiver() {
    let clock = Clock::new();
    let (near, far) = pair();
    let over = window(&clock, -3_000_000, -2_000_000, -1_000_000);
    let mut pump = one(stream(near, StreamDirection::Out), &over, &clock);
    assert!(!pump.step(0).unwrap());
    assert!(
        pump.streams[0].is_none(),
        "the receiver is there, but the time is over"
    );
    drop(far);
    for (until_ns, early_ns, may_be_over) in [
        (5_000_000_000, 10_000_000_000, true),
        (5_000_000_000, 1_000_000, false),
        (-1_000_000, 500_000, true),
    ] {
        let window = window(&clock, -5_000_000, until_ns, until_ns + early_ns);
        let (near, far) = pair();
        drop(far);
        let mut pump = one(stream(near, StreamDirection::Out), &window, &clock);
        assert_eq!(pump.may_be_over(), may_be_over);
        if until_ns < 0 {
            continue;
        }
        // The first write may succeed, because the peer's reset has not arrived yet.
        let ended = (0..1_000_000).find_map(|_| match pump.step(0) {
            Ok(_) if pump.streams[0].is_some() => None,
            ended => Some(ended),
        });
        assert_eq!(ended.unwrap().is_ok(), may_be_over);
    }
}

/// The thread reads the clock and then sleeps in a read. The peer closes after the counted time, which is not an error.
#[test]
fn a_peer_that_closes_after_the_time_is_not_an_error() {
    let clock = Clock::new();
    let (near, far) = pair();
    let window = window(&clock, -1_000_000, 3_000_000, LATER);
    let mut pump = one(stream(far, StreamDirection::In), &window, &clock);
    prepare_socket(&pump.streams[0].as_ref().unwrap().socket, true).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(6));
            drop(near);
        });
        while pump.streams[0].is_some() {
            pump.step(0).unwrap();
        }
    });
    assert!(pump.ended_ns.is_some());
}

#[test]
fn a_pump_begins_at_the_start_of_its_window() {
    let clock = Clock::new();
    let start_ns = clock.now_ns() + 5_000_000;
    let window = StreamInterval::new(start_ns, 0, 1, 0);
    assert_eq!(
        pump(Vec::new(), &window, &clock, WaitMethod::Polling).unwrap(),
        StreamedBytes::default()
    );
    assert!(clock.now_ns() >= start_ns);
}

/// Only a single blocking stream may wait inside a call. With several streams, others could move bytes meanwhile.
#[test]
fn only_a_single_blocking_stream_uses_a_blocking_socket() {
    for (waiting, streams, blocks) in [
        (WaitMethod::Blocking, 1, true),
        (WaitMethod::Blocking, 2, false),
        (WaitMethod::Polling, 1, false),
    ] {
        let clock = Clock::new();
        let window = StreamInterval::new(clock.now_ns(), 1_000_000, 3_000_000, 0);
        let (near, far): (Vec<_>, Vec<_>) = (0..streams).map(|_| pair()).unzip();
        let kept = far[0].try_clone().unwrap();
        let far = far.into_iter().map(|far| stream(far, StreamDirection::In));
        pump(far.collect(), &window, &clock, waiting).unwrap();
        let flags = fcntl_getfl(&kept).unwrap();
        assert_eq!(!flags.contains(OFlags::NONBLOCK), blocks, "{waiting:?}");
        assert!(kept.nodelay().unwrap());
        drop(near);
    }
}
