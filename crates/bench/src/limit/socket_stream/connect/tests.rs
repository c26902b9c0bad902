//! Doors with strangers before them, who is expected at them, and the addresses that connections come from.

use super::super::tests::{pair, point, stream};
use super::*;
use tonnage_engine::Verb;
use tonnage_plan::point::Traffic;

fn names() -> Vec<String> {
    (0..3).map(|rank| format!("rank {rank} on h")).collect()
}

fn two_workers() -> BerthLanes {
    let mut point = point(Traffic::Pair, 2, Verb::Write);
    point.workers = 2;
    BerthLanes::new(&point, &[])
}

fn people<'a>(names: &'a [String], lanes: &'a BerthLanes) -> People<'a> {
    People {
        me: 0,
        lanes,
        names,
        initiators_send: true,
        standstill_max: Duration::from_millis(300),
    }
}

#[test]
fn strangers_are_dropped_and_who_is_missing_is_named() {
    let door = Door::open(&[Ipv4Addr::LOCALHOST.into(), [127, 0, 0, 2].into()]).unwrap();
    let (names, lanes) = (names(), two_workers());
    let knock = |bytes: &[u8]| {
        // One of the two addresses, whichever.
        let mut socket = TcpStream::connect(door.addresses[bytes.len() % 2]).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    };
    let mut wrong = door.token;
    wrong[31] ^= 1;
    let strangers = [
        knock(b""),
        knock(b"GET / HTTP/1.1"),
        knock(&greeting(&wrong, 2, 0)),
        // A rank that is not expected, and one that comes twice.
        knock(&greeting(&door.token, 1, 0)),
    ];
    let guests = [
        knock(&greeting(&door.token, 2, 1)),
        knock(&greeting(&door.token, 2, 1)),
    ];
    let error = door.take(&people(&names, &lanes), &[2]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("worker 0 of rank 2 on h") && text.contains("rank 0 on h"),
        "{text}"
    );
    assert!(text.contains(&door.addresses[0].to_string()), "{text}");
    drop((strangers, guests));

    let stranger = knock(&wrong);
    // Together they take longer than any of them.
    let people = People {
        standstill_max: Duration::from_secs(1),
        ..people(&names, &lanes)
    };
    let (guests, streams) = std::thread::scope(|scope| {
        let guests = scope.spawn(|| {
            [1, 0].map(|worker| {
                std::thread::sleep(Duration::from_millis(600));
                knock(&greeting(&door.token, 2, worker))
            })
        });
        let streams = door.take(&people, &[2]).unwrap();
        (guests.join().unwrap(), streams)
    });
    let mut workers: Vec<u32> = streams.iter().map(|(worker, _)| *worker).collect();
    workers.sort_unstable();
    assert_eq!(workers, [0, 1]);
    assert!(streams.iter().all(|(_, stream)| {
        stream.direction == StreamDirection::In && stream.peer == "rank 2 on h"
    }));
    drop((stranger, guests));
}

#[test]
fn a_token_that_is_wrong_twice_is_wrong() {
    let door = Door::open(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
    let mut visitor = visitor(pair().1);
    let mut token = door.token;
    for (token, known) in [
        (token, Some((258, 3))),
        // Differences that would cancel each other.
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
        visitor.greeting = greeting(&token, 258, 3);
        assert_eq!(visitor.who(&door.token), known);
    }
}

fn visitor(socket: TcpStream) -> Visitor {
    socket.set_nonblocking(true).unwrap();
    Visitor::new(socket)
}

#[test]
fn an_introduction_may_come_in_pieces_and_has_an_end() {
    let (mut near, far) = pair();
    let mut waiting = visitor(far);
    let words = greeting(&[7; 32], 2, 1);
    assert!(matches!(waiting.listen(), Heard::Nothing));
    for (from, to) in [(0, 1), (1, 33), (33, words.len())] {
        near.write_all(&words[from..to]).unwrap();
        let since = Instant::now();
        while waiting.heard < to && since.elapsed() < Duration::from_secs(20) {
            let heard = waiting.listen();
            assert_eq!(matches!(heard, Heard::All), waiting.heard == words.len());
        }
    }
    assert_eq!(waiting.who(&[7; 32]), Some((2, 1)));
    // Whoever says nothing is waited for, but not for ever.
    let (silent, far) = pair();
    let mut waiting = visitor(far);
    assert!(matches!(waiting.listen(), Heard::Nothing));
    waiting.since = Instant::now().checked_sub(INTRODUCTION).unwrap();
    assert!(matches!(waiting.listen(), Heard::Gone));
    drop(silent);
}

/// More strangers than a door has room for: those who have waited longest go, and each look lets in a bounded number.
#[test]
fn a_flood_of_strangers_is_bounded() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let place = listener.local_addr().unwrap();
    let knock = |_| TcpStream::connect(place).unwrap();
    let flood: Vec<_> = (0..STRANGERS_MAX + 6).map(knock).collect();
    let mut visitors = Vec::new();
    // The last of a connection's words may reach the listener after `connect` has returned.
    let (mut came, mut looks, since) = (0, Vec::new(), Instant::now());
    while came < flood.len() && since.elapsed() < Duration::from_secs(20) {
        looks.push(admit(&listener, &mut visitors, 3).unwrap());
        came += looks[looks.len() - 1];
        assert!(visitors.len() <= STRANGERS_MAX + 3, "{looks:?}");
    }
    assert_eq!(came, flood.len());
    assert!(looks.iter().all(|&came| came <= STRANGERS_MAX), "{looks:?}");
    assert_eq!(visitors.len(), STRANGERS_MAX + 3);
    let longest = flood[3].local_addr().unwrap();
    assert_eq!(visitors[0].socket.peer_addr().unwrap(), longest);
    assert_eq!(admit(&listener, &mut visitors, 3).unwrap(), 0);
}

#[test]
fn a_door_has_one_listener_for_each_address() {
    let addresses: [IpAddr; 3] = [1, 2, 1].map(|last| [127, 0, 0, last].into());
    let door = Door::open(&addresses).unwrap();
    assert_eq!(
        door.addresses
            .iter()
            .map(|place| place.ip())
            .collect::<Vec<_>>(),
        addresses
    );
    assert_eq!(door.addresses[0], door.addresses[2]);
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
    // An address of the other family cannot be the source.
    assert_eq!(
        from(Some("::1".parse().unwrap())),
        IpAddr::from(Ipv4Addr::LOCALHOST)
    );
    let late = connect(place, Some(own), Instant::now()).unwrap_err();
    assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
}

/// Two workers with three devices each, and two queue pairs.
#[test]
fn each_rail_and_queue_pair_of_a_worker_has_a_stream() {
    let mut point = point(Traffic::Pair, 2, Verb::Write);
    (
        point.workers,
        point.division.queue_pairs,
        point.division.rails,
    ) = (2, 2, Rails::Stripe);
    let device = |worker: u8, rail: u8| Some(IpAddr::from([10, 0, worker, rail]));
    let addresses: Vec<Vec<_>> = (0..2)
        .map(|worker| (0..3).map(|rail| device(worker, rail)).collect())
        .collect();
    let lanes = |rails| {
        point.division.rails = rails;
        BerthLanes::new(&point, &addresses)
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
    // The rail of the pair: the sum of both numbers, in turn.
    assert_eq!(in_turn.between(3, 4).collect::<Vec<_>>(), [4, 5, 6, 7]);
    assert_eq!(in_turn.between(0, 2).collect::<Vec<_>>(), [8, 9, 10, 11]);
    // A worker has its number, and those that lie as many places on as there are workers.
    let streams = |lanes: &BerthLanes| {
        let each = lanes.between(0, 1).map(|lane| {
            let mut stream = stream(pair().0, StreamDirection::Out);
            stream.peer = lane.to_string();
            (lane, stream)
        });
        let of_workers = of_workers(each.collect(), lanes.workers);
        let names = |streams: &Vec<Stream>| streams.iter().map(|it| it.peer.clone()).collect();
        of_workers.iter().map(names).collect::<Vec<Vec<String>>>()
    };
    assert_eq!(streams(&in_turn), [["4", "6"], ["5", "7"]]);
    stripe.workers = 3;
    assert_eq!(streams(&stripe)[1], ["1", "4", "7", "10", "13", "16"]);
}

#[test]
fn a_rank_that_tells_no_place_to_connect_to_is_named() {
    let (names, lanes) = (names(), two_workers());
    let people = people(&names, &lanes);
    let error = people
        .connect(&[2], &Default::default(), &[])
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("rank 2 on h does not listen"), "{error}");
}
