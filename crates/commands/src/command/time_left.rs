//! Estimates the time that a run still takes, for the progress line.

use std::time::{Duration, Instant};

use tonnage_plan::Planned;

/// Assumed time per point for opening engines and measuring its bound, until points of the run show the real time.
const OVERHEAD_OF_POINT: Duration = Duration::from_millis(400);

/// Estimates the time left in a run from the planned times of its points and the time that finished points took.
#[derive(Debug)]
pub struct TimeLeft {
    /// Planned time of each point. `None` if the time depends on the speed.
    planned: Vec<Option<Duration>>,
    /// Number of runs that follow this one.
    later_runs: u32,
    began: Instant,
}

impl TimeLeft {
    /// Creates an estimate for a run of these points that starts now and is followed by `later_runs` equal runs.
    pub fn new(points: &[Planned], later_runs: u32) -> Self {
        let planned = points.iter();
        Self {
            planned: planned.map(|it| it.point.any().planned_time()).collect(),
            later_runs,
            began: Instant::now(),
        }
    }

    /// Returns the time left when point `next` begins. `None` if the points so far do not allow an estimate.
    pub fn at(&self, next: usize) -> Option<Duration> {
        self.estimate(next, self.began.elapsed())
    }

    fn estimate(&self, next: usize, elapsed: Duration) -> Option<Duration> {
        let (done, ahead) = self.planned.split_at_checked(next)?;
        let sum = |points: &[Option<Duration>]| points.iter().flatten().sum::<Duration>();
        let unknown =
            |points: &[Option<Duration>]| points.iter().filter(|it| it.is_none()).count() as u32;
        // Elapsed time that was not planned: the time of points of unknown length, and the overhead of each point.
        let extra = elapsed.saturating_sub(sum(done));
        let of_unknown = match (unknown(ahead), unknown(done)) {
            (0, _) => Duration::ZERO,
            (_, 0) => return None,
            (ahead, done) => extra / done * ahead,
        };
        let overhead = match done.len() as u32 {
            0 => OVERHEAD_OF_POINT,
            count if unknown(done) == 0 => extra / count,
            _ => Duration::ZERO,
        };
        let left = sum(ahead) + of_unknown + overhead * ahead.len() as u32;
        Some(left + (left + elapsed) * self.later_runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(planned_s: &[Option<u64>], later_runs: u32) -> TimeLeft {
        let planned = planned_s.iter();
        TimeLeft {
            planned: planned.map(|it| it.map(Duration::from_secs)).collect(),
            later_runs,
            began: Instant::now(),
        }
    }

    fn at(left: &TimeLeft, next: usize, elapsed_s: u64) -> Option<f64> {
        let estimate = left.estimate(next, Duration::from_secs(elapsed_s));
        estimate.map(|left| left.as_secs_f64())
    }

    #[test]
    fn overhead_of_the_first_points_is_expected_of_the_others() {
        let all = left(&[Some(2), Some(2), Some(4)], 0);
        assert_eq!(at(&all, 0, 0), Some(9.2));
        // Each of two points took 3 s instead of the planned 2 s.
        assert_eq!(at(&all, 2, 6), Some(5.0));
        assert_eq!(
            at(&left(&[Some(2), Some(2)], 2), 1, 3),
            Some(3.0 + 2.0 * 6.0)
        );
    }

    #[test]
    fn points_of_unknown_length_take_as_long_as_the_first_of_them() {
        let all = left(&[None, None, Some(1), None], 0);
        assert_eq!(at(&all, 0, 0), None);
        assert_eq!(at(&all, 1, 5), Some(11.0));
        assert_eq!(at(&all, 4, 16), Some(0.0));
    }
}
