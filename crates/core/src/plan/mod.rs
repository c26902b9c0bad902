//! What a user asks for, and the list of points it expands to.

pub mod point;
pub mod sweep;
