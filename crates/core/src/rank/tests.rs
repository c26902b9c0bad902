//! Whole runs with threads as ranks over loopback.
//!
//! The tree has a fan-out of 2, so that 13 ranks have four levels. Nothing ends the process and no signals are taken.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::*;
use crate::{Error, Result};

const SECRET: &str = "a secret of the tests";
const SOON: Duration = Duration::from_secs(20);

fn identity(rank: u32, size: u32, control: SocketAddr) -> Identity {
    Identity {
        rank,
        size,
        local_rank: 0,
        local_size: None,
        source: "test".into(),
        meeting: if size == 1 {
            Meeting::Alone
        } else {
            Meeting::Local { control }
        },
    }
}

fn options(identity: &Identity) -> JoinOptions {
    let secret = Secret::from_text(SECRET).unwrap();
    let mut options = JoinOptions::new(&|_| None, identity, secret, "plan".into()).unwrap();
    options.fanout = 2;
    options.end_process = false;
    options.handle_signals = false;
    options.grace = Duration::from_millis(100);
    options.host = format!("h{}", identity.rank);
    options
}

/// A listener for rank 0, and its address.
fn door() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn start<T: Send + 'static>(
    rank: u32,
    size: u32,
    door: (Option<TcpListener>, SocketAddr),
    change: impl FnOnce(&mut JoinOptions),
    body: impl FnOnce(Result<Rank>) -> T + Send + 'static,
) -> JoinHandle<T> {
    let identity = identity(rank, size, door.1);
    let mut options = options(&identity);
    options.listener = door.0;
    change(&mut options);
    std::thread::spawn(move || body(Rank::join(identity, options)))
}

/// Runs all ranks of a run and gives what each returned.
fn run_with<T: Send + 'static>(
    size: u32,
    change: impl Fn(u32, &mut JoinOptions),
    body: impl Fn(Result<Rank>) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let (listener, address) = door();
    let mut listener = Some(listener);
    let threads: Vec<_> = (0..size)
        .map(|rank| {
            let listener = if rank == 0 { listener.take() } else { None };
            start(
                rank,
                size,
                (listener, address),
                |options| change(rank, options),
                body.clone(),
            )
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

fn run<T: Send + 'static>(size: u32, body: impl Fn(Rank) -> T + Clone + Send + 'static) -> Vec<T> {
    run_with(size, |_, _| {}, move |rank| body(rank.unwrap()))
}

fn blamed(error: &Error) -> (u32, String) {
    match error {
        Error::Rank {
            rank,
            host,
            message,
        } => {
            assert!(!message.is_empty());
            (*rank, host.clone())
        }
        other => panic!("not about a rank: {other}"),
    }
}

#[test]
fn every_exchange_works_for_every_size() {
    for size in [1u32, 2, 3, 13] {
        let outcomes = run(size, move |mut rank| {
            let me = rank.id();
            let hosts: Vec<_> = rank.infos().iter().map(|info| info.host.clone()).collect();
            assert_eq!(
                hosts,
                (0..size).map(|rank| format!("h{rank}")).collect::<Vec<_>>()
            );
            assert_eq!(rank.identity().local_size, Some(size));
            assert_eq!(rank.identity().local_rank, me);
            rank.barrier("begin", SOON).unwrap();
            let all = rank
                .all_gather("names", vec![me as u8; me as usize], SOON)
                .unwrap();
            for (other, bytes) in all.iter().enumerate() {
                assert_eq!(*bytes, vec![other as u8; other]);
            }
            let mine = (me == 0).then(|| b"hello".to_vec());
            assert_eq!(rank.broadcast("greeting", mine, SOON).unwrap(), b"hello");
            let sum: fn(&mut Vec<u8>, &[u8]) = |all, one| {
                let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
                *all = (number(all) + number(one)).to_le_bytes().to_vec();
            };
            let total = rank.reduce("sum", u64::from(me).to_le_bytes().to_vec(), sum, SOON);
            let total = u64::from_le_bytes(total.unwrap().try_into().unwrap());
            assert_eq!(total, u64::from(size) * u64::from(size - 1) / 2);
            rank.close()
        });
        for outcome in outcomes {
            outcome.unwrap();
        }
    }
}

#[test]
fn large_gathers_fit() {
    for all in run(4, |mut rank| {
        let all = rank
            .all_gather("cards", vec![rank.id() as u8; 256 << 10], SOON)
            .unwrap();
        let too_much = rank
            .all_gather("more", vec![0; 17 << 20], SOON)
            .unwrap_err();
        assert!(too_much.to_string().contains("may give"), "{too_much}");
        rank.close().unwrap();
        all
    }) {
        assert_eq!(all.len(), 4);
        assert!(
            all.iter()
                .enumerate()
                .all(|(r, b)| b.len() == 256 << 10 && b[77] == r as u8)
        );
    }
}

#[test]
fn pending_exchanges_finish_in_any_order() {
    run(5, |mut rank| {
        let barrier = rank.start_barrier("first").unwrap();
        let gather = rank.start_all_gather("second", &[rank.id() as u8]).unwrap();
        let all = rank.finish_all_gather(gather, SOON).unwrap();
        assert_eq!(all.concat(), [0, 1, 2, 3, 4]);
        rank.finish(barrier, SOON).unwrap();
        let early = rank.start_barrier("third").unwrap();
        if rank.id() != 3 {
            sleep(Duration::from_millis(50));
        }
        let since = Instant::now();
        while !early.is_done() {
            assert!(since.elapsed() < SOON);
            std::thread::yield_now();
        }
        rank.finish(early, Duration::ZERO).unwrap();
        rank.close().unwrap();
    });
}

#[test]
fn ranks_agree_on_the_lowest_failure_and_go_on() {
    run(7, |mut rank| {
        let me = rank.id();
        let mine = if me == 5 || me == 3 {
            Err(Error::Failed("no".into()))
        } else {
            Ok(())
        };
        let error = rank.agree("setup", mine, SOON).unwrap_err();
        assert_eq!(error.to_string(), "rank 3 on h3: no");
        let mine = if me % 2 == 1 {
            Err(Error::Unavailable {
                what: "shm".into(),
                why: "a".into(),
                how: "b".into(),
            })
        } else {
            Ok(())
        };
        let error = rank.agree("engine", mine, SOON).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        rank.agree("last", Ok(()), SOON).unwrap();
        rank.close().unwrap();
    });
}

#[test]
fn a_common_start_is_in_the_future_and_common() {
    let starts = run(6, |mut rank| {
        // All ranks of this test share one clock.
        assert_eq!(rank.clock_offset(), ClockOffset::default());
        let before = clock::monotonic_ns();
        let start = rank.aligned_start("trial", SOON).unwrap();
        assert!(start >= before + 500_000);
        assert!(start < before + 20_000_000_000);
        rank.close().unwrap();
        start
    });
    assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
}

#[test]
fn a_lost_rank_is_named_everywhere_within_a_second() {
    let size = 13;
    let (gone, when) = mpsc::channel();
    let outcomes = run(size, move |mut rank| {
        rank.barrier("begin", SOON).unwrap();
        if rank.id() == 5 {
            let error = Error::Failed("its disk is full".into());
            rank.fail(&error);
            drop(rank);
            gone.send(Instant::now()).unwrap();
            return None;
        }
        let error = rank.barrier("never", SOON).unwrap_err();
        let now = Instant::now();
        assert!(rank.stopped().load(Ordering::Acquire));
        assert_eq!(rank.why_stopped().unwrap().to_string(), error.to_string());
        assert_eq!(
            rank.barrier("later", SOON).unwrap_err().to_string(),
            error.to_string()
        );
        assert_eq!(rank.reports_failure(), rank.id() == 0);
        Some((error.to_string(), now))
    });
    let when = when.recv().unwrap();
    for (text, at) in outcomes.into_iter().flatten() {
        assert_eq!(text, "rank 5 on h5: its disk is full");
        assert!(at.saturating_duration_since(when) < Duration::from_secs(1));
    }
}

/// A rank that follows the protocol until it is cut off, as a killed process is: no last word.
struct Doomed {
    child: std::process::Child,
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts rank 1 of 3 as a process of its own, by running one ignored test of this very program.
fn other_process(address: SocketAddr, what: &str) -> Doomed {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "rank::tests::rank_one_of_three"])
        .env("TONNAGE_TEST_RANK", format!("{address} {what}"))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    Doomed { child }
}

#[test]
#[ignore = "it is the other process of tests that stop or kill a rank"]
fn rank_one_of_three() {
    let Ok(text) = std::env::var("TONNAGE_TEST_RANK") else {
        println!("skip: only another test starts this one");
        return;
    };
    let (address, _what) = text.split_once(' ').unwrap();
    let identity = identity(1, 3, address.parse().unwrap());
    let mut rank = Rank::join(identity.clone(), options(&identity)).unwrap();
    rank.barrier("begin", SOON).unwrap();
    let _ = rank.barrier("end", Duration::from_secs(60));
}

/// Ranks 0 and 2 of a run whose rank 1 is another process; `act` is done to it once all have joined.
fn with_other_process(timeout: Duration, act: impl Fn(u32) + Send + 'static) -> Vec<Error> {
    let (listener, address) = door();
    let other = other_process(address, "wait");
    let pid = other.child.id();
    let change = |options: &mut JoinOptions| options.heartbeat_timeout = timeout;
    let zero = start(0, 3, (Some(listener), address), change, move |rank| {
        let mut rank = rank.unwrap();
        rank.barrier("begin", SOON).unwrap();
        act(pid);
        rank.barrier("end", SOON).unwrap_err()
    });
    let two = start(2, 3, (None, address), change, |rank| {
        let mut rank = rank.unwrap();
        rank.barrier("begin", SOON).unwrap();
        rank.barrier("end", SOON).unwrap_err()
    });
    vec![zero.join().unwrap(), two.join().unwrap()]
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_killed_process_is_named() {
    for error in with_other_process(SOON, |pid| signal(pid, rustix::process::Signal::KILL)) {
        assert_eq!(blamed(&error), (1, "h1".into()));
        assert!(
            error.to_string().contains("without saying goodbye"),
            "{error}"
        );
    }
}

#[test]
fn a_stopped_process_is_named_by_its_silence() {
    let begun = Instant::now();
    for error in with_other_process(Duration::from_secs(2), |pid| {
        signal(pid, rustix::process::Signal::STOP);
    }) {
        assert_eq!(blamed(&error), (1, "h1".into()));
        assert!(error.to_string().contains("silent for"), "{error}");
    }
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_rank_that_does_not_come_is_named_with_what_it_does() {
    let outcomes = run(13, |mut rank| {
        rank.barrier("begin", SOON).unwrap();
        if rank.id() == 11 {
            rank.phase("stuck in a library");
            let since = Instant::now();
            while !rank.stopped().load(Ordering::Acquire) {
                assert!(since.elapsed() < SOON);
                sleep(Duration::from_millis(5));
            }
            return rank.why_stopped().unwrap();
        }
        rank.barrier("cards", Duration::from_millis(300))
            .unwrap_err()
    });
    for error in outcomes {
        assert_eq!(blamed(&error), (11, "h11".into()), "{error}");
        for part in ["\"cards\"", "stuck in a library"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

#[test]
fn ranks_at_different_places_are_both_named() {
    for error in run(3, |mut rank| {
        let what = if rank.id() == 1 { "trial 2" } else { "trial 1" };
        rank.barrier(what, SOON).unwrap_err()
    }) {
        for part in ["trial 1", "trial 2", "rank 1", "same plan"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

#[test]
fn missing_ranks_are_listed() {
    let (listener, address) = door();
    let soon = |options: &mut JoinOptions| options.join_timeout = Duration::from_millis(700);
    let zero = start(0, 9, (Some(listener), address), soon, |rank| {
        rank.unwrap_err()
    });
    let four = start(4, 9, (None, address), soon, |rank| rank.unwrap_err());
    for error in [zero.join().unwrap(), four.join().unwrap()] {
        assert!(error.to_string().contains("ranks 1-3,5-8 of 9"), "{error}");
    }
}

#[test]
fn nobody_at_the_meeting_place_says_where_it_was_looked_for() {
    let (listener, address) = door();
    drop(listener);
    let soon = |options: &mut JoinOptions| options.join_timeout = Duration::from_millis(400);
    let error = start(1, 2, (None, address), soon, |rank| rank.unwrap_err())
        .join()
        .unwrap();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

/// All ranks of a run of three in which rank 2 joins with a fault.
fn misfit(change: impl Fn(&mut JoinOptions)) -> Vec<Error> {
    run_with(
        3,
        |rank, options| {
            if rank == 2 {
                change(options);
            }
        },
        |rank| rank.unwrap_err(),
    )
}

#[test]
fn another_plan_is_refused_by_name() {
    for error in misfit(|options| options.plan_hash = "other".into()) {
        assert_eq!(blamed(&error), (2, "h2".into()));
        assert!(
            error.to_string().contains("another command line"),
            "{error}"
        );
    }
}

#[test]
fn two_processes_of_one_rank_are_refused_by_name() {
    let (listener, address) = door();
    let zero = start(
        0,
        4,
        (Some(listener), address),
        |_| {},
        |rank| rank.unwrap_err(),
    );
    let twins: Vec<_> = (0..2)
        .map(|_| start(1, 4, (None, address), |_| {}, |rank| rank.unwrap_err()))
        .collect();
    let error = zero.join().unwrap();
    assert!(
        error.to_string().contains("says that it is rank 1"),
        "{error}"
    );
    for twin in twins {
        twin.join().unwrap();
    }
}

#[test]
fn another_number_of_ranks_is_refused_by_name() {
    let (listener, address) = door();
    let zero = start(
        0,
        3,
        (Some(listener), address),
        |_| {},
        |rank| rank.unwrap_err(),
    );
    let one = start(1, 8, (None, address), |_| {}, |rank| rank.unwrap_err());
    for error in [zero.join().unwrap(), one.join().unwrap()] {
        assert!(error.to_string().contains("told of 8 ranks"), "{error}");
    }
}

#[test]
fn a_wrong_secret_is_refused_on_both_sides() {
    let (listener, address) = door();
    let zero = start(
        0,
        2,
        (Some(listener), address),
        |options| options.join_timeout = Duration::from_secs(3),
        |rank| rank.unwrap_err(),
    );
    let wrong = |options: &mut JoinOptions| {
        options.secret = Secret::from_text("some other secret").unwrap();
    };
    let one = start(1, 2, (None, address), wrong, |rank| rank.unwrap_err());
    let error = one.join().unwrap();
    assert!(error.to_string().contains("same secret"), "{error}");
    let error = zero.join().unwrap();
    assert!(
        error.to_string().contains("did not know the secret"),
        "{error}"
    );
}

/// Reads until the other side closes; false when it does not within the time.
fn is_closed(mut stream: &TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).unwrap();
    let mut buffer = [0u8; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn strangers_are_shown_out_and_the_run_goes_on() {
    let (listener, address) = door();
    let zero = start(
        0,
        2,
        (Some(listener), address),
        |options| options.stranger_timeout = Duration::from_millis(500),
        |rank| rank.unwrap().close(),
    );
    let connect = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let huge = connect(&u32::MAX.to_le_bytes());
    let garbage = connect(
        &[48, 0, 0, 0]
            .iter()
            .chain(&[7; 48])
            .copied()
            .collect::<Vec<_>>(),
    );
    let http = connect(b"GET / HTTP/1.1\r\n\r\n");
    // More silent ones than are looked at together: the real rank has to wait until they are out, and comes in all the
    // same.
    let crowd: Vec<_> = (0..80).map(|_| connect(b"")).collect();
    for stranger in [&huge, &garbage, &http] {
        assert!(is_closed(stranger, SOON));
    }
    let one = start(1, 2, (None, address), |_| {}, |rank| rank.unwrap().close());
    one.join().unwrap().unwrap();
    zero.join().unwrap().unwrap();
    for stranger in &crowd {
        assert!(is_closed(stranger, SOON));
    }
}

#[test]
fn nobody_is_lost_after_closing() {
    run(7, |mut rank| {
        if rank.id() == 0 {
            sleep(Duration::from_millis(100));
        }
        rank.barrier("end", SOON).unwrap();
        rank.close().unwrap();
    });
}

#[test]
fn a_rank_that_just_ends_is_named() {
    for error in run(4, |mut rank| {
        rank.barrier("begin", SOON).unwrap();
        if rank.id() == 3 {
            return None;
        }
        Some(rank.barrier("end", SOON).unwrap_err())
    })
    .into_iter()
    .flatten()
    {
        assert_eq!(blamed(&error), (3, "h3".into()));
        assert!(
            error.to_string().contains("ended before the run did"),
            "{error}"
        );
    }
}

#[test]
fn rank_numbers_are_compressed() {
    assert_eq!(ranges(&[]), "");
    assert_eq!(ranges(&[1, 2, 3, 7]), "1-3,7");
    assert_eq!(ranges(&[0, u32::MAX]), format!("0,{}", u32::MAX));
}
