//! Calls of torch.distributed. Each rank has a Python process, its *worker*, which makes the calls and times them.
//!
//! A rank sends orders to its worker over a socket, one line of JSON each. The worker answers each order with one line.
//! Data and time stamps are in memory files that the rank and its worker both map. Workers find each other through the
//! control channel of the ranks. So they need no listening port that accepts peers without the run's secret.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `workers` | [`TorchWorkers`], the backend: the workers of all ranks |
//! | [`backend`], [`call`] | the libraries of torch.distributed; one collective call, and whether torch makes it in
//! place |
//! | [`worker`] | [`TorchWorker`]: its settings, and a method per order |
//! | [`buffers`] | the memory files |
//! | [`failure`] | [`WorkerFailure`], and which rank's failure is reported |
//! | `process` | the process: start, last output lines, stack, end |
//! | `channel`, `worker_connection` | the socket; the orders and answers that it carries, and failures in place of
//! answers |
//! | `rounds` | orders for all workers at once, during which workers exchange entries of their store |
//! | `worker/*.py` | the worker's source, which is embedded in this program |
//!
//! A worker begins with [`TorchWorker::start`] and [`TorchWorker::init`]. Each call needs [`TorchWorker::probe`] and
//! [`TorchWorker::prepare`], then any number of [`TorchWorker::run`] and [`TorchWorker::fetch`]. [`TorchWorker::close`]
//! ends the worker. All ranks call `init` and `probe` together. The other methods concern one rank only, and
//! [`failure::agree`] combines their failures. After a failure, all ranks drop their workers, because the workers'
//! state is unknown. A missing feature is the only exception.

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
