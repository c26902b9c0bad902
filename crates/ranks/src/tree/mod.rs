//! One rank in the tree of ranks: its node, and the two threads that act on it.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`shape`] | parents and children; the open connections of one rank |
//! | [`node`] | the state of one rank: connections, what it says and hears, and what is due by the clock |
//! | [`protocol`] | its reaction to each message |
//! | [`control`] | the control thread: it waits, notices silence, ends the run |
//! | [`stopped`] | ranks of this host that cannot hear of the end |
//! | [`node_handle`] | what other threads do with the node: they enter collectives and wait for them |
//! | [`watch`] | which of the two wakes for a connection |
//! | [`collective`] | contributions on their way up the tree and results on their way down |
//! | [`exchange`] | messages for single ranks, and which way they go |
//! | [`clock`] | offset of this host's clock from rank 0's |
//! | [`missing`] | ranks that have not come when others have waited too long |
//! | [`shared`] | commands, results, and why the run ended: what both threads see |
//!
//! The main thread's side is [`crate::handle`]; bytes on a connection are in [`crate::channel`].

pub(crate) mod clock;
pub(crate) mod collective;
pub(crate) mod control;
pub(crate) mod exchange;
pub(crate) mod missing;
pub(crate) mod node;
pub(crate) mod node_handle;
mod protocol;
pub(crate) mod shape;
pub(crate) mod shared;
mod stopped;
pub(crate) mod watch;
