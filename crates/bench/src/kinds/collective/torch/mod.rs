//! Calls of torch.distributed: a process of Python for each rank, its *worker*, which makes them and times them.
//!
//! A worker takes orders over a socket, one JSON line each, and answers each with one line. Data and time stamps lie in
//! memory files that both have mapped. A worker meets the others through the control channel of the ranks: nothing
//! listens that did not ask for the secret.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `contender` | [`Torch`], the backend: workers of all ranks |
//! | [`backend`], [`call`] | the libraries of torch.distributed; one collective call, and what torch does in place |
//! | [`worker`] | [`TorchWorker`]: choices for it, and its orders, one method each |
//! | [`buffers`] | the memory files |
//! | [`failure`] | [`WorkerFailure`], and which of several ranks' failures is the first |
//! | `process` | the process: its start, its last lines, its stack, its end |
//! | `channel`, `conversation` | the socket, what is said over it, and failures instead of answers |
//! | `rounds` | orders that all ranks carry out together, while entries of the store travel between them |
//! | `worker/*.py` | the worker's own source, which is part of this program |
//!
//! A worker's life: [`TorchWorker::start`], [`TorchWorker::init`], then for each call [`TorchWorker::probe`],
//! [`TorchWorker::prepare`], any number of [`TorchWorker::run`] and [`TorchWorker::fetch`], and [`TorchWorker::close`].
//! `init` and `probe` are for all ranks together; the others concern this rank only, and their failures are to be
//! brought together by [`failure::agree`]. After a failure other than a missing thing all ranks drop their workers:
//! nobody knows where they stand.

pub mod backend;
pub mod buffers;
pub mod call;
mod channel;
mod contender;
mod conversation;
pub mod failure;
mod process;
mod rounds;
#[cfg(test)]
mod tests;
pub mod worker;

pub use backend::TorchBackend;
pub use buffers::TorchBuffers;
pub use call::{TorchCall, is_in_place};
pub use contender::Torch;
pub use failure::WorkerFailure;
pub use worker::{RunOrder, TorchFound, TorchWorker, WorkerSettings};
