//! A thing that is missing on this host: why, and how to get it.

use serde::{Deserialize, Serialize};

/// Something that was looked for and cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Name of the thing.
    pub what: String,
    /// The finding: the place that was looked at, and what it showed.
    pub why: String,
    /// The way to have it, with the exact command where there is one.
    pub how: String,
}

impl Absent {
    pub(super) fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        how: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
            how: how.into(),
        }
    }
}
