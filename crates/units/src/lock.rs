//! Locking for state that a panic cannot leave half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even a poisoned one. A panic of its holder does not invalidate this state, and the other threads must
/// go on or at least be notified.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
