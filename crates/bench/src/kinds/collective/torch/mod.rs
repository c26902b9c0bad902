//! Calls of torch.distributed. Each rank has a Python process, its *worker*, which makes the calls and times them.
//!
//! A worker takes orders over a socket, one JSON line each, and answers each with one line. Data and time stamps are in
//! memory files that both map. Workers find each other through the control channel of the ranks, so nothing listens on
//! a port without checking the secret.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `workers` | [`TorchWorkers`], the backend: the workers of all ranks |
//! | [`backend`], [`call`] | the libraries of torch.distributed; one collective call, and which calls torch makes in
//! place |
//! | [`worker`] | [`TorchWorker`]: its settings, and a method for each order |
//! | [`buffers`] | the memory files |
//! | [`failure`] | [`WorkerFailure`], and which rank's failure is reported |
//! | `process` | the process: start, last output lines, stack, end |
//! | `channel`, `worker_connection` | the socket; the orders and answers over it, and failures in place of answers |
//! | `rounds` | commands for all workers at once, during which entries of the store travel between them |
//! | `worker/*.py` | the worker's source, which is embedded in this program |
//!
//! A worker's life: [`TorchWorker::start`], [`TorchWorker::init`], then for each call [`TorchWorker::probe`],
//! [`TorchWorker::prepare`], any number of [`TorchWorker::run`] and [`TorchWorker::fetch`], and finally
//! [`TorchWorker::close`]. All ranks call `init` and `probe` together. The others concern one rank only;
//! [`failure::agree`] combines their failures. After any failure except a missing feature all ranks drop their workers,
//! because their state is unknown.

pub mod backend;
pub mod buffers;
pub mod call;
mod channel;
pub mod failure;
mod process;
mod rounds;
#[cfg(test)]
mod tests;
pub mod worker;
mod worker_connection;
mod workers;

pub use backend::TorchBackend;
pub use buffers::TorchBuffers;
pub use call::{TorchCall, is_in_place};
pub use failure::WorkerFailure;
pub use worker::{RunOrder, TorchVersions, TorchWorker, WorkerSettings};
pub use workers::TorchWorkers;
