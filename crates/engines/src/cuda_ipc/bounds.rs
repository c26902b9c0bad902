//! Bounds of the engine.

/// Operations in flight on a stream, at most: a driver that holds more makes the caller wait, whose queue has some
/// thousand places for up to four commands of each operation, the copy, two words and the event.
pub(super) const IN_FLIGHT_MAX: u32 = 128;
