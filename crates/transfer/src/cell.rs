//! An endpoint as its handles share it: on one thread, without locks.
//!
//! Wakers may be anybody's code. So tasks are woken, and wakers dropped, only when the state is not borrowed: whatever
//! they do then, they may use the endpoint. What is kept with a memory may be dropped while it is borrowed, and must
//! not.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::error::{Subject, TransferError, TransferResult};
use crate::state::EndpointState;

/// Polls between two looks at the clock while nothing happens.
const LOOK_POLLS: u32 = 64;

/// A shared endpoint.
#[derive(Clone)]
pub(crate) struct EndpointCell(Rc<RefCell<EndpointState>>);

impl EndpointCell {
    pub(crate) fn new(state: EndpointState) -> Self {
        Self(Rc::new(RefCell::new(state)))
    }

    #[inline]
    pub(crate) fn borrow(&self) -> RefMut<'_, EndpointState> {
        self.0.borrow_mut()
    }

    /// Returns whether both are the same endpoint.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// The state, where nobody else shares it.
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

    /// Wakes the tasks whose operations have ended.
    #[cold]
    pub(crate) fn wake(&self) {
        let mut woken = std::mem::take(&mut self.borrow().woken);
        woken.drain(..).for_each(Waker::wake);
        let mut state = self.borrow();
        // What came meanwhile is woken now too; the longer list is kept, so that it need not grow again.
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

    /// Gives a ticket back.
    #[inline]
    pub(crate) fn let_go(&self, slot: u32) {
        let waker = self.borrow().let_go(slot);
        // Dropped here, where nothing is borrowed.
        drop(waker);
    }

    /// Polls until `done` returns something.
    ///
    /// # Errors
    /// Those of `done`; the engine's when it is dead; `Deadline`, with the subject that is asked for, when the time is
    /// over.
    pub(crate) fn wait<T>(
        &self,
        timeout: Duration,
        subject: impl Fn(&EndpointState) -> Subject,
        mut done: impl FnMut(&mut EndpointState) -> TransferResult<Option<T>>,
    ) -> TransferResult<T> {
        let mut polls = 0u32;
        let mut deadline = None;
        loop {
            if let Some(value) = done(&mut self.borrow())? {
                return Ok(value);
            }
            if let Err(error) = self.progress() {
                // Whoever waits knows better what has failed.
                return done(&mut self.borrow())?.ok_or(error);
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(LOOK_POLLS) {
                let now = Instant::now();
                let until = *deadline.get_or_insert_with(|| now.checked_add(timeout));
                if until.is_some_and(|until| now >= until) {
                    return Err(TransferError::deadline(subject(&self.borrow()), timeout));
                }
                self.rest();
            }
        }
    }

    /// Spends a turn in which nothing happened: the CPU may be needed by the peer.
    pub(crate) fn rest(&self) {
        self.borrow().look_at_peers();
        std::thread::yield_now();
    }
}
