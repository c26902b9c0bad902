//! Tests with two workers in one process over the embedded library, connected by their endpoint addresses like two
//! ranks.

mod choices;
mod early;
mod sleeping;
mod support;

use std::time::{Duration, Instant};

use crate::memory::HOST;
use serde_json::Value;
use tonnage_engine::memory::Request;
use tonnage_engine::{
    BoundKind, Completion, Domain, Ending, EndpointAddress, EngineOptions, Facts, Flush, Lane,
    LaneKind, Locality, Op, OpenRequest, PeerEndpoint, Verb,
};

use super::ENTRY;
use super::choose;
use super::domain::FabricDomain;
use super::open;
use super::options::{COMPLETION, INJECT, SHM_WRITES};
use support::{
    await_one, bytes_at, introduced, lane, libraries, meet, op, option, pair, plain_writes, post,
    refused, request, side, side_in, side_of,
};

/// Three sizes: small enough to be injected, too large to be injected, and too large for one queue entry.
const SIZES: [usize; 3] = [8, 5000, 300_000];

fn every_verb_moves_its_bytes(provider: &str, options: &EngineOptions) {
    let mut sides = pair(provider, options);
    for size in SIZES {
        for delivered in [false, true] {
            let data: Vec<u8> = (0..size).map(|index| (index * 31 + size) as u8).collect();
            sides[0].memory.write(0, &data).unwrap();
            let what = format!("{provider} {size} B delivered {delivered}");

            let write = lane(&mut sides[0], LaneKind::Initiate(Verb::Write), 1, delivered);
            post(&mut sides[0], op(write, 0, 1000, size as u32));
            let done = await_one(&mut sides, 0, Ending::Done);
            assert_eq!((done.tag, done.lane), (7, write), "{what}");
            let claimed = options.get(COMPLETION).map(String::as_str) == Some("delivery");
            if delivered || claimed {
                assert_eq!(bytes_at(&sides[1], 1000, size), data, "{what}");
            }

            let imm = lane(
                &mut sides[0],
                LaneKind::Initiate(Verb::WriteImm),
                1,
                delivered,
            );
            post(&mut sides[0], op(imm, 0, 400_000, size as u32));
            let arrived = await_one(&mut sides, 1, Ending::Arrived);
            assert_eq!(
                (arrived.imm, arrived.lane),
                (0xfeed_beef, Lane(0)),
                "{what}"
            );
            assert_eq!(bytes_at(&sides[1], 400_000, size), data, "{what}");

            let read = lane(&mut sides[1], LaneKind::Initiate(Verb::Read), 0, false);
            post(&mut sides[1], op(read, 700_000, 0, size as u32));
            await_one(&mut sides, 1, Ending::Done);
            assert_eq!(bytes_at(&sides[1], 700_000, size), data, "{what}");
        }
    }
}

#[test]
fn every_verb_moves_its_bytes_over_tcp() {
    every_verb_moves_its_bytes("tcp", &EngineOptions::new());
    every_verb_moves_its_bytes("tcp", &option(COMPLETION, "delivery"));
}

#[test]
fn every_verb_moves_its_bytes_over_shm() {
    every_verb_moves_its_bytes("shm", &EngineOptions::new());
    every_verb_moves_its_bytes("shm", &option(SHM_WRITES, "cma"));
    every_verb_moves_its_bytes("shm", &option(INJECT, "off"));
    every_verb_moves_its_bytes("shm", &option(COMPLETION, "delivery"));
}

#[test]
fn sends_fill_the_receives_of_their_own_peer() {
    for provider in ["tcp", "shm"] {
        let none = EngineOptions::new();
        let mut sides = [
            side(provider, &none, 0, &[2]),
            side(provider, &none, 1, &[2]),
            side(provider, &none, 2, &[0, 1]),
        ];
        // Ranks 0 and 1 have only rank 2 as a peer.
        meet(&mut sides);
        // The receive for rank 0 is posted first, but the message of rank 1 arrives first.
        for (place, peer) in [(0u64, 0), (4096, 1)] {
            let receive = lane(&mut sides[2], LaneKind::Receive, peer, false);
            let filled = Op {
                tag: peer + 40,
                ..op(receive, place, 0, 64)
            };
            post(&mut sides[2], filled);
        }
        for from in [1u32, 0] {
            let text = [b'a' + from as u8; 64];
            sides[from as usize].memory.write(0, &text).unwrap();
            let send = lane(
                &mut sides[from as usize],
                LaneKind::Initiate(Verb::Send),
                2,
                false,
            );
            post(&mut sides[from as usize], op(send, 0, 0, 64));
            let arrived = await_one(&mut sides, 2, Ending::Arrived);
            assert_eq!(
                (arrived.tag, arrived.lane),
                (from + 40, Lane(from)),
                "{provider}"
            );
            assert_eq!(
                bytes_at(&sides[2], u64::from(from) * 4096, 64),
                text,
                "{provider}"
            );
        }
    }
}

#[test]
fn offsets_outside_the_memory_are_refused() {
    let mut sides = pair("shm", &EngineOptions::new());
    let write = lane(&mut sides[0], LaneKind::Initiate(Verb::Write), 1, false);
    // The size of the memory, which was rounded up to whole pages.
    let bytes = sides[0].memory.bytes();
    for (local, remote, len) in [
        (bytes, 0, 1),
        (0, bytes, 1),
        (0, bytes - 4, 8),
        (0, u64::MAX, 8),
    ] {
        let error = sides[0]
            .engine
            .post(&[op(write, local, remote, len)])
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("write with rank 1") && text.contains("outside"),
            "{text}"
        );
    }
    assert!(sides[0].engine.post(&[op(Lane(99), 0, 0, 1)]).is_err());
}

#[test]
fn operations_beyond_the_queue_are_posted_later() {
    let mut sides = pair("tcp", &option(INJECT, "off"));
    let write = lane(&mut sides[0], LaneKind::Initiate(Verb::Write), 1, true);
    let ops = vec![op(write, 0, 0, 64); 10_000];
    let (mut posted, mut completed) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut took_fewer = false;
    while completed < ops.len() {
        assert!(
            Instant::now() < deadline,
            "{posted} posted, {completed} completed"
        );
        let taken = sides[0].engine.post(&ops[posted..]).unwrap();
        took_fewer |= posted + taken < ops.len();
        posted += taken;
        for (index, side) in sides.iter_mut().enumerate() {
            let mut done = [Completion::EMPTY; 64];
            let count = side.engine.poll(&mut done).unwrap();
            completed += if index == 0 { count } else { 0 };
        }
    }
    assert!(
        took_fewer,
        "all operations were taken, although no queue holds this number"
    );
}

#[test]
fn capabilities_promise_delivery_as_the_option_completion_asks() {
    let promised = |provider: &str, options: &EngineOptions| {
        let domains = open(&plain_writes(provider, options)).unwrap();
        let caps = domains[0].caps();
        (caps.delivered, caps.delivery_on_request)
    };
    for provider in ["shm", "tcp"] {
        let with = |value: &str| promised(provider, &option(COMPLETION, value));
        assert_eq!(with("auto"), (false, true), "{provider}");
        assert_eq!(with("delivery"), (true, false), "{provider}");
        assert_eq!(with("transmit"), (false, false), "{provider}");
    }
    assert_eq!(promised("shm", &option(SHM_WRITES, "cma")), (true, false));
}

/// Checks whether a write completes while its target does not poll. If it does, the completion cannot mean delivery.
fn completes_with_an_idle_target(
    request: &OpenRequest<'_>,
    (verb, size): (Verb, u32),
    expected: bool,
) {
    let mut sides = [side_of(request, 0, &[1]), side_of(request, 1, &[0])];
    meet(&mut sides);
    let write = lane(&mut sides[0], LaneKind::Initiate(verb), 1, false);
    post(&mut sides[0], op(write, 0, 1000, size));
    let patience = Duration::from_millis(if expected { 20_000 } else { 50 });
    let until = Instant::now() + patience;
    let mut completed = 0;
    while completed == 0 && Instant::now() < until {
        let mut done = [Completion::EMPTY; 4];
        completed = sides[0].engine.poll(&mut done).unwrap();
    }
    assert_eq!(completed > 0, expected, "{request:?} {size} B");
    if completed == 0 {
        // The write was not lost: it completes when the target polls.
        await_one(&mut sides, 0, Ending::Done);
    }
}

#[test]
fn a_write_that_claims_delivery_needs_its_target() {
    let (delivery, transmit) = (
        option(COMPLETION, "delivery"),
        option(COMPLETION, "transmit"),
    );
    for provider in ["tcp", "shm"] {
        for size in [64, 5000] {
            let claims = plain_writes(provider, &delivery);
            completes_with_an_idle_target(&claims, (Verb::Write, size), false);
        }
        let claims_not = plain_writes(provider, &transmit);
        completes_with_an_idle_target(&claims_not, (Verb::Write, 64), true);
    }
    // If the capabilities promise delivery, every write requests it.
    for verb in [Verb::Write, Verb::WriteImm] {
        for (options, completes) in [(&delivery, false), (&transmit, true)] {
            completes_with_an_idle_target(&request("tcp", options), (verb, 5000), completes);
        }
    }
    // With cma, the initiator copies the bytes itself.
    let cma = option(SHM_WRITES, "cma");
    completes_with_an_idle_target(&plain_writes("shm", &cma), (Verb::Write, 300_000), true);
}

#[test]
fn only_the_silent_peer_is_named() {
    let none = EngineOptions::new();
    let mut sides = [
        side("tcp", &none, 0, &[1, 2]),
        side("tcp", &none, 1, &[0, 2]),
        side("tcp", &none, 2, &[0, 1]),
    ];
    let all = introduced(&mut sides);
    let began = Instant::now();
    let errors: Vec<String> = std::thread::scope(|scope| {
        let silent_stays = |rank: u32| rank != 2;
        let mut threads = Vec::new();
        for ((rank, side), peers) in (0u32..).zip(&mut sides).zip(all) {
            side.engine.connect(&peers).unwrap();
            if silent_stays(rank) {
                let stopped = move || began.elapsed() > Duration::from_secs(60);
                threads
                    .push(scope.spawn(move || side.engine.meet(&stopped).unwrap_err().to_string()));
            }
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for (rank, error) in errors.iter().enumerate() {
        let healthy = 1 - rank;
        assert!(error.contains("rank 2 did not reach"), "{error}");
        assert!(
            error.contains("; this rank is at lo (127.0.0.1), rank 2 at lo (127.0.0.1): "),
            "{error}"
        );
        assert!(
            !error.contains(&format!("rank {healthy} did not reach")),
            "{error}"
        );
    }
}

#[test]
fn a_flush_completes_behind_the_writes_of_its_lane() {
    for provider in ["tcp", "shm"] {
        let mut sides = pair(provider, &option(COMPLETION, "transmit"));
        let write = lane(&mut sides[0], LaneKind::Initiate(Verb::Write), 1, false);
        assert_eq!(sides[0].engine.flush(write, 9).unwrap(), Flush::Delivered);
        sides[0].memory.write(0, &[7; 5000]).unwrap();
        post(&mut sides[0], op(write, 0, 1000, 5000));
        await_one(&mut sides, 0, Ending::Done);
        assert_eq!(sides[0].engine.flush(write, 9).unwrap(), Flush::Posted);
        let done = await_one(&mut sides, 0, Ending::Done);
        assert_eq!((done.tag, done.lane), (9, write), "{provider}");
        assert_eq!(bytes_at(&sides[1], 1000, 5000), [7; 5000], "{provider}");
        let read = lane(&mut sides[0], LaneKind::Initiate(Verb::Read), 1, false);
        assert_eq!(sides[0].engine.flush(read, 9).unwrap(), Flush::Delivered);
    }
    // If every write requests delivery, a flush has nothing to prove.
    let mut sides = pair("tcp", &option(COMPLETION, "delivery"));
    let write = lane(&mut sides[0], LaneKind::Initiate(Verb::Write), 1, false);
    post(&mut sides[0], op(write, 0, 0, 64));
    await_one(&mut sides, 0, Ending::Done);
    assert_eq!(sides[0].engine.flush(write, 9).unwrap(), Flush::Delivered);
}

/// Two sides over tcp, changed so that reads are ordered only after writes of up to 4096 bytes.
fn pair_with_short_order(options: &EngineOptions) -> [support::Side; 2] {
    let request = request("tcp", options);
    let domain = || {
        let chosen = choose::choose(&request).unwrap();
        let info = chosen.infos.into_iter().next().unwrap();
        let mut domain =
            FabricDomain::new(&request, info, chosen.delivery, Facts::default()).unwrap();
        assert_eq!(
            domain.read_after_write_bytes_max,
            u32::MAX,
            "tcp orders reads after writes of any length"
        );
        domain.read_after_write_bytes_max = 4096;
        let facts = serde_json::to_value(domain.report().facts).unwrap();
        let flushes = options
            .get(COMPLETION)
            .is_none_or(|asked| asked == "transmit");
        assert_eq!(facts["flushed_bytes_max"] == 4096, flushes, "{facts}");
        domain
    };
    let sides = [(0, 1), (1, 0)];
    let mut sides = sides.map(|(rank, peer)| side_in(&domain(), rank, &[peer], false));
    meet(&mut sides);
    sides
}

#[test]
fn writes_longer_than_the_ordered_size_are_not_proved_by_a_flush() {
    let mut sides = pair_with_short_order(&EngineOptions::new());
    let write = lane(&mut sides[0], LaneKind::Initiate(Verb::Write), 1, false);
    sides[0].memory.write(0, &[7; 5000]).unwrap();
    post(&mut sides[0], op(write, 0, 1000, 4097));
    await_one(&mut sides, 0, Ending::Done);
    assert_eq!(bytes_at(&sides[1], 1000, 4097), [7; 4097], "delivered");
    assert_eq!(sides[0].engine.flush(write, 9).unwrap(), Flush::Delivered);
    post(&mut sides[0], op(write, 0, 1000, 4096));
    await_one(&mut sides, 0, Ending::Done);
    assert_eq!(sides[0].engine.flush(write, 9).unwrap(), Flush::Posted);
    await_one(&mut sides, 0, Ending::Done);

    let mut sides = pair_with_short_order(&option(COMPLETION, "transmit"));
    let write = lane(&mut sides[0], LaneKind::Initiate(Verb::Write), 1, false);
    post(&mut sides[0], op(write, 0, 1000, 4096));
    await_one(&mut sides, 0, Ending::Done);
    let error = sides[0].engine.post(&[op(write, 0, 1000, 4097)]);
    let error = error.unwrap_err().to_string();
    for part in ["4096 bytes or less", "one of 4097", "completion=auto"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_memory_is_registered_and_deregistered() {
    for provider in ["tcp", "shm"] {
        let mut sides = pair(provider, &EngineOptions::new());
        let second = (HOST.allocate)(&Request {
            bytes: 4096,
            ..Request::default()
        });
        let second = second.unwrap();
        let region = sides[1].engine.register(&second).unwrap();
        assert_ne!(region.id, sides[1].region.id);
        sides[0].far = vec![(1, region.descriptor.clone())];
        sides[0].memory.write(0, b"second").unwrap();
        let write = lane(&mut sides[0], LaneKind::Initiate(Verb::WriteImm), 1, false);
        post(&mut sides[0], op(write, 0, 100, 6));
        await_one(&mut sides, 1, Ending::Arrived);
        let mut bytes = [0; 6];
        second.read(100, &mut bytes).unwrap();
        assert_eq!(&bytes, b"second", "{provider}");
        let own = sides[0].region.id;
        let refused = sides[0].engine.deregister(own).unwrap_err().to_string();
        assert!(refused.contains("not released"), "{refused}");
        sides[0].engine.release_lane(write);
        sides[1].engine.deregister(region.id).unwrap();
        assert!(sides[1].engine.deregister(region.id).is_err());
        assert!(sides[0].engine.post(&[op(write, 0, 0, 1)]).is_err());
    }
}

#[test]
fn more_peers_than_it_was_opened_for_are_refused() {
    let none = EngineOptions::new();
    let mut sides = [side("tcp", &none, 0, &[1]), side("tcp", &none, 1, &[0])];
    let addresses = introduced(&mut sides);
    sides[0].engine.connect(&addresses[0]).unwrap();
    let mut third = side("tcp", &none, 2, &[0]);
    let address = third.address_for(0);
    sides[0].address_for(2);
    let refused = sides[0]
        .engine
        .connect(&[PeerEndpoint::same_container(2, address)])
        .unwrap_err()
        .to_string();
    assert!(refused.contains("opened for 1 peers"), "{refused}");
}

/// An endpoint address names only the peer that it is for. With all peers, addresses would be huge: the target of a
/// fan-in has thousands.
#[test]
fn a_card_does_not_grow_with_the_peers() {
    let options = EngineOptions::new();
    let address_bytes_max = |peers: u32| {
        let peers: Vec<u32> = (1..=peers).collect();
        let mut side = side("tcp", &options, 0, &peers);
        let addresses = side.engine.endpoint_addresses(&peers).unwrap();
        addresses
            .iter()
            .map(|EndpointAddress(bytes)| bytes.len())
            .max()
            .unwrap()
    };
    let (one, many) = (address_bytes_max(1), address_bytes_max(5000));
    // Larger rank numbers have more digits.
    assert!(many <= one + 16 && many < 1024, "{one} and {many} bytes");
}
