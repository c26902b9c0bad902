//! Starting the ranks of a run, and looking after them until they have ended.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`supervisor`] | passing signals on, waiting, killing what is left, the exit code of the run: once, for all ways to start |
//! | [`local`] | starting ranks on this host |
//! | [`remote`] | starting ranks on other hosts, by ssh |
//!
//! Another way to start ranks is a file beside `local` with its [`Running`]. A supervisor measures nothing and is no
//! rank; how the ranks find each other is told to them by variables, which `bootstrap` reads.

pub mod local;
pub mod remote;
pub mod supervisor;

use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use tonnage_units::Result;

/// Ranks that were started, in whatever way. They are called by their numbers.
pub trait Running {
    /// Hears what is new of all ranks, before they are asked for one by one.
    fn refresh(&mut self) {}

    /// Returns how a rank has ended, or `None` while it has not.
    fn ended(&mut self, rank: u32) -> Result<Option<RankExit>>;

    /// Returns the signal that has stopped a rank that has not ended, or `None` while it goes on or nobody knows.
    fn stopped_by(&mut self, rank: u32) -> Option<i32>;

    /// Sends a signal to a rank that has not ended.
    fn signal(&mut self, rank: u32, signal: i32);

    /// Ends a rank whatever it does, and returns when it is gone.
    fn end(&mut self, rank: u32);

    /// The host of a rank, for messages.
    fn host(&self, rank: u32) -> String;

    /// The process of a rank on its host, where it is known.
    fn process(&self, rank: u32) -> Option<u32>;

    /// A socket that is readable when something may have changed of which no signal tells.
    fn news(&self) -> Option<&UnixStream> {
        None
    }
}

/// End of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankExit {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Unknown: nothing is heard of its host any more, which was said.
    Lost,
}
