//! A peer that is killed. Operations with it must fail with the right kind of error in bounded time, and nothing may
//! hang.

use std::time::{Duration, Instant};

use tonnage_transfer::{Extent, TransferErrorKind, Verb};

use super::pair::{TIMEOUT, done, first, for_each_engine, second};

/// Longest time from the kill to the failure.
const BOUND: Duration = Duration::from_secs(10);

/// Polls until this process is killed.
pub fn serve() {
    let side = second();
    let deadline = Instant::now() + 4 * TIMEOUT;
    while Instant::now() < deadline {
        side.endpoint.progress().unwrap();
    }
}

fn is_typed(kind: TransferErrorKind) -> bool {
    matches!(
        kind,
        TransferErrorKind::PeerLost
            | TransferErrorKind::OperationFailed
            | TransferErrorKind::EndpointFailed
    )
}

#[test]
fn every_verb_fails_after_the_peer_was_killed() {
    for_each_engine(|engine| {
        for verb in [Verb::Write, Verb::WriteImm, Verb::Read] {
            let (side, mut process) = first(engine, "to be killed");
            let session = side.session();
            let extent = Extent::new(0, 0, 4096);
            done(session.post(verb, &extent));
            // Some operations are in flight when the peer dies.
            let tickets: Vec<_> = (0..32)
                .map_while(|_| session.post(verb, &extent).ok())
                .collect();
            process.kill();
            let killed = Instant::now();
            for ticket in &tickets {
                // Operations that completed before the peer's death remain successful.
                if let Err(error) = ticket.wait(BOUND) {
                    assert!(
                        is_typed(error.kind()),
                        "{engine} {}: {error:?}",
                        verb.name()
                    );
                }
            }
            let error = loop {
                match session
                    .post(verb, &extent)
                    .and_then(|ticket| ticket.wait(BOUND))
                {
                    Ok(()) => {}
                    Err(busy) if busy.kind() == TransferErrorKind::Busy => {
                        let _ = side.endpoint.progress();
                    }
                    Err(error) => break error,
                }
                assert!(
                    killed.elapsed() < BOUND,
                    "{engine} {}: no failure",
                    verb.name()
                );
            };
            assert!(
                is_typed(error.kind()),
                "{engine} {}: {error:?}",
                verb.name()
            );
            assert_eq!(
                (error.operation(), error.peer()),
                (Some(verb.name()), Some(1))
            );
            assert!(killed.elapsed() < BOUND, "{engine} {}", verb.name());
            assert!(!session.is_alive());
            assert!(side.endpoint.wait_arrival(BOUND).is_err());
            assert!(killed.elapsed() < 2 * BOUND, "{engine} {}", verb.name());
            drop((tickets, session));
        }
    });
}

#[test]
fn a_wait_for_an_arrival_ends_when_the_peer_is_killed() {
    for_each_engine(|engine| {
        let (side, mut process) = first(engine, "to be killed");
        process.kill();
        let killed = Instant::now();
        let error = side.endpoint.wait_arrival(TIMEOUT).unwrap_err();
        assert!(is_typed(error.kind()), "{engine}: {error:?}");
        assert!(killed.elapsed() < BOUND, "{engine}");
        let session = side.endpoint.session(&side.memory, &side.remote);
        assert!(is_typed(session.unwrap_err().kind()), "{engine}");
    });
}
