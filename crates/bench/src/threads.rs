//! Starting threads. One that the system does not start is an error here, where the standard library's scopes panic.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use tonnage_units::{Error, Result};

/// Starts a thread that `what` names, such as `worker 3`.
///
/// # Errors
/// When the system starts no more of them, with what to change.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    what: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let started = Builder::new().name(what.into()).spawn_scoped(scope, work);
    started.map_err(|error| Error::not_started(format!("a thread ({what})"), &error))
}
