//! Two workers in one process, connected by their endpoint addresses like two ranks.

use tonnage_engine::memory::Request;
use tonnage_engine::{Locality, OpenRequest};

use super::*;
use crate::memory::HOST;
use crate::rings::OTHER_REGION;

const BYTES: u64 = 1 << 20;

/// A worker with a registered memory.
fn worker(rank: u32) -> (Arc<dyn Memory>, Box<dyn Engine + Send>, Region) {
    let request = Request {
        bytes: BYTES,
        shared: true,
        ..Request::default()
    };
    let memory = (HOST.allocate)(&request).unwrap();
    let config = WorkerConfig::polling(rank, 1, 64);
    let domains = (ENTRY.open)(&OpenRequest::default()).unwrap();
    let mut engine = domains[0].worker(&config).unwrap();
    let region = engine.register(&memory).unwrap();
    (memory, engine, region)
}

struct Pair {
    memory: [Arc<dyn Memory>; 2],
    engine: [Box<dyn Engine + Send>; 2],
    region: [Region; 2],
}

fn pair() -> Pair {
    let ((memory_0, mut engine_0, region_0), (memory_1, mut engine_1, region_1)) =
        (worker(0), worker(1));
    let address_0 = engine_0.endpoint_addresses(&[1]).unwrap().remove(0);
    let address_1 = engine_1.endpoint_addresses(&[0]).unwrap().remove(0);
    engine_0
        .connect(&[PeerEndpoint::same_container(1, address_1)])
        .unwrap();
    engine_1
        .connect(&[PeerEndpoint::same_container(0, address_0)])
        .unwrap();
    Pair {
        memory: [memory_0, memory_1],
        engine: [engine_0, engine_1],
        region: [region_0, region_1],
    }
}

impl Pair {
    fn lane(&mut self, side: usize, kind: LaneKind) -> Lane {
        let remote = self.region[1 - side].descriptor.clone();
        self.lane_to(side, kind, &remote)
    }

    fn lane_to(&mut self, side: usize, kind: LaneKind, remote: &Descriptor) -> Lane {
        let spec = LaneSpec::new(kind, 1 - side as u32, self.region[side].id, remote);
        self.engine[side].lane(&spec).unwrap()
    }
}

fn poll_one(engine: &mut Box<dyn Engine + Send>) -> Option<Completion> {
    let mut done = [Completion::EMPTY; 1];
    (engine.poll(&mut done).unwrap() == 1).then_some(done[0])
}

fn bytes(memory: &Arc<dyn Memory>, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes).unwrap();
    bytes
}

fn op(lane: Lane, tag: u32, local: u64, remote: u64, len: u32) -> Op {
    Op {
        lane,
        tag,
        local,
        remote,
        len,
        imm: 0,
    }
}

#[test]
fn bytes_land_at_their_offsets_and_only_messages_are_reported() {
    let mut pair = pair();
    let text: Vec<u8> = (0..5001).map(|i| (i % 255) as u8).collect();
    pair.memory[0].write(100, &text).unwrap();
    let write = pair.lane(0, LaneKind::Initiate(Verb::Write));
    pair.engine[0]
        .post(&[op(write, 5, 100, 777, 5001)])
        .unwrap();
    let done = poll_one(&mut pair.engine[0]).unwrap();
    assert_eq!((done.tag, done.ending), (5, Ending::Done));
    assert_eq!(bytes(&pair.memory[1], 777, 5001), text);
    assert_eq!(bytes(&pair.memory[1], 776, 1), [0]);
    assert!(poll_one(&mut pair.engine[1]).is_none());

    pair.memory[1].write(9, b"over there").unwrap();
    let read = pair.lane(0, LaneKind::Initiate(Verb::Read));
    pair.engine[0].post(&[op(read, 0, 3, 9, 10)]).unwrap();
    assert_eq!(poll_one(&mut pair.engine[0]).unwrap().ending, Ending::Done);
    assert_eq!(bytes(&pair.memory[0], 3, 10), b"over there");

    pair.memory[0].write(0, b"x").unwrap();
    let write_imm = pair.lane(0, LaneKind::Initiate(Verb::WriteImm));
    let number = Op {
        imm: 0xfedc_ba98,
        ..op(write_imm, 1, 0, 8, 1)
    };
    pair.engine[0].post(&[number]).unwrap();
    let arrived = poll_one(&mut pair.engine[1]).unwrap();
    assert_eq!(
        (arrived.ending, arrived.imm),
        (Ending::Arrived, 0xfedc_ba98)
    );
    assert_eq!((arrived.lane, arrived.len), (Lane(0), 1));
    assert_eq!(bytes(&pair.memory[1], 8, 1), b"x");
}

#[test]
fn a_send_waits_for_a_receive_and_lands_in_it_if_it_fits() {
    let mut pair = pair();
    pair.memory[0].write(0, b"post").unwrap();
    let send = pair.lane(0, LaneKind::Initiate(Verb::Send));
    let receive = pair.lane(1, LaneKind::Receive);
    let message = op(send, 1, 0, 0, 4);
    assert_eq!(pair.engine[0].post(&[message]).unwrap(), 0);
    for place in [op(receive, 42, 512, 0, 64), op(receive, 0, 0, 0, 3)] {
        assert_eq!(pair.engine[1].post(&[place]).unwrap(), 1);
    }
    assert_eq!(pair.engine[0].post(&[message, message]).unwrap(), 2);
    let arrival = poll_one(&mut pair.engine[1]).unwrap();
    assert_eq!((arrival.ending, arrival.tag), (Ending::Arrived, 42));
    assert_eq!(arrival.len, 4);
    assert_eq!(bytes(&pair.memory[1], 512, 4), b"post");
    assert_eq!(poll_one(&mut pair.engine[0]).unwrap().ending, Ending::Done);
    let too_long = poll_one(&mut pair.engine[0]).unwrap();
    assert_eq!(too_long.ending, Ending::Failed(90));
}

#[test]
fn offsets_outside_the_peers_memory_are_an_error_and_touch_nothing() {
    let mut pair = pair();
    let lane = pair.lane(0, LaneKind::Initiate(Verb::Write));
    for remote in [BYTES, u64::MAX, BYTES - 1] {
        let op = op(lane, 0, 0, remote, 8);
        assert!(pair.engine[0].post(&[op]).is_err());
    }
}

#[test]
fn addresses_of_other_hosts_and_garbage_are_refused() {
    let ((_memory, mut engine, _), (_other_memory, mut other, _)) = (worker(0), worker(1));
    engine.endpoint_addresses(&[1]).unwrap();
    let far = |locality| PeerEndpoint {
        locality,
        ..PeerEndpoint::same_container(1, address_for(&mut other, 0))
    };
    let mut refused: Vec<PeerEndpoint> = [Locality::OtherMachine, Locality::SameMachine]
        .map(far)
        .into();
    let of_another = address_for(&mut other, 7);
    let garbage = [
        of_another,
        EndpointAddress(b"garbage".to_vec()),
        EndpointAddress(Vec::new()),
    ];
    refused.extend(garbage.map(|address| PeerEndpoint::same_container(1, address)));
    for neighbor in refused {
        let error = engine.connect(&[neighbor]).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
}

fn address_for(engine: &mut Box<dyn Engine + Send>, peer: Peer) -> EndpointAddress {
    engine.endpoint_addresses(&[peer]).unwrap().remove(0)
}

#[test]
fn a_worker_has_several_memories_and_lanes_name_theirs() {
    let mut pair = pair();
    let far = worker(9).0;
    let region = pair.engine[1].register(&far).unwrap();
    assert_ne!(region.id, pair.region[1].id);
    let write = LaneKind::Initiate(Verb::Write);
    let lanes = [
        pair.lane(0, write),
        pair.lane_to(0, write, &region.descriptor),
    ];
    assert_ne!(lanes[0], lanes[1]);
    for (lane, text) in lanes.into_iter().zip([b"one", b"two"]) {
        pair.memory[0].write(0, text).unwrap();
        let op = op(lane, 0, 0, 64, 3);
        assert_eq!(pair.engine[0].post(&[op]).unwrap(), 1);
        assert_eq!(pair.engine[0].flush(lane, 0).unwrap(), Flush::Delivered);
    }
    assert_eq!(bytes(&pair.memory[1], 64, 3), b"one");
    assert_eq!(bytes(&far, 64, 3), b"two");
    let own = pair.region[0].id;
    assert!(
        pair.engine[0].deregister(own).is_err(),
        "lanes still use the region"
    );
    for lane in lanes {
        pair.engine[0].release_lane(lane);
    }
    pair.engine[0].deregister(own).unwrap();
    assert!(
        pair.engine[0].deregister(own).is_err(),
        "the region was already deregistered"
    );
    assert!(pair.engine[0].flush(lanes[0], 0).is_err());
}

#[test]
fn a_send_into_a_receive_of_another_region_fails_with_this_reason() {
    let mut pair = pair();
    let other = worker(9).0;
    let region = pair.engine[1].register(&other).unwrap();
    let receive = pair.lane(1, LaneKind::Receive);
    let op = |lane| op(lane, 3, 0, 0, 8);
    assert_eq!(pair.engine[1].post(&[op(receive)]).unwrap(), 1);
    let send = pair.lane_to(0, LaneKind::Initiate(Verb::Send), &region.descriptor);
    assert_eq!(pair.engine[0].post(&[op(send)]).unwrap(), 1);
    let failed = poll_one(&mut pair.engine[0]).unwrap();
    assert_eq!(failed.ending, Ending::Failed(OTHER_REGION));
    let failure = pair.engine[0].failure(&failed).to_string();
    assert!(
        failure.contains("shm: send with rank 1 failed: receive in another region (22)"),
        "{failure}"
    );
}

#[test]
fn peers_that_come_later_are_connected_too() {
    let mut pair = pair();
    let (memory, mut late, region) = worker(2);
    let address = address_for(&mut pair.engine[0], 2);
    late.endpoint_addresses(&[0]).unwrap();
    let back = address_for(&mut late, 0);
    pair.engine[0]
        .connect(&[PeerEndpoint::same_container(2, back)])
        .unwrap();
    late.connect(&[PeerEndpoint::same_container(0, address)])
        .unwrap();
    memory.write(0, b"late").unwrap();
    let remote = pair.region[0].descriptor.clone();
    let spec = LaneSpec::new(LaneKind::Initiate(Verb::WriteImm), 0, region.id, &remote);
    let lane = late.lane(&spec).unwrap();
    let op = Op {
        imm: 5,
        ..op(lane, 0, 0, 0, 4)
    };
    assert_eq!(late.post(&[op]).unwrap(), 1);
    let arrived = poll_one(&mut pair.engine[0]).unwrap();
    assert_eq!((arrived.lane, arrived.imm), (Lane(2), 5));
    assert_eq!(bytes(&pair.memory[0], 0, 4), b"late");
}

fn word(memory: &Arc<dyn Memory>, offset: u64) -> u64 {
    u64::from_ne_bytes(bytes(memory, offset, 8).try_into().unwrap())
}

#[test]
fn atomics_change_a_word_and_return_its_old_value() {
    let mut pair = pair();
    let wide = u64::from(u32::MAX) + 5;
    pair.memory[1].write(16, &wide.to_ne_bytes()).unwrap();
    let lane = pair.lane(0, LaneKind::Initiate(Verb::FetchAdd));
    let op = Op {
        imm: 7,
        ..op(lane, 3, 8, 16, 8)
    };
    assert_eq!(pair.engine[0].post(&[op, op]).unwrap(), 2);
    assert_eq!(poll_one(&mut pair.engine[0]).unwrap().ending, Ending::Done);
    let words = [word(&pair.memory[0], 8), word(&pair.memory[1], 16)];
    assert_eq!(words, [wide + 7, wide + 14]);

    let swap = |expected: u64, new: u64| [expected, new, 0].map(u64::to_ne_bytes).concat();
    let lane = pair.lane(0, LaneKind::Initiate(Verb::CompareSwap));
    for (expected, found, then) in [(wide, wide + 14, wide + 14), (wide + 14, wide + 14, 1)] {
        pair.memory[0].write(64, &swap(expected, 1)).unwrap();
        let op = Op {
            lane,
            local: 64,
            ..op
        };
        assert_eq!(pair.engine[0].post(&[op]).unwrap(), 1);
        assert_eq!(
            (word(&pair.memory[0], 80), word(&pair.memory[1], 16)),
            (found, then)
        );
    }
}

#[test]
fn atomics_without_an_aligned_word_are_refused() {
    let mut pair = pair();
    for verb in [Verb::FetchAdd, Verb::CompareSwap] {
        let lane = pair.lane(0, LaneKind::Initiate(verb));
        for (local, remote) in [(0, 4), (0, BYTES - 4), (4, 0), (BYTES - 4, 0)] {
            let op = Op {
                imm: 1,
                ..op(lane, 0, local, remote, 8)
            };
            assert!(
                pair.engine[0].post(&[op]).is_err(),
                "{verb:?} {local} {remote}"
            );
        }
        let long = Op {
            imm: 1,
            ..op(lane, 0, 0, 0, 16)
        };
        let error = pair.engine[0].post(&[long]).unwrap_err().to_string();
        assert!(error.contains("8 bytes, not 16"), "{error}");
    }
}
