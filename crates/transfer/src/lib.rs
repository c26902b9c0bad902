//! Moves bytes between the memories of processes over any tonnage engine, such as shared memory or libfabric.
//!
//! A [`Transport`] is an engine opened by name, and a [`TransferEndpoint`] is one thread's part of it. Memory is
//! registered with an endpoint, and endpoints are connected by their [addresses](PeerAddress). A [`Session`] resolves a
//! local memory, a remote memory and a peer once, so that its operations contain only offsets. Each operation returns a
//! [`Ticket`] to poll or wait for. The operations of an [`AsyncSession`] are futures, which an [`Executor`] runs.
//!
//! This example connects two endpoints of one process. Two processes exchange addresses and memories as lines of text,
//! over any channel that the programs have:
//!
//! ```
//! use std::time::Duration;
//! use tonnage_transfer::{
//!     EndpointConfig, PeerAddress, RemoteMemory, TransferResult, Transport, TransportOptions,
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
//! let (to_two, to_one) = (one.address_for(2)?.encode(), two.address_for(1)?.encode());
//! one.connect(&[PeerAddress::decode(&to_one)?], TIMEOUT)?;
//! two.connect(&[PeerAddress::decode(&to_two)?], TIMEOUT)?;
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
//! Guarantees and obligations:
//!
//! - **Threads.** An endpoint and everything created from it belong to one thread; there are no locks. Threads can
//!   share a [`Transport`].
//! - **Progress.** Nothing happens in the background. Bytes move only while a thread polls. With sockets, the target
//!   must poll too: a thread that is only a target regularly calls [`TransferEndpoint::progress`] or
//!   [`TransferEndpoint::arrival`]. [`TransferEndpoint::arm`] returns a descriptor to sleep on between polls.
//! - **Completion.** A completed write has left this side. Its arrival is proved by [`Session::flush`], by
//!   [`SessionOptions::delivered`], or by the peer's own completion of a write-imm. Operations are not ordered. The
//!   target of plain writes into GPU memory must call [`TransferEndpoint::flush_incoming`] after the writes have
//!   completed and before the GPU reads the bytes.
//! - **Failures** are [`TransferError`]s with a kind, an operation, a peer and a device. When a peer dies, operations
//!   with it fail when the engine reports their failure. If the peer's process is visible (same host, same container),
//!   they fail as soon as the engine reports no more completions. Everything that the peer sent before an orderly exit
//!   still arrives. A machine that vanishes from a network is detected when the engine gives up; every wait has a
//!   deadline for this case. Plain writes over shared memory succeed until the end of the peer's process is detected.
//!   That happens at the latest at the 1024th call that posts or polls, or when [`Session::is_alive`] is called.
//! - **Dropping** a ticket, a future, a session or a memory with operations in flight neither waits nor cancels. Memory
//!   used by these operations stays in use until they have ended. This side cannot protect a peer's memory: the peer
//!   must keep it registered as long as other endpoints use it.
//! - **Trust.** A peer's identity is not verified: the endpoint connects to whatever its address names. Offsets are
//!   checked on both sides. Anyone who has a [`RemoteMemory`] can read and write that memory. Traffic is not encrypted.
//! - **Speed.** Posting and polling with a session allocate nothing, take no lock and read no clock.
//!
//! | module | contents |
//! | --- | --- |
//! | `transport` | engines by name |
//! | `endpoint` | endpoints: memory, connecting, arrivals, completions of many operations, sleeping |
//! | `session`, `ticket` | operations, and waiting for them |
//! | `extent` | operations as a caller posts them, and the reports of their ends |
//! | `future`, `executor` | operations as futures |
//! | `named` | operations without a session |
//! | `memory`, `address` | memory, and the addresses that processes exchange |
//! | `state`, `progress`, `flights`, `slab`, `cell` | internal: an endpoint's state, shared by its handles |
//! | `place` | the host and container of a process, and detection of its end |
//! | `error` | errors |
//!
//! Engines are in `tonnage_engines`, and their contract is in [`tonnage_engine`]. Benchmarks, ranks and plans are in
//! other crates.

// Authors of other programs read this documentation, so every public item has some.
#![warn(missing_docs, clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

mod address;
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

pub use address::{PeerAddress, RemoteId, RemoteMemory};
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
