//! A peer that lives: it answers each arrived number by writing what it finds in its memory to the other side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tonnage_transfer::{
    Arena, AsyncSession, Executor, Extent, LaneSource, SessionOptions, TransferErrorKind, Verb,
    caller_memory,
};

use super::pair::{BYTES, Side, TIMEOUT, bytes, first, for_each_engine, second};

/// Arrival that ends the second process.
const END: u32 = u32::MAX;
/// Place of answers, and their length.
const ANSWER: u64 = BYTES / 2;
const LEN: u32 = 5000;

/// Copies the bytes at the offset that each arrival names into the first process's memory, and tells it.
pub fn serve() {
    let side = second();
    let session = side.endpoint.session(&side.memory, &side.remote).unwrap();
    loop {
        let arrived = side.endpoint.wait_arrival(TIMEOUT).unwrap();
        assert_eq!(arrived.peer, Some(0));
        if arrived.imm == END {
            return;
        }
        let offset = u64::from(arrived.imm);
        let answer = session.write_imm(offset, ANSWER, LEN, arrived.imm).unwrap();
        answer.wait(TIMEOUT).unwrap();
    }
}

fn data(seed: u64) -> Vec<u8> {
    (0..u64::from(LEN))
        .map(|at| (at * 31 + seed * 7) as u8)
        .collect()
}

/// Asks the second process what it has at an offset.
fn there(side: &Side, offset: u64) -> Vec<u8> {
    let session = side.endpoint.session(&side.memory, &side.remote).unwrap();
    let ask = session.write_imm(0, 0, 0, offset as u32).unwrap();
    ask.wait(TIMEOUT).unwrap();
    let answer = side.endpoint.wait_arrival(TIMEOUT).unwrap();
    assert_eq!((u64::from(answer.imm), answer.len), (offset, LEN));
    bytes(&side.memory, ANSWER, LEN as usize)
}

/// Writes as soon as it has met its peer, which may not have met it yet.
pub fn write_at_once() {
    let side = second();
    let session = side.endpoint.session(&side.memory, &side.remote).unwrap();
    let write = session.write_imm(0, 0, 0, 7).unwrap();
    write.wait(TIMEOUT).unwrap();
    assert_eq!(side.endpoint.wait_arrival(TIMEOUT).unwrap().imm, END);
}

fn end(side: &Side, second: super::pair::Second) {
    let session = side.endpoint.session(&side.memory, &side.remote).unwrap();
    session
        .write_imm(0, 0, 0, END)
        .unwrap()
        .wait(TIMEOUT)
        .unwrap();
    second.finish();
}

#[test]
fn every_verb_moves_its_bytes() {
    for_each_engine(|engine| {
        let (side, second) = first(engine, "serve");
        let session = side.endpoint.session(&side.memory, &side.remote).unwrap();
        assert!(session.alive());
        side.memory.write(0, &data(1)).unwrap();
        session
            .write(0, 10_000, LEN)
            .unwrap()
            .wait(TIMEOUT)
            .unwrap();
        session.flush(Verb::Write).unwrap().wait(TIMEOUT).unwrap();
        assert_eq!(there(&side, 10_000), data(1), "{engine} write");
        session
            .read(20_000, 10_000, LEN)
            .unwrap()
            .wait(TIMEOUT)
            .unwrap();
        assert_eq!(
            bytes(&side.memory, 20_000, LEN as usize),
            data(1),
            "{engine} read"
        );
        // Batches deeper than any queue, of both.
        let extents: Vec<Extent> = (0..2500)
            .map(|at| Extent::new(at * 2, 100_000 + at * 2, 2))
            .collect();
        side.memory.write(0, &data(2)).unwrap();
        session
            .batch(Verb::Write, &extents)
            .unwrap()
            .wait(TIMEOUT)
            .unwrap();
        session.flush(Verb::Write).unwrap().wait(TIMEOUT).unwrap();
        assert_eq!(there(&side, 100_000), data(2), "{engine} batch of writes");
        let back: Vec<Extent> = extents
            .iter()
            .map(|extent| Extent::new(extent.local + 30_000, extent.remote, 2))
            .collect();
        session
            .batch(Verb::Read, &back)
            .unwrap()
            .wait(TIMEOUT)
            .unwrap();
        assert_eq!(
            bytes(&side.memory, 30_000, LEN as usize),
            data(2),
            "{engine} reads"
        );
        deliver(engine, &side);
        end(&side, second);
    });
}

/// Checks a write that is done when it is there, or that the engine has none.
fn deliver(engine: &str, side: &Side) {
    let options = SessionOptions {
        delivered: true,
        ordered: false,
    };
    let delivered = side
        .endpoint
        .session_with(&side.memory, &side.remote, options);
    if engine.starts_with("verbs") {
        // Its completed writes have arrived at the peer's device, and nothing says that they are in memory.
        let refused = delivered.unwrap_err();
        assert_eq!(refused.kind(), TransferErrorKind::Unavailable, "{engine}");
        return;
    }
    let delivered = delivered.unwrap();
    side.memory.write(0, &data(3)).unwrap();
    delivered
        .write(0, 40_000, LEN)
        .unwrap()
        .wait(TIMEOUT)
        .unwrap();
    assert_eq!(there(side, 40_000), data(3), "{engine} delivered");
}

#[test]
fn what_a_peer_writes_at_once_is_not_lost() {
    for_each_engine(|engine| {
        for _ in 0..5 {
            let (side, second) = first(engine, "write at once");
            assert_eq!(
                side.endpoint.wait_arrival(TIMEOUT).unwrap().imm,
                7,
                "{engine}"
            );
            end(&side, second);
        }
    });
}

#[test]
fn futures_move_their_bytes() {
    for_each_engine(|engine| {
        let (side, second) = first(engine, "serve");
        let session = side.endpoint.session(&side.memory, &side.remote).unwrap();
        let session = AsyncSession::new(session);
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
        assert_eq!(there(&side, 7000), data(4), "{engine}");
        assert_eq!(
            bytes(&side.memory, 50_000, LEN as usize),
            data(4),
            "{engine}"
        );
        end(&side, second);
    });
}

#[test]
fn without_a_session_the_bytes_are_the_same() {
    for_each_engine(|engine| {
        let (side, second) = first(engine, "serve");
        let names = (side.memory.id(), side.endpoint.know(&side.remote));
        let sources = [LaneSource::LookUp, LaneSource::Fresh, LaneSource::Register];
        for (seed, source) in (5..).zip(sources) {
            side.memory.write(0, &data(seed)).unwrap();
            for part in 0..10 {
                let extent = Extent::new(part * 500, 60_000 + part * 500, 500);
                let ticket = side
                    .endpoint
                    .transfer(source, Verb::WriteImm, names, &[extent]);
                ticket.unwrap().wait(TIMEOUT).unwrap();
                let answer = side.endpoint.wait_arrival(TIMEOUT).unwrap();
                assert_eq!(answer.imm, 0);
            }
            assert_eq!(there(&side, 60_000), data(seed), "{engine} {source:?}");
        }
        end(&side, second);
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
    session.write(0, 0, LEN).unwrap().wait(TIMEOUT).unwrap();
    session.flush(Verb::Write).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(there(&side, 0), data(8));
    session.read(5000, 0, LEN).unwrap().wait(TIMEOUT).unwrap();
    let read = atomics[5000..]
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed));
    assert!(read.eq(data(8)));
    drop((session, own));
    end(&side, second);
    // Engines may keep memory until they close, because a peer may still be reading it.
    drop(side);
    assert_eq!(Arc::strong_count(&atomics), 1, "nobody holds it any more");
    // Peers of shm would have to map it.
    let refused = super::pair::open("shm", 3).register(memory()).unwrap_err();
    assert_eq!(refused.kind(), TransferErrorKind::Unavailable);
    assert!(
        refused.to_string().contains("one process alone"),
        "{refused}"
    );
}

#[test]
fn what_is_dropped_in_flight_is_done_all_the_same() {
    for_each_engine(|engine| {
        let (side, second) = first(engine, "serve");
        let deadline = Instant::now() + TIMEOUT;
        for round in 0..400u64 {
            let session = side.endpoint.session(&side.memory, &side.remote).unwrap();
            for at in 0..8u64 {
                let verb = [Verb::Write, Verb::Read][(round % 2) as usize];
                let extent = Extent::new(at * 5000, 100_000 + at * 5000, LEN);
                while let Err(busy) = session.post(verb, &extent).map(drop) {
                    assert_eq!(busy.kind(), TransferErrorKind::Busy, "{engine}: {busy}");
                    side.endpoint.progress().unwrap();
                    assert!(Instant::now() < deadline);
                }
            }
            drop(session);
        }
        side.endpoint.wait_all(TIMEOUT).unwrap();
        assert_eq!(
            (side.endpoint.room(), side.endpoint.in_flight()),
            (1024, 0),
            "{engine}"
        );
        end(&side, second);
    });
}

#[test]
fn wrong_offsets_and_late_arrivals_are_named() {
    for_each_engine(|engine| {
        let (side, second) = first(engine, "serve");
        let session = side.endpoint.session(&side.memory, &side.remote).unwrap();
        let far = side.remote.bytes();
        let error = session.read(0, far - 4, 8).unwrap_err();
        assert_eq!(error.kind(), TransferErrorKind::OutOfRange);
        assert_eq!((error.operation(), error.peer()), (Some("read"), Some(1)));
        assert!(error.to_string().starts_with(engine), "{error}");
        let late = side
            .endpoint
            .wait_arrival(Duration::from_millis(30))
            .unwrap_err();
        assert_eq!(late.kind(), TransferErrorKind::Deadline);
        end(&side, second);
    });
}
