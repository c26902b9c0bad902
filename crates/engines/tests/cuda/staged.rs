//! Tests of staging over libfabric's tcp, between two workers of this process, with memory of simulated GPUs.

use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::pattern::Key;
use tonnage_engine::{
    Completion, Ending, Engine, EngineOptions, Lane, LaneKind, LaneSpec, Op, OpenRequest,
    PeerEndpoint, Region, Verb, WorkerConfig,
};
use tonnage_engines::fabric;
use tonnage_engines::memory::CUDA;

use super::{BYTES, Double, allocate, found, host};

struct Side {
    memory: Arc<dyn Memory>,
    engine: Box<dyn Engine + Send>,
    region: Region,
}

fn side(rank: u32, memory: Arc<dyn Memory>) -> Side {
    let options = EngineOptions::from([("staging".to_owned(), "pinned".to_owned())]);
    let domains = (fabric::ENTRY.open)(&OpenRequest {
        variant: "tcp",
        options: &options,
        ..OpenRequest::default()
    });
    let mut engine = domains.unwrap()[0]
        .worker(&WorkerConfig::polling(rank, 1, 16))
        .unwrap();
    let region = engine.register(&memory).unwrap();
    Side {
        memory,
        engine,
        region,
    }
}

/// Returns two connected sides, each with its own memory.
fn pair(memories: [Arc<dyn Memory>; 2]) -> [Side; 2] {
    let [one, other] = memories;
    let mut sides = [side(0, one), side(1, other)];
    let addresses = [0, 1].map(|at| {
        sides[at]
            .engine
            .endpoint_addresses(&[1 - at as u32])
            .unwrap()
            .remove(0)
    });
    for (at, address) in [(0, &addresses[1]), (1, &addresses[0])] {
        let neighbor = PeerEndpoint::same_container(1 - at as u32, address.clone());
        sides[at].engine.connect(&[neighbor]).unwrap();
    }
    // Both sides must take part in first contact at the same time.
    std::thread::scope(|scope| {
        for side in &mut sides {
            scope.spawn(|| side.engine.meet(&|| false).unwrap());
        }
    });
    sides
}

fn lane(sides: &mut [Side; 2], at: usize, kind: LaneKind) -> Lane {
    let remote = sides[1 - at].region.descriptor.clone();
    let spec = LaneSpec::new(kind, 1 - at as u32, sides[at].region.id, &remote);
    sides[at].engine.lane(&spec).unwrap()
}

/// Polls both sides until each has this many completions.
fn polled(sides: &mut [Side; 2], counts: [usize; 2]) -> [Vec<Completion>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..10_000_000u64 {
        for (side, found) in sides.iter_mut().zip(&mut all) {
            let mut done = [Completion::EMPTY; 4];
            let count = side.engine.poll(&mut done).unwrap();
            found.extend_from_slice(&done[..count]);
        }
        if [0, 1].iter().all(|&at| all[at].len() >= counts[at]) {
            break;
        }
    }
    assert_eq!(all.each_ref().map(Vec::len), counts, "{all:?}");
    all
}

const LEN: u32 = 300_001;

/// Moves bytes with every verb, in several pieces and at odd offsets, between two GPUs and between a GPU and the host.
#[test]
fn every_verb_moves_every_byte_of_a_gpu() {
    let Some(double) = Double::with("gpus 2") else {
        return;
    };
    let gpu = |variant| allocate(&double, &CUDA, variant, BYTES).unwrap();
    for memories in [[gpu("0"), gpu("1")], [gpu("1"), host()]] {
        let mut sides = pair(memories);
        for (number, verb) in (1u64..).zip(Verb::COPYING) {
            let key = Key::new(number, 1, 2, 3);
            let (local, remote) = (13, 77);
            let reads = verb == Verb::Read;
            let (source, at) = if reads { (1, remote) } else { (0, local) };
            sides[source].memory.fill(at, at, LEN.into(), key).unwrap();
            let mut tagged = 0;
            if verb == Verb::Send {
                let receive = lane(&mut sides, 1, LaneKind::Receive);
                let op = op(receive, 9, remote, 0);
                assert_eq!(sides[1].engine.post(&[op]).unwrap(), 1);
                tagged = 9;
            }
            let initiate = lane(&mut sides, 0, LaneKind::Initiate(verb));
            let op = op(initiate, 4, local, remote);
            assert_eq!(sides[0].engine.post(&[op]).unwrap(), 1);
            let told = usize::from(verb.notifies_target());
            let [own, far] = polled(&mut sides, [1, told]);
            assert_eq!((own[0].tag, own[0].ending), (4, Ending::Done), "{verb:?}");
            for arrived in far {
                assert_eq!(arrived.ending, Ending::Arrived);
                let said = (arrived.tag, arrived.len, arrived.imm, arrived.lane);
                assert_eq!(said, (tagged, LEN, 5, Lane(0)));
            }
            let (target, at) = if reads { (0, local) } else { (1, remote) };
            // The bytes have arrived when the operation completes, so the sides need not be polled again.
            let right = found(&*sides[target].memory, (at, at, LEN.into()), key);
            assert!(right.is_clean(), "{verb:?}");
        }
        let flushed = lane(&mut sides, 0, LaneKind::Initiate(Verb::Write));
        let flush = sides[0].engine.flush(flushed, 1).unwrap();
        assert_eq!(flush, tonnage_engine::Flush::Delivered);
    }
}

fn op(lane: Lane, tag: u32, local: u64, remote: u64) -> Op {
    Op {
        lane,
        tag,
        local,
        remote,
        len: LEN,
        imm: 5,
    }
}

/// Posts more operations than there are slots, including empty and small ones. Each operation must complete once, and
/// pieces of different operations must not be mixed up.
#[test]
fn more_operations_than_slots_end_once_each() {
    let Some(double) = Double::with("") else {
        return;
    };
    let gpu = |_| allocate(&double, &CUDA, "", BYTES).unwrap();
    let mut sides = pair([0, 1].map(gpu));
    let lane = lane(&mut sides, 0, LaneKind::Initiate(Verb::WriteImm));
    let lens = [0, 8, 131_072, 131_073, 1];
    let ops = (0..200u32).map(|tag| Op {
        len: lens[tag as usize % lens.len()],
        imm: tag,
        ..op(lane, tag, u64::from(tag), 400_000 + u64::from(tag))
    });
    let ops: Vec<Op> = ops.collect();
    let (mut taken, mut done, mut arrived) = (0, Vec::new(), Vec::new());
    for _ in 0..10_000_000u64 {
        taken += sides[0].engine.post(&ops[taken..]).unwrap();
        for (side, found) in sides.iter_mut().zip([&mut done, &mut arrived]) {
            let mut polled = [Completion::EMPTY; 8];
            let count = side.engine.poll(&mut polled).unwrap();
            found.extend_from_slice(&polled[..count]);
        }
        if done.len() >= ops.len() && arrived.len() >= ops.len() {
            break;
        }
    }
    let tags: Vec<u32> = done.iter().map(|done| done.tag).collect();
    let imms: Vec<u32> = arrived.iter().map(|arrived| arrived.imm).collect();
    assert_eq!(tags, (0..200).collect::<Vec<_>>());
    assert_eq!(imms, tags);
}

#[test]
fn operations_that_do_not_fit_are_named_and_others_are_not_lost() {
    let Some(double) = Double::with("gpus 2") else {
        return;
    };
    let gpu = |variant| allocate(&double, &CUDA, variant, BYTES).unwrap();
    let mut sides = pair([gpu("0"), gpu("1")]);
    let receive = lane(&mut sides, 1, LaneKind::Receive);
    let short = Op {
        len: LEN - 1,
        ..op(receive, 7, 0, 0)
    };
    assert_eq!(sides[1].engine.post(&[short]).unwrap(), 1);
    let send = lane(&mut sides, 0, LaneKind::Initiate(Verb::Send));
    let fits = Op {
        len: LEN - 1,
        ..op(send, 2, 0, 0)
    };
    assert_eq!(sides[0].engine.post(&[op(send, 1, 0, 0), fits]).unwrap(), 2);
    let [own, far] = polled(&mut sides, [2, 1]);
    assert_eq!(
        (own[0].tag, own[1].tag, own[1].ending),
        (1, 2, Ending::Done)
    );
    assert_eq!((far[0].tag, far[0].len), (7, LEN - 1));
    let failure = sides[0].engine.failure(&own[0]);
    assert_eq!(failure.name, "message too long");
    let write = lane(&mut sides, 0, LaneKind::Initiate(Verb::Write));
    let outside = sides[0].engine.post(&[op(write, 3, 0, BYTES)]).unwrap_err();
    assert!(outside.to_string().contains("lie outside"), "{outside}");
    // The ring is pinned for one GPU, so memory of a second GPU is refused.
    let other = sides[0].engine.register(&gpu("1")).unwrap_err().to_string();
    assert!(other.contains("pinned for cuda:0"), "{other}");
    assert!(sides[0].engine.register(&host()).is_ok());
}
