//! Tickets of operations, to poll or to wait for.

use std::cell::Cell;
use std::fmt;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::cell::SharedEndpoint;
use crate::error::TransferResult;
use crate::flights::TransferStatus;
use crate::state::EndpointState;

/// Slot number of a ticket that has reported success and released its slot.
const NONE: u32 = u32::MAX;

/// A posted operation, or a batch.
///
/// Dropping a ticket neither waits nor cancels: the bytes are still moved, and then the slot becomes free. The next
/// [`wait_all`](crate::TransferEndpoint::wait_all) reports any failure.
#[must_use = "dropping the ticket loses track of the operation's end"]
pub struct Ticket {
    cell: SharedEndpoint,
    slot: Cell<u32>,
}

impl Ticket {
    #[inline]
    pub(crate) fn new(cell: SharedEndpoint, slot: u32) -> Self {
        Self {
            cell,
            slot: Cell::new(slot),
        }
    }

    /// Returns the operation's last known state. Does not poll.
    pub fn status(&self) -> TransferStatus {
        match self.slot.get() {
            NONE => TransferStatus::Done,
            slot => self.cell.borrow().flights.status(slot),
        }
    }

    /// Returns whether the operation has ended. Polls the engine once if it has not.
    ///
    /// # Errors
    /// The operation's error if it has failed; later calls return it again. `EndpointFailed` if the engine is dead.
    /// `ArrivalsFull` if the queue of arrivals is full; the operation then continues.
    #[inline]
    pub fn poll(&self) -> TransferResult<bool> {
        match self.poll_once() {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Like [`Self::poll`], but the result fits into registers.
    fn poll_once(&self) -> Poll<TransferResult<()>> {
        let slot = self.slot.get();
        if slot == NONE {
            return Poll::Ready(Ok(()));
        }
        let mut state = self.cell.borrow();
        if state.flights.status(slot) == TransferStatus::InFlight {
            let progressed = state.progress();
            if !state.woken.is_empty() {
                drop(state);
                self.cell.wake();
                state = self.cell.borrow();
            }
            if state.flights.status(slot) == TransferStatus::InFlight {
                return match progressed {
                    Ok(_) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                };
            }
        }
        if state.flights.status(slot) == TransferStatus::Failed {
            return Poll::Ready(Err(state.error_of(slot)));
        }
        // The ticket is released here because the state is already borrowed.
        self.slot.set(NONE);
        let waker = state.release_ticket(slot);
        drop(state);
        drop(waker);
        Poll::Ready(Ok(()))
    }

    /// Waits until the operation has ended. Regularly yields the CPU.
    ///
    /// # Errors
    /// As [`Self::poll`], and `Deadline` after `timeout`. The operation then continues, and can be waited for again.
    pub fn wait(&self, timeout: Duration) -> TransferResult<()> {
        let slot = self.slot.get();
        if slot == NONE {
            return Ok(());
        }
        self.cell.wait_until(
            timeout,
            |state| state.subject_of_slot(slot),
            |state| match state.flights.status(slot) {
                TransferStatus::InFlight => Ok(None),
                TransferStatus::Done => Ok(Some(())),
                TransferStatus::Failed => Err(state.error_of(slot)),
            },
        )
    }

    /// Passes the ticket's slot to other code of the same endpoint, without releasing the slot.
    #[inline]
    pub(crate) fn hand_over(
        self,
        cell: &SharedEndpoint,
        take: impl FnOnce(&mut EndpointState, u32),
    ) -> Result<(), Self> {
        let slot = self.slot.get();
        if slot == NONE || !self.cell.is_same(cell) {
            return Err(self);
        }
        self.slot.set(NONE);
        take(&mut cell.borrow(), slot);
        Ok(())
    }

    /// Returns the result if the operation has ended. Otherwise registers the waker, so that it is woken when
    /// the operation ends.
    #[inline]
    pub(crate) fn ended_or_wake(&self, waker: &Waker) -> Poll<TransferResult<()>> {
        let slot = self.slot.get();
        if slot == NONE {
            return Poll::Ready(Ok(()));
        }
        let mut state = self.cell.borrow();
        match state.flights.status(slot) {
            TransferStatus::InFlight => {}
            TransferStatus::Done => {
                // The ticket is released here because the state is already borrowed.
                self.slot.set(NONE);
                let waker = state.release_ticket(slot);
                drop(state);
                drop(waker);
                return Poll::Ready(Ok(()));
            }
            TransferStatus::Failed => return Poll::Ready(Err(state.error_of(slot))),
        }
        let before = state.flights.set_waker(slot, waker);
        // The previous waker must be dropped while nothing is borrowed.
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        let slot = self.slot.get();
        if slot != NONE {
            self.cell.release_ticket(slot);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ticket = f.debug_struct("Ticket");
        let slot = self.slot.get();
        if slot != NONE {
            let subject = self.cell.borrow().subject_of_slot(slot);
            ticket
                .field("operation", &subject.operation)
                .field("peer", &subject.peer);
        }
        ticket.field("status", &self.status()).finish()
    }
}
