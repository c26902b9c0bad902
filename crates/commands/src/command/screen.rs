//! Coordinates messages and the rows of a run on the terminal: the rows are cleared for a message and redrawn below it.
//!
//! Messages of other processes, such as the supervisor's, are not coordinated and appear between the rows.

use std::io::{Write, stderr};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

/// The rows and the progress line currently on the terminal.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Registers the bar that messages must appear above; `None` when it is gone.
pub fn set_bar(bar: Option<ProgressBar>) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}

/// Runs `write` while the bar is cleared from the terminal.
pub fn with_bar_cleared(write: impl FnOnce()) {
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
