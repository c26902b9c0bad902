//! Tickets of operations in flight: to poll, or to wait for.

use std::fmt;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::cell::EndpointCell;
use crate::error::TransferResult;
use crate::flights::TransferStatus;

/// A posted operation, or a batch.
///
/// Dropping it neither waits nor cancels: the bytes move, the slot is free once they have, and a failure is told by the
/// next [`wait_all`](crate::TransferEndpoint::wait_all).
#[must_use = "without its ticket nobody knows when an operation has ended"]
pub struct Ticket {
    cell: EndpointCell,
    slot: u32,
}

impl Ticket {
    #[inline]
    pub(crate) fn new(cell: EndpointCell, slot: u32) -> Self {
        Self { cell, slot }
    }

    /// Its state as it was found last. Polls nothing.
    pub fn status(&self) -> TransferStatus {
        self.cell.borrow().flights.status(self.slot)
    }

    /// Polls the engine once unless the operation has ended, and returns whether it has.
    ///
    /// # Errors
    /// The operation's, when it has failed; it is told as often as it is asked for. `EndpointFailed` when the engine is
    /// dead, `ArrivalsFull` when nobody takes arrivals; the operation goes on then.
    #[inline]
    pub fn poll(&self) -> TransferResult<bool> {
        match self.poll_once() {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// As [`Self::poll`]; its result is returned in registers.
    fn poll_once(&self) -> Poll<TransferResult<()>> {
        let mut state = self.cell.borrow();
        if state.flights.status(self.slot) == TransferStatus::InFlight {
            let progressed = state.progress();
            if !state.woken.is_empty() {
                drop(state);
                self.cell.wake();
                state = self.cell.borrow();
            }
            if state.flights.status(self.slot) == TransferStatus::InFlight {
                return match progressed {
                    Ok(_) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                };
            }
        }
        Poll::Ready(match state.flights.status(self.slot) {
            TransferStatus::Failed => Err(state.error_of(self.slot)),
            TransferStatus::InFlight | TransferStatus::Done => Ok(()),
        })
    }

    /// Waits until the operation has ended, and gives the CPU up now and then while it waits.
    ///
    /// # Errors
    /// As [`Self::poll`], and `Deadline` when the time is over: the operation goes on then, and can be waited for
    /// again.
    pub fn wait(&self, timeout: Duration) -> TransferResult<()> {
        let slot = self.slot;
        self.cell.wait(
            timeout,
            |state| state.subject_of_slot(slot),
            |state| match state.flights.status(slot) {
                TransferStatus::InFlight => Ok(None),
                TransferStatus::Done => Ok(Some(())),
                TransferStatus::Failed => Err(state.error_of(slot)),
            },
        )
    }

    /// Returns whether it has ended; if not, has a task woken when it does.
    #[inline]
    pub(crate) fn ended_or_wake(&self, waker: &Waker) -> Poll<TransferResult<()>> {
        let mut state = self.cell.borrow();
        match state.flights.status(self.slot) {
            TransferStatus::InFlight => {}
            TransferStatus::Done => return Poll::Ready(Ok(())),
            TransferStatus::Failed => return Poll::Ready(Err(state.error_of(self.slot))),
        }
        let before = state.flights.wake_by(self.slot, waker);
        // What was there is dropped where nothing is borrowed.
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        self.cell.let_go(self.slot);
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.cell.borrow();
        let subject = state.subject_of_slot(self.slot);
        f.debug_struct("Ticket")
            .field("operation", &subject.operation)
            .field("peer", &subject.peer)
            .field("status", &state.flights.status(self.slot))
            .finish()
    }
}
