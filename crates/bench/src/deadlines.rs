//! Longest waits of ranks for each other, all of it derived from one time.
//!
//! A rank that is dead or stopped is found by the heartbeat (see `tonnage_ranks`) long before any of these pass; they
//! end the waiting for one that lives and does not come.

use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

/// The deadlines of the run: usual ones, unless they were bound before its ranks met.
pub static DEADLINES: RunDeadlines = RunDeadlines(OnceLock::new());

/// Deadlines where nobody said how long a step may take.
const USUAL: Deadlines = Deadlines::from_step(Duration::from_secs(60));

/// Shorter ones would end what a busy machine only delays.
const STALL_MIN: Duration = Duration::from_secs(1);

/// Time until all ranks know what one says.
const CAUSE_MIN: Duration = Duration::from_millis(250);

/// Longest times that ranks may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Between two steps that all ranks take, and beyond the time that was planned for one.
    pub step: Duration,
    /// For a trial whose length is given in operations: nobody knows how long those take.
    pub operations: Duration,
    /// For a phase on files, which may move as many bytes as a file system holds.
    pub phase: Duration,
    /// Until what a peer has completed is seen in this rank's memory.
    pub arrival: Duration,
    /// For operations that make no progress, beyond the time in which a lost rank or host is found: a mended network
    /// tries again at growing intervals, and what the heartbeat finds says more.
    pub stall: Duration,
    /// From an engine's failure until the control channel tells its cause, which may be another rank's end.
    pub cause: Duration,
}

impl Deadlines {
    /// Derives all of them from the time that ranks may take between two steps.
    pub const fn from_step(step: Duration) -> Self {
        Self {
            step,
            operations: step.saturating_mul(60),
            phase: step.saturating_mul(7 * 24 * 60),
            arrival: Duration::from_nanos(step.as_nanos() as u64 / 6),
            stall: Duration::from_nanos(step.as_nanos() as u64 / 30),
            cause: Duration::from_nanos(step.as_nanos() as u64 / 120),
        }
    }

    /// Derives all of them for a run that has to end within a budget.
    fn within(budget: Duration) -> Self {
        let plain = Self::from_step(budget);
        Self {
            operations: budget,
            phase: budget,
            stall: plain.stall.max(STALL_MIN),
            cause: plain.cause.max(CAUSE_MIN),
            ..plain
        }
    }
}

/// Deadlines that are settled once in the life of a process.
#[derive(Debug)]
pub struct RunDeadlines(OnceLock<Deadlines>);

impl RunDeadlines {
    /// Bounds every wait by the time that the whole run has. Later calls change nothing.
    pub fn bind(&self, budget: Duration) {
        self.0.get_or_init(|| Deadlines::within(budget));
    }
}

impl Deref for RunDeadlines {
    type Target = Deadlines;

    fn deref(&self) -> &Deadlines {
        self.0.get().unwrap_or(&USUAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_step_makes_every_deadline_longer() {
        let (short, long) = (USUAL, Deadlines::from_step(USUAL.step * 2));
        let all = |of: Deadlines| {
            [
                of.cause,
                of.stall,
                of.arrival,
                of.step,
                of.operations,
                of.phase,
            ]
        };
        assert!(all(short).is_sorted());
        assert_eq!(all(short).map(|each| each * 2), all(long));
        assert_eq!(short.cause, Duration::from_millis(500));
        assert_eq!(short.phase, Duration::from_secs(7 * 24 * 3600));
    }

    #[test]
    fn nothing_outlasts_a_budget() {
        let budget = Duration::from_secs(5);
        let bound = Deadlines::within(budget);
        assert_eq!(
            (bound.step, bound.operations, bound.phase),
            (budget, budget, budget)
        );
        assert_eq!((bound.stall, bound.cause), (STALL_MIN, CAUSE_MIN));
        assert_eq!(*DEADLINES, USUAL);
    }
}
