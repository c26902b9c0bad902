//! Preserves signal handlers during calls of C libraries that replace them.
//!
//! PSM, which many builds of libfabric load, replaces existing handlers with its own, and ends the process without a
//! message on a signal.

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// Signals with preserved actions: signals that end a run, and signals of crashes.
const KEPT: [libc::c_int; 6] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGSEGV,
];

/// Calls `work`, then restores the previous actions of the signals.
pub(crate) fn keeping<T>(work: impl FnOnce() -> T) -> T {
    // Without this lock, one of two concurrent calls could save the handlers that the other call's library has
    // installed.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = KEPT.map(|signal| (signal, action(signal)));
    let outcome = work();
    for (signal, action) in before {
        if let Some(action) = action {
            // SAFETY: the action is one that the system returned for this signal. Its handler still exists: it belongs
            // to this program or to a library that was loaded before.
            let code = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
            debug_assert_eq!(code, 0, "a known signal");
        }
    }
    outcome
}

/// Returns the current action of a signal.
fn action(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action changes nothing, and `action` is valid for the one write.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call wrote it if it returned 0.
    (code == 0).then(|| unsafe { action.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(signal: libc::c_int) -> usize {
        action(signal).unwrap().sa_sigaction
    }

    #[test]
    fn replaced_handlers_are_restored() {
        for signal in [libc::SIGTERM, libc::SIGILL] {
            let before = handler(signal);
            keeping(|| {
                // SAFETY: ignoring a signal runs no handler.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
                assert_eq!(handler(signal), libc::SIG_IGN);
            });
            assert_eq!(handler(signal), before);
            assert_ne!(before, libc::SIG_IGN);
        }
    }
}
