//! The screen that messages and the rows of a run share: a message takes the rows away, and they come back below it.
//!
//! Messages of other processes, such as the supervisor's, are not known here: they end up between the rows.

use std::io::{Write, stderr};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

/// The rows and the line of progress that stand on the screen now.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Makes messages stand above this; `None` when it has gone.
pub fn stands(bar: Option<ProgressBar>) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}

/// Does something on the screen while nothing stands there.
pub fn above(write: impl FnOnce()) {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Standard error for messages.
pub struct MessageWriter;

impl Write for MessageWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bar {
            Some(bar) => bar.suspend(|| stderr().write(bytes)),
            None => stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        stderr().flush()
    }
}
