//! Mutexes of state that a panic cannot leave half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also a poisoned one: a panic of its holder does not make such state wrong, and the others go on or
/// must still be told.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
