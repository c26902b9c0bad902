//! Serves rank 0's port after all ranks have joined. Late processes get the reason why they cannot join.
//!
//! Without this, a second process for a rank, or a process of another run, would retry until its join timeout.

use std::time::Instant;

use super::admission::AdmissionConditions;
use super::handshake::{Handshakes, send_end_cause};
use super::refusals::JoinRefusal;
use crate::RankInfo;
use crate::channel::Interest;
use crate::channel::message::MessageHead;
use tonnage_units::Error;

/// Number of connections that are served at once during a run. It is small, because none of these connections belongs
/// to the run.
const STRANGERS_MAX: usize = 8;

/// Rank 0's port during a run.
pub(crate) struct LateJoinListener {
    handshakes: Handshakes,
    conditions: AdmissionConditions,
}

impl LateJoinListener {
    pub(crate) fn new(mut handshakes: Handshakes, conditions: AdmissionConditions) -> Self {
        handshakes.pending_max = STRANGERS_MAX;
        Self {
            handshakes,
            conditions,
        }
    }

    /// Returns the events that a caller should wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        self.handshakes.interests()
    }

    /// Returns the time at which the next connection times out.
    pub(crate) fn next_handshake_expiry(&self) -> Option<Instant> {
        self.handshakes.next_expiry()
    }

    /// Sends each late process that has introduced itself the reason why it cannot join any more. `table` has the ranks
    /// of the run.
    pub(crate) fn turn_away(&mut self, table: &[RankInfo]) {
        for (mut channel, message) in self.handshakes.serve().greeted {
            let objection = match message.head {
                MessageHead::Hello(hello) => {
                    let twin = table.iter().find(|info| info.rank == hello.info.rank);
                    self.conditions.objection(twin, &hello)
                }
                _ => None,
            };
            let late = || Error::Failed("the run has begun without it".into());
            let error = objection.unwrap_or_else(late);
            send_end_cause(&mut channel, &self.conditions.me.failure_cause(&error));
            let peer = channel.peer;
            self.handshakes.refuse(peer, &JoinRefusal::Stranger(error));
        }
    }

    /// Stops listening, so that the port is free for the next run.
    pub(crate) fn close(self) {
        self.handshakes.close();
    }
}
