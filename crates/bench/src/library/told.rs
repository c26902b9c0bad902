//! Ends of the library's operations as the loops hear of them: the tag that they gave, and why one has failed.

use tonnage_engine::{Completion, Ending, Failure, Lane};
use tonnage_transfer::{TicketEnd, TransferError};

/// The number that an operation has in the library's queue: its lane and its tag.
#[inline]
pub(super) fn token(lane: Lane, tag: u32) -> u64 {
    u64::from(lane.0) << 32 | u64::from(tag)
}

/// Failures of the last poll.
#[derive(Default)]
pub(super) struct Told {
    failed: Vec<(u64, Failure)>,
}

impl Told {
    /// Forgets the failures of the poll before.
    #[inline]
    pub(super) fn begin(&mut self) {
        if !self.failed.is_empty() {
            self.failed.clear();
        }
    }

    /// An operation's end, as an engine completes it.
    #[inline]
    pub(super) fn completion(&mut self, end: &TicketEnd, len: u32) -> Completion {
        let ending = match &end.error {
            None => Ending::Done,
            Some(error) => Ending::Failed(self.fail(end.token, error)),
        };
        Completion {
            tag: end.token as u32,
            lane: lane_of(end.token),
            len,
            imm: 0,
            ending,
        }
    }

    /// Keeps why an operation has failed; returns the engine's number for it.
    #[cold]
    fn fail(&mut self, token: u64, error: &TransferError) -> i32 {
        let failure = error.failure().cloned().unwrap_or_else(|| Failure {
            name: error.to_string(),
            ..Failure::default()
        });
        let code = failure.code;
        self.failed.push((token, failure));
        code
    }

    /// The failure of an operation of the last poll.
    pub(super) fn failure(&self, done: &Completion) -> Failure {
        let told = token(done.lane, done.tag);
        let known = self.failed.iter().find(|(token, _)| *token == told);
        known
            .map(|(_, failure)| failure.clone())
            .unwrap_or_default()
    }
}

/// The lane of an operation, by its number in the queue.
#[inline]
pub(super) fn lane_of(token: u64) -> Lane {
    Lane((token >> 32) as u32)
}
