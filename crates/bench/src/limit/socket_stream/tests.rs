//! Streams between threads, and whole measurements with threads as ranks.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::pump::StreamDirection;
use super::*;
use tonnage_engine::Verb;
use tonnage_plan::point::{LimitChoice, Traffic};
use tonnage_plan::transfer::Addresses;
use tonnage_ranks::testing::run;
use tonnage_ranks::{pack, unpack};
use tonnage_sys::clock::thread_cpu_ns;
use tonnage_units::{Error, Reduce};

const WINDOW_NS: u64 = 60_000_000;

/// Both ends of a connection over loopback.
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

fn window(clock: &Clock) -> Window {
    Window::new(clock.now_ns() + 1_000_000, WINDOW_NS, 0)
}

#[test]
fn the_receiver_counts_what_comes_within_the_window() {
    let clock = Clock::new();
    let window = window(&clock);
    let (near, far) = pair();
    let since = Instant::now();
    let out = vec![stream(near, StreamDirection::Out)];
    let sender = thread::spawn(move || pump(out, &window, &clock, Waiting::Blocking));
    let into = vec![stream(far, StreamDirection::In)];
    let received = pump(into, &window, &clock, Waiting::Polling).unwrap();
    assert_eq!(sender.join().unwrap().unwrap(), Streamed::default());
    assert_eq!((received.streams, received.silent), (1, 0));
    // Slower than any host's loopback, and faster than any host's memory.
    assert!((1e6..1e12).contains(&received.bytes_per_s), "{received:?}");
    assert!(since.elapsed() >= Duration::from_nanos(WINDOW_NS));
    // How much each part has depends on when this thread had a CPU.
    assert!(received.parts_bytes_per_s.iter().sum::<f64>() > 0.0);
}

#[test]
fn a_rate_is_that_of_equal_parts() {
    let window = Window::new(0, 50, 0);
    let parts = [0, window.from_ns, window.from_ns + 9, window.from_ns + 10];
    assert_eq!(parts.map(|ns| window.part(ns)), [0, 0, 0, 1]);
    let last = [window.until_ns - 1, window.until_ns, window.stop_ns];
    assert_eq!(last.map(|ns| window.part(ns)), [4, 4, 4]);

    let one = Streamed {
        bytes_per_s: 3.0,
        parts_bytes_per_s: [1.0, 2.0, 3.0, 4.0, 5.0],
        streams: 3,
        silent: 1,
    };
    let mut sum = one;
    sum.merge(one);
    assert_eq!((sum.bytes_per_s, sum.streams, sum.silent), (6.0, 6, 2));
    assert_eq!(sum.parts_bytes_per_s, [2.0, 4.0, 6.0, 8.0, 10.0]);
    // Student's t of four degrees of freedom, times the deviation, over the root of five.
    let ci95 = 2.776 * 10f64.sqrt() / 5f64.sqrt();
    assert!((sum.ci95_bytes_per_s().unwrap() - ci95).abs() < 0.01);
}

/// A thread that polled would use all of the time that it gets.
#[test]
fn a_worker_that_blocks_sleeps_however_many_streams_it_has() {
    for streams in [1, 3] {
        let clock = Clock::new();
        let window = Window::new(clock.now_ns(), 400_000_000, 0);
        let (near, far): (Vec<_>, Vec<_>) = (0..streams).map(|_| pair()).unzip();
        let far = far.into_iter().map(|far| stream(far, StreamDirection::In));
        let cpu_ns = thread_cpu_ns();
        let silent = pump(far.collect(), &window, &clock, Waiting::Blocking).unwrap();
        let cpu_ns = thread_cpu_ns() - cpu_ns;
        assert_eq!(silent.silent, streams);
        assert!(cpu_ns < 40_000_000, "{streams}: {cpu_ns} ns");
        drop(near);
    }
}

#[test]
fn one_thread_carries_several_streams_both_ways() {
    Waiting::ALL.into_iter().for_each(several_streams_both_ways);
}

fn several_streams_both_ways(waiting: Waiting) {
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
    assert_eq!((sum.streams, sum.silent), (4, 0));
    assert!(sum.bytes_per_s > 1e6, "{sum:?}");
}

#[test]
fn a_stream_that_brings_nothing_is_silent_and_one_that_ends_early_is_an_error() {
    let clock = Clock::new();
    let window = window(&clock);
    let (near, far) = pair();
    let into = vec![stream(far, StreamDirection::In)];
    let silent = pump(into, &window, &clock, Waiting::Blocking).unwrap();
    assert_eq!((silent.bytes_per_s, silent.silent), (0.0, 1));
    drop(near);

    for direction in [StreamDirection::In, StreamDirection::Out] {
        let (near, far) = pair();
        drop(far);
        // Long, so that it is not over before a busy machine lets this thread look; the error ends it at once.
        let window = Window::new(clock.now_ns(), 20_000_000_000, 0);
        let streams = vec![stream(near, direction)];
        let error = pump(streams, &window, &clock, Waiting::Polling).unwrap_err();
        assert!(error.to_string().contains("rank 7 on h7"), "{error}");
    }
}

pub(super) fn point(traffic: Traffic, ranks: u32, op: Verb) -> TransferPoint {
    let mut point = crate::drive::walk::tests::point(Addresses::Sequential, 1 << 16);
    point.limit = LimitChoice::Auto;
    (point.traffic, point.ranks, point.op, point.workers) = (traffic, ranks, op, 2);
    point.length.trial = TrialLength::DurationNs(1);
    point
}

/// Measures on threads as ranks; each worker gets a thread, too.
fn measured(point: &TransferPoint) -> Vec<Result<Option<Carried>>> {
    let point = point.clone();
    run(point.ranks, move |mut rank| {
        let workers = point.workers as usize;
        // The second worker of rank 0 has a device with an address of its own; the others have none.
        let mut addresses = vec![vec![None]; workers];
        addresses[1][0] = (rank.id() == 0).then_some([127, 0, 0, 2].into());
        let result = measure(&mut rank, &point, &addresses, |berths| {
            let clock = Clock::new();
            let carried = thread::scope(|scope| {
                let carrying: Vec<_> = (0..workers)
                    .map(|worker| scope.spawn(move || berths.carry(worker, &clock)))
                    .collect();
                carrying
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect::<Vec<_>>()
            });
            let mut sum = Streamed::default();
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
        // A host that is busy otherwise may leave a thread without a CPU for the whole time; then it is said so.
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
fn the_faster_way_of_waiting_is_the_limit() {
    for faster in Waiting::ALL {
        let point = point(Traffic::Pair, 2, Verb::Write);
        let carried = run(2, move |mut rank| {
            let carried = measure(&mut rank, &point, &[vec![None], vec![None]], |berths| {
                let bytes_per_s = if berths.waiting == faster { 2e9 } else { 1e9 };
                Ok(Streamed {
                    bytes_per_s,
                    streams: 1,
                    ..Streamed::default()
                })
            });
            rank.close().unwrap();
            carried.unwrap().unwrap()
        });
        for carried in carried {
            assert_eq!(
                (carried.waiting, carried.streamed.bytes_per_s),
                (faster, 4e9)
            );
            let what = describe(&carried).what;
            assert!(what.contains(&format!(", {}, ", faster.name())), "{what}");
        }
    }
}

/// Measures with ranks that carry nothing and say what `carry` says of each call, by its number.
fn told(
    point: &TransferPoint,
    carry: impl Fn(&Berths, u64) -> Streamed + Send + Sync + Clone + 'static,
) -> Vec<Option<Carried>> {
    let point = point.clone();
    run(point.ranks, move |mut rank| {
        let mut calls = 0;
        let addresses = vec![vec![None]; point.workers as usize];
        let carried = measure(&mut rank, &point, &addresses, |berths| {
            calls += 1;
            Ok(carry(berths, calls))
        });
        rank.close().unwrap();
        carried.unwrap()
    })
}

/// Rounds share the time of a trial, and their mean counts.
#[test]
fn rounds_have_a_part_of_the_time_each_and_their_mean_counts() {
    let mut point = point(Traffic::InTurn, 3, Verb::Write);
    point.length.trial = TrialLength::DurationNs(400_000_000);
    let carried = told(&point, |berths, call| {
        let Window {
            from_ns, until_ns, ..
        } = berths.window;
        assert_eq!(until_ns - from_ns, 200_000_000);
        // Two rounds in each way of waiting; all three ranks say the same.
        let bytes_per_s = [0.0, 1e9, 3e9, 0.0, 0.0][call as usize];
        Streamed {
            bytes_per_s,
            parts_bytes_per_s: [bytes_per_s; 5],
            streams: 2,
            silent: 0,
        }
    });
    for carried in carried {
        let Carried { streamed, waiting } = carried.unwrap();
        assert_eq!(waiting, Waiting::ALL[0]);
        assert_eq!((streamed.bytes_per_s, streamed.streams), (6e9, 6));
        assert_eq!(streamed.parts_bytes_per_s, [6e9; 5]);
    }
}

#[test]
fn a_measurement_with_a_silent_stream_does_not_count() {
    let point = point(Traffic::Pair, 2, Verb::Write);
    let all = |streams, silent| Streamed {
        bytes_per_s: 1e9,
        streams,
        silent,
        ..Streamed::default()
    };
    let never = told(&point, move |_, _| all(2, 1));
    assert_eq!(never, [None, None]);
    let none = told(&point, move |_, _| all(0, 0));
    assert_eq!(none, [None, None]);
    // The other way of waiting still does.
    let once = told(&point, move |_, call| all(2, u64::from(call == 1)));
    for carried in once {
        assert_eq!(carried.unwrap().waiting, Waiting::ALL[1]);
    }
}

/// A link need not be as fast in both directions.
#[test]
fn bytes_go_as_the_operations_of_the_point_do() {
    for (op, initiator_sends) in [(Verb::Write, true), (Verb::Send, true), (Verb::Read, false)] {
        let point = point(Traffic::FanOut, 2, op);
        let directions = run(2, move |mut rank| {
            let (mut seen, me) = (Vec::new(), rank.id());
            let carried = measure(&mut rank, &point, &[vec![None], vec![None]], |berths| {
                let workers = lock(&berths.streams);
                assert_eq!(workers.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
                seen.extend(workers.iter().flatten().map(|stream| stream.direction));
                Ok(Streamed::default())
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

#[test]
fn a_limit_is_said_with_its_connections_and_its_interval() {
    let limit = |streams| {
        describe(&Carried {
            streamed: Streamed {
                bytes_per_s: 3.0,
                parts_bytes_per_s: [1.0, 2.0, 3.0, 4.0, 5.0],
                streams,
                silent: 0,
            },
            waiting: Waiting::Blocking,
        })
    };
    let one = limit(1);
    assert_eq!(
        one.what,
        "socket stream, 1 TCP connection, blocking, blocks of 1048576 B"
    );
    assert_eq!(one.bytes_per_s, 3.0);
    assert!((one.ci95_bytes_per_s.unwrap() - 1.963).abs() < 0.001);
    assert!(limit(7).what.contains(", 7 TCP connections at once, "));
}

#[test]
fn a_worker_that_fails_is_named_on_all_ranks() {
    let point = point(Traffic::Pair, 2, Verb::Write);
    let errors = run(2, move |mut rank| {
        let me = rank.id();
        let error = measure(&mut rank, &point, &[vec![None], vec![None]], |_| match me {
            1 => Err(Error::Failed("the cable was cut".into())),
            _ => Ok(Streamed::default()),
        })
        .unwrap_err();
        rank.close().unwrap();
        error.to_string()
    });
    for error in errors {
        assert!(
            error.contains("rank 1") && error.contains("the cable was cut"),
            "{error}"
        );
    }
}

#[test]
fn an_address_that_this_host_does_not_have_is_refused_by_name() {
    let point = point(Traffic::Pair, 2, Verb::Write);
    let errors = run(2, move |mut rank| {
        // TEST-NET-1 belongs to no host.
        let address = (rank.id() == 1).then_some([192, 0, 2, 1].into());
        let error = measure(&mut rank, &point, &[vec![None], vec![address]], |_| {
            Ok(Streamed::default())
        })
        .unwrap_err();
        rank.close().unwrap();
        error.to_string()
    });
    for error in errors {
        assert!(
            error.contains("192.0.2.1") && error.contains("rank 1"),
            "{error}"
        );
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
        assert_eq!(timed_ns(&point), timed);
    }
}

#[test]
fn garbage_does_not_add_up() {
    assert!(unpack::<Streamed>(b"xx").is_err());
    assert!(unpack::<Streamed>(&[0; 32]).is_err());
    let streamed = Streamed {
        bytes_per_s: 1.5,
        parts_bytes_per_s: [1.0, 2.0, 1.0, 2.0, 1.5],
        streams: 2,
        silent: 1,
    };
    assert_eq!(
        unpack::<Streamed>(&pack(&streamed).unwrap()).unwrap(),
        streamed
    );
}
