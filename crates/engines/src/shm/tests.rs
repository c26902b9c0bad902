//! Two workers of one process, connected through their cards as two ranks are.

use super::*;
use crate::memory::HOST;
use tonnage_engine::OpenRequest;
use tonnage_engine::memory::Request;
use tonnage_sys::clock::Clock;

const BYTES: u64 = 1 << 20;

fn worker(rank: u32) -> (Arc<dyn Memory>, Box<dyn Engine>) {
    let request = Request {
        bytes: BYTES,
        shared: true,
        ..Request::default()
    };
    let memory = (HOST.allocate)(&request).unwrap();
    let config = WorkerConfig {
        rank,
        worker: 0,
        peers: vec![1 - rank],
        depth: 64,
        clock: Clock::new(),
    };
    let engine = (ENTRY.open)(&OpenRequest::default()).unwrap()[0]
        .worker(&config, Arc::clone(&memory))
        .unwrap();
    (memory, engine)
}

struct Pair {
    memory: [Arc<dyn Memory>; 2],
    engine: [Box<dyn Engine>; 2],
}

fn pair() -> Pair {
    let ((memory_0, mut engine_0), (memory_1, mut engine_1)) = (worker(0), worker(1));
    let (card_0, card_1) = (engine_0.card(), engine_1.card());
    engine_0.connect(&[(1, card_1)]).unwrap();
    engine_1.connect(&[(0, card_0)]).unwrap();
    Pair {
        memory: [memory_0, memory_1],
        engine: [engine_0, engine_1],
    }
}

fn lane(engine: &mut Box<dyn Engine>, kind: LaneKind, peer: u32) -> Lane {
    engine
        .lane(&LaneSpec {
            kind,
            peer,
            ordered: false,
            delivered: false,
        })
        .unwrap()
}

fn poll_one(engine: &mut Box<dyn Engine>) -> Option<Completion> {
    let mut done = [Completion::EMPTY; 1];
    (engine.poll(&mut done).unwrap() == 1).then_some(done[0])
}

fn bytes(memory: &Arc<dyn Memory>, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_write_lands_where_it_should_and_the_target_is_not_told() {
    let mut pair = pair();
    let text: Vec<u8> = (0..5001).map(|i| (i % 255) as u8).collect();
    pair.memory[0].write(100, &text).unwrap();
    let lane = lane(&mut pair.engine[0], LaneKind::Initiate(Verb::Write), 1);
    let op = Op {
        lane,
        tag: 5,
        local: 100,
        remote: 777,
        len: 5001,
        imm: 0,
    };
    assert_eq!(pair.engine[0].post(&[op]).unwrap(), 1);
    let done = poll_one(&mut pair.engine[0]).unwrap();
    assert_eq!((done.tag, done.kind), (5, Kind::Done));
    assert_eq!(bytes(&pair.memory[1], 777, 5001), text);
    assert_eq!(bytes(&pair.memory[1], 776, 1), [0]);
    assert!(poll_one(&mut pair.engine[1]).is_none());
}

#[test]
fn a_read_fetches() {
    let mut pair = pair();
    pair.memory[1].write(9, b"over there").unwrap();
    let lane = lane(&mut pair.engine[0], LaneKind::Initiate(Verb::Read), 1);
    pair.engine[0]
        .post(&[Op {
            lane,
            tag: 0,
            local: 3,
            remote: 9,
            len: 10,
            imm: 0,
        }])
        .unwrap();
    assert_eq!(poll_one(&mut pair.engine[0]).unwrap().kind, Kind::Done);
    assert_eq!(bytes(&pair.memory[0], 3, 10), b"over there");
}

#[test]
fn a_write_imm_carries_all_32_bits() {
    let mut pair = pair();
    pair.memory[0].write(0, b"x").unwrap();
    let lane = lane(&mut pair.engine[0], LaneKind::Initiate(Verb::WriteImm), 1);
    pair.engine[0]
        .post(&[Op {
            lane,
            tag: 1,
            local: 0,
            remote: 8,
            len: 1,
            imm: 0xfedc_ba98,
        }])
        .unwrap();
    let arrival = poll_one(&mut pair.engine[1]).unwrap();
    assert_eq!(
        (arrival.kind, arrival.imm, arrival.lane, arrival.len),
        (Kind::Arrived, 0xfedc_ba98, Lane(0), 1)
    );
    assert_eq!(bytes(&pair.memory[1], 8, 1), b"x");
}

#[test]
fn a_send_waits_for_a_receive_and_lands_in_it() {
    let mut pair = pair();
    pair.memory[0].write(0, b"post").unwrap();
    let send = lane(&mut pair.engine[0], LaneKind::Initiate(Verb::Send), 1);
    let op = Op {
        lane: send,
        tag: 1,
        local: 0,
        remote: 0,
        len: 4,
        imm: 0,
    };
    assert_eq!(pair.engine[0].post(&[op]).unwrap(), 0);
    let receive = lane(&mut pair.engine[1], LaneKind::Receive, 0);
    let place = Op {
        lane: receive,
        tag: 42,
        local: 512,
        remote: 0,
        len: 64,
        imm: 0,
    };
    assert_eq!(pair.engine[1].post(&[place]).unwrap(), 1);
    assert_eq!(pair.engine[0].post(&[op]).unwrap(), 1);
    let arrival = poll_one(&mut pair.engine[1]).unwrap();
    assert_eq!(
        (arrival.kind, arrival.tag, arrival.len),
        (Kind::Arrived, 42, 4)
    );
    assert_eq!(bytes(&pair.memory[1], 512, 4), b"post");
}

#[test]
fn a_send_that_is_too_long_fails_with_the_systems_code() {
    let mut pair = pair();
    let receive = lane(&mut pair.engine[1], LaneKind::Receive, 0);
    pair.engine[1]
        .post(&[Op {
            lane: receive,
            tag: 0,
            local: 0,
            remote: 0,
            len: 3,
            imm: 0,
        }])
        .unwrap();
    let send = lane(&mut pair.engine[0], LaneKind::Initiate(Verb::Send), 1);
    pair.engine[0]
        .post(&[Op {
            lane: send,
            tag: 0,
            local: 0,
            remote: 0,
            len: 4,
            imm: 0,
        }])
        .unwrap();
    assert_eq!(
        poll_one(&mut pair.engine[0]).unwrap().kind,
        Kind::Failed(90)
    );
}

#[test]
fn offsets_outside_the_peers_memory_are_an_error_and_touch_nothing() {
    let mut pair = pair();
    let lane = lane(&mut pair.engine[0], LaneKind::Initiate(Verb::Write), 1);
    for remote in [BYTES, u64::MAX, BYTES - 1] {
        let op = Op {
            lane,
            tag: 0,
            local: 0,
            remote,
            len: 8,
            imm: 0,
        };
        assert!(pair.engine[0].post(&[op]).is_err());
    }
}

#[test]
fn cards_of_other_hosts_and_garbage_are_refused() {
    let ((_memory, mut engine), (_other_memory, other)) = (worker(0), worker(1));
    let foreign =
        String::from_utf8(other.card().0)
            .unwrap()
            .replacen("boot_id\":\"", "boot_id\":\"x", 1);
    for card in [foreign.into_bytes(), b"garbage".to_vec(), Vec::new()] {
        let error = engine.connect(&[(1, Card(card))]).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
}
