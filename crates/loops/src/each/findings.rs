//! Results of comparing operations. A worker's engine adds results, and the worker reads them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tonnage_units::lock::lock;

/// Results since the last [`Self::take`].
#[derive(Debug, Default)]
pub struct ComparisonFindings {
    moved_bytes: AtomicU64,
    right_bytes: AtomicU64,
    wrong: AtomicU64,
    first_wrong: Mutex<Option<String>>,
    passes: AtomicBool,
    is_settled: AtomicBool,
}

/// Results of one end's comparisons.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrialFindings {
    /// Payload of the compared operations.
    pub moved_bytes: u64,
    /// Compared bytes that were correct.
    pub right_bytes: u64,
    /// The first difference, and the number of wrong operations.
    pub wrong: Option<String>,
}

impl ComparisonFindings {
    /// Counts an operation: bytes moved, and bytes that were compared and correct.
    pub(super) fn count(&self, moved_bytes: u64, right_bytes: u64) {
        self.moved_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
        self.right_bytes.fetch_add(right_bytes, Ordering::Relaxed);
    }

    /// Records a difference.
    #[cold]
    pub(super) fn record_difference(&self, what: String) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        lock(&self.first_wrong).get_or_insert(what);
    }

    /// Returns the results since the last call and resets them.
    pub fn take(&self) -> TrialFindings {
        let count = self.wrong.swap(0, Ordering::Relaxed);
        let first = lock(&self.first_wrong).take();
        TrialFindings {
            moved_bytes: self.moved_bytes.swap(0, Ordering::Relaxed),
            right_bytes: self.right_bytes.swap(0, Ordering::Relaxed),
            wrong: first.map(|first| match count {
                1 => first,
                _ => format!("{first}; {count} operations in total are wrong"),
            }),
        }
    }

    /// Sets whether operations pass without comparison, as they do outside trials.
    pub fn set_pass_through(&self, passes: bool) {
        self.passes.store(passes, Ordering::Relaxed);
    }

    /// Notes whether peers know the outcome of all operations that they announced, and no message is being written.
    pub(super) fn set_settled(&self, is_settled: bool) {
        self.is_settled.store(is_settled, Ordering::Relaxed);
    }

    /// Returns the value that the last poll set with `set_settled`.
    pub fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    pub(super) fn is_pass_through(&self) -> bool {
        self.passes.load(Ordering::Relaxed)
    }
}
