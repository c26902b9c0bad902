//! The contract between what moves bytes and what measures it: all that the author of an engine or a memory needs.
//!
//! An **engine** is what moves bytes. Its row of the list, an [`Entry`], says what can be known before it is opened and
//! opens it; a [`Domain`] is one of its devices, shared by a rank's workers; an [`Engine`] is what one worker owns. A
//! **memory** is where bytes live: a row of the list, a [`MemoryEntry`](memory::MemoryEntry), allocates a
//! [`Memory`](memory::Memory). A worker's engine registers memories; a [`Region`] is a memory as the engine knows it. A
//! [`Lane`] is everything that stays the same from one operation to the next, resolved once: verb, peer, both regions,
//! promises. An [`Op`] then names offsets only, and a [`Completion`] says how it [ended](Ending).
//!
//! | module | what lives there, in the order in which an author meets it |
//! | --- | --- |
//! | `name` | how users write the name of an engine or a memory |
//! | `entry` | the row of the list, and what an engine is opened with |
//! | `options`, `library` | options of its own; libraries that it loads, and what those need that live with their process |
//! | `domain` | a device: its capabilities, its report, its workers |
//! | `engine` | a worker's calls: register, connect, lane, post, poll |
//! | `operation` | what passes through the timed loops |
//! | `tables` | lanes and regions by number, for engines to keep theirs in |
//! | `failure` | why an operation failed |
//! | [`paths`] | several paths for each flow, over any engine |
//! | `report` | what was chosen and granted, for the record |
//! | [`memory`] | where bytes live |
//! | [`pattern`] | what is written to be verified |
//! | [`carried`] | workers whose trials are carried out elsewhere |
//! | [`calls`] | the same contract for files |
//! | [`backend`], [`backends`] | that of collectives, and rows of those that need ranks and engines |
//! | `lists` | the lists that a program hands down |
//! | `testing` | a device, its workers and a memory for tests, behind the feature of that name |
//!
//! A worker's life, in calls:
//!
//! ```text
//! Entry::open → Domain::worker → register(memory) → cards(peers) ⇄ connect(cards) → meet
//!     → lane(verb, peer, regions) → post, poll, … flush, poll → release(lane) → deregister(region)
//! ```
//!
//! What does not live here: the engines and memories themselves (`tonnage_engines`), the loops that drive them
//! (`tonnage_loops`), ranks, plans and records. docs/ADDING-AN-ENGINE.md walks through a complete engine.
//!
//! Rules that the types cannot say: `post` and `poll` allocate nothing, take no lock and read no clock; every operation
//! that was taken completes exactly once; a peer may be wrong or worse, so every offset is checked on both sides; what
//! is missing is an [`Unavailable`](tonnage_units::Error::Unavailable) that says how to get it, never something else
//! instead.

// Authors of other crates read these docs; other crates have comments where they help.
#![warn(missing_docs, clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

pub mod backend;
pub mod backends;
pub mod calls;
pub mod carried;
mod domain;
mod engine;
mod entry;
mod failure;
mod library;
mod lists;
pub mod memory;
mod name;
mod operation;
mod options;
pub mod paths;
pub mod pattern;
mod report;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use domain::{Caps, DeviceMemoryBy, Domain, LimitKind, WorkerConfig};
pub use engine::{Arm, Card, Engine, Flush, Locality, Neighbor, RailLoad};
pub use entry::{DeviceRequest, Domains, Entry, OpenRequest, RankMemory};
pub use failure::Failure;
pub use library::{BeforeJoin, Libraries, Library, Lifecycle};
pub use lists::{Lists, find};
pub use name::{Variant, split_name};
pub use operation::{
    Addresses, Completion, Descriptor, Ending, Lane, LaneKind, LaneSpec, Op, Peer, Region,
    RegionId, Verb, WORD_BYTES,
};
pub use options::{EngineOption, EngineOptions, OptionKind, OptionsOf, check_options};
pub use report::{EngineReport, Fact, Facts, LibraryReport, fact_names};
pub use tables::{Lanes, Regions, never_connected, take_waiting};
pub use tonnage_units::{WireDevice, WireKind};
