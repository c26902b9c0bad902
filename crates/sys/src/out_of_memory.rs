//! An allocator that reports exhausted memory in one line. The standard library's own reaction is an abort, which
//! leaves a core file and does not name the rank.
//!
//! Memory for payload is not allocated here: it is mapped, and a failure there is an ordinary error.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Cursor, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::process::end_at_once;

/// Maximum length of the message.
const LINE_BYTES_MAX: usize = 512;

/// Name of this process for the message, prepared while there is memory. It is global, because the allocator is global.
static WHO: OnceLock<String> = OnceLock::new();
/// Better name of a process that learns its rank later.
static RANK: OnceLock<String> = OnceLock::new();

/// Exit code of the process.
static CODE: AtomicU8 = AtomicU8::new(1);

/// The system's allocator, which ends the process when memory is exhausted, with code 1 or the code set by
/// [`end_with`].
#[derive(Debug, Default, Clone, Copy)]
pub struct OrEnd;

/// Sets the name of this process, such as `rank 1 on node7`. Only the first call has an effect.
pub fn introduce(who: String) {
    // A second call has no effect, as documented.
    let _ = WHO.set(who);
}

/// Sets a better name of this process, once its rank is known. Only the first call has an effect.
pub fn introduce_rank(who: String) {
    // As above.
    let _ = RANK.set(who);
}

/// Returns the name of this process.
pub fn who() -> &'static str {
    let said = RANK.get().or_else(|| WHO.get());
    said.map_or("tonnage", String::as_str)
}

/// Sets the exit code, for processes in which 1 has another meaning.
pub fn end_with(code: u8) {
    CODE.store(code, Ordering::SeqCst);
}

// SAFETY: every call is passed on to the system's allocator unchanged, so its guarantees hold here too. If the system
// has no memory, the process ends, without allocating and without unwinding.
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

/// Prints a line on standard error and ends the process at once. An orderly exit could need memory, or wait for a
/// thread that is stuck. Such a thread may also hold the lock of standard error, so the lock is not taken.
pub fn end_with_line(line: &[u8]) -> ! {
    // SAFETY: the bytes are those of the slice. If the line cannot be written, it is lost.
    let _ = unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    end_at_once(CODE.load(Ordering::SeqCst))
}

/// Writes the line without allocating, and returns its length.
fn describe(bytes: usize, line: &mut [u8]) -> usize {
    let who = who();
    let mut text = Cursor::new(line);
    // A line that is too long is truncated.
    let _ = writeln!(
        text,
        "error: {who}: out of memory: cannot allocate {bytes} more bytes. Raise the memory limit of the job or \
         container (ulimit -v), or use fewer ranks, a smaller footprint or a smaller depth"
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
        assert!(text.ends_with("a smaller depth\n"), "{text}");
        assert_eq!(describe(1, &mut [0; 20]), 20);
        introduce_rank("rank 7 on h1".into());
        introduce("somebody else".into());
        assert_eq!(who(), "rank 7 on h1");
    }
}
