//! Where the bytes live.

/// Memory that engines can register.
pub trait Memory: Send + Sync {}
