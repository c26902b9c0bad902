//! Starts the ranks of a run and supervises them until they have ended.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`supervisor`] | for ranks started in any way: passing signals on, waiting, killing remaining ranks, the run's exit code |
//! | [`local`] | starting ranks on this host |
//! | [`remote`] | starting ranks on other hosts, by ssh |
//!
//! To add a way of starting ranks, add a file like `local` that implements [`RankProcesses`]. A supervisor measures
//! nothing and is not a rank. The started ranks find each other by the variables that `bootstrap` reads.

pub mod local;
pub mod remote;
pub mod supervisor;

use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use tonnage_units::Result;

/// Ranks that were started in some way, identified by their numbers.
pub trait RankProcesses {
    /// Handles the pending events of all ranks. The supervisor calls it before it queries the ranks.
    fn handle_events(&mut self) {}

    /// Returns how a rank has ended; `None` while it runs.
    fn ended(&mut self, rank: u32) -> Result<Option<RankExit>>;

    /// Returns the signal that has stopped a rank; `None` while it runs or its state is unknown.
    fn stopped_by(&mut self, rank: u32) -> Option<i32>;

    /// Sends a signal to a rank that has not ended.
    fn signal(&mut self, rank: u32, signal: i32);

    /// Kills a rank, and waits until it has ended.
    fn end(&mut self, rank: u32);

    /// Returns the host of a rank, for messages.
    fn host(&self, rank: u32) -> String;

    /// Returns the PID of a rank on its host, if known.
    fn process(&self, rank: u32) -> Option<u32>;

    /// Returns a socket that becomes readable when a rank's state may have changed and no signal announces it.
    fn wake_socket(&self) -> Option<&UnixStream> {
        None
    }
}

/// How a rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankExit {
    /// Exited with this code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Unknown, because the rank's host no longer responds. This has already been reported.
    Lost,
}
