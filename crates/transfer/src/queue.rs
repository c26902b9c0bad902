//! Tickets that are taken as their operations end, many at a time: for loops that keep a window in flight and must not
//! ask each of its tickets.

use tonnage_engine::Verb;

use crate::card::RemoteId;
use crate::endpoint::TransferEndpoint;
use crate::error::{TransferError, TransferResult};
use crate::extent::{Extent, TicketEnd};
use crate::flights::TransferStatus;
use crate::named::LaneSource;
use crate::state::{EndpointState, LocalId};
use crate::ticket::Ticket;

impl TransferEndpoint {
    /// Queues a ticket of this endpoint, whose end [`Self::poll_ended`] then tells by this number. The endpoint has one
    /// queue.
    ///
    /// # Errors
    /// The ticket, when it is of another endpoint, or has told that its operation ended well.
    pub fn queue(&self, ticket: Ticket, token: u64) -> Result<(), Ticket> {
        ticket.hand_over(self.cell(), |state, slot| {
            state.flights.queue(slot, token);
        })
    }

    /// [`Self::transfer`] of one operation whose end [`Self::poll_ended`] tells by this number, as if its ticket had
    /// been queued.
    ///
    /// # Errors
    /// As [`Self::transfer`].
    #[inline]
    pub fn transfer_queued(
        &self,
        source: LaneSource,
        verb: Verb,
        names: (LocalId, RemoteId),
        extent: &Extent,
        token: u64,
    ) -> TransferResult<()> {
        let mut state = self.cell().borrow();
        let slot = state.transfer(source, verb, names, std::slice::from_ref(extent))?;
        state.flights.queue(slot, token);
        Ok(())
    }

    /// Takes ends of queued tickets in the order in which they ended, and returns how many. Polls the engine once,
    /// unless some have ended before.
    ///
    /// # Errors
    /// `EndpointFailed` when the engine is dead, `ArrivalsFull` when nobody takes arrivals; ends that were found before
    /// are taken first.
    #[inline]
    pub fn poll_ended(&self, ended: &mut [TicketEnd]) -> TransferResult<usize> {
        let mut state = self.cell().borrow();
        if state.flights.has_ended() {
            return Ok(state.take_ended(ended));
        }
        let mut told = 0;
        let progressed = state.progress_into(ended, &mut told);
        if !state.woken.is_empty() {
            drop(state);
            self.cell().wake();
            state = self.cell().borrow();
        }
        match told + state.take_ended(&mut ended[told..]) {
            0 => progressed.map(|_| 0),
            count => Ok(count),
        }
    }
}

impl EndpointState {
    #[inline]
    fn take_ended(&mut self, ended: &mut [TicketEnd]) -> usize {
        let mut count = 0;
        for end in ended {
            let Some((token, rest)) = self.flights.next_ended() else {
                break;
            };
            end.token = token;
            end.error = rest.and_then(|slot| self.finish_queued(slot));
            count += 1;
        }
        count
    }

    /// Lets a queued ticket go that had more to tell; returns its error.
    #[cold]
    fn finish_queued(&mut self, slot: u32) -> Option<TransferError> {
        let has_failed = self.flights.status(slot) == TransferStatus::Failed;
        let error = has_failed.then(|| self.error_of(slot));
        // A queued ticket has no waker that would have to be dropped elsewhere.
        drop(self.let_go(slot));
        error
    }
}
