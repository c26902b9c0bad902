//! Operations as futures, which are posted when polled, woken by completions, and may be dropped at any time.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tonnage_engine::testing::ends_at_once;
use tonnage_engine::{Ending, Verb};

use super::{opened, room_and_in_flight};
use crate::error::TransferErrorKind;
use crate::executor::Executor;
use crate::extent::Extent;
use crate::future::AsyncSession;
use crate::mock::SOON;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_future_posts_when_it_is_polled_and_is_woken_by_its_completion() {
    #[derive(Default)]
    struct CountingWaker(AtomicUsize);
    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let opened = opened(4);
    let session = AsyncSession::new(opened.session);
    let count = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    drop(session.write(0, 0, 8));
    assert_eq!(opened.remote.lock().posts, 0);
    let mut future = pin!(session.write(0, 0, 8));
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert_eq!(opened.remote.lock().posts, 1);
    opened.endpoint.progress().unwrap();
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    opened.remote.lock().end(1, Ending::Done);
    opened.endpoint.progress().unwrap();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(matches!(
        future.as_mut().poll(&mut context),
        Poll::Ready(Ok(()))
    ));
}

#[test]
fn tasks_share_an_endpoint_and_wait_for_room() {
    let opened = opened(3);
    opened.remote.lock().ends = Some(ends_at_once());
    let session = AsyncSession::new(opened.session);
    let done = Cell::new(0);
    let mut executor = Executor::new(&opened.endpoint);
    for task in 0..100 {
        let (session, done) = (&session, &done);
        executor.spawn(async move {
            for _ in 0..50 {
                session.write(task, task, 8).await.unwrap();
                session
                    .batch(Verb::Read, &[Extent::new(0, 0, 8); 3])
                    .await
                    .unwrap();
                session.flush(Verb::Write).await.unwrap();
            }
            done.set(done.get() + 1);
        });
    }
    executor.run(LONG).unwrap();
    assert_eq!(done.get(), 100);
    let sum = executor.block_on(async { session.read(0, 0, 8).await.map(|()| 7) }, LONG);
    assert_eq!(sum.unwrap().unwrap(), 7);
    assert_eq!(room_and_in_flight(&opened.endpoint), (3, 0));
}

#[test]
fn a_task_that_is_never_woken_runs_into_the_deadline() {
    let opened = opened(3);
    let session = AsyncSession::new(opened.session);
    let mut executor = Executor::new(&opened.endpoint);
    let late = executor.block_on(session.write(0, 0, 8), SOON).unwrap_err();
    assert_eq!(late.kind(), TransferErrorKind::Deadline);
    // The future was dropped, but its operation is still in flight.
    assert_eq!(room_and_in_flight(&opened.endpoint), (2, 1));
    opened.remote.lock().end(1, Ending::Done);
    opened.endpoint.progress().unwrap();
    assert_eq!(room_and_in_flight(&opened.endpoint), (3, 0));
    executor.spawn(std::future::pending());
    assert_eq!(
        executor.run(SOON).unwrap_err().kind(),
        TransferErrorKind::Deadline
    );
}

#[test]
fn a_task_gets_the_failure_of_its_operation() {
    let opened = opened(3);
    let session = AsyncSession::new(opened.session);
    let mut executor = Executor::new(&opened.endpoint);
    opened.remote.lock().dead = true;
    let error = executor.block_on(session.write(0, 0, 8), LONG);
    let error = error.unwrap().unwrap_err();
    assert_eq!((error.operation(), error.peer()), (Some("write"), Some(5)));
    assert_eq!(error.kind(), TransferErrorKind::OperationFailed);
    opened.remote.lock().dead = false;
    let remote = opened.remote.clone();
    executor.spawn(async move { remote.lock().dead = true });
    let error = executor.block_on(session.read(0, 0, 8), LONG);
    let error = error.unwrap().unwrap_err();
    assert_eq!((error.operation(), error.peer()), (Some("read"), Some(5)));
    assert_eq!(error.kind(), TransferErrorKind::EndpointFailed);
}

/// Drops futures at random times: before they are polled, while their operations are in flight, and afterwards.
#[test]
fn futures_that_are_dropped_leak_nothing() {
    let opened = opened(16);
    let session = AsyncSession::new(opened.session);
    let waker = Waker::noop();
    let mut context = Context::from_waker(waker);
    let mut random = 3u64;
    let mut kept = Vec::new();
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let choice = random >> 60;
        let mut future = Box::pin(session.write(0, 0, 8));
        if choice & 1 == 1 {
            let _ = future.as_mut().poll(&mut context);
        }
        if choice & 2 == 2 {
            kept.push(future);
        }
        if choice & 4 == 4 && !kept.is_empty() {
            drop(kept.swap_remove(random as usize % kept.len()));
        }
        if choice & 8 == 8 {
            let taken = opened.remote.lock().in_flight.len();
            opened.remote.lock().end(taken / 2, Ending::Done);
            opened.endpoint.progress().unwrap();
        }
    }
    drop(kept);
    drop(session);
    opened.remote.lock().ends = Some(ends_at_once());
    opened.endpoint.wait_all(LONG).unwrap();
    assert_eq!(room_and_in_flight(&opened.endpoint), (16, 0));
    drop(opened.memory);
    let accounts = opened.remote.lock();
    assert_eq!(accounts.left(), (0, 0));
    assert_eq!(accounts.wrong, Vec::<String>::new());
}

/// Wakers may use the endpoint when they are woken and when they are dropped, so it must not be borrowed then.
#[test]
fn wakers_may_use_the_endpoint() {
    thread_local! {
        static INSIDE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
    }
    struct Meddler(Arc<AtomicUsize>);
    impl Meddler {
        fn meddle(&self) {
            INSIDE.with_borrow(|inside| inside.iter().for_each(|inside| inside()));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    impl Wake for Meddler {
        fn wake(self: Arc<Self>) {
            self.meddle();
        }
    }
    impl Drop for Meddler {
        fn drop(&mut self) {
            self.meddle();
        }
    }
    let opened = opened(4);
    let session = Rc::new(AsyncSession::new(opened.session));
    let meddled = Arc::new(AtomicUsize::new(0));
    let (inner, endpoint) = (Rc::clone(&session), opened.endpoint.clone());
    INSIDE.set(Some(Box::new(move || {
        drop(inner.session().write(0, 0, 8));
        endpoint.progress().unwrap();
    })));
    opened.remote.lock().ends = Some(ends_at_once());
    for polled in [true, false] {
        let waker = Waker::from(Arc::new(Meddler(Arc::clone(&meddled))));
        let mut future = Box::pin(session.write(0, 0, 8));
        assert!(
            future
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        // The slot holds the last clone of the waker.
        drop(waker);
        if polled {
            opened.endpoint.progress().unwrap();
        }
        drop(future);
    }
    assert!(meddled.load(Ordering::Relaxed) >= 2);
    INSIDE.set(None);
    opened.endpoint.wait_all(LONG).unwrap();
    assert_eq!(room_and_in_flight(&opened.endpoint), (4, 0));
}

#[test]
fn a_task_is_woken_by_its_own_thread_and_by_others() {
    let opened = opened(1);
    let mut executor = Executor::new(&opened.endpoint);
    let woken_by_itself = Cell::new(false);
    executor.spawn(async {
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls < 3 {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        woken_by_itself.set(true);
    });
    let (to_thread, wakers) = std::sync::mpsc::channel::<Waker>();
    let is_set = Arc::new(AtomicUsize::new(0));
    let set = Arc::clone(&is_set);
    let thread = std::thread::spawn(move || {
        for waker in wakers {
            set.store(1, Ordering::Release);
            waker.wake();
        }
    });
    executor.spawn(async move {
        let mut sent = false;
        poll_fn(move |context| {
            if is_set.load(Ordering::Acquire) == 1 {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut sent, true) {
                to_thread.send(context.waker().clone()).unwrap();
            }
            Poll::Pending
        })
        .await;
    });
    executor.run(LONG).unwrap();
    assert!(woken_by_itself.get());
    drop(executor);
    thread.join().unwrap();
}
