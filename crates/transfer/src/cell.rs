//! An endpoint, shared by all its handles: on one thread, without locks.
//!
//! Wakers run code of other crates, which may use the endpoint. So wakers are woken and dropped only while the state
//! is not borrowed. In contrast, the owner of a caller's memory may be dropped while the state is borrowed, so that
//! owner must not use the endpoint.

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

    /// Processes completions of the engine, and wakes the tasks that waited for them.
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
        // Also wakes tasks that were added meanwhile. Keeps the list with the larger capacity, so that it need not grow
        // again.
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
        // Dropped while the state is not borrowed.
        drop(waker);
    }

    /// Polls until `done` returns a value.
    ///
    /// # Errors
    /// The errors of `done`; the engine's error if the engine is dead; `Deadline` after `timeout`, with this subject.
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

    /// Yields the CPU after a poll without completions, because the peer may need it.
    pub(crate) fn pause_before_poll(&self) {
        self.borrow().check_peers();
        std::thread::yield_now();
    }
}
