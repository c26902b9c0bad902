//! Tests with a live second process. When a write-imm arrives, the second process writes bytes of its own memory back
//! to the first process. The immediate value is the offset of these bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tonnage_transfer::{
    Arena, AsyncSession, Executor, Extent, LaneSource, SessionOptions, TransferErrorKind, Verb,
    caller_memory,
};

use super::pair::{BYTES, Second, Side, TIMEOUT, bytes, done, first, for_each_engine, second};

/// Immediate value that makes the second process exit.
const END: u32 = u32::MAX;
/// Offset in the first process's memory, and length, of the bytes that are written back.
const ANSWER: u64 = BYTES / 2;
const LEN: u32 = 5000;

/// Answers each arrival with a write-imm to the first process. The immediate value of the arrival is the offset of the
/// bytes that are written.
pub fn serve() {
    let side = second();
    let session = side.session();
    loop {
        let arrived = side.endpoint.wait_arrival(TIMEOUT).unwrap();
        assert_eq!(arrived.peer, Some(0));
        if arrived.imm == END {
            return;
        }
        let offset = u64::from(arrived.imm);
        done(session.write_imm(offset, ANSWER, LEN, arrived.imm));
    }
}

fn data(seed: u64) -> Vec<u8> {
    (0..u64::from(LEN))
        .map(|at| (at * 31 + seed * 7) as u8)
        .collect()
}

/// Returns the second process's bytes at an offset.
fn there(side: &Side, offset: u64) -> Vec<u8> {
    let session = side.session();
    done(session.write_imm(0, 0, 0, offset as u32));
    let answer = side.endpoint.wait_arrival(TIMEOUT).unwrap();
    assert_eq!((u64::from(answer.imm), answer.len), (offset, LEN));
    bytes(&side.memory, ANSWER, LEN as usize)
}

/// Writes immediately after this side's first contact, which the peer may not have completed yet.
pub fn write_immediately() {
    let side = second();
    let session = side.session();
    done(session.write_imm(0, 0, 0, 7));
    assert_eq!(side.endpoint.wait_arrival(TIMEOUT).unwrap().imm, END);
}

fn end(side: &Side, second: Second) {
    let session = side.session();
    done(session.write_imm(0, 0, 0, END));
    second.finish();
}

#[test]
fn every_verb_moves_bytes_by_every_way_of_posting() {
    for_each_engine(|engine| {
        let (side, second) = first(engine, "serve");
        by_verbs(engine, &side);
        deliver(engine, &side);
        by_futures(engine, &side);
        by_names(engine, &side);
        dropped_in_flight(engine, &side);
        let late = side.endpoint.wait_arrival(Duration::from_millis(30));
        assert_eq!(late.unwrap_err().kind(), TransferErrorKind::Deadline);
        end(&side, second);
    });
}

fn by_verbs(engine: &str, side: &Side) {
    let session = side.session();
    assert!(session.is_alive());
    let outside = session.read(0, side.remote.bytes() - 4, 8).unwrap_err();
    assert_eq!(outside.kind(), TransferErrorKind::OutOfRange, "{engine}");
    assert!(outside.to_string().starts_with(engine), "{outside}");
    side.memory.write(0, &data(1)).unwrap();
    done(session.write(0, 10_000, LEN));
    done(session.flush(Verb::Write));
    assert_eq!(there(side, 10_000), data(1), "{engine} write");
    done(session.read(20_000, 10_000, LEN));
    let read = bytes(&side.memory, 20_000, LEN as usize);
    assert_eq!(read, data(1), "{engine} read");
    // Batches of both verbs, with more operations than any queue has entries.
    let extents = |local: u64| -> Vec<Extent> {
        let extent = |at: u64| Extent::new(local + at * 2, 100_000 + at * 2, 2);
        (0..2500).map(extent).collect()
    };
    side.memory.write(0, &data(2)).unwrap();
    done(session.batch(Verb::Write, &extents(0)));
    done(session.flush(Verb::Write));
    assert_eq!(there(side, 100_000), data(2), "{engine} batch of writes");
    done(session.batch(Verb::Read, &extents(30_000)));
    let read = bytes(&side.memory, 30_000, LEN as usize);
    assert_eq!(read, data(2), "{engine} batch of reads");
}

/// Checks that a write with the `delivered` guarantee has arrived when it completes, or that the engine refuses the
/// guarantee.
fn deliver(engine: &str, side: &Side) {
    let options = SessionOptions {
        delivered: true,
        ordered: false,
    };
    let delivered = (side.endpoint).session_with(&side.memory, &side.remote, options);
    if engine.starts_with("verbs") {
        // Completion of a verbs write proves that it arrived at the peer's device, but not in the peer's memory.
        let refused = delivered.unwrap_err();
        assert_eq!(refused.kind(), TransferErrorKind::Unavailable, "{engine}");
        return;
    }
    let delivered = delivered.unwrap();
    side.memory.write(0, &data(3)).unwrap();
    done(delivered.write(0, 40_000, LEN));
    assert_eq!(there(side, 40_000), data(3), "{engine} delivered");
}

fn by_futures(engine: &str, side: &Side) {
    let session = AsyncSession::new(side.session());
    side.memory.write(0, &data(4)).unwrap();
    let mut executor = Executor::new(&side.endpoint);
    for task in 0..u64::from(LEN) / 10 {
        let session = &session;
        executor.spawn(async move {
            let at = task * 10;
            session.write(at, at + 7000, 10).await.unwrap();
            session.flush(Verb::Write).await.unwrap();
            session.read(at + 50_000, at + 7000, 10).await.unwrap();
        });
    }
    executor.run(TIMEOUT).unwrap();
    assert_eq!(there(side, 7000), data(4), "{engine}");
    let read = bytes(&side.memory, 50_000, LEN as usize);
    assert_eq!(read, data(4), "{engine}");
}

fn by_names(engine: &str, side: &Side) {
    let names = (side.memory.id(), side.endpoint.add_remote(&side.remote));
    let sources = [LaneSource::LookUp, LaneSource::Fresh, LaneSource::Register];
    for (seed, source) in (5..).zip(sources) {
        side.memory.write(0, &data(seed)).unwrap();
        for part in 0..10 {
            let extent = [Extent::new(part * 500, 60_000 + part * 500, 500)];
            done((side.endpoint).transfer(source, Verb::WriteImm, names, &extent));
            let answer = side.endpoint.wait_arrival(TIMEOUT).unwrap();
            assert_eq!(answer.imm, 0);
        }
        assert_eq!(there(side, 60_000), data(seed), "{engine} {source:?}");
    }
}

/// Checks that operations complete although their sessions and tickets were dropped.
fn dropped_in_flight(engine: &str, side: &Side) {
    let deadline = Instant::now() + TIMEOUT;
    for round in 0..400u64 {
        let session = side.session();
        for at in 0..8u64 {
            let verb = [Verb::Write, Verb::Read][(round % 2) as usize];
            let extent = Extent::new(at * 5000, 100_000 + at * 5000, LEN);
            while let Err(busy) = session.post(verb, &extent).map(drop) {
                assert_eq!(busy.kind(), TransferErrorKind::Busy, "{engine}: {busy}");
                side.endpoint.progress().unwrap();
                assert!(Instant::now() < deadline);
            }
        }
    }
    side.endpoint.wait_all(TIMEOUT).unwrap();
    let endpoint = &side.endpoint;
    let left = (endpoint.free_slots(), endpoint.in_flight());
    assert_eq!(left, (1024, 0), "{engine}");
}

#[test]
fn early_writes_of_a_peer_are_not_lost() {
    for_each_engine(|engine| {
        for _ in 0..5 {
            let (side, second) = first(engine, "write at once");
            let arrived = side.endpoint.wait_arrival(TIMEOUT).unwrap();
            assert_eq!(arrived.imm, 7, "{engine}");
            end(&side, second);
        }
    });
}

#[test]
fn memory_of_the_caller_is_written_and_read() {
    let atomics: Arc<[AtomicU8]> = (0..10_000).map(|_| AtomicU8::new(0)).collect();
    let memory = || caller_memory(Arena::over_atomics(Arc::clone(&atomics)).unwrap());
    let (side, second) = first("fabric:tcp", "serve");
    let own = side.endpoint.register(memory()).unwrap();
    let session = side.endpoint.session(&own, &side.remote).unwrap();
    for (byte, value) in atomics.iter().zip(data(8)) {
        byte.store(value, Ordering::Relaxed);
    }
    done(session.write(0, 0, LEN));
    done(session.flush(Verb::Write));
    assert_eq!(there(&side, 0), data(8));
    done(session.read(5000, 0, LEN));
    let read = atomics[5000..]
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed));
    assert!(read.eq(data(8)));
    drop((session, own));
    end(&side, second);
    // Engines may keep memory until they close, because a peer may still be reading it.
    drop(side);
    assert_eq!(Arc::strong_count(&atomics), 1, "the memory is released");
    // `shm` refuses this memory, because peers would have to map it.
    let refused = super::pair::open("shm", 3).register(memory()).unwrap_err();
    assert_eq!(refused.kind(), TransferErrorKind::Unavailable);
    assert!(
        refused.to_string().contains("private to one process"),
        "{refused}"
    );
}
