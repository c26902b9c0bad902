//! The control thread of a rank, and what it shares with the main thread.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`settings`] | what the thread is told at its start |
//! | [`shape`] | parents and children; the open connections of one rank |
//! | [`link`] | one connection, and the rank behind it |
//! | [`control`] | the thread: it waits, sends, notices silence, ends the run |
//! | [`protocol`] | its reaction to each message |
//! | [`collective`] | contributions on their way up the tree and results on their way down |
//! | [`exchange`] | messages for single ranks, and which way they go |
//! | [`clock`] | offset of this host's clock from rank 0's |
//! | [`missing`] | ranks that have not come when others have waited too long |
//! | [`terms`] | what all who enter a collective must agree on |
//! | [`shared`] | commands, results, and why the run ended: what both threads see |
//!
//! The main thread's side is [`crate::handle`]; bytes on a connection are in [`crate::channel`].

pub(crate) mod clock;
pub(crate) mod collective;
pub(crate) mod control;
pub(crate) mod exchange;
mod link;
pub(crate) mod missing;
mod protocol;
pub(crate) mod settings;
pub(crate) mod shape;
pub(crate) mod shared;
pub(crate) mod terms;
