//! The contract between code that moves bytes and code that measures it: everything that the author of an engine or a
//! memory needs.
//!
//! An **engine** moves bytes. Its list row, an [`Entry`], describes the engine before it is opened, and opens it. A
//! [`Domain`] is one of the engine's devices, shared by a rank's workers. An [`Engine`] belongs to one worker.
//!
//! A **memory** holds bytes. Its list row, a [`MemoryEntry`](memory::MemoryEntry), allocates a
//! [`Memory`](memory::Memory). A worker's engine registers memories; a [`Region`] is a registered memory.
//!
//! A [`Lane`] holds everything that stays the same from one operation to the next, resolved once: verb, peer, both
//! regions, promises. An [`Op`] then holds offsets only, and a [`Completion`] reports how the operation
//! [ended](Ending).
//!
//! | module | contents, in the order in which an author meets them |
//! | --- | --- |
//! | `name` | how users write the name of an engine or a memory |
//! | `entry` | an engine's list row, and the arguments for opening it |
//! | `options`, `library` | the engine's own options; the libraries that it loads, and their process-wide state |
//! | `domain` | a device: its capabilities, its report, its workers |
//! | `engine` | a worker's calls: register, connect, lane, post, poll |
//! | `operation` | operations, completions, and the lanes that carry operations |
//! | `tables` | numbered tables in which engines keep lanes and regions |
//! | `failure` | why an operation failed |
//! | [`paths`] | several paths for each flow, over any engine |
//! | `report` | choices and grants to record |
//! | [`memory`] | where bytes live |
//! | [`pattern`] | the data written for verification |
//! | [`carried`] | workers that run trials elsewhere |
//! | [`calls`] | the contract for file engines |
//! | [`backend`], [`backends`] | the contract for collectives, and the backends that need ranks and engines |
//! | `lists` | the lists that a program passes down |
//! | `testing` | a device, its workers and a memory for tests, behind the feature `testing` |
//!
//! The calls of a worker, in order:
//!
//! ```text
//! Entry::open → Domain::worker → register(memory) → endpoint_addresses(peers) ⇄ connect(peers) → meet
//!     → lane(verb, peer, regions) → post, poll, … flush, poll → release_lane(lane) → deregister(region)
//! ```
//!
//! Not in this crate: the engines and memories themselves (`tonnage_engines`), the loops that drive them
//! (`tonnage_loops`), ranks, plans and records. docs/ADDING-AN-ENGINE.md walks through a complete engine.
//!
//! Rules that the types cannot express:
//!
//! - `post` and `poll` allocate nothing, take no lock and read no clock.
//! - Every operation that `post` took completes exactly once.
//! - Both sides check every offset, because a peer may be faulty or hostile.
//! - A missing capability is an [`Unavailable`](tonnage_units::Error::Unavailable) error that explains how to get it.
//!   There is no silent fallback.

// Authors of engines in other crates read this documentation, so every public item has some.
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

pub use domain::{BoundKind, Caps, DeviceMemoryAccess, Domain, WorkerConfig};
pub use engine::{ArmOutcome, EndpointAddress, Engine, Flush, Locality, PeerEndpoint, RailLoad};
pub use entry::{DeviceRequest, Domains, Entry, OpenRequest, PlannedMemory};
pub use failure::Failure;
pub use library::{BeforeJoin, Libraries, Library, Lifecycle};
pub use lists::{Lists, find};
pub use name::{NameVariant, split_name};
pub use operation::{
    Access, Completion, Descriptor, Ending, Lane, LaneKind, LaneSpec, Op, Peer, Region, RegionId,
    Verb, WORD_BYTES,
};
pub use options::{EngineOption, EngineOptions, OptionKind, OptionsOwner, check_options};
pub use report::{EngineReport, Fact, Facts, LibraryReport, fact_names};
pub use tables::{LaneTable, RegionTable, move_waiting, never_connected};
pub use tonnage_units::{WireDevice, WireKind};
