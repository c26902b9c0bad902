//! An allocator that counts requests, for tests and benchmarks that check that a loop allocates nothing.
//!
//! A test binary makes it the global allocator; the program itself never does. Counts are kept per thread, because
//! other threads of a test (the peer, the test harness) allocate at any time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with per-thread counts of requests.
///
/// ```
/// use tonnage_sys::counting_alloc::{Counting, counts};
///
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting;
///
/// fn main() {
///     let before = counts();
///     drop(std::hint::black_box(Box::new(1)));
///     let during = counts().since(before);
///     assert_eq!((during.allocations, during.frees), (1, 1));
/// }
/// ```
#[derive(Debug, Default, Clone, Copy)]
pub struct Counting;

/// Requests of one thread to the allocator since it started; all zero if [`Counting`] is not the global allocator.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Bytes requested by allocations and reallocations. A reallocation counts its whole new size.
    pub allocated_bytes: u64,
    /// Blocks freed.
    pub frees: u64,
}

impl Counts {
    /// Returns the requests between `before` and this.
    pub fn since(self, before: Self) -> Self {
        Self {
            allocations: self.allocations.wrapping_sub(before.allocations),
            allocated_bytes: self.allocated_bytes.wrapping_sub(before.allocated_bytes),
            frees: self.frees.wrapping_sub(before.frees),
        }
    }
}

thread_local! {
    // Constant and without a destructor: access never allocates and works until the thread ends.
    static COUNTS: Cell<Counts> = const {
        Cell::new(Counts {
            allocations: 0,
            allocated_bytes: 0,
            frees: 0,
        })
    };
}

/// The counts of the calling thread.
pub fn counts() -> Counts {
    COUNTS.with(Cell::get)
}

fn count_allocation(bytes: usize) {
    COUNTS.with(|counts| {
        let mut now = counts.get();
        now.allocations = now.allocations.wrapping_add(1);
        now.allocated_bytes = now.allocated_bytes.wrapping_add(bytes as u64);
        counts.set(now);
    });
}

fn count_free() {
    COUNTS.with(|counts| {
        let mut now = counts.get();
        now.frees = now.frees.wrapping_add(1);
        counts.set(now);
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged, so the system's guarantees hold here; counting
// touches only a thread-local cell, never allocates and never unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count_allocation(bytes);
        // SAFETY: the caller's promise is passed on, and `block` came from the same allocator.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_free();
        // SAFETY: the caller's promise is passed on, and `block` came from the same allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test binary keeps the ordinary allocator, so this test calls [`Counting`] directly.
    #[test]
    fn every_kind_of_request_is_counted_and_works() {
        let before = counts();
        let small = Layout::from_size_align(100, 8).unwrap();
        let large = Layout::from_size_align(200, 8).unwrap();
        // SAFETY: each block is used within its size, reallocated and freed once with the layout that it has then.
        unsafe {
            let block = Counting.alloc(small);
            assert!(!block.is_null());
            block.write_bytes(7, 100);
            let block = Counting.realloc(block, small, 200);
            assert!(!block.is_null());
            assert_eq!(block.add(99).read(), 7);
            Counting.dealloc(block, large);
            let block = Counting.alloc_zeroed(large);
            assert!(!block.is_null());
            assert_eq!(block.add(199).read(), 0);
            Counting.dealloc(block, large);
        }
        let expected = Counts {
            allocations: 3,
            allocated_bytes: 500,
            frees: 2,
        };
        assert_eq!(counts().since(before), expected);
    }

    #[test]
    fn each_thread_has_counts_of_its_own() {
        count_free();
        let other = std::thread::spawn(counts).join().unwrap();
        assert_eq!(other, Counts::default());
        assert!(counts().frees > 0);
    }
}
