//! The time limit of a run (`--time-limit`). Before each point and after each trial, rank 0's clock decides whether the
//! next one still fits. A trial of unknown length that does not end in time is stopped by [`TimeLimit::watch`].

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tonnage_ranks::{Alarm, Rank};
use tonnage_units::{Error, Nanos, Result};

use crate::deadlines::DEADLINES;

/// Part of the limit that is kept free, so that the last point can be completed and the results printed.
const RESERVED_PART: u32 = 20;
const RESERVED_MIN: Duration = Duration::from_millis(300);
const RESERVED_MAX: Duration = Duration::from_secs(3);

/// The time limit of a run.
#[derive(Debug, Clone, Copy)]
pub struct TimeLimit {
    limit: Nanos,
    end: Instant,
}

impl TimeLimit {
    /// Creates the limit of a run that began at this moment.
    pub fn new(limit: Nanos, began: Instant) -> Self {
        let end = began + Duration::from_nanos(limit.0);
        Self { limit, end }
    }

    /// Length of the limit.
    pub fn limit(&self) -> Nanos {
        self.limit
    }

    /// Remark for the record of a point that was cut short by the limit.
    pub fn remark(&self) -> String {
        format!("cut short by the time limit of {}", self.limit)
    }

    /// Returns whether the remaining time is too short for a step that takes `needed`. All ranks call this together and
    /// get rank 0's answer.
    pub fn is_too_short(&self, rank: &mut Rank, needed: Duration) -> Result<bool> {
        let mine = (rank.id() == 0).then(|| vec![u8::from(self.left() < needed)]);
        let what = "whether the time limit leaves time";
        let answer = rank.broadcast(what, mine, DEADLINES.step)?;
        Ok(answer.first() == Some(&1))
    }

    /// Time left for measuring, by this rank's clock.
    pub fn left(&self) -> Duration {
        let reserved = Duration::from_nanos(self.limit.0) / RESERVED_PART;
        let reserved = reserved.clamp(RESERVED_MIN, RESERVED_MAX);
        let left = self.end.saturating_duration_since(Instant::now());
        left.saturating_sub(reserved)
    }

    /// Ends the run when the limit has passed, unless the returned sender is dropped before.
    pub fn watch(self, alarm: Alarm) -> Result<Sender<()>> {
        let (ended_by_drop, ended) = channel::<()>();
        let wait = move || {
            let left = self.end.saturating_duration_since(Instant::now());
            if ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                alarm.raise(&Error::TimeLimit(self.limit));
            }
        };
        let thread = std::thread::Builder::new().name("time limit".into());
        // The thread is not joined: it ends with the process, or soon after the sender is dropped.
        match thread.spawn(wait) {
            Ok(_) => Ok(ended_by_drop),
            Err(error) => Err(Error::start_error("the thread of --time-limit", &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_the_limit_is_kept_for_the_end() {
        let left = |limit: u64| {
            let limit = Nanos(limit * 1_000_000_000);
            TimeLimit::new(limit, Instant::now()).left().as_secs_f64()
        };
        assert!((left(2) - 1.7).abs() < 0.1);
        assert!((left(20) - 19.0).abs() < 0.1);
        assert!((left(600) - 597.0).abs() < 0.1);
        assert_eq!(left(0), 0.0);
    }
}
