//! Longest times that ranks wait for each other. All of them are derived from one duration.
//!
//! A dead or stopped rank is found much earlier, by the heartbeat (see `tonnage_ranks`). The deadlines here end waits
//! for a rank that is alive but does not arrive.

use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

/// Deadlines of the run. They are the defaults unless `bind` was called before the ranks met.
pub static DEADLINES: RunDeadlines = RunDeadlines(OnceLock::new());

/// Default deadlines, without a budget.
const USUAL: Deadlines = Deadlines::from_step(Duration::from_secs(60));

/// Smallest deadline for stalls. A shorter one would end runs that a busy machine merely delays.
const STALL_MIN: Duration = Duration::from_secs(1);

/// Time that the cause of a failure needs to reach all ranks.
const CAUSE_MIN: Duration = Duration::from_millis(250);

/// Longest times that ranks may take for each kind of wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Between two steps that all ranks take, in addition to the planned time of a step.
    pub step: Duration,
    /// For a trial that is given by its number of operations, so that its duration is unknown.
    pub operations: Duration,
    /// For a phase on files, which may move as many bytes as a file system holds.
    pub phase: Duration,
    /// Until a completed operation of a peer is visible in this rank's memory.
    pub arrival: Duration,
    /// For operations without progress, in addition to the time in which a lost rank or host is found. This leaves time
    /// for a network that was repaired, because networks retry at growing intervals. The heartbeat can also report
    /// first, and it knows the cause.
    pub stall: Duration,
    /// From an engine's failure until the control channel reports the cause, for example the end of another rank.
    pub cause: Duration,
}

impl Deadlines {
    /// Derives all deadlines from the longest time between two steps.
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

    /// Derives all deadlines for a run that must end within a budget.
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

/// Deadlines that are set once per process.
#[derive(Debug)]
pub struct RunDeadlines(OnceLock<Deadlines>);

impl RunDeadlines {
    /// Limits every wait to the budget of the whole run. Later calls have no effect.
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
    fn no_deadline_exceeds_the_budget() {
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
