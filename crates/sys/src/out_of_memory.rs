//! An allocator that says in one line when memory has run out. The standard library's own way is an abort, which leaves
//! a core file and does not say whose memory it was.
//!
//! Memory that bytes are moved through is no part of this: it is mapped, and what is refused there is an error.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Cursor, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::process::end_at_once;

/// Longest line that is written.
const LINE_BYTES_MAX: usize = 512;

/// Words for this process, which are made while there is memory. A global, because the allocator is one.
static WHO: OnceLock<String> = OnceLock::new();
/// Better words, of a process that learns later which rank it is.
static RANK: OnceLock<String> = OnceLock::new();

/// Code with which the process ends.
static CODE: AtomicU8 = AtomicU8::new(1);

/// The system's allocator, which ends the process, with code 1 unless [`end_with`] says another, where that has
/// nothing left.
#[derive(Debug, Default, Clone, Copy)]
pub struct OrEnd;

/// States who this process is, such as `rank 1 on node7`. The first call counts.
pub fn introduce(who: String) {
    // A second call changes nothing, as promised.
    let _ = WHO.set(who);
}

/// States who this process is once that is known better. The first call counts.
pub fn introduce_rank(who: String) {
    // As above.
    let _ = RANK.set(who);
}

/// The words for this process.
pub fn who() -> &'static str {
    let said = RANK.get().or_else(|| WHO.get());
    said.map_or("tonnage", String::as_str)
}

/// Sets the code with which the process ends, for those whom 1 tells something else.
pub fn end_with(code: u8) {
    CODE.store(code, Ordering::SeqCst);
}

// SAFETY: every call is passed on to the system's allocator unchanged, so its guarantees are these; where it has
// nothing to give the process ends, without allocating and without unwinding.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on, and `block` came from the same allocator.
        given(unsafe { System.realloc(block, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on, and `block` came from the same allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

fn given(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() {
        end(bytes);
    }
    block
}

#[cold]
fn end(bytes: usize) -> ! {
    let mut line = [0; LINE_BYTES_MAX];
    let len = describe(bytes, &mut line).min(LINE_BYTES_MAX);
    end_with_line(&line[..len])
}

/// Ends the process at once, after a line on standard error. An orderly end could want memory, or wait for a thread that
/// is stuck; such a thread may also hold the lock of standard error, which is therefore not taken.
pub fn end_with_line(line: &[u8]) -> ! {
    // SAFETY: the bytes are those of the slice. A line that cannot be written is lost.
    let _ = unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    end_at_once(CODE.load(Ordering::SeqCst))
}

/// Writes the line without allocating, and returns its length.
fn describe(bytes: usize, line: &mut [u8]) -> usize {
    let who = who();
    let mut text = Cursor::new(line);
    // A line that is too long is cut.
    let _ = writeln!(
        text,
        "error: {who}: out of memory: {bytes} more bytes were refused. Raise the limit of the job or container (ulimit -v), \
         or use fewer ranks, a smaller footprint or a smaller window"
    );
    usize::try_from(text.position()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_process_and_is_never_too_long() {
        introduce(format!("rank 1 on {}", "n".repeat(40)));
        let mut line = [0; LINE_BYTES_MAX];
        let len = describe(usize::MAX, &mut line);
        let text = std::str::from_utf8(&line[..len]).unwrap();
        assert!(text.starts_with("error: rank 1 on nnn"), "{text}");
        assert!(text.ends_with("a smaller window\n"), "{text}");
        assert_eq!(describe(1, &mut [0; 20]), 20);
        introduce_rank("rank 7 on h1".into());
        introduce("somebody else".into());
        assert_eq!(who(), "rank 7 on h1");
    }
}
