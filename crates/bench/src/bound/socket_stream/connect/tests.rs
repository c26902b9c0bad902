//! Listeners that get expected and unknown connections, and the source addresses of connections.

use super::super::tests::{pair, point, stream};
use super::*;
use tonnage_engine::Verb;
use tonnage_plan::point::Traffic;

fn names() -> Vec<String> {
    (0..3).map(|rank| format!("rank {rank} on h")).collect()
}

fn two_workers() -> StreamLanes {
    let mut point = point(Traffic::Pair, 2, Verb::Write);
    point.threads = 2;
    StreamLanes::new(&point, &[])
}

fn participants<'a>(names: &'a [String], lanes: &'a StreamLanes) -> Participants<'a> {
    Participants {
        me: 0,
        lanes,
        names,
        initiators_send: true,
        standstill_max: Duration::from_millis(300),
    }
}

#[test]
fn unknown_connections_are_dropped_and_the_missing_worker_is_named() {
    let listeners = Listeners::open(&[Ipv4Addr::LOCALHOST.into(), [127, 0, 0, 2].into()]).unwrap();
    let (names, lanes) = (names(), two_workers());
    let send = |bytes: &[u8]| {
        // Connects to either of the two addresses, depending on the length.
        let mut socket = TcpStream::connect(listeners.addresses[bytes.len() % 2]).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    };
    let mut wrong = listeners.token;
    wrong[31] ^= 1;
    let unknown = [
        send(b""),
        send(b"GET / HTTP/1.1"),
        send(&greeting(&wrong, 2, 0)),
        // Rank 1 is not expected. Below, a worker of rank 2 connects twice.
        send(&greeting(&listeners.token, 1, 0)),
    ];
    let expected = [
        send(&greeting(&listeners.token, 2, 1)),
        send(&greeting(&listeners.token, 2, 1)),
    ];
    let error = listeners
        .take(&participants(&names, &lanes), &[2])
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("lane 0 of rank 2 on h") && text.contains("rank 0 on h"),
        "{text}"
    );
    assert!(text.contains(&listeners.addresses[0].to_string()), "{text}");
    drop((unknown, expected));

    let late_unknown = send(&wrong);
    // Both connections together take longer than the limit, but the limit restarts with each connection.
    let participants = Participants {
        standstill_max: Duration::from_secs(1),
        ..participants(&names, &lanes)
    };
    let (expected, streams) = std::thread::scope(|scope| {
        let expected = scope.spawn(|| {
            [1, 0].map(|worker| {
                std::thread::sleep(Duration::from_millis(600));
                send(&greeting(&listeners.token, 2, worker))
            })
        });
        let streams = listeners.take(&participants, &[2]).unwrap();
        (expected.join().unwrap(), streams)
    });
    let mut workers: Vec<u32> = streams.iter().map(|(worker, _)| *worker).collect();
    workers.sort_unstable();
    assert_eq!(workers, [0, 1]);
    assert!(streams.iter().all(|(_, stream)| {
        stream.direction == StreamDirection::In && stream.peer == "rank 2 on h"
    }));
    drop((late_unknown, expected));
}

#[test]
fn two_differences_in_a_token_do_not_cancel_out() {
    let listeners = Listeners::open(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
    let mut connection = connection(pair().1);
    let mut token = listeners.token;
    for (token, known) in [
        (token, Some((258, 3))),
        // In an XOR over all bytes, these two differences would cancel each other out.
        (
            {
                token[0] ^= 4;
                token[9] ^= 4;
                token
            },
            None,
        ),
        (
            {
                token[0] ^= 4;
                token
            },
            None,
        ),
    ] {
        connection.greeting = greeting(&token, 258, 3);
        assert_eq!(connection.identify(&listeners.token), known);
    }
}

fn connection(socket: TcpStream) -> PendingConnection {
    socket.set_nonblocking(true).unwrap();
    PendingConnection::new(socket)
}

#[test]
fn a_greeting_may_arrive_in_pieces_but_times_out() {
    let (mut near, far) = pair();
    let mut waiting = connection(far);
    let message = greeting(&[7; 32], 2, 1);
    assert!(matches!(waiting.receive(), GreetingState::Incomplete));
    for (from, to) in [(0, 1), (1, 33), (33, message.len())] {
        near.write_all(&message[from..to]).unwrap();
        let since = Instant::now();
        while waiting.received < to && since.elapsed() < Duration::from_secs(20) {
            let received = waiting.receive();
            assert_eq!(
                matches!(received, GreetingState::Complete),
                waiting.received == message.len()
            );
        }
    }
    assert_eq!(waiting.identify(&[7; 32]), Some((2, 1)));
    // A connection that sends nothing is dropped after a limited time.
    let (silent, far) = pair();
    let mut waiting = connection(far);
    assert!(matches!(waiting.receive(), GreetingState::Incomplete));
    waiting.since = Instant::now().checked_sub(GREETING_TIMEOUT).unwrap();
    assert!(matches!(waiting.receive(), GreetingState::Closed));
    drop(silent);
}

/// If more unknown connections arrive than there is room for, the oldest ones are dropped. Each poll accepts a limited
/// number.
#[test]
fn a_flood_of_unknown_connections_is_bounded() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let place = listener.local_addr().unwrap();
    let send = |_| TcpStream::connect(place).unwrap();
    let flood: Vec<_> = (0..UNKNOWN_MAX + 6).map(send).collect();
    let mut pending = Vec::new();
    // A connection may reach the listener only after `connect` has returned, so several polls may be needed.
    let (mut came, mut looks, since) = (0, Vec::new(), Instant::now());
    while came < flood.len() && since.elapsed() < Duration::from_secs(20) {
        looks.push(admit(&listener, &mut pending, 3).unwrap());
        came += looks[looks.len() - 1];
        assert!(pending.len() <= UNKNOWN_MAX + 3, "{looks:?}");
    }
    assert_eq!(came, flood.len());
    assert!(looks.iter().all(|&came| came <= UNKNOWN_MAX), "{looks:?}");
    assert_eq!(pending.len(), UNKNOWN_MAX + 3);
    let longest = flood[3].local_addr().unwrap();
    assert_eq!(pending[0].socket.peer_addr().unwrap(), longest);
    assert_eq!(admit(&listener, &mut pending, 3).unwrap(), 0);
}

#[test]
fn there_is_one_listener_per_address() {
    let addresses: [IpAddr; 3] = [1, 2, 1].map(|last| [127, 0, 0, last].into());
    let listeners = Listeners::open(&addresses).unwrap();
    assert_eq!(
        listeners
            .addresses
            .iter()
            .map(|place| place.ip())
            .collect::<Vec<_>>(),
        addresses
    );
    assert_eq!(listeners.addresses[0], listeners.addresses[2]);
}

#[test]
fn connections_come_from_the_address_of_the_device() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = listener.local_addr().unwrap();
    let soon = Instant::now() + Duration::from_secs(20);
    let from = |source| {
        connect(place, source, soon)
            .unwrap()
            .local_addr()
            .unwrap()
            .ip()
    };
    let own: IpAddr = [127, 0, 0, 9].into();
    assert_eq!(from(Some(own)), own);
    // An address of the other family cannot be a source address, so the system chooses one.
    assert_eq!(
        from(Some("::1".parse().unwrap())),
        IpAddr::from(Ipv4Addr::LOCALHOST)
    );
    let late = connect(place, Some(own), Instant::now()).unwrap_err();
    assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
}

/// Two workers have three devices and two queue pairs each, which makes twelve lanes.
#[test]
fn each_rail_and_queue_pair_of_a_worker_has_a_stream() {
    let mut point = point(Traffic::Pair, 2, Verb::Write);
    (
        point.threads,
        point.division.queue_pairs,
        point.division.rails,
    ) = (2, 2, Rails::Stripe);
    let device = |worker: u8, rail: u8| Some(IpAddr::from([10, 0, worker, rail]));
    let addresses: Vec<Vec<_>> = (0..2)
        .map(|worker| (0..3).map(|rail| device(worker, rail)).collect())
        .collect();
    let lanes = |rails| {
        point.division.rails = rails;
        StreamLanes::new(&point, &addresses)
    };
    let [mut stripe, in_turn] = [Rails::Stripe, Rails::RoundRobin].map(lanes);
    let expected: Vec<_> = [0, 0, 1, 1, 2, 2]
        .into_iter()
        .flat_map(|rail| [device(0, rail), device(1, rail)])
        .collect();
    assert_eq!(stripe.sources, expected);
    assert_eq!(
        stripe.between(3, 4).collect::<Vec<_>>(),
        (0..12).collect::<Vec<_>>()
    );
    // The pair's rail is the sum of both rank numbers, modulo the number of rails.
    assert_eq!(in_turn.between(3, 4).collect::<Vec<_>>(), [4, 5, 6, 7]);
    assert_eq!(in_turn.between(0, 2).collect::<Vec<_>>(), [8, 9, 10, 11]);
    // With `n` workers, worker `w` has the lanes `w`, `w + n`, `w + 2 n`, and so on.
    let streams = |lanes: &StreamLanes| {
        let each = lanes.between(0, 1).map(|lane| {
            let mut stream = stream(pair().0, StreamDirection::Out);
            stream.peer = lane.to_string();
            (lane, stream)
        });
        let of_workers = group_by_worker(each.collect(), lanes.workers);
        let names = |streams: &Vec<Stream>| streams.iter().map(|it| it.peer.clone()).collect();
        of_workers.iter().map(names).collect::<Vec<Vec<String>>>()
    };
    assert_eq!(streams(&in_turn), [["4", "6"], ["5", "7"]]);
    stripe.workers = 3;
    assert_eq!(streams(&stripe)[1], ["1", "4", "7", "10", "13", "16"]);
}

#[test]
fn a_rank_without_an_address_to_connect_to_is_named() {
    let (names, lanes) = (names(), two_workers());
    let participants = participants(&names, &lanes);
    let error = participants
        .connect(&[2], &Default::default(), &[])
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("rank 2 on h does not listen"), "{error}");
}
