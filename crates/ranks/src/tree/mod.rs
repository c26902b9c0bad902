//! One rank in the tree of ranks: its node, and the two threads that use the node.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`shape`] | parents and children; the open connections of one rank |
//! | [`node`] | the state of one rank: connections, messages in and out, and periodic work |
//! | [`protocol`] | the node's reaction to each message |
//! | [`control`] | the control thread, which waits for events, detects silent peers, and ends the run |
//! | [`stopped`] | ranks of this host that are stopped (SIGSTOP) when the run ends |
//! | [`node_handle`] | access for other threads: entering collectives and waiting for them |
//! | [`watch`] | which of the two threads wakes up for a connection |
//! | [`collective`] | contributions on their way up the tree and results on their way down |
//! | [`exchange`] | messages for single ranks, and their routes through the tree |
//! | [`clock`] | offset of this host's clock from rank 0's |
//! | [`missing`] | ranks that are missing in a collective |
//! | [`shared`] | state shared by both threads: commands, results, and why the run ended |
//!
//! A run ends early in these steps. The node records the first cause, which comes from this rank or from another one.
//! The control thread announces this cause to the other ranks and to the main thread. Rank 0 reports it. If rank 0 is
//! lost, each of its children does, unless a supervisor reports the loss. A process whose main thread does not end
//! within a grace period is ended, if the settings allow that.
//!
//! The main thread's side is [`crate::handle`]. The bytes on a connection are handled in [`crate::channel`].

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
