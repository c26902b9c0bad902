//! Threads that read pipes, and the lines in them.

use std::io::{BufRead, BufReader, Read};

use tonnage_units::{Error, Result};

/// Bytes of a line; what is longer is several lines. A record has less.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Starts a thread that nobody waits for.
pub(super) fn thread(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().spawn(work);
    started
        .map(drop)
        .map_err(|error| Error::not_started("a thread", &error))
}

/// Reads lines until the end; each is given without what ends it.
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
