//! Sessions, memory, endpoints, peers and engines that end in various orders while operations are in flight.

use std::fs::File;

use tonnage_engine::testing::ends_at_once;
use tonnage_engine::{Ending, Verb};

use super::{opened, room_and_in_flight};
use crate::error::TransferErrorKind;
use crate::extent::Extent;
use crate::flights::TransferStatus;
use crate::memory::DmabufMemory;
use crate::mock::{self, BYTES, PEERS, SOON};

#[test]
fn a_session_ends_with_the_last_of_its_operations() {
    let opened = opened(8);
    let remote = &opened.remote;
    let first = opened.session.write(0, 0, 8).unwrap();
    drop(opened.session.read(0, 0, 8).unwrap());
    drop(opened.session);
    drop(opened.memory);
    assert_eq!(remote.lock().left(), (3, 1));
    remote.lock().end(1, Ending::Done);
    assert!(first.poll().unwrap());
    assert_eq!(remote.lock().lanes.len(), 3);
    remote.lock().end(1, Ending::Done);
    opened.endpoint.progress().unwrap();
    assert_eq!(remote.lock().left(), (0, 0));
    drop(first);
    assert_eq!(opened.endpoint.free_slots(), 8);
    assert_eq!(remote.lock().wrong, Vec::<String>::new());
}

/// Creates and drops sessions, tickets and memories at random while operations are in flight. At the end, nothing may
/// be left.
#[test]
fn nothing_leaks_under_load() {
    let (endpoint, remote) = mock::endpoint(64);
    let mut random = 1u64;
    let mut next = move |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let (mut tickets, mut sessions, mut memories) = (Vec::new(), Vec::new(), Vec::new());
    let (mut posted, mut busy) = (0, 0);
    for _ in 0..20_000 {
        match next(8) {
            0 => memories.push(endpoint.allocate("small", BYTES).unwrap()),
            1 if !memories.is_empty() => {
                let memory = &memories[next(memories.len() as u64) as usize];
                let peer = PEERS[next(2) as usize];
                sessions.push(endpoint.session(memory, &mock::memory_of(peer)).unwrap());
            }
            2 if !sessions.is_empty() => {
                drop(sessions.swap_remove(next(sessions.len() as u64) as usize))
            }
            3 if memories.len() > 3 => {
                drop(memories.swap_remove(next(memories.len() as u64) as usize))
            }
            4 if !tickets.is_empty() => {
                drop(tickets.swap_remove(next(tickets.len() as u64) as usize))
            }
            5 => {
                let taken = remote.lock().in_flight.len() as u64;
                remote.lock().room = Some(5 + next(30) as usize);
                remote.lock().end(next(taken + 1) as usize, Ending::Done);
                endpoint.progress().unwrap();
            }
            _ if !sessions.is_empty() => {
                let session = &sessions[next(sessions.len() as u64) as usize];
                let extents = vec![Extent::new(0, 0, 8); 1 + next(9) as usize];
                match session.batch(Verb::Write, &extents) {
                    Ok(ticket) => {
                        posted += 1;
                        tickets.push(ticket);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), TransferErrorKind::Busy);
                        busy += 1;
                    }
                }
            }
            _ => {}
        }
    }
    assert!(
        posted > 1000 && busy > 10,
        "{posted} posted, {busy} refused"
    );
    drop((sessions, memories));
    remote.lock().room = None;
    remote.lock().ends = Some(ends_at_once());
    endpoint.wait_all(SOON * 100).unwrap();
    drop(tickets);
    let accounts = remote.lock();
    assert_eq!(accounts.wrong, Vec::<String>::new());
    assert_eq!(accounts.left(), (0, 0));
    drop(accounts);
    assert_eq!((endpoint.free_slots(), endpoint.in_flight()), (64, 0));
    assert!(endpoint.into_parts().is_ok());
}

#[test]
fn sessions_that_share_a_lane_release_it_once() {
    let opened = opened(8);
    let far = mock::memory_of(PEERS[0]);
    let other = opened.endpoint.session(&opened.memory, &far).unwrap();
    assert_eq!(opened.remote.lock().lanes.len(), 3);
    drop(opened.session);
    assert_eq!(opened.remote.lock().lanes.len(), 3);
    drop(other.write(0, 0, 8).unwrap());
    opened.remote.lock().end(1, Ending::Done);
    opened.endpoint.progress().unwrap();
    drop(other);
    assert_eq!(opened.remote.lock().lanes.len(), 0);
    assert_eq!(opened.remote.lock().wrong, Vec::<String>::new());
}

#[test]
fn a_dead_engine_fails_everything_by_name() {
    let opened = opened(8);
    let write = opened.session.write(0, 0, 8).unwrap();
    let batch = opened.batch(Verb::Read, 2);
    opened.remote.lock().dead = true;
    let error = write.poll().unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::EndpointFailed);
    let text = "mock: write with peer 5 on card0: the device is gone";
    assert_eq!(error.to_string(), text);
    let error = batch.wait(SOON).unwrap_err();
    assert_eq!(error.operation(), Some("batch of reads"));
    assert!(!opened.session.is_alive());
    let late = opened.session.write(0, 0, 8).unwrap_err();
    assert_eq!(late.kind(), TransferErrorKind::EndpointFailed);
    assert_eq!(late.operation(), Some("write"));
    assert!(opened.session_with(PEERS[0]).is_err());
    assert!(opened.endpoint.progress().is_err());
}

#[test]
fn a_lost_peer_fails_only_its_own_operations() {
    let opened = opened(8);
    let other = opened.session_with(PEERS[1]).unwrap();
    opened.remote.lock().room = Some(3);
    let lost = opened.session.write(0, 0, 8).unwrap();
    let batch = opened.batch(Verb::Write, 4);
    drop(opened.session.write_imm(0, 0, 8, 1));
    opened.endpoint.cell().borrow().lose_peer(PEERS[0]);
    let error = lost.poll().unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::PeerLost);
    assert_eq!((error.operation(), error.peer()), (Some("write"), Some(5)));
    assert!(error.to_string().contains("has ended"), "{error}");
    assert_eq!(batch.status(), TransferStatus::Failed);
    assert_eq!((opened.session.is_alive(), other.is_alive()), (false, true));
    assert_eq!(
        opened.session.write(0, 0, 8).unwrap_err().kind(),
        TransferErrorKind::PeerLost
    );
    opened.session.wait_all(SOON).unwrap();
    // The engine still has some operations. These keep their slots and lanes until the engine ends them.
    drop((lost, batch, opened.session));
    assert_eq!(
        (
            opened.endpoint.free_slots(),
            opened.remote.lock().lanes.len()
        ),
        (6, 6)
    );
    opened.remote.lock().end(3, Ending::Failed(1));
    opened.endpoint.progress().unwrap();
    assert_eq!(
        (
            opened.endpoint.free_slots(),
            opened.remote.lock().lanes.len()
        ),
        (8, 3)
    );
    let alive = other.write(0, 0, 8).unwrap();
    opened.remote.lock().end(1, Ending::Done);
    alive.wait(SOON).unwrap();
    opened.endpoint.cell().borrow().lose_peer(PEERS[1]);
    let error = opened.endpoint.wait_arrival(SOON * 1000).unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::PeerLost);
    assert_eq!(opened.remote.lock().wrong, Vec::<String>::new());
}

#[test]
fn a_double_completion_is_detected() {
    let opened = opened(4);
    let ticket = opened.session.write(0, 0, 8).unwrap();
    let op = opened.remote.lock().in_flight[0];
    opened.remote.lock().in_flight.push_back(op);
    opened.remote.lock().end(2, Ending::Done);
    let error = ticket
        .poll()
        .err()
        .or_else(|| opened.endpoint.progress().err());
    let error = error.unwrap();
    assert_eq!(error.kind(), TransferErrorKind::EndpointFailed);
    assert!(error.to_string().contains("twice"), "{error}");
}

#[test]
fn a_post_that_fails_is_an_error_and_keeps_nothing() {
    let opened = opened(4);
    opened.remote.lock().post_fails = true;
    let error = opened.session.write(0, 0, 8).unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::OperationFailed);
    assert_eq!(room_and_in_flight(&opened.endpoint), (4, 0));
    assert!(!opened.session.is_alive());
    // The failed post does not affect other operations of the session.
    let next = opened.session.write(0, 0, 8).unwrap();
    opened.remote.lock().end(1, Ending::Done);
    next.wait(SOON).unwrap();
    drop(next);
    // A batch fails too, but keeps its slot until the engine has ended the parts that it took.
    opened.remote.lock().post_fails = true;
    let batch = opened.batch(Verb::Write, 2);
    assert_eq!(
        batch.poll().unwrap_err().operation(),
        Some("batch of writes")
    );
    drop(batch);
    opened.session.wait_all(SOON).unwrap();
    opened.remote.lock().room = Some(1);
    let extents = [Extent::new(0, 0, 8); 3];
    let batch = opened.session.batch(Verb::Write, &extents).unwrap();
    opened.remote.lock().post_fails = true;
    assert!(!batch.poll().unwrap());
    opened.remote.lock().end(1, Ending::Done);
    assert!(batch.wait(SOON).is_err());
    opened.session.wait_all(SOON).unwrap();
    drop((batch, opened.session, opened.memory));
    assert_eq!(opened.endpoint.free_slots(), 4);
    assert_eq!(opened.remote.lock().left(), (0, 0));
}

#[test]
fn the_engine_is_returned_when_nothing_else_is_left() {
    let opened = opened(4);
    let endpoint = opened.endpoint.into_parts().err().unwrap();
    drop((opened.session, opened.memory));
    assert!(endpoint.into_parts().is_ok());
    let accounts = opened.remote.lock();
    assert_eq!(accounts.left(), (0, 0));
}

#[test]
fn memory_that_the_cpu_cannot_address_is_refused_with_the_reason() {
    let opened = opened(4);
    let file = File::open("/dev/null").unwrap().into();
    let memory = DmabufMemory::new(file, (4096, BYTES), "cuda", 1, 0x7000);
    let device = tonnage_engine::memory::Memory::device(&memory).unwrap();
    assert_eq!((device.device, device.dmabuf.unwrap().offset), (1, 4096));
    let error = opened
        .endpoint
        .register(std::sync::Arc::new(memory))
        .unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::Unavailable);
    assert_eq!(error.operation(), Some("register"));
    assert!(error.to_string().contains("cannot address"), "{error}");
    assert!(matches!(
        tonnage_units::Error::from(error),
        tonnage_units::Error::Unavailable { .. }
    ));
}
