//! Prints notices while ranks wait for each other, because a silent wait looks like a hang.

use std::time::{Duration, Instant};

use tonnage_units::message::print_message;

/// Wait before the first notice, longer than most starts take.
const FIRST: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_secs(15);

/// Decides when a waiting rank prints a notice.
pub(super) struct WaitNotice {
    next: Instant,
    deadline: Instant,
}

impl WaitNotice {
    /// Creates the notices of a wait that begins now and ends at `deadline`.
    pub(super) fn new(deadline: Instant) -> Self {
        Self {
            next: Instant::now() + FIRST,
            deadline,
        }
    }

    /// Returns the time at which [`Self::print_if_due`] must be called next.
    pub(super) fn due(&self) -> Instant {
        self.next.min(self.deadline)
    }

    /// If a notice is due, prints the reason for the wait and the time left.
    pub(super) fn print_if_due(&mut self, awaited: impl FnOnce() -> String) {
        let now = Instant::now();
        if now < self.next || now >= self.deadline {
            return;
        }
        self.next = now + INTERVAL;
        let left = self.deadline.duration_since(now).as_secs_f64();
        print_message(&format!("waiting for {} ({left:.0} s left)", awaited()));
    }
}
