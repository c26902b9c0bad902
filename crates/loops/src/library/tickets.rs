//! Operations that each have a ticket. The library's queue returns the tickets as their operations end. A lane is
//! either a session, or a pair of memory handles from which each operation looks up its lane.

use tonnage_engine::{Completion, Flush, Lane, Op, Verb};
use tonnage_transfer::{
    Extent, LaneSource, LocalId, QueuedExtent, RemoteId, Session, Ticket, TicketEnd,
    TransferEndpoint, TransferErrorKind, TransferResult, TransferStatus,
};
use tonnage_units::{Error, Result};

use super::{PollFailures, WantedLane, lane_of, never_resolved, token};
use crate::BURST;

/// Lanes, and operations that have ended.
pub(super) struct TicketCalls {
    /// How each operation finds its lane, if sessions are not used.
    source: Option<LaneSource>,
    pub(super) lanes: Vec<Option<TicketLane>>,
    ends: Box<[TicketEnd]>,
    /// Buffer for operations of one lane that are posted together.
    list: Box<[QueuedExtent]>,
    pub(super) failures: PollFailures,
}

pub(super) struct TicketLane {
    verb: Verb,
    way: LaneLookup,
    /// Length of the last operation. All operations of a flow have the same length.
    len: u32,
}

/// How the engine's lane is found.
enum LaneLookup {
    Resolved(Session),
    Named(LaneSource, (LocalId, RemoteId)),
}

impl TicketLane {
    /// Posts operations of this lane; returns the number accepted.
    #[inline]
    fn post(
        &mut self,
        endpoint: &TransferEndpoint,
        ops: &[Op],
        list: &mut [QueuedExtent],
    ) -> TransferResult<usize> {
        self.len = ops[0].len;
        match &self.way {
            LaneLookup::Resolved(session) => {
                let listed = list.iter_mut().zip(ops);
                let listed = listed.map(|(queued, op)| *queued = queued_of(op)).count();
                session.post_list_queued(self.verb, &list[..listed])
            }
            LaneLookup::Named(source, names) => {
                // Each operation looks up its own lane.
                for (posted, op) in ops.iter().enumerate() {
                    let QueuedExtent { extent, token } = queued_of(op);
                    match endpoint.transfer_queued(*source, self.verb, *names, &extent, token) {
                        Ok(()) => {}
                        Err(error) if error.kind() == TransferErrorKind::Busy => return Ok(posted),
                        Err(error) if posted == 0 => return Err(error),
                        // The next call reports the error.
                        Err(_) => return Ok(posted),
                    }
                }
                Ok(ops.len())
            }
        }
    }

    /// Begins a flush, to prove delivery of writes. Returns `None` if each operation already proves its own
    /// delivery.
    fn flush(&self, endpoint: &TransferEndpoint) -> TransferResult<Option<Ticket>> {
        match &self.way {
            LaneLookup::Resolved(session) => session.flush(self.verb).map(Some),
            LaneLookup::Named(LaneSource::LookUp, names) => {
                endpoint.flush_between(self.verb, *names).map(Some)
            }
            // If completion does not prove delivery, these lanes were requested with `delivered`.
            LaneLookup::Named(LaneSource::Fresh | LaneSource::Register, _) => Ok(None),
        }
    }
}

impl TicketCalls {
    pub(super) fn new(source: Option<LaneSource>) -> Self {
        Self {
            source,
            lanes: Vec::new(),
            ends: vec![TicketEnd::NONE; BURST].into(),
            list: vec![QueuedExtent::default(); BURST].into(),
            failures: PollFailures::default(),
        }
    }

    pub(super) fn add(
        &mut self,
        endpoint: &TransferEndpoint,
        wanted: &WantedLane<'_>,
    ) -> Result<()> {
        let way = match self.source {
            None => LaneLookup::Resolved(endpoint.session_with(
                wanted.local,
                &wanted.remote,
                wanted.options,
            )?),
            Some(source) => {
                let remote = endpoint.add_remote_with(&wanted.remote, wanted.options);
                LaneLookup::Named(source, (wanted.local.id(), remote))
            }
        };
        self.lanes.push(Some(TicketLane {
            verb: wanted.verb,
            way,
            len: 0,
        }));
        Ok(())
    }

    pub(super) fn release_lane(&mut self, endpoint: &TransferEndpoint, lane: Lane) {
        let known = self.lanes.get_mut(lane.0 as usize).and_then(Option::take);
        if let Some(TicketLane {
            way: LaneLookup::Named(_, (_, remote)),
            ..
        }) = known
        {
            endpoint.remove_remote(remote);
        }
    }

    #[inline]
    fn lane(&mut self, lane: Lane) -> Result<&mut TicketLane> {
        match self.lanes.get_mut(lane.0 as usize) {
            Some(Some(known)) => Ok(known),
            _ => Err(never_resolved(lane)),
        }
    }

    #[inline]
    pub(super) fn post(&mut self, endpoint: &TransferEndpoint, ops: &[Op]) -> Result<usize> {
        let mut taken = 0;
        while let Some(first) = ops.get(taken) {
            let rest = &ops[taken..];
            let of_lane = rest.iter().take_while(|op| op.lane == first.lane).count();
            let Some(Some(lane)) = self.lanes.get_mut(first.lane.0 as usize) else {
                return Err(never_resolved(first.lane));
            };
            match lane.post(endpoint, &rest[..of_lane], &mut self.list) {
                Ok(0) => break,
                Ok(posted) => taken += posted,
                Err(error) if taken == 0 => return Err(error.into()),
                // The next call reports the error.
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// Posts a list of extents in one call; returns false if the queue is full.
    pub(super) fn post_batch(
        &mut self,
        endpoint: &TransferEndpoint,
        (lane, token): (Lane, u64),
        extents: &[Extent],
    ) -> Result<bool> {
        let lane = self.lane(lane)?;
        let posted = match &lane.way {
            LaneLookup::Resolved(session) => session.batch(lane.verb, extents),
            LaneLookup::Named(source, names) => {
                endpoint.transfer(*source, lane.verb, *names, extents)
            }
        };
        match posted {
            Ok(ticket) => queue(endpoint, ticket, token).map(|()| true),
            Err(error) if error.kind() == TransferErrorKind::Busy => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn flush(
        &mut self,
        endpoint: &TransferEndpoint,
        lane: Lane,
        tag: u32,
    ) -> Result<Flush> {
        match self.lane(lane)?.flush(endpoint) {
            Ok(Some(ticket)) if ticket.status() == TransferStatus::InFlight => {
                queue(endpoint, ticket, token(lane, tag))?;
                Ok(Flush::Posted)
            }
            Ok(Some(ticket)) => {
                ticket.poll()?;
                Ok(Flush::Delivered)
            }
            Ok(None) => Ok(Flush::Delivered),
            Err(error) if error.kind() == TransferErrorKind::Busy => Ok(Flush::Again),
            Err(error) => Err(error.into()),
        }
    }

    /// Collects ended operations. Returns their number, and whether something may have arrived.
    #[inline]
    pub(super) fn poll(
        &mut self,
        endpoint: &TransferEndpoint,
        done: &mut [Completion],
    ) -> Result<(usize, bool)> {
        self.failures.begin();
        let most = done.len().min(BURST);
        let count = endpoint.poll_ended(&mut self.ends[..most])?;
        for (end, completion) in self.ends[..count].iter().zip(done) {
            let lane = self.lanes.get(lane_of(end.token).0 as usize);
            let len = lane.and_then(Option::as_ref).map_or(0, |lane| lane.len);
            *completion = self.failures.completion(end, len);
        }
        Ok((count, true))
    }
}

#[inline]
fn queued_of(op: &Op) -> QueuedExtent {
    QueuedExtent {
        extent: Extent::new(op.local, op.remote, op.len).with_imm(op.imm),
        token: token(op.lane, op.tag),
    }
}

#[inline]
fn queue(endpoint: &TransferEndpoint, ticket: Ticket, token: u64) -> Result<()> {
    endpoint
        .queue(ticket, token)
        .map_err(|ticket| Error::Failed(format!("the library did not queue {ticket:?}")))
}
