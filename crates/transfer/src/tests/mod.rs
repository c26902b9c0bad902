//! Endpoints over a mock engine: bookkeeping of operations, sessions and memory, which may end in any order.

mod by_name;
mod ends;
mod futures;
mod meeting;
mod queued;
mod sleeping;

use tonnage_engine::testing::{TestEngine, arrival, ends_at_once};
use tonnage_engine::{Ending, Peer, Verb};

use crate::error::{TransferErrorKind, TransferResult};
use crate::extent::Extent;
use crate::flights::TransferStatus;
use crate::memory::LocalMemory;
use crate::mock::{self, BYTES, PEERS, SOON};
use crate::session::Session;
use crate::ticket::Ticket;
use crate::{SessionOptions, TransferEndpoint};

/// An endpoint with a memory, and with a session with its first peer.
struct Opened {
    session: Session,
    memory: LocalMemory,
    endpoint: TransferEndpoint,
    remote: TestEngine,
}

fn opened(operations_max: u32) -> Opened {
    let (endpoint, remote) = mock::endpoint(operations_max);
    let memory = endpoint.allocate("small", BYTES).unwrap();
    let session = endpoint
        .session(&memory, &mock::memory_of(PEERS[0]))
        .unwrap();
    Opened {
        session,
        memory,
        endpoint,
        remote,
    }
}

impl Opened {
    /// Posts a batch of `count` operations of 8 bytes.
    fn batch(&self, verb: Verb, count: usize) -> Ticket {
        let extents = vec![Extent::new(0, 0, 8); count];
        self.session.batch(verb, &extents).unwrap()
    }

    fn session_with(&self, peer: Peer) -> TransferResult<Session> {
        let far = mock::memory_of(peer);
        self.endpoint.session(&self.memory, &far)
    }
}

fn room_and_in_flight(endpoint: &TransferEndpoint) -> (usize, usize) {
    (endpoint.free_slots(), endpoint.in_flight())
}

#[test]
fn a_ticket_follows_its_operation() {
    let opened = opened(4);
    let ticket = opened.session.write(0, 8, 16).unwrap();
    let op = opened.remote.lock().in_flight[0];
    assert_eq!((op.local, op.remote, op.len), (0, 8, 16));
    assert!(!ticket.poll().unwrap());
    assert_eq!(ticket.status(), TransferStatus::InFlight);
    opened.remote.lock().end(1, Ending::Done);
    assert!(ticket.poll().unwrap() && ticket.poll().unwrap());
    ticket.wait(SOON).unwrap();
    assert_eq!(ticket.status(), TransferStatus::Done);
    // Reporting success has released the ticket's slot.
    assert_eq!(opened.endpoint.free_slots(), 4);
    drop(ticket);
    assert_eq!(room_and_in_flight(&opened.endpoint), (4, 0));
}

#[test]
fn a_deadline_names_the_operation_and_leaves_it() {
    let opened = opened(4);
    let ticket = opened.session.read(0, 0, 8).unwrap();
    let late = ticket.wait(SOON).unwrap_err();
    assert_eq!(late.kind(), TransferErrorKind::Deadline);
    assert_eq!((late.operation(), late.peer()), (Some("read"), Some(5)));
    assert_eq!(late.device(), Some("card0"));
    let late = opened.endpoint.wait_all(SOON).unwrap_err();
    assert_eq!(late.kind(), TransferErrorKind::Deadline);
    assert!(opened.session.wait_all(SOON).is_err());
    opened.remote.lock().end(1, Ending::Done);
    ticket.wait(SOON).unwrap();
    opened.endpoint.wait_all(SOON).unwrap();
    opened.session.wait_all(SOON).unwrap();
    let late = opened.endpoint.wait_arrival(SOON).unwrap_err();
    assert_eq!(late.operation(), Some("waiting for an arrival"));
}

#[test]
fn a_failed_operation_repeats_the_engines_error_at_each_call() {
    let opened = opened(4);
    let ticket = opened.session.write_imm(0, 0, 8, 1).unwrap();
    assert!(opened.session.is_alive());
    opened.remote.lock().end(1, Ending::Failed(12));
    for _ in 0..2 {
        let error = ticket.poll().unwrap_err();
        assert_eq!(error.kind(), TransferErrorKind::OperationFailed);
        let text = "mock: write-imm with peer 5 on card0: RETRY_EXC (12)";
        assert_eq!(error.to_string(), text);
    }
    assert!(!opened.session.is_alive());
    drop(ticket);
    // The ticket has reported the failure, so `wait_all` does not.
    opened.endpoint.wait_all(SOON).unwrap();
}

#[test]
fn an_unclaimed_failure_is_returned_by_wait_all_once() {
    let opened = opened(4);
    drop(opened.session.write(0, 0, 8).unwrap());
    opened.remote.lock().end(1, Ending::Failed(7));
    let error = opened.endpoint.wait_all(SOON).unwrap_err();
    assert_eq!((error.operation(), error.peer()), (Some("write"), Some(5)));
    opened.endpoint.wait_all(SOON).unwrap();
}

#[test]
fn wait_all_reports_its_deadline_before_a_failure() {
    let opened = opened(4);
    drop(opened.session.write(0, 0, 8).unwrap());
    let goes_on = opened.session.read(0, 0, 8).unwrap();
    opened.remote.lock().end(1, Ending::Failed(7));
    let late = opened.endpoint.wait_all(SOON).unwrap_err();
    assert_eq!(late.kind(), TransferErrorKind::Deadline);
    opened.remote.lock().end(1, Ending::Done);
    let failed = opened.endpoint.wait_all(SOON).unwrap_err();
    assert_eq!(failed.operation(), Some("write"));
    goes_on.wait(SOON).unwrap();
}

#[test]
fn offsets_outside_are_refused_and_nothing_is_posted() {
    let opened = opened(4);
    for (local, remote, len) in [
        (BYTES, 0, 1),
        (0, BYTES, 1),
        (0, BYTES - 4, 8),
        (u64::MAX, 0, 8),
        (0, u64::MAX - 3, 8),
    ] {
        let session = &opened.session;
        let one = session.write(local, remote, len).unwrap_err();
        let extents = [Extent::new(0, 0, 1), Extent::new(local, remote, len)];
        let many = session.batch(Verb::Read, &extents).unwrap_err();
        for (error, operation) in [(one, "write"), (many, "read")] {
            assert_eq!(error.kind(), TransferErrorKind::OutOfRange);
            assert_eq!(
                (error.operation(), error.peer()),
                (Some(operation), Some(5))
            );
            assert!(error.to_string().contains(" of 4096 "), "{error}");
        }
    }
    let send = opened
        .session
        .post(Verb::Send, &Extent::new(0, 0, 1))
        .unwrap_err();
    assert_eq!(send.kind(), TransferErrorKind::Usage);
    let empty = opened.session.batch(Verb::Write, &[]).unwrap_err();
    assert_eq!(empty.kind(), TransferErrorKind::Usage);
    assert_eq!(opened.remote.lock().posts, 0);
    // Operations may reach the end of a memory.
    let edge = opened.session.write(BYTES, BYTES, 0);
    assert!(edge.is_ok());
}

#[test]
fn without_room_nothing_is_posted_and_polling_makes_room() {
    let opened = opened(2);
    let first = opened.session.write(0, 0, 8).unwrap();
    let second = opened.session.write(0, 0, 8).unwrap();
    let busy = opened.session.write(0, 0, 8).unwrap_err();
    assert_eq!(busy.kind(), TransferErrorKind::Busy);
    assert_eq!((busy.operation(), busy.peer()), (Some("write"), Some(5)));
    assert_eq!(opened.remote.lock().in_flight.len(), 2);
    opened.remote.lock().end(1, Ending::Done);
    assert!(first.poll().unwrap());
    drop(first);
    opened.remote.lock().room = Some(1);
    assert!(
        opened.session.write(0, 0, 8).is_err(),
        "the engine has no room"
    );
    assert!(opened.session.flush(Verb::Write).is_err());
    opened.remote.lock().room = Some(2);
    drop(opened.session.flush(Verb::Write).unwrap());
    opened.remote.lock().end(2, Ending::Done);
    second.wait(SOON).unwrap();
    drop(second);
    assert_eq!(opened.endpoint.free_slots(), 2);
}

#[test]
fn a_batch_is_one_ticket_whatever_the_engine_takes_at_once() {
    let opened = opened(4);
    opened.remote.lock().room = Some(3);
    let extents: Vec<Extent> = (0..10).map(|at| Extent::new(at * 8, at * 16, 8)).collect();
    let ticket = opened.session.batch(Verb::Write, &extents).unwrap();
    assert_eq!(opened.endpoint.free_slots(), 3);
    let mut seen = Vec::new();
    while !ticket.poll().unwrap() {
        let taken = opened.remote.lock().in_flight.len();
        assert!(taken > 0 && taken <= 3);
        seen.extend(opened.remote.lock().in_flight.iter().map(|op| op.remote));
        opened.remote.lock().end(taken, Ending::Done);
    }
    assert!(seen.into_iter().eq((0..10).map(|at| at * 16)));
    drop(ticket);
    assert_eq!(opened.endpoint.free_slots(), 4);
}

#[test]
fn a_batch_ends_although_the_caller_refills_every_slot() {
    let opened = opened(8);
    opened.remote.lock().room = Some(2);
    opened.remote.lock().ends = Some(ends_at_once());
    let mut singles: Vec<_> = (0..2).map(|_| opened.session.write(0, 0, 8)).collect();
    let batch = opened.batch(Verb::Read, 6);
    let mut turns = 0;
    while batch.status() == TransferStatus::InFlight {
        opened.endpoint.progress().unwrap();
        singles.retain(|single| {
            let ended = single.as_ref().map(|single| single.status());
            ended.is_ok_and(|status| status == TransferStatus::InFlight)
        });
        while let Ok(single) = opened.session.write(0, 0, 8) {
            singles.push(Ok(single));
        }
        turns += 1;
        assert!(turns < 100, "the batch starves");
    }
}

#[test]
fn a_failed_part_fails_its_batch_once_all_parts_have_ended() {
    let opened = opened(4);
    let ticket = opened.batch(Verb::Read, 3);
    opened.remote.lock().end(1, Ending::Failed(3));
    assert!(!ticket.poll().unwrap());
    opened.remote.lock().end(2, Ending::Done);
    let error = ticket.wait(SOON).unwrap_err();
    assert_eq!(error.operation(), Some("batch of reads"));
    assert_eq!(error.failure().map(|failure| failure.code), Some(3));
}

#[test]
fn arrivals_wait_in_order_and_are_never_lost() {
    let opened = opened(4);
    (0..6).for_each(|imm| {
        opened
            .remote
            .lock()
            .done
            .push_back(arrival(PEERS[0], imm, 0))
    });
    let ticket = opened.session.write(0, 0, 8).unwrap();
    assert!(!ticket.poll().unwrap());
    let full = ticket.poll().unwrap_err();
    assert_eq!(full.kind(), TransferErrorKind::ArrivalsFull);
    assert!(full.to_string().contains("4 arrivals"), "{full}");
    let arrived = opened.endpoint.arrivals().unwrap();
    assert!(
        arrived
            .map(|arrived| (arrived.imm, arrived.peer))
            .eq((0..4).map(|imm| (imm, Some(5))))
    );
    let next = [(); 2].map(|()| opened.endpoint.arrival().unwrap().unwrap().imm);
    assert_eq!(next, [4, 5]);
    assert_eq!(opened.endpoint.arrival().unwrap(), None);
    opened.remote.lock().end(1, Ending::Done);
    assert!(ticket.poll().unwrap());
}

#[test]
fn guarantees_that_the_engine_lacks_are_refused() {
    let opened = opened(4);
    let with = |delivered, ordered| {
        let options = SessionOptions { delivered, ordered };
        let far = mock::memory_of(PEERS[0]);
        opened
            .endpoint
            .session_with(&opened.memory, &far, options)
            .unwrap_err()
    };
    for error in [with(true, false), with(false, true)] {
        assert_eq!(error.kind(), TransferErrorKind::Unavailable);
    }
    let stranger = opened.session_with(77).unwrap_err();
    assert_eq!(
        (stranger.kind(), stranger.peer()),
        (TransferErrorKind::Usage, Some(77))
    );
    let (other, _remote) = mock::endpoint(1);
    let elsewhere = other
        .session(&opened.memory, &mock::memory_of(PEERS[0]))
        .unwrap_err();
    assert!(
        elsewhere.to_string().contains("another endpoint"),
        "{elsewhere}"
    );
}

#[test]
fn addresses_of_other_endpoints_are_refused() {
    let (endpoint, _remote) = mock::endpoint(1);
    let refused = |change: fn(&mut crate::PeerAddress)| {
        let mut address = mock::address_from(9);
        change(&mut address);
        endpoint.connect(&[address], SOON).unwrap_err().to_string()
    };
    assert!(refused(|address| address.to = 3).contains("is for endpoint 3"));
    assert!(refused(|address| address.engine = "shm".into()).contains("uses engine shm"));
    assert!(refused(|address| address.from = PEERS[0]).contains("already"));
    assert!(refused(|address| address.from = mock::ME).contains("this is endpoint 0"));
}
