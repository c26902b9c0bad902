//! Starts the ranks of a run and watches over them until they have ended.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`supervisor`] | passing signals on, waiting, killing remaining ranks, the run's exit code: for all ways to start ranks |
//! | [`local`] | starting ranks on this host |
//! | [`remote`] | starting ranks on other hosts, by ssh |
//!
//! Another way to start ranks is another file like `local` that implements [`RankProcesses`]. A supervisor measures nothing
//! and is not a rank. Variables that `bootstrap` reads show the ranks how to find each other.

pub mod local;
pub mod remote;
pub mod supervisor;

use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use tonnage_units::Result;

/// Started ranks, independent of how they were started, identified by their numbers.
pub trait RankProcesses {
    /// Processes pending events of all ranks, before each rank is queried.
    fn refresh(&mut self) {}

    /// Returns how a rank has ended, or `None` while it runs.
    fn ended(&mut self, rank: u32) -> Result<Option<RankExit>>;

    /// Returns the signal that has stopped a rank, or `None` while it runs or its state is unknown.
    fn stopped_by(&mut self, rank: u32) -> Option<i32>;

    /// Sends a signal to a rank that has not ended.
    fn signal(&mut self, rank: u32, signal: i32);

    /// Kills a rank and returns when it is gone.
    fn end(&mut self, rank: u32);

    /// Returns the host of a rank, for messages.
    fn host(&self, rank: u32) -> String;

    /// Returns the PID of a rank on its host, if known.
    fn process(&self, rank: u32) -> Option<u32>;

    /// Returns a socket that is readable when something may have changed without a signal.
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
    /// Unknown: its host no longer responds, which was reported.
    Lost,
}
