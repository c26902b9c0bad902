//! Options that belong together, under one heading of the help.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A group of options.
pub trait Group: clap::Args + Default + Serialize + DeserializeOwned {
    /// The values that hold where nothing is said, for help and for expansion; those that depend on other options are
    /// left to the doc comment.
    fn defaults() -> Self {
        Self::default()
    }
}
