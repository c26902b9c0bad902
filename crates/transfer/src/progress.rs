//! Posting operations and polling for their ends: the code that every operation passes through. With a session it
//! allocates nothing, takes no lock and reads no clock.

use std::rc::Rc;
use std::task::Waker;

use tonnage_engine::{ArmOutcome, Completion, Ending, Flush, Lane};

use crate::endpoint::Readiness;
use crate::error::{TransferError, TransferErrorKind, TransferResult};
use crate::extent::{Extent, QueuedExtent, TicketEnd};
use crate::flights::{OperationName, TransferStatus};
use crate::state::{ArrivedWrite, BURST, EndpointState, UnpostedBatch};

/// Number of polls without a completion after which tasks that wait for room try again.
const WAITING_POLLS: u32 = 64;

impl EndpointState {
    /// Posts one operation and returns its slot; `None` if there is no room.
    // Must be inlined. Otherwise `extent` is stored in parts and then loaded as a whole. Such a load must wait for the
    // stores, which costs 5 ns.
    #[inline(always)]
    pub(crate) fn post(
        &mut self,
        session: u32,
        (lane, name): (Lane, OperationName),
        extent: &Extent,
    ) -> TransferResult<Option<u32>> {
        self.count_poll();
        let Some(slot) = self.flights.next_free() else {
            return Ok(None);
        };
        let Some(state) = self.sessions.get_mut(session) else {
            return Ok(None);
        };
        if let Some(refused) = &state.refused {
            let error = refused.clone();
            return Err(error.with_subject(self.subject_of(session, name.text())));
        }
        match self.engine.post(&[extent.op(lane, slot)]) {
            Ok(0) => Ok(None),
            Ok(_) => {
                self.flights.begin(session, name, 1);
                Ok(Some(slot))
            }
            Err(error) => Err(self.not_posted(session, name, &error)),
        }
    }

    /// Posts operations of one lane together and queues their tickets. Returns the number posted, which may be limited
    /// by room.
    #[inline]
    pub(crate) fn post_list(
        &mut self,
        session: u32,
        (lane, name): (Lane, OperationName),
        list: &[QueuedExtent],
    ) -> TransferResult<usize> {
        self.count_poll();
        self.check_can_post(session, name)?;
        let listed = list.len().min(BURST).min(self.flights.free_count());
        let list = &list[..listed];
        let ops = &mut self.list;
        let tokens = list.iter().map(|queued| queued.token);
        self.flights
            .post_each((session, name), tokens, |place, slot| {
                ops[place] = list[place].extent.op(lane, slot);
            });
        let posted = self.engine.post(&self.list[..listed]);
        self.flights
            .begin_listed(listed, *posted.as_ref().unwrap_or(&0));
        posted.map_err(|error| self.not_posted(session, name, &error))
    }

    /// Fails if no more operations may be posted on this session.
    fn check_can_post(&self, session: u32, name: OperationName) -> TransferResult<()> {
        let state = self.sessions.get(session);
        match state.and_then(|state| state.refused.as_ref()) {
            Some(refused) => Err(refused.with_subject(self.subject_of(session, name.text()))),
            None => Ok(()),
        }
    }

    /// Posts a batch under one slot. Later polls post the operations that have no room now.
    pub(crate) fn post_batch(
        &mut self,
        session: u32,
        (lane, name): (Lane, OperationName),
        extents: &[Extent],
    ) -> TransferResult<Option<u32>> {
        self.count_poll();
        let Some(slot) = self.flights.next_free() else {
            return Ok(None);
        };
        self.check_can_post(session, name)?;
        let mut ops = self.spare.pop().unwrap_or_default();
        ops.extend(extents.iter().map(|extent| extent.op(lane, slot)));
        self.flights.begin(session, name, ops.len() as u32);
        let rest = UnpostedBatch {
            slot,
            ops,
            posted: 0,
        };
        if let Some(rest) = self.post_rest(rest) {
            self.backlog.push_back(rest);
        }
        Ok(Some(slot))
    }

    /// Posts the remaining operations of a batch. Returns the batch if some are still left.
    fn post_rest(&mut self, mut rest: UnpostedBatch) -> Option<UnpostedBatch> {
        match self.engine.post(&rest.ops[rest.posted..]) {
            Ok(taken) => rest.posted += taken,
            Err(error) => {
                // The engine took none of the remaining operations, so they end here. Those posted earlier continue.
                if let Some(flight) = self.flights.get(rest.slot) {
                    let error = self.not_posted(flight.session, flight.name, &error);
                    self.flights.record_error(rest.slot, error);
                }
                let left = rest.ops.len() - rest.posted;
                if let Some(ended) = self.flights.end_parts(rest.slot, left as u32) {
                    self.apply_end(ended);
                }
                rest.posted = rest.ops.len();
            }
        }
        if rest.posted < rest.ops.len() {
            return Some(rest);
        }
        rest.ops.clear();
        self.spare.push(rest.ops);
        None
    }

    /// Returns the error of an operation that the engine refused.
    #[cold]
    fn not_posted(
        &mut self,
        session: u32,
        name: OperationName,
        error: &tonnage_units::Error,
    ) -> TransferError {
        if let Some(state) = self.sessions.get_mut(session) {
            state.failed = true;
        }
        let subject = self.subject_of(session, name.text());
        TransferError::from_error(TransferErrorKind::OperationFailed, subject, error)
    }

    /// Starts a flush of a lane and returns its slot; `None` if there is no room.
    pub(crate) fn flush(&mut self, session: u32, lane: Lane) -> TransferResult<Option<u32>> {
        let name = OperationName::Flush;
        self.count_poll();
        let Some(slot) = self.flights.next_free() else {
            return Ok(None);
        };
        self.check_can_post(session, name)?;
        match self.engine.flush(lane, slot) {
            Ok(Flush::Again) => Ok(None),
            Ok(flushed) => {
                self.flights.begin(session, name, 1);
                if flushed == Flush::Delivered {
                    self.end_parts(slot, 1)?;
                }
                Ok(Some(slot))
            }
            Err(error) => Err(self.not_posted(session, name, &error)),
        }
    }

    /// Processes completions of the engine, and adds the tasks to wake to `woken`.
    #[inline]
    pub(crate) fn progress(&mut self) -> TransferResult<usize> {
        self.progress_into(&mut [], &mut 0)
    }

    /// Processes completions of the engine. Ends of queued tickets go directly to `ended` while it has room and no
    /// earlier end is queued. `reported` counts the entries.
    #[inline]
    pub(crate) fn progress_into(
        &mut self,
        ended: &mut [TicketEnd],
        reported: &mut usize,
    ) -> TransferResult<usize> {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        let room = (self.arrivals_max - self.arrivals.len()).min(BURST);
        if room == 0 {
            return Err(self.arrivals_full());
        }
        let count = match self.engine.poll(&mut self.done[..room]) {
            Ok(count) => count,
            Err(error) => return Err(self.fail_engine(error.to_string())),
        };
        if count == 0 {
            self.count_poll();
        }
        for index in 0..count {
            // Fields are read one by one: a load of the whole struct would wait for the engine's smaller stores.
            let completion = &self.done[index];
            match completion.ending {
                Ending::Done => {
                    let tag = completion.tag;
                    if let Some(end) = ended.get_mut(*reported)
                        && !self.flights.has_ended()
                        && let Some(token) = self.flights.end_queued(tag)
                    {
                        end.token = token;
                        end.error = None;
                        *reported += 1;
                    } else if !self.flights.end_plain(tag, &mut self.woken) {
                        self.end_parts(tag, 1)?;
                    }
                }
                Ending::Arrived => self.arrivals.push_back(ArrivedWrite {
                    peer: (completion.lane != Lane::UNNAMED).then_some(completion.lane.0),
                    imm: completion.imm,
                    len: completion.len,
                }),
                Ending::Failed(_) => {
                    let failed = *completion;
                    self.end_failed(&failed)?;
                }
            }
        }
        // Waiting batches are posted here, before the caller can post again. Otherwise a caller that refills every free
        // slot would starve them.
        if !self.backlog.is_empty() {
            self.post_backlog();
        }
        if !self.ending.is_empty() {
            self.end_peers(count);
        }
        if !self.waiting.is_empty() {
            self.wake_waiting(count);
        }
        Ok(count)
    }

    /// After an operation has ended, wakes the tasks that wait for room. An engine may also gain room without a
    /// completion, so the tasks also retry after some polls.
    #[cold]
    fn wake_waiting(&mut self, completions: usize) {
        self.idle_polls = match completions {
            0 => self.idle_polls + 1,
            _ => 0,
        };
        if completions > 0 || self.flights.in_flight() == 0 || self.idle_polls >= WAITING_POLLS {
            self.idle_polls = 0;
            self.woken.append(&mut self.waiting);
        }
    }

    #[cold]
    fn post_backlog(&mut self) {
        // Each batch is tried, so that a peer without room does not delay other peers.
        for _ in 0..self.backlog.len() {
            let rest = self.backlog.pop_front();
            let left = rest.and_then(|rest| self.post_rest(rest));
            self.backlog.extend(left);
        }
    }

    fn end_parts(&mut self, slot: u32, parts: u32) -> TransferResult<()> {
        match self.flights.end_parts(slot, parts) {
            Some(ended) => {
                self.apply_end(ended);
                Ok(())
            }
            None => Err(self.fail_engine(format!(
                "the engine completed an operation twice, or one that was never posted (tag {slot})"
            ))),
        }
    }

    #[cold]
    fn end_failed(&mut self, completion: &Completion) -> TransferResult<()> {
        let failure = self.engine.failure(completion);
        let slot = completion.tag;
        let error = TransferError::failed(self.subject_of_slot(slot), failure);
        let session = self.flights.get(slot).map(|flight| flight.session);
        if let Some(session) = session.and_then(|index| self.sessions.get_mut(index)) {
            session.failed = true;
        }
        self.flights.record_error(slot, error);
        self.end_parts(slot, 1)
    }

    #[cold]
    fn arrivals_full(&self) -> TransferError {
        let reason = format!(
            "the queue of arrivals is full: take some of its {} arrivals, and poll again",
            self.arrivals.len()
        );
        let subject = self.subject.with_operation("polling", None);
        TransferError::new(TransferErrorKind::ArrivalsFull, subject, reason)
    }

    /// Releases the ticket of a slot. Returns the waker, which must be dropped while nothing is borrowed.
    #[inline]
    pub(crate) fn release_ticket(&mut self, slot: u32) -> Option<Waker> {
        let mut ended = self.flights.release_ticket(slot)?;
        let waker = ended.waker.take();
        self.apply_end(ended);
        waker
    }

    pub(crate) fn arm(&mut self) -> TransferResult<Readiness> {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        let has_work = self.flights.has_ended()
            || !self.arrivals.is_empty()
            || !self.backlog.is_empty()
            || !self.ending.is_empty()
            || !self.waiting.is_empty();
        if has_work {
            return Ok(Readiness::Ready);
        }
        match self.engine.arm() {
            Ok(ArmOutcome::Ready) => Ok(Readiness::Ready),
            Ok(ArmOutcome::Unsupported) => Ok(Readiness::Unsupported),
            Ok(ArmOutcome::Sleep(descriptor)) => match &self.descriptor {
                Some(known) => Ok(Readiness::Sleep(Rc::clone(known))),
                None => match descriptor.try_clone_to_owned() {
                    Ok(own) => {
                        let known = self.descriptor.insert(Rc::new(own));
                        Ok(Readiness::Sleep(Rc::clone(known)))
                    }
                    Err(error) => Err(TransferError::new(
                        TransferErrorKind::Unavailable,
                        self.subject.with_operation("getting ready to sleep", None),
                        error.to_string(),
                    )),
                },
            },
            Err(error) => Err(self.fail_engine(error.to_string())),
        }
    }

    #[inline]
    pub(crate) fn take_ended(&mut self, ended: &mut [TicketEnd]) -> usize {
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

    /// Releases a queued ticket. If its operation has failed, returns the error.
    #[cold]
    fn finish_queued(&mut self, slot: u32) -> Option<TransferError> {
        let has_failed = self.flights.status(slot) == TransferStatus::Failed;
        let error = has_failed.then(|| self.error_of(slot));
        // Queued tickets have no waker, so nothing is left to drop after the borrow.
        drop(self.release_ticket(slot));
        error
    }
}
