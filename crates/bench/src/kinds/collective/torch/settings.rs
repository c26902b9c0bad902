//! Choices for a worker.

use std::time::Duration;

use super::backend::TorchBackend;

/// Choices for a worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Python, as a path or a name that is looked up.
    pub python: String,
    /// The library that is called.
    pub backend: TorchBackend,
    /// CPUs that the rank was started with, before it was pinned; the worker gets them all.
    pub cpus: Vec<u32>,
    /// Number of the GPU that holds the tensors; `None` for this host's memory.
    pub gpu: Option<u32>,
    /// Network interface that gloo and NCCL are told to use, unless the environment names one.
    pub interface: Option<String>,
    /// Longest time of one call, and of an order that makes none.
    pub timeout: Duration,
}
