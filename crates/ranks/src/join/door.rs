//! Rank 0's port once all ranks have joined: whoever comes still is told at once why there is no place for it.
//!
//! Without it a second process of a rank, or one of another run, would ask in vain until its time to join is over.

use std::time::Instant;

use super::admission::Conditions;
use super::handshake::{Handshakes, tell};
use super::refusals::JoinRefusal;
use crate::RankInfo;
use crate::channel::Interest;
use crate::channel::message::Head;
use tonnage_units::Error;

/// Strangers that are looked at together beside a run: few, since nobody who belongs to it is among them.
const STRANGERS_MAX: usize = 8;

/// The port of a run that has begun.
pub(crate) struct LateDoor {
    handshakes: Handshakes,
    conditions: Conditions,
}

impl LateDoor {
    pub(crate) fn new(mut handshakes: Handshakes, conditions: Conditions) -> Self {
        handshakes.pending_max = STRANGERS_MAX;
        Self {
            handshakes,
            conditions,
        }
    }

    /// Events to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        self.handshakes.interests()
    }

    /// The time at which a visitor has run out of it.
    pub(crate) fn expiry(&self) -> Option<Instant> {
        self.handshakes.expiry()
    }

    /// Tells those that have said who they are why they come too late; `table` has the ranks of the run.
    pub(crate) fn turn_away(&mut self, table: &[RankInfo]) {
        for (mut channel, message) in self.handshakes.serve().greeted {
            let objection = match message.head {
                Head::Hello(hello) => {
                    let twin = table.iter().find(|info| info.rank == hello.info.rank);
                    self.conditions.objection(twin, &hello)
                }
                _ => None,
            };
            let late = || Error::Failed("the run has begun without it".into());
            let error = objection.unwrap_or_else(late);
            tell(&mut channel, &self.conditions.me.cause(&error));
            let peer = channel.peer;
            self.handshakes.refuse(peer, &JoinRefusal::Stranger(error));
        }
    }

    /// Stops listening, so that the port is free for the next run.
    pub(crate) fn close(self) {
        self.handshakes.close();
    }
}
