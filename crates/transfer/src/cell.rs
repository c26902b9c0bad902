//! An endpoint as its handles share it: on one thread, without locks.
//!
//! Wakers run code of other crates, which may use the endpoint. So tasks are woken, and wakers dropped, only while the
//! state is not borrowed. A caller's memory owner may be dropped while it is borrowed, and must not use the endpoint
//! then.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::error::{ErrorSubject, TransferError, TransferResult};
use crate::state::EndpointState;

/// Polls between two clock reads while nothing happens.
const CLOCK_POLLS: u32 = 64;

/// A shared endpoint.
#[derive(Clone)]
pub(crate) struct SharedEndpoint(Rc<RefCell<EndpointState>>);

impl SharedEndpoint {
    pub(crate) fn new(state: EndpointState) -> Self {
        Self(Rc::new(RefCell::new(state)))
    }

    #[inline]
    pub(crate) fn borrow(&self) -> RefMut<'_, EndpointState> {
        self.0.borrow_mut()
    }

    /// Returns whether both are handles of the same endpoint.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the state if this is the only handle.
    pub(crate) fn into_state(self) -> Result<EndpointState, Self> {
        let unwrapped = Rc::try_unwrap(self.0);
        unwrapped.map(RefCell::into_inner).map_err(Self)
    }

    /// Takes completions from the engine, and wakes the tasks that waited for them.
    #[inline]
    pub(crate) fn progress(&self) -> TransferResult<usize> {
        let mut state = self.borrow();
        let progressed = state.progress();
        if state.woken.is_empty() {
            return progressed;
        }
        drop(state);
        self.wake();
        progressed
    }

    /// Wakes the tasks of operations that have ended.
    #[cold]
    pub(crate) fn wake(&self) {
        let mut woken = std::mem::take(&mut self.borrow().woken);
        woken.drain(..).for_each(Waker::wake);
        let mut state = self.borrow();
        // Tasks that were added meanwhile are woken now too. The longer list is kept, so that it need not grow again.
        while !state.woken.is_empty() {
            let more = std::mem::replace(&mut state.woken, std::mem::take(&mut woken));
            drop(state);
            woken = more;
            woken.drain(..).for_each(Waker::wake);
            state = self.borrow();
        }
        if state.woken.capacity() < woken.capacity() {
            state.woken = woken;
        }
    }

    /// Releases a ticket.
    #[inline]
    pub(crate) fn release_ticket(&self, slot: u32) {
        let waker = self.borrow().release_ticket(slot);
        // Dropped here, while nothing is borrowed.
        drop(waker);
    }

    /// Polls until `done` returns something.
    ///
    /// # Errors
    /// Those of `done`; the engine's error if it is dead; `Deadline` after `timeout`, with the given subject.
    pub(crate) fn wait_until<T>(
        &self,
        timeout: Duration,
        subject: impl Fn(&EndpointState) -> ErrorSubject,
        mut done: impl FnMut(&mut EndpointState) -> TransferResult<Option<T>>,
    ) -> TransferResult<T> {
        let mut polls = 0u32;
        let mut deadline = None;
        loop {
            if let Some(value) = done(&mut self.borrow())? {
                return Ok(value);
            }
            if let Err(error) = self.progress() {
                // `done` may have a more precise error.
                return done(&mut self.borrow())?.ok_or(error);
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(CLOCK_POLLS) {
                let now = Instant::now();
                let until = *deadline.get_or_insert_with(|| now.checked_add(timeout));
                if until.is_some_and(|until| now >= until) {
                    return Err(TransferError::deadline(subject(&self.borrow()), timeout));
                }
                self.pause_before_poll();
            }
        }
    }

    /// Yields the CPU after an idle turn, because the peer may need it.
    pub(crate) fn pause_before_poll(&self) {
        self.borrow().check_peers();
        std::thread::yield_now();
    }
}
