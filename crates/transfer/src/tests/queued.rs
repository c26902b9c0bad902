//! Taking the ends of several queued tickets at a time, and endpoints over engines that were used before.

use std::sync::Arc;

use tonnage_engine::{Descriptor, Ending, Region, RegionId, Verb};

use super::opened;
use crate::address::RemoteMemory;
use crate::error::TransferErrorKind;
use crate::executor::Executor;
use crate::extent::{Extent, QueuedExtent, TicketEnd};
use crate::future::AsyncSession;
use crate::mock::{self, BYTES, PEERS, SOON};
use crate::{EndpointConfig, LaneSource, SessionOptions, TransferEndpoint};

fn tokens(endpoint: &TransferEndpoint, most: usize) -> Vec<u64> {
    let mut ended = vec![TicketEnd::NONE; most];
    let count = endpoint.poll_ended(&mut ended).unwrap();
    ended[..count].iter().map(|end| end.token).collect()
}

#[test]
fn ends_are_taken_in_order_and_free_their_slots() {
    let opened = opened(8);
    let session = &opened.session;
    for token in 10..14 {
        let ticket = session.write(0, 0, 8).unwrap();
        opened.endpoint.queue(ticket, token).unwrap();
    }
    opened
        .endpoint
        .queue(opened.batch(Verb::Read, 3), 20)
        .unwrap();
    assert!(tokens(&opened.endpoint, 4).is_empty());
    // The engine first ends 12, 13 and two of the three operations of the batch.
    opened.remote.lock().in_flight.rotate_left(2);
    opened.remote.lock().end(4, Ending::Done);
    assert_eq!(tokens(&opened.endpoint, 1), [12]);
    opened.remote.lock().end(3, Ending::Done);
    // Ends that were found by an earlier poll are taken without polling.
    assert_eq!(tokens(&opened.endpoint, 8), [13]);
    assert_eq!(opened.endpoint.free_slots(), 5);
    assert_eq!(tokens(&opened.endpoint, 8), [20, 10, 11]);
    assert_eq!(opened.endpoint.free_slots(), 8);
}

#[test]
fn failures_are_reported_once_by_the_queue() {
    let opened = opened(4);
    let ticket = opened.session.write(0, 0, 8).unwrap();
    opened.endpoint.queue(ticket, 5).unwrap();
    opened.remote.lock().end(1, Ending::Failed(7));
    let mut ended = vec![TicketEnd::NONE; 2];
    assert_eq!(opened.endpoint.poll_ended(&mut ended).unwrap(), 1);
    let error = ended[0].error.take().unwrap();
    assert_eq!(error.failure().map(|failure| failure.code), Some(7));
    assert_eq!(opened.endpoint.free_slots(), 4);
    opened.endpoint.wait_all(SOON).unwrap();
    // When the engine dies, ends of operations in flight are returned before the engine's error.
    let ticket = opened.session.write(0, 0, 8).unwrap();
    opened.endpoint.queue(ticket, 6).unwrap();
    opened.remote.lock().dead = true;
    assert_eq!(opened.endpoint.poll_ended(&mut ended).unwrap(), 1);
    assert_eq!((ended[0].token, ended[0].error.is_some()), (6, true));
    let error = opened.endpoint.poll_ended(&mut ended).unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::EndpointFailed);
}

#[test]
fn a_ticket_is_queued_at_its_endpoint_before_its_end_was_reported() {
    let (opened, other) = (opened(4), opened(4));
    let ticket = opened.session.write(0, 0, 8).unwrap();
    let ticket = other.endpoint.queue(ticket, 1).unwrap_err();
    opened.remote.lock().end(1, Ending::Done);
    opened.endpoint.progress().unwrap();
    opened.endpoint.queue(ticket, 2).unwrap();
    assert_eq!(tokens(&opened.endpoint, 4), [2]);
    let ticket = opened.session.write(0, 0, 8).unwrap();
    opened.remote.lock().end(1, Ending::Done);
    assert!(ticket.poll().unwrap());
    assert!(opened.endpoint.queue(ticket, 3).is_err());
}

#[test]
fn an_engine_is_not_returned_with_operations_in_flight() {
    let opened = opened(4);
    drop(opened.session.write(0, 0, 8).unwrap());
    drop((opened.session, opened.memory));
    let endpoint = opened.endpoint.into_parts().err().unwrap();
    opened.remote.lock().end(1, Ending::Done);
    endpoint.progress().unwrap();
    let parts = endpoint.into_parts().ok().unwrap();
    assert_eq!(
        (&*parts.name, parts.device.as_deref()),
        ("mock", Some("card0"))
    );
}

#[test]
fn adopted_peers_and_memory_are_used_and_left_to_the_engine() {
    let opened = opened(4);
    let memory = Arc::clone(opened.memory.memory());
    drop((opened.session, opened.memory));
    let parts = opened.endpoint.into_parts().ok().unwrap();
    opened.remote.lock().regions.insert(77);
    let endpoint = TransferEndpoint::from_parts(parts, &EndpointConfig::new(0));
    let region = Region {
        id: RegionId(77),
        descriptor: Descriptor::default(),
    };
    let local = endpoint.adopt_memory(memory, region);
    let remote = RemoteMemory::new(PEERS[1], 3, BYTES, Descriptor(vec![9]));
    let refused = endpoint.session(&local, &remote).unwrap_err();
    assert_eq!(refused.kind(), TransferErrorKind::Usage);
    endpoint.adopt_peers([PEERS[1]]);
    let session = endpoint.session(&local, &remote).unwrap();
    let ticket = session.write(0, 0, 8).unwrap();
    opened.remote.lock().end(1, Ending::Done);
    assert!(ticket.poll().unwrap());
    drop((session, local, ticket));
    // The lanes were released, but the adopted memory stays registered.
    assert_eq!(opened.remote.lock().left(), (0, 1));
    assert!(endpoint.into_parts().is_ok());
}

#[test]
fn named_operations_have_guarantees_and_can_be_flushed() {
    let opened = opened(4);
    let far = mock::memory_of(PEERS[0]);
    let promised = SessionOptions {
        delivered: true,
        ..SessionOptions::default()
    };
    let one = [Extent::new(0, 0, 8)];
    let names = (
        opened.memory.id(),
        opened.endpoint.add_remote_with(&far, promised),
    );
    let refused = opened
        .endpoint
        .transfer(LaneSource::Fresh, Verb::Write, names, &one)
        .unwrap_err();
    assert_eq!(refused.kind(), TransferErrorKind::Unavailable);
    let names = (names.0, opened.endpoint.add_remote(&far));
    let flush = opened.endpoint.flush_between(Verb::Write, names).unwrap();
    assert_eq!(opened.remote.lock().flushes, 1);
    opened.remote.lock().end(1, Ending::Done);
    flush.wait(SOON).unwrap();
}

#[test]
fn a_loop_drives_tasks_by_turns_and_their_entries_are_reused() {
    let opened = opened(4);
    let session = AsyncSession::new(opened.session);
    let mut executor = Executor::new(&opened.endpoint);
    for _ in 0..200 {
        executor.spawn(async {
            session.write(0, 0, 8).await.unwrap();
        });
        assert!(executor.poll_once().unwrap());
        assert_eq!(executor.tasks(), 1);
        assert!(!executor.poll_once().unwrap(), "nothing has ended");
        opened.remote.lock().end(1, Ending::Done);
        assert!(executor.poll_once().unwrap());
        assert_eq!(executor.tasks(), 0);
    }
    assert_eq!(executor.places(), 1);
}

#[test]
fn the_id_of_a_deregistered_memory_is_not_reused() {
    let opened = opened(4);
    let far = opened.endpoint.add_remote(&mock::memory_of(PEERS[0]));
    let gone = opened.endpoint.allocate("small", BYTES).unwrap();
    let (name, told) = (gone.id(), gone.remote().id());
    drop(gone);
    let next = opened.endpoint.allocate("small", BYTES).unwrap();
    assert!(next.id() != name && next.remote().id() != told);
    let one = [Extent::new(0, 0, 8)];
    for source in [LaneSource::LookUp, LaneSource::Fresh, LaneSource::Register] {
        let refused = opened
            .endpoint
            .transfer(source, Verb::Write, (name, far), &one)
            .unwrap_err();
        assert_eq!(refused.kind(), TransferErrorKind::Usage, "{source:?}");
    }
    assert_eq!(opened.remote.lock().posts, 0);
}

/// Tasks that wait for room are polled only when there may be room, and always then.
#[test]
fn tasks_that_wait_for_room_retry_when_there_may_be_room() {
    let opened = opened(4);
    opened.remote.lock().room = Some(1);
    let session = AsyncSession::new(opened.session);
    let mut executor = Executor::new(&opened.endpoint);
    for _ in 0..2 {
        executor.spawn(async {
            session.write(0, 0, 8).await.unwrap();
        });
    }
    for _ in 0..10 {
        executor.poll_once().unwrap();
    }
    assert_eq!(opened.remote.lock().posts, 2);
    opened.remote.lock().room = Some(2);
    for _ in 0..80 {
        executor.poll_once().unwrap();
    }
    assert_eq!(opened.remote.lock().in_flight.len(), 2);
    opened.remote.lock().end(2, Ending::Done);
    executor.poll_once().unwrap();
    assert_eq!(executor.tasks(), 0);
}

#[test]
fn an_immediate_that_is_too_wide_is_refused() {
    let opened = opened(4);
    let memory = Arc::clone(opened.memory.memory());
    drop((opened.session, opened.memory));
    let mut parts = opened.endpoint.into_parts().ok().unwrap();
    parts.caps.immediate_bits = 8;
    let endpoint = TransferEndpoint::from_parts(parts, &EndpointConfig::new(0));
    endpoint.adopt_peers([PEERS[0]]);
    let local = endpoint.register(memory).unwrap();
    let far = mock::memory_of(PEERS[0]);
    let session = endpoint.session(&local, &far).unwrap();
    assert!(session.write_imm(0, 0, 8, 255).is_ok());
    let refused = session.write_imm(0, 0, 8, 256).unwrap_err();
    assert_eq!(refused.kind(), TransferErrorKind::OutOfRange);
    assert!(refused.to_string().contains("8 bits"), "{refused}");
    let names = (local.id(), endpoint.add_remote(&far));
    let wide = [Extent::new(0, 0, 8).with_imm(256)];
    let by_name = |verb| endpoint.transfer(LaneSource::LookUp, verb, names, &wide);
    assert!(by_name(Verb::WriteImm).is_err());
    assert!(
        by_name(Verb::Write).is_ok(),
        "a plain write has no immediate"
    );
}

fn list(tokens: std::ops::Range<u64>) -> Vec<QueuedExtent> {
    let of = |token| QueuedExtent {
        extent: Extent::new(token * 8, token * 8, 8),
        token,
    };
    tokens.map(of).collect()
}

#[test]
fn a_list_is_one_call_and_posts_as_far_as_there_is_room() {
    let opened = opened(4);
    let post = |list: &[QueuedExtent]| opened.session.post_list_queued(Verb::Write, list);
    let posts = opened.remote.lock().posts;
    opened.remote.lock().room = Some(3);
    // In the first post, the engine limits the number; in the second, the endpoint.
    assert_eq!(post(&list(0..4)).unwrap(), 3);
    assert_eq!(opened.remote.lock().posts, posts + 1);
    assert_eq!(opened.endpoint.free_slots(), 1);
    opened.remote.lock().room = None;
    assert_eq!(post(&list(3..9)).unwrap(), 1);
    assert_eq!(post(&list(4..9)).unwrap(), 0);
    let in_flight = opened.remote.lock().in_flight.clone();
    let offsets = in_flight.iter().map(|op| (op.local, op.len));
    assert!(offsets.eq([(0, 8), (8, 8), (16, 8), (24, 8)]));
    opened.remote.lock().in_flight.rotate_left(1);
    opened.remote.lock().end(3, Ending::Done);
    assert_eq!(tokens(&opened.endpoint, 2), [1, 2]);
    assert_eq!(tokens(&opened.endpoint, 2), [3]);
    assert_eq!(opened.endpoint.free_slots(), 3);
    opened.remote.lock().end(1, Ending::Done);
    assert_eq!(tokens(&opened.endpoint, 2), [0]);
    assert_eq!(opened.endpoint.free_slots(), 4);
    opened.endpoint.wait_all(SOON).unwrap();
    assert_eq!(post(&[]).unwrap(), 0);
}

#[test]
fn a_list_ends_before_an_invalid_operation() {
    let opened = opened(8);
    let mut wrong = list(0..4);
    wrong[2].extent.len = u32::MAX;
    let post = |list: &[QueuedExtent]| opened.session.post_list_queued(Verb::Write, list);
    assert_eq!(post(&wrong).unwrap(), 2);
    let error = post(&wrong[2..]).unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::OutOfRange);
    // Operations that the engine refuses take no slots.
    opened.remote.lock().post_fails = true;
    let error = post(&list(5..7)).unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::OperationFailed);
    assert_eq!(opened.endpoint.free_slots(), 6);
    opened.remote.lock().end(2, Ending::Done);
    assert_eq!(tokens(&opened.endpoint, 8), [0, 1]);
    opened.endpoint.wait_all(SOON).unwrap();
}

/// Some ends are returned directly, and others, such as those of batches and failures, are queued first. The order of
/// ends must be kept.
#[test]
fn ends_keep_their_order_on_both_paths() {
    let opened = opened(8);
    let post = |tokens| {
        let posted = opened.session.post_list_queued(Verb::Write, &list(tokens));
        posted.unwrap()
    };
    assert_eq!(post(0..1), 1);
    let batch = opened.batch(Verb::Read, 2);
    opened.endpoint.queue(batch, 1).unwrap();
    assert_eq!(post(2..5), 3);
    opened.remote.lock().end(3, Ending::Done);
    opened.remote.lock().end(1, Ending::Failed(7));
    opened.remote.lock().end(2, Ending::Done);
    let mut told = Vec::new();
    // The mock engine returns four completions in one poll.
    for expected in [3, 2] {
        let mut ended = vec![TicketEnd::NONE; 8];
        let count = opened.endpoint.poll_ended(&mut ended).unwrap();
        assert_eq!(count, expected);
        let ended = ended[..count].iter();
        told.extend(ended.map(|end| (end.token, end.error.is_some())));
    }
    let expected = [(0, false), (1, false), (2, true), (3, false), (4, false)];
    assert_eq!(told, expected);
    assert_eq!(opened.endpoint.free_slots(), 8);
}

/// When the engine dies, operations that were posted as a list are reported as failed, like all others.
#[test]
fn a_list_fails_with_its_engine() {
    let opened = opened(4);
    let posted = opened.session.post_list_queued(Verb::Write, &list(0..3));
    assert_eq!(posted.unwrap(), 3);
    opened.remote.lock().dead = true;
    let mut ended = vec![TicketEnd::NONE; 4];
    assert_eq!(opened.endpoint.poll_ended(&mut ended).unwrap(), 3);
    assert!(ended[..3].iter().all(|end| end.error.is_some()));
    assert!(
        opened
            .session
            .post_list_queued(Verb::Write, &list(3..4))
            .is_err()
    );
}
