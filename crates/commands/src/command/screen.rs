//! Keeps messages and the rows of a run apart on the terminal: the rows are cleared for a message and drawn again below
//! it.
//!
//! Messages of other processes, such as the supervisor, do not clear the rows and may appear between them.

use std::io::{Write, stderr};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

/// The rows and the progress line that are on the terminal now.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Sets the bar above which messages must appear. `None` removes it.
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

/// Writes messages to standard error, above the bar.
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
