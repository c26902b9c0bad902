//! Ranks that are missing or do not fit, and unauthenticated connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use super::*;
use tonnage_units::Result;

/// Starts a rank that must fail to join, and returns its error. Rank 0 gets the listener.
fn failing(
    rank: u32,
    size: u32,
    door: (Option<TcpListener>, SocketAddr),
    change: impl FnOnce(&mut JoinOptions),
) -> JoinHandle<Error> {
    start(rank, size, door, change, |rank| rank.unwrap_err())
}

#[test]
fn missing_ranks_are_listed() {
    let (listener, address) = door();
    let soon = |options: &mut JoinOptions| options.join_timeout = Duration::from_millis(700);
    let zero = failing(0, 9, (Some(listener), address), soon);
    let four = failing(4, 9, (None, address), soon);
    for error in [zero.join().unwrap(), four.join().unwrap()] {
        assert!(error.to_string().contains("ranks 1-3,5-8 of 9"), "{error}");
        // The supervisor started all ranks on its own host, so the host of missing ranks is known.
        assert_eq!(blamed(&error), (1, "h0".into()));
    }
}

/// If rank 0 has ended, the other ranks must not wait for it. The supervisor listens before any rank starts, so a
/// refused connection means that rank 0 has ended.
#[test]
fn a_closed_meeting_place_of_the_supervisor_ends_the_run_at_once() {
    let (listener, address) = door();
    drop(listener);
    let begun = Instant::now();
    let error = failing(1, 2, (None, address), |_| {}).join().unwrap();
    assert_eq!(blamed(&error), (0, "127.0.0.1".into()));
    says(&error, &["it has ended before all ranks had come"]);
    assert!(begun.elapsed() < Duration::from_secs(1));
}

/// Only rank 0 and the refused rank may report why that rank was refused. The refused rank reports it too, because its
/// user may have another terminal.
#[test]
fn another_plan_is_reported_only_by_rank_0_and_the_refused_rank() {
    for order in [[1, 2], [2, 1]] {
        let told = told_of_rank_2(order);
        assert_eq!(told, [false, true, false], "{order:?}");
    }
}

/// Runs three ranks. Rank 2 does not fit, and ranks 1 and 2 arrive in this order. Returns, for each rank, whether it
/// leaves the report to other ranks.
fn told_of_rank_2(order: [u32; 2]) -> [bool; 3] {
    let (listener, address) = door();
    let join = |rank: u32, listener: Option<TcpListener>| {
        let identity = identity(rank, 3, address);
        let mut options = options(&identity);
        options.listener = listener;
        if rank == 2 {
            options.plan_hash = "other".into();
        }
        let failure = Rank::join(identity, options).unwrap_err();
        assert_eq!(blamed(&failure.error), (2, "h2".into()));
        says(&failure.error, &["another command line"]);
        failure.is_told
    };
    std::thread::scope(|scope| {
        let zero = scope.spawn(|| join(0, Some(listener)));
        let mut told = [false; 3];
        let others = order.map(|rank| {
            let other = scope.spawn(move || join(rank, None));
            sleep(Duration::from_millis(100));
            (rank, other)
        });
        for (rank, other) in others {
            told[rank as usize] = other.join().unwrap();
        }
        told[0] = zero.join().unwrap();
        told
    })
}

#[test]
fn two_processes_of_one_rank_are_refused_by_name() {
    let (listener, address) = door();
    let zero = failing(0, 4, (Some(listener), address), |_| {});
    let twins = [(); 2].map(|()| failing(1, 4, (None, address), |_| {}));
    let error = zero.join().unwrap();
    says(&error, &["says that it is rank 1"]);
    for twin in twins {
        twin.join().unwrap();
    }
}

#[test]
fn a_late_process_gets_the_reason_why_it_cannot_join() {
    let (listener, address) = door();
    let join = |rank: u32, size: u32, listener: Option<TcpListener>| {
        let identity = launched(rank, size, address);
        let mut options = options(&identity);
        options.listener = listener;
        Rank::join(identity, options)
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| join(1, 2, None).unwrap());
        let zero = join(0, 2, Some(listener)).unwrap();
        let one = one.join().unwrap();
        let begun = Instant::now();
        let failure = join(1, 2, None).unwrap_err();
        assert!(!failure.is_told, "rank 0 does not report it");
        let says_rank_1 = failure.error.to_string();
        let wanted = "says that it is rank 1, but so does process";
        assert!(says_rank_1.contains(wanted), "{says_rank_1}");
        let failure = join(2, 3, None).unwrap_err();
        assert!(!failure.is_told, "rank 0 does not report it");
        let of_another = failure.error.to_string();
        assert!(of_another.contains("expects 3 ranks"), "{of_another}");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        // The run continues. When it ends, the port is free again.
        let other = scope.spawn(|| one.close());
        zero.close().unwrap();
        other.join().unwrap().unwrap();
        TcpListener::bind(address).unwrap();
    });
}

#[test]
fn a_wrong_secret_is_refused_on_both_sides() {
    let (listener, address) = door();
    let soon = |options: &mut JoinOptions| options.join_timeout = Duration::from_secs(3);
    let zero = failing(0, 2, (Some(listener), address), soon);
    let wrong = |options: &mut JoinOptions| {
        options.secret = Secret::from_text("some other secret").unwrap();
    };
    let one = failing(1, 2, (None, address), wrong);
    let error = one.join().unwrap();
    assert!(error.to_string().contains("same secret"), "{error}");
    let error = zero.join().unwrap();
    says(&error, &["did not know the secret"]);
}

/// Forwards connections to `address`. For the first `slow` connections, only the first `bytes` bytes of the client
/// arrive in time, and the rest arrives too late.
fn slow_way(address: SocketAddr, slow: usize, bytes: usize) -> SocketAddr {
    let (listener, way) = door();
    std::thread::spawn(move || {
        for (place, client) in listener.incoming().flatten().enumerate() {
            let Ok(server) = TcpStream::connect(address) else {
                return;
            };
            let prompt = if place < slow { bytes } else { usize::MAX };
            let (from_client, to_server) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || pass_on(&from_client, &to_server, prompt));
            std::thread::spawn(move || pass_on(&server, &client, usize::MAX));
        }
    });
    way
}

fn pass_on(mut from: &TcpStream, mut to: &TcpStream, prompt: usize) {
    let mut passed = 0;
    let mut buffer = [0u8; 4096];
    loop {
        let wanted = buffer.len().min(prompt.saturating_sub(passed)).max(1);
        if passed >= prompt {
            sleep(4 * BRIEF);
        }
        let len = from.read(&mut buffer[..wanted]).unwrap_or(0);
        if len == 0 || to.write_all(&buffer[..len]).is_err() {
            let _ = to.shutdown(std::net::Shutdown::Both);
            return;
        }
        passed += len;
    }
}

const BRIEF: Duration = Duration::from_millis(300);

#[test]
fn a_rank_with_a_late_introduction_retries() {
    // A framed handshake has 52 bytes. In the first case the introduction is late. In the second, the handshake itself
    // is late, more often than a wrong secret would be retried.
    for (slow, bytes) in [(2, 52), (7, 20)] {
        let (listener, address) = door();
        let hasty = |options: &mut JoinOptions| options.stranger_timeout = BRIEF;
        let close = |rank: Result<Rank>| rank.unwrap().close();
        let zero = start(0, 2, (Some(listener), address), hasty, close);
        let way = slow_way(address, slow, bytes);
        let one = start(1, 2, (None, way), hasty, close);
        one.join().unwrap().unwrap();
        zero.join().unwrap().unwrap();
    }
}

#[test]
fn silent_connections_are_reported() {
    let (listener, address) = door();
    let hasty = |options: &mut JoinOptions| {
        options.stranger_timeout = BRIEF;
        options.join_timeout = 3 * BRIEF;
    };
    let zero = failing(0, 2, (Some(listener), address), hasty);
    let silent = [(); 3].map(|()| TcpStream::connect(address).unwrap());
    let text = zero.join().unwrap().to_string();
    let wanted = "3 connections from 127.0.0.1 did not finish the greeting in 300.0ms";
    assert!(text.contains(wanted), "{text}");
    assert!(!text.contains("secret"), "{text}");
    drop(silent);
}

/// Reads until the peer closes the connection. Returns false if the peer does not close it in time.
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
fn unauthenticated_connections_are_closed_and_the_run_continues() {
    let (listener, address) = door();
    let close = |rank: Result<Rank>| rank.unwrap().close();
    let hasty = |options: &mut JoinOptions| options.stranger_timeout = Duration::from_millis(500);
    let zero = start(0, 2, (Some(listener), address), hasty, close);
    let connect = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let huge = connect(&u32::MAX.to_le_bytes());
    let garbage = connect(&[&[48, 0, 0, 0][..], &[7; 48]].concat());
    let http = connect(b"GET / HTTP/1.1\r\n\r\n");
    // These are more silent connections than are served at once. The real rank has to wait until they are closed, but
    // still joins.
    let crowd: Vec<_> = (0..80).map(|_| connect(b"")).collect();
    for stranger in [&huge, &garbage, &http] {
        assert!(is_closed(stranger, SOON));
    }
    let one = start(1, 2, (None, address), |_| {}, close);
    one.join().unwrap().unwrap();
    zero.join().unwrap().unwrap();
    for stranger in &crowd {
        assert!(is_closed(stranger, SOON));
    }
}
