//! The end of the run by a thread beside a rank's main one, which may be stuck in a library.

use std::sync::Arc;

use crate::channel::message::Cause;
use crate::tree::shared::{ControlCommand, Shared};
use tonnage_units::Error;

/// Ends the run for all ranks in the name of one.
#[derive(Debug, Clone)]
pub struct Alarm {
    shared: Arc<Shared>,
    rank: u32,
    host: String,
}

impl Alarm {
    pub(super) fn new(shared: Arc<Shared>, rank: u32, host: String) -> Self {
        Self { shared, rank, host }
    }

    /// Ends the run because of an error of the rank. Only the first cause counts. A process whose main thread does not
    /// end by itself is ended after a grace, where [`crate::JoinOptions::end_process`] says so.
    pub fn raise(&self, error: &Error) {
        let cause = Cause::of(error, self.rank, &self.host);
        self.shared.command(ControlCommand::Abort(cause));
    }
}
