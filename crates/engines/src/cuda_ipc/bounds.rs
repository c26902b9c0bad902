//! Name and bounds of the engine.

/// The engine's name.
pub(super) const NAME: &str = "cuda-ipc";

/// Operations in flight on a stream, at most: a driver that holds more makes the caller wait.
pub(super) const IN_FLIGHT_MAX: u32 = 256;
