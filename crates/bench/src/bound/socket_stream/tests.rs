//! Streams between threads, and complete measurements in which threads are the ranks.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::pump::StreamDirection;
use super::*;
use tonnage_engine::Verb;
use tonnage_plan::point::{BoundChoice, Traffic};
use tonnage_plan::transfer::Access;
use tonnage_ranks::testing::run;
use tonnage_sys::clock::thread_cpu_ns;
use tonnage_units::{Error, Reduce};

const WINDOW_NS: u64 = 60_000_000;

/// Returns both ends of a connection over loopback.
pub(super) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

pub(super) fn stream(socket: TcpStream, direction: StreamDirection) -> Stream {
    let peer = "rank 7 on h7".into();
    Stream {
        socket,
        direction,
        peer,
    }
}

fn window(clock: &Clock) -> StreamInterval {
    StreamInterval::new(clock.now_ns() + 1_000_000, WINDOW_NS / 3, WINDOW_NS, 0)
}

/// The sender sends bytes before and during the counted time, but none after it. Parts and rate of the receiver must
/// cover only the bytes during the counted time.
#[test]
fn the_receiver_counts_bytes_within_the_window() {
    const BYTES: usize = 3 << 20;
    let attempt = || {
        let clock = Clock::new();
        let window = window(&clock);
        let (mut near, far) = pair();
        let sender = thread::spawn(move || {
            // Bytes before the counted time don't count.
            near.write_all(&vec![1; BYTES / 2]).unwrap();
            while clock.now_ns() < window.from_ns + WINDOW_NS / 4 {
                thread::sleep(Duration::from_millis(1));
            }
            // On a busy machine, the receiver may close at the end of the counted time before it has read everything.
            let sent = near.write_all(&vec![1; BYTES]);
            while clock.now_ns() < window.until_ns {
                thread::sleep(Duration::from_millis(1));
            }
            drop(sent);
        });
        let into = vec![stream(far, StreamDirection::In)];
        // Polling starts to count in time. A blocking receiver would start only when the first bytes arrive.
        let received = pump(into, &window, &clock, WaitMethod::Polling).unwrap();
        sender.join().unwrap();
        assert_eq!(received.streams, 1);
        let part_s = (window.until_ns - window.from_ns) as f64 / 5.0 / 1e9;
        let of_parts = received.parts_bytes_per_s.map(|rate| rate * part_s);
        let of_parts = of_parts.iter().sum::<f64>();
        (received.silent, of_parts, received.bytes_per_s)
    };
    // If a thread is descheduled, it counts too few bytes, or counts for too long. Therefore several attempts are made.
    let exact = |&(silent, of_parts, rate): &(u64, f64, f64)| {
        let whole = BYTES as f64 * 1e9 / WINDOW_NS as f64;
        silent == 0
            && (of_parts - BYTES as f64).abs() < 1.0
            && (0.8..1.25).contains(&(rate / whole))
    };
    let found = (0..40).map(|_| attempt()).find(exact);
    assert!(found.is_some(), "none of 40 attempts counted exactly");
}

#[test]
fn a_window_has_five_equal_parts() {
    let window = StreamInterval::new(0, 16, 50, 0);
    assert_eq!((window.from_ns, window.until_ns), (16, 66));
    let parts = [0, window.from_ns, window.from_ns + 9, window.from_ns + 10];
    assert_eq!(parts.map(|ns| window.part(ns)), [0, 0, 0, 1]);
    let last = [window.until_ns - 1, window.until_ns, window.stop_ns];
    assert_eq!(last.map(|ns| window.part(ns)), [4, 4, 4]);

    let one = StreamedBytes {
        bytes_per_s: 3.0,
        parts_bytes_per_s: [1.0, 2.0, 3.0, 4.0, 5.0],
        streams: 3,
        silent: 1,
    };
    let mut sum = one;
    sum.merge(one);
    assert_eq!((sum.bytes_per_s, sum.streams, sum.silent), (6.0, 6, 2));
    assert_eq!(sum.parts_bytes_per_s, [2.0, 4.0, 6.0, 8.0, 10.0]);
    // Student's t with four degrees of freedom, times the standard deviation, divided by the root of five.
    let ci95 = 2.776 * 10f64.sqrt() / 5f64.sqrt();
    assert!((sum.ci95_bytes_per_s(1).unwrap() - ci95).abs() < 0.01);
    // For the best of four, t is taken at 1 - 0.025 / 4, with four degrees of freedom, from a table.
    let wide = sum.ci95_bytes_per_s(4).unwrap();
    assert!((wide - ci95 * 4.315 / 2.776).abs() < 0.02, "{wide}");
}

/// In slow start, streams double their rate in each round trip. The rates of steady streams vary up and down.
#[test]
fn steadily_rising_streams_are_not_steady() {
    let of = |parts_bytes_per_s| StreamedBytes {
        parts_bytes_per_s,
        ..StreamedBytes::default()
    };
    for rising in [[1.0, 2.0, 4.0, 8.0, 16.0], [0.0, 1.0, 1.1, 1.2, 1.3]] {
        assert!(of(rising).is_rising(), "{rising:?}");
    }
    for steady in [
        [5.0; 5],
        [0.0; 5],
        [1.0, 1.01, 1.02, 1.03, 1.04],
        [1.0, 2.0, 4.0, 8.0, 7.9],
        [5.0, 4.0, 3.0, 2.0, 1.0],
    ] {
        assert!(!of(steady).is_rising(), "{steady:?}");
    }
}

/// With 20 ms in each direction, 20 doublings of 14 kB open any window. Each of the five parts then has two round
/// trips.
#[test]
fn counting_begins_after_several_round_trips() {
    const MS: u64 = 1_000_000;
    assert_eq!(lead_and_timed_ns(300 * MS, 50_000), (100 * MS, 300 * MS));
    assert_eq!(lead_and_timed_ns(200 * MS, 40 * MS), (800 * MS, 400 * MS));
    let longest = (ROUND_TRIPS_NS_MAX, ROUND_TRIPS_NS_MAX);
    assert_eq!(lead_and_timed_ns(200 * MS, u64::MAX), longest);
    let leads = |first_ns| [0, 1, 2].map(|attempt| lead_ns(first_ns, attempt));
    assert_eq!(leads(100 * MS), [100 * MS, 400 * MS, 1600 * MS]);
    let long = [ROUND_TRIPS_NS_MAX, LEAD_NS_MAX, LEAD_NS_MAX];
    assert_eq!(leads(ROUND_TRIPS_NS_MAX), long);
    // Two of the longest attempts must fit into the deadline of a step, for which other ranks wait.
    let whole = Duration::from_nanos(LEAD_NS_MAX + ROUND_TRIPS_NS_MAX);
    assert!(2 * whole < DEADLINES.step);
}

/// Models streams in slow start that become steady later.
#[test]
fn streams_in_slow_start_are_measured_again_later() {
    const DOUBLING_NS: f64 = 1e8;
    let point = point(Traffic::Pair, 2, Verb::Write);
    let modeled = |doublings: f64| {
        measured_with(&point, move |shared, _| {
            let window = shared.window;
            let at = |part: usize| {
                let part_ns = (window.until_ns - window.from_ns) as f64 / 5.0;
                let since_ns = (window.from_ns - window.start_ns) as f64 + part_ns * part as f64;
                2f64.powf((since_ns / DOUBLING_NS).min(doublings))
            };
            let parts_bytes_per_s = std::array::from_fn(at);
            StreamedBytes {
                bytes_per_s: parts_bytes_per_s.iter().sum::<f64>() / 5.0,
                parts_bytes_per_s,
                streams: 2,
                silent: 0,
            }
        })
    };
    // Both ranks report the steady rate.
    for carried in modeled(1.5) {
        let found = carried.unwrap().streamed.bytes_per_s;
        assert!((found - 2.0 * 2f64.powf(1.5)).abs() < 1e-9, "{found}");
    }
    // If streams never become steady, there is no bound.
    assert_eq!(modeled(1e9), [None, None]);
}

/// Measures the CPU time of the thread: a polling thread would use nearly all of it.
#[test]
fn a_blocking_worker_sleeps_with_any_number_of_streams() {
    for streams in [1, 3] {
        let clock = Clock::new();
        let window = StreamInterval::new(clock.now_ns(), 50_000_000, 200_000_000, 0);
        let (near, far): (Vec<_>, Vec<_>) = (0..streams).map(|_| pair()).unzip();
        let far = far.into_iter().map(|far| stream(far, StreamDirection::In));
        let cpu_ns = thread_cpu_ns();
        let silent = pump(far.collect(), &window, &clock, WaitMethod::Blocking).unwrap();
        let cpu_ns = thread_cpu_ns() - cpu_ns;
        assert_eq!(silent.silent, streams);
        assert!(cpu_ns < 20_000_000, "{streams}: {cpu_ns} ns");
        drop(near);
    }
}

#[test]
fn one_thread_carries_several_streams_both_ways() {
    for waiting in WaitMethod::ALL {
        // On a busy host, a thread may be descheduled for the whole counted time, so several attempts are made.
        let mut all = (0..20).map(|_| several_streams_both_ways(waiting));
        let sum = all.find(|sum| sum.silent == 0).unwrap();
        assert!(sum.bytes_per_s > 1e6, "{sum:?}");
    }
}

fn several_streams_both_ways(waiting: WaitMethod) -> StreamedBytes {
    let clock = Clock::new();
    let window = window(&clock);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for index in 0..4 {
        let (near, far) = pair();
        let (out, into) = match index % 2 {
            0 => (StreamDirection::Out, StreamDirection::In),
            _ => (StreamDirection::In, StreamDirection::Out),
        };
        here.push(stream(near, out));
        there.push(stream(far, into));
    }
    let other = thread::spawn(move || pump(there, &window, &clock, waiting).unwrap());
    let mut sum = pump(here, &window, &clock, waiting).unwrap();
    sum.merge(other.join().unwrap());
    assert_eq!(sum.streams, 4);
    sum
}

#[test]
fn a_stream_without_bytes_is_silent_and_an_early_end_is_an_error() {
    let clock = Clock::new();
    let window = window(&clock);
    let (near, far) = pair();
    let into = vec![stream(far, StreamDirection::In)];
    let silent = pump(into, &window, &clock, WaitMethod::Blocking).unwrap();
    assert_eq!((silent.bytes_per_s, silent.silent), (0.0, 1));
    drop(near);

    for direction in [StreamDirection::In, StreamDirection::Out] {
        let (near, far) = pair();
        drop(far);
        // The interval is so long that the thread starts before its end even on a busy machine. The error then ends the
        // call at once.
        let window = StreamInterval::new(clock.now_ns(), 1, 20_000_000_000, 0);
        let streams = vec![stream(near, direction)];
        let error = pump(streams, &window, &clock, WaitMethod::Polling).unwrap_err();
        assert!(error.to_string().contains("rank 7 on h7"), "{error}");
    }
}

pub(super) fn point(traffic: Traffic, ranks: u32, op: Verb) -> TransferPoint {
    let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 16);
    point.bound = BoundChoice::Auto;
    (
        point.roles.traffic,
        point.roles.ranks,
        point.op,
        point.threads,
    ) = (traffic, ranks, op, 2);
    point.length.trial = TrialLength::DurationNs(1);
    point
}

/// Measures with threads as ranks. Each worker runs its streams on a further thread.
fn measured(point: &TransferPoint) -> Vec<Result<Option<StreamMeasurement>>> {
    let point = point.clone();
    run(point.roles.ranks, move |mut rank| {
        let workers = point.threads as usize;
        // Only the second worker of rank 0 has a device with an address of its own.
        let mut addresses = vec![vec![None]; workers];
        addresses[1][0] = (rank.id() == 0).then_some([127, 0, 0, 2].into());
        let result = measure(&mut rank, &point, &addresses, |shared| {
            let clock = Clock::new();
            let carried = thread::scope(|scope| {
                let carrying: Vec<_> = (0..workers)
                    .map(|worker| scope.spawn(move || shared.run_streams_of(worker, &clock)))
                    .collect();
                carrying
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect::<Vec<_>>()
            });
            let mut sum = StreamedBytes::default();
            for one in carried {
                sum.merge(one?);
            }
            Ok(sum)
        });
        rank.close().unwrap();
        result
    })
}

#[test]
fn every_flow_has_a_stream_for_each_worker() {
    for (traffic, ranks, op, streams) in [
        (Traffic::Pair, 2, Verb::Write, 2),
        (Traffic::Pair, 2, Verb::Read, 2),
        (Traffic::FanIn, 3, Verb::WriteImm, 4),
        (Traffic::FanOut, 3, Verb::Send, 4),
        (Traffic::AllToAll, 3, Verb::Read, 12),
    ] {
        let mut point = point(traffic, ranks, op);
        point.length.trial = TrialLength::Iterations(1);
        // On a busy host, a thread may be descheduled for the whole counted time. The measurement is then discarded and
        // repeated.
        let (first, all) = (0..20)
            .find_map(|_| {
                let all = measured(&point);
                let first = *all[0].as_ref().unwrap();
                first.map(|first| (first, all))
            })
            .unwrap();
        assert_eq!(first.streamed.streams, streams, "{traffic:?} {op:?}");
        assert!(first.streamed.bytes_per_s > 1e6, "{first:?}");
        for other in &all {
            assert_eq!(*other.as_ref().unwrap(), Some(first));
        }
        let what = describe(&first).what;
        assert!(
            what.contains(&format!("{streams} TCP connections at once")),
            "{what}"
        );
    }
}

#[test]
fn the_faster_way_of_waiting_is_the_bound() {
    for faster in WaitMethod::ALL {
        let point = point(Traffic::Pair, 2, Verb::Write);
        let carried = measured_with(&point, move |shared, _| StreamedBytes {
            bytes_per_s: if shared.waiting == faster { 2e9 } else { 1e9 },
            streams: 1,
            ..StreamedBytes::default()
        });
        for carried in carried.into_iter().map(Option::unwrap) {
            assert_eq!(
                (carried.waiting, carried.streamed.bytes_per_s),
                (faster, 4e9)
            );
            let what = describe(&carried).what;
            assert!(what.contains(&format!(", {}, ", faster.name())), "{what}");
        }
    }
}

/// Measures with ranks that move no bytes. Instead, `carry` returns the result of each call, by the call's number.
fn measured_with(
    point: &TransferPoint,
    carry: impl Fn(&SharedStreams, u64) -> StreamedBytes + Send + Sync + Clone + 'static,
) -> Vec<Option<StreamMeasurement>> {
    let point = point.clone();
    run(point.roles.ranks, move |mut rank| {
        let mut calls = 0;
        let addresses = vec![vec![None]; point.threads as usize];
        let carried = measure(&mut rank, &point, &addresses, |shared| {
            calls += 1;
            Ok(carry(shared, calls))
        });
        rank.close().unwrap();
        carried.unwrap()
    })
}

/// All rounds together take the time of a trial, and the result is their mean.
#[test]
fn rounds_share_the_time_and_their_mean_is_the_result() {
    let mut point = point(Traffic::InTurn, 3, Verb::Write);
    point.length.trial = TrialLength::DurationNs(400_000_000);
    let carried = measured_with(&point, |shared, call| {
        let StreamInterval {
            from_ns, until_ns, ..
        } = shared.window;
        // If a busy machine causes round trips of more than 20 ms, the counted time is longer.
        assert!(until_ns - from_ns >= 200_000_000);
        // Each method of waiting measures two rounds. All three ranks return the same result.
        let bytes_per_s = [0.0, 1e9, 3e9, 0.0, 0.0][call as usize];
        StreamedBytes {
            bytes_per_s,
            parts_bytes_per_s: [bytes_per_s; 5],
            streams: 2,
            silent: 0,
        }
    });
    for carried in carried {
        let StreamMeasurement {
            streamed,
            waiting,
            measurements,
        } = carried.unwrap();
        assert_eq!((waiting, measurements), (WaitMethod::ALL[0], 2));
        assert_eq!((streamed.bytes_per_s, streamed.streams), (6e9, 6));
        assert_eq!(streamed.parts_bytes_per_s, [6e9; 5]);
    }
    // With equal numbers of operations, slow rounds take longer: 2 / (1/1 + 1/3) instead of 2.
    point.length.trial = TrialLength::Iterations(1000);
    let carried = measured_with(&point, |_, call| StreamedBytes {
        bytes_per_s: [0.0, 1e9, 3e9, 0.5e9, 0.5e9][call as usize],
        parts_bytes_per_s: [[0.0, 1e9, 3e9, 0.5e9, 0.5e9][call as usize]; 5],
        streams: 2,
        silent: 0,
    });
    for carried in carried {
        let streamed = carried.unwrap().streamed;
        for rate in [streamed.bytes_per_s, streamed.parts_bytes_per_s[4]] {
            assert!((rate - 4.5e9).abs() < 1.0, "{streamed:?}");
        }
    }
}

#[test]
fn a_measurement_with_a_silent_stream_is_discarded() {
    let point = point(Traffic::Pair, 2, Verb::Write);
    let all = |streams, silent| StreamedBytes {
        bytes_per_s: 1e9,
        streams,
        silent,
        ..StreamedBytes::default()
    };
    let never = measured_with(&point, move |_, _| all(2, 1));
    assert_eq!(never, [None, None]);
    let none = measured_with(&point, move |_, _| all(0, 0));
    assert_eq!(none, [None, None]);
    // If the first method has no result, the result of the other method counts.
    let once = measured_with(&point, move |_, call| all(2, u64::from(call == 1)));
    for carried in once {
        assert_eq!(carried.unwrap().waiting, WaitMethod::ALL[1]);
    }
}

/// A link may have different speeds in its two directions, so streams must have the payload's direction.
#[test]
fn streams_have_the_direction_of_the_payload() {
    for (op, initiator_sends) in [(Verb::Write, true), (Verb::Send, true), (Verb::Read, false)] {
        let point = point(Traffic::FanOut, 2, op);
        let directions = run(2, move |mut rank| {
            let (mut seen, me) = (Vec::new(), rank.id());
            let carried = measure(&mut rank, &point, &[vec![None], vec![None]], |shared| {
                let workers = lock(&shared.streams);
                assert_eq!(workers.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
                seen.extend(workers.iter().flatten().map(|stream| stream.direction));
                Ok(StreamedBytes::default())
            });
            rank.close().unwrap();
            assert_eq!(carried.unwrap(), None);
            (me, seen)
        });
        for (rank, seen) in directions {
            let expected = match (rank == 0) == initiator_sends {
                true => StreamDirection::Out,
                false => StreamDirection::In,
            };
            assert_eq!(seen, [expected; 4], "{op:?} on rank {rank}");
        }
    }
}

/// In the first case a worker fails. In the second case, an address belongs to no host (TEST-NET-1).
#[test]
fn a_failure_on_one_rank_is_named_on_all() {
    for (expected, address) in [
        ("the cable was cut", None),
        ("192.0.2.1", Some([192, 0, 2, 1].into())),
    ] {
        let point = point(Traffic::Pair, 2, Verb::Write);
        let errors = run(2, move |mut rank| {
            let is_faulty = rank.id() == 1;
            let addresses = [vec![None], vec![address.filter(|_| is_faulty)]];
            let carried = measure(&mut rank, &point, &addresses, |_| {
                if is_faulty && address.is_none() {
                    return Err(Error::Failed("the cable was cut".into()));
                }
                Ok(StreamedBytes::default())
            });
            rank.close().unwrap();
            carried.unwrap_err().to_string()
        });
        for error in errors {
            assert!(
                error.contains("rank 1") && error.contains(expected),
                "{error}"
            );
        }
    }
}

#[test]
fn streams_last_as_long_as_a_trial() {
    let mut point = point(Traffic::Pair, 2, Verb::Write);
    for (trial, timed) in [
        (TrialLength::DurationNs(1), TIMED_NS_MIN),
        (TrialLength::DurationNs(300_000_000), 300_000_000),
        (TrialLength::DurationNs(3_600_000_000_000), TIMED_NS_MAX),
        (TrialLength::Iterations(1), TIMED_NS),
    ] {
        point.length.trial = trial;
        assert_eq!(timed_part_ns(&point), timed);
    }
}
