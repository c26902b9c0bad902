//! Transfers between the memories of processes, by any engine of tonnage: over shared memory, or over a network by
//! libfabric.
//!
//! A [`Transport`] is an engine that was opened by name. A [`TransferEndpoint`] is what one thread owns of it. Memory
//! is registered with an endpoint, endpoints are connected by [cards](EndpointCard), and a [`Session`] is a local
//! memory, a remote memory and a peer, resolved once: its operations name offsets only. Each returns a [`Ticket`], to
//! poll or to wait for; those of an [`AsyncSession`] are futures, which an [`Executor`] runs.
//!
//! Two endpoints, of one process here; between two processes cards and memories travel as lines of text, by whatever
//! channel there is:
//!
//! ```
//! use std::time::Duration;
//! use tonnage_transfer::{
//!     EndpointCard, EndpointConfig, RemoteMemory, TransferResult, Transport, TransportOptions,
//! };
//!
//! # fn main() -> TransferResult<()> {
//! const TIMEOUT: Duration = Duration::from_secs(10);
//! let transport = Transport::open("shm", &TransportOptions::default())?;
//! let one = transport.endpoint(&EndpointConfig::new(1))?;
//! let two = transport.endpoint(&EndpointConfig::new(2))?;
//! let source = one.allocate("host", 4096)?;
//! let target = two.allocate("host", 4096)?;
//!
//! let (to_two, to_one) = (one.card_for(2)?.encode(), two.card_for(1)?.encode());
//! one.connect(&[EndpointCard::decode(&to_one)?], TIMEOUT)?;
//! two.connect(&[EndpointCard::decode(&to_two)?], TIMEOUT)?;
//! let remote = RemoteMemory::decode(&target.remote().encode())?;
//!
//! let session = one.session(&source, &remote)?;
//! source.write(0, b"hello")?;
//! session.write_imm(0, 100, 5, 7)?.wait(TIMEOUT)?;
//!
//! assert_eq!(two.wait_arrival(TIMEOUT)?.imm, 7);
//! let mut bytes = [0; 5];
//! target.read(100, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Promises and duties:
//!
//! - **Threads.** An endpoint and everything of it belong to one thread; there are no locks. A [`Transport`] and its
//!   engine's device can be shared.
//! - **Progress.** Nothing happens in the background. Bytes move while somebody polls, over sockets also at the target:
//!   who only serves calls [`TransferEndpoint::progress`] or [`TransferEndpoint::arrival`] now and then. Who wants to
//!   sleep in between asks [`TransferEndpoint::arm`] for the descriptor to sleep on.
//! - **Ends.** A write that is done has left; that it has arrived is proved by [`Session::flush`], by
//!   [`SessionOptions::delivered`], or by the peer's own look at a write-imm's arrival. Operations have no order. A
//!   target of plain writes into memory of a GPU calls [`TransferEndpoint::flush_incoming`] once it was told that they
//!   have ended, before the GPU looks at them.
//! - **Failures** are [`TransferError`]s of a kind, with operation, peer and device. When a peer dies, its operations
//!   end as failed: as the engine reports them, and where its process can be seen (same host, same container) as soon
//!   as the engine has nothing more to say of them. What it sent before an orderly end arrives.
//!   A machine that vanishes from a network is seen when the engine gives up; every wait has a deadline for that.
//!   Plain writes over shared memory succeed until the end of the peer's process has been seen, at the latest at the
//!   1024th call that posts or polls, or when [`Session::alive`] is asked.
//! - **Dropping** a ticket, a future, a session or a memory with operations in flight neither waits nor cancels: what
//!   was lent to them stays lent until they have ended. The memory of a peer is not protected by this side: it has to
//!   stay registered as long as anybody uses it.
//! - **Trust.** Peers are what they were connected as. Offsets are checked on both sides; a [`RemoteMemory`] lets
//!   whoever holds it read and write that memory, and is not encrypted.
//! - **Speed.** Posting and polling with a session allocates nothing, takes no lock and reads no clock.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `transport` | engines by their names |
//! | `endpoint` | endpoints: memory, connecting, arrivals, ends of many operations at once, sleeping |
//! | `session`, `ticket` | operations, and waiting for them |
//! | `extent` | what is handed over for an operation, and told of its end |
//! | `future`, `executor` | operations as futures |
//! | `named` | operations without a session |
//! | `memory`, `card` | memory; what processes tell each other |
//! | `state`, `progress`, `flights`, `slab`, `cell` | inside: what an endpoint owns, and how its handles share it |
//! | `place` | which host and container a process is on, and its end |
//! | `error` | errors |
//!
//! Engines are in `tonnage_engines` and their contract in [`tonnage_engine`]; measuring them is in other crates.
//! Nothing here knows ranks or plans.

// Authors of other crates read these docs; other crates have comments where they help.
#![warn(missing_docs, clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

mod card;
mod cell;
mod endpoint;
mod error;
mod executor;
mod extent;
mod flights;
mod future;
mod memory;
#[cfg(test)]
mod mock;
mod named;
mod place;
mod progress;
mod session;
mod slab;
mod state;
#[cfg(test)]
mod tests;
mod ticket;
mod transport;

pub use card::{EndpointCard, RemoteId, RemoteMemory};
pub use endpoint::{EndpointConfig, EngineParts, Readiness, TransferEndpoint};
pub use error::{TransferError, TransferErrorKind, TransferResult};
pub use executor::Executor;
pub use extent::{Extent, QueuedExtent, TicketEnd};
pub use flights::TransferStatus;
pub use future::{AsyncSession, TransferFuture};
pub use memory::{DmabufMemory, LocalMemory, caller_memory};
pub use named::LaneSource;
pub use session::Session;
pub use state::{ArrivedWrite, LocalId, SessionOptions};
pub use ticket::Ticket;
pub use tonnage_engine::{Peer, Verb};
pub use tonnage_sys::mapping::Arena;
pub use transport::{Transport, TransportOptions};
