//! Refusing what cannot be measured, before a rank starts.

use tonnage_engine::Entry;
use tonnage_units::{Error, Result};

/// An error that says what is wrong and what to write instead.
///
/// # Errors
/// Always `Usage`.
pub(crate) fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Usage(message.into()))
}

/// Refuses an engine whose ranks are threads of one process, for an experiment whose ranks are processes.
///
/// # Errors
/// `Usage` for such an engine.
pub(crate) fn one_process(entry: &Entry, experiment: &str) -> Result<()> {
    if !entry.one_process {
        return Ok(());
    }
    usage(format!(
        "engine {} moves bytes within one process, and the ranks of {experiment} are processes: use `tonnage transfer` \
         ([[transfer]] in a plan), or an engine between processes, as `tonnage devices` lists them",
        entry.name
    ))
}
