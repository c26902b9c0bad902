//! Memory files that a rank and its worker both map: inputs, output and time stamps.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tonnage_sys::clock::monotonic_ns;
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

use tonnage_loops::calls::CallSpan;

/// Inputs in the ring begin at multiples of this. It suits every element type, and inputs don't share cache lines.
const SLOT_ALIGNMENT_BYTES: u64 = 64;

/// Number of words per iteration: one time stamp at its start and one at its end.
const STAMP_WORDS: u64 = 2;

/// Memory of a rank's input and output.
///
/// The inputs form a ring, so that the iterations of a run can have different data. Iteration i uses slot (first + i)
/// mod slots. With two slots, a result that is left over from the previous iteration is detected as wrong. With one
/// slot, all iterations have the same data.
#[derive(Debug, Clone)]
pub struct TorchBuffers {
    /// The memory file: all inputs, followed by the output.
    pub arena: Arc<Arena>,
    /// Offset of the output.
    pub output: u64,
    /// Distance in bytes between two inputs.
    pub slot_bytes: u64,
    /// Number of inputs in the ring.
    pub slots: u32,
}

impl TorchBuffers {
    /// Allocates memory for `slots` inputs and an output.
    pub(super) fn new(input_bytes: u64, output_bytes: u64, slots: u32) -> Result<Self> {
        let slots = slots.max(1);
        let slot_bytes = input_bytes.next_multiple_of(SLOT_ALIGNMENT_BYTES);
        let output = slot_bytes.saturating_mul(u64::from(slots));
        let bytes = output.saturating_add(output_bytes);
        Ok(Self {
            arena: allocate_shared(bytes, "inputs and the output")?,
            output,
            slot_bytes,
            slots,
        })
    }

    /// Returns the offset of an input.
    pub fn input_offset(&self, slot: u32) -> u64 {
        u64::from(slot % self.slots) * self.slot_bytes
    }

    pub(super) fn file(&self) -> Result<BorrowedFd<'_>> {
        file(&self.arena)
    }
}

/// Time stamps of a run. The worker writes them during its calls.
#[derive(Debug)]
pub(super) struct TimeStamps {
    memory: Arc<Arena>,
}

impl TimeStamps {
    pub(super) fn new(iterations: u64) -> Result<Self> {
        let bytes = iterations.saturating_mul(STAMP_WORDS * 8);
        Ok(Self {
            memory: allocate_shared(bytes, "time stamps")?,
        })
    }

    pub(super) fn holds(&self, iterations: u64) -> bool {
        iterations.saturating_mul(STAMP_WORDS * 8) <= self.memory.len() as u64
    }

    pub(super) fn file(&self) -> Result<BorrowedFd<'_>> {
        file(&self.memory)
    }

    /// Clears the stamps of the previous run.
    pub(super) fn clear(&self, iterations: u64) {
        for iteration in 0..iterations {
            for word in 0..STAMP_WORDS {
                if let Some(word) = self.memory.word((iteration * STAMP_WORDS + word) * 8) {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    fn word(&self, iteration: u64, word: u64) -> u64 {
        let offset = (iteration * STAMP_WORDS + word) * 8;
        let found = self.memory.word(offset);
        found.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Returns how many of `iterations` iterations have ended. At least `known` have ended already.
    pub(super) fn count_ended(&self, known: u64, iterations: u64) -> u64 {
        (known..iterations)
            .find(|&iteration| self.word(iteration, 1) == 0)
            .unwrap_or(iterations)
    }

    /// Returns the time until the next iteration is overdue. It is counted from the end of iteration `ended - 1`.
    pub(super) fn time_until_overdue(&self, ended: u64, limit: Duration) -> Duration {
        let last_ns = self.word(ended.saturating_sub(1), 1);
        let since_ns = monotonic_ns().saturating_sub(last_ns);
        limit.saturating_sub(Duration::from_nanos(since_ns))
    }

    pub(super) fn span(&self, iteration: u64) -> CallSpan {
        CallSpan {
            begin_ns: self.word(iteration, 0),
            end_ns: self.word(iteration, 1),
        }
    }
}

fn allocate_shared(bytes: u64, what: &str) -> Result<Arc<Arena>> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let made = Arena::allocate(bytes, Pages::Normal, Sharing::Shared, None);
    made.map(Arc::new).map_err(|error| {
        Error::io(
            format!("cannot make a memory file of {bytes} bytes for {what} of torch's worker"),
            error,
        )
    })
}

fn file(memory: &Arena) -> Result<BorrowedFd<'_>> {
    let missing = || Error::Failed("a memory file of torch's worker has no descriptor".into());
    memory.file().ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_a_ring_do_not_touch() {
        let buffers = TorchBuffers::new(100, 8, 3).unwrap();
        let offsets = [0, 1, 2, 3].map(|slot| buffers.input_offset(slot));
        assert_eq!(offsets, [0, 128, 256, 0]);
        assert_eq!(buffers.output, 384);
        assert!(buffers.arena.len() >= 392);
    }

    #[test]
    fn an_iteration_counts_once_its_end_is_stamped() {
        let stamps = TimeStamps::new(4).unwrap();
        assert!(stamps.holds(4) && !stamps.holds(1000));
        let put = |word: u64, value| {
            let word = stamps.memory.word(word * 8).unwrap();
            word.store(value, Ordering::Relaxed);
        };
        put(0, 10);
        assert_eq!(stamps.count_ended(0, 4), 0);
        put(1, 30);
        assert_eq!(stamps.count_ended(0, 4), 1);
        let span = CallSpan {
            begin_ns: 10,
            end_ns: 30,
        };
        assert_eq!(stamps.span(0), span);
        stamps.clear(4);
        assert_eq!(stamps.count_ended(0, 4), 0);
    }
}
