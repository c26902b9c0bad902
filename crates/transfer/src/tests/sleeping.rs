//! Preparing to sleep. Anything that the caller could take prevents sleeping, even if the engine does not know about
//! it.

use std::rc::Rc;

use tonnage_engine::testing::arrival;
use tonnage_engine::{Ending, Verb};

use super::{Opened, opened};
use crate::error::TransferErrorKind;
use crate::extent::Extent;
use crate::mock::{PEERS, SOON};
use crate::{Executor, Readiness};

fn sleeps(opened: &Opened) -> bool {
    matches!(opened.endpoint.arm().unwrap(), Readiness::Sleep(_))
}

#[test]
fn with_nothing_to_take_arm_returns_the_same_descriptor() {
    let opened = opened(4);
    let (Readiness::Sleep(first), Readiness::Sleep(second)) = (
        opened.endpoint.arm().unwrap(),
        opened.endpoint.arm().unwrap(),
    ) else {
        panic!("ready without a reason");
    };
    assert!(Rc::ptr_eq(&first, &second));
    let ticket = opened.session.write(0, 0, 8).unwrap();
    assert!(sleeps(&opened));
    opened.remote.lock().end(1, Ending::Done);
    assert!(!sleeps(&opened));
    assert!(ticket.poll().unwrap());
    assert!(sleeps(&opened));
}

#[test]
fn completions_that_were_not_taken_prevent_sleeping() {
    let opened = opened(4);
    let ticket = opened.session.write(0, 0, 8).unwrap();
    opened.endpoint.queue(ticket, 5).unwrap();
    opened.remote.lock().end(1, Ending::Done);
    opened.remote.lock().done.push_back(arrival(PEERS[0], 3, 0));
    opened.endpoint.progress().unwrap();
    assert!(!sleeps(&opened));
    let mut ended = vec![crate::TicketEnd::NONE; 2];
    assert_eq!(opened.endpoint.poll_ended(&mut ended).unwrap(), 1);
    assert!(!sleeps(&opened));
    assert_eq!(opened.endpoint.take_arrival().unwrap().imm, 3);
    assert!(sleeps(&opened));
}

#[test]
fn a_partly_posted_batch_prevents_sleeping() {
    let opened = opened(4);
    opened.remote.lock().room = Some(1);
    let batch = [Extent::new(0, 0, 8); 2];
    let batch = opened.session.batch(Verb::Write, &batch).unwrap();
    assert!(!sleeps(&opened));
    opened.remote.lock().end(1, Ending::Done);
    opened.endpoint.progress().unwrap();
    assert!(sleeps(&opened));
    opened.remote.lock().end(1, Ending::Done);
    batch.wait(SOON).unwrap();
}

#[test]
fn arm_reports_a_dead_engine_and_has_woken_a_woken_task() {
    let opened = opened(4);
    let mut executor = Executor::new(&opened.endpoint);
    let session = crate::AsyncSession::new(opened.session_with(PEERS[1]).unwrap());
    executor.spawn(async move { session.write(0, 0, 8).await.unwrap() });
    assert!(executor.has_woken());
    executor.poll_once().unwrap();
    assert!(!executor.has_woken());
    opened.remote.lock().end(1, Ending::Done);
    opened.endpoint.progress().unwrap();
    assert!(executor.has_woken());
    executor.run(SOON).unwrap();
    opened.remote.lock().dead = true;
    let error = opened.endpoint.arm().unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::EndpointFailed);
}
