//! Bounds of the engine.

/// Operations in flight on a stream, at most: a driver that holds more makes the caller wait.
pub(super) const IN_FLIGHT_MAX: u32 = 256;
