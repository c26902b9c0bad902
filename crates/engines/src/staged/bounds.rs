//! The option's name, and how much is in flight.

/// The option's name.
pub(super) const STAGING: &str = "staging";

/// Operations in flight on a lane, at most.
pub(super) const DEPTH_MAX: u32 = 256;
