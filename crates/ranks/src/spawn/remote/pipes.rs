//! Starts detached threads, and reads lines from pipes.

use std::io::{BufRead, BufReader, Read};

use tonnage_units::{Error, Result};

/// Limit on the length of a line, which records never reach. Longer lines are split.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Starts a detached thread.
pub(super) fn thread(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().spawn(work);
    started
        .map(drop)
        .map_err(|error| Error::start_error("a thread", &error))
}

/// Reads lines until the end, and passes each to `hear` without its newline.
pub(super) fn lines(from: impl Read, mut hear: impl FnMut(&[u8])) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while (&mut reader)
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .is_ok_and(|bytes| bytes > 0)
    {
        hear(line.strip_suffix(b"\n").unwrap_or(&line));
        line.clear();
    }
}
