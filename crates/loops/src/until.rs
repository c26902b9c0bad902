//! Decides when to stop issuing operations: after a number of operations, or at a time. To stop at a time, it need not
//! read the clock for each operation.

use tonnage_sys::clock::Clock;

/// Interval between clock reads if only the end of the trial depends on the clock. Overshooting a 200 ms trial by 50 µs
/// changes nothing, because a measured interval ends with the last completion, not at the planned time.
const CHECK_EVERY_NS: u64 = 50_000;

/// Grants permission to issue operations.
#[derive(Debug)]
pub struct Until {
    end: LoopEnd,
    /// Operations left.
    left: u64,
}

#[derive(Debug)]
enum LoopEnd {
    Operations,
    Time { clock: Clock, countdown: TimeBudget },
}

/// Estimates the remaining time from few clock reads.
#[derive(Debug)]
struct TimeBudget {
    end_ns: u64,
    credit: u64,
    granted: u64,
    checked_ns: u64,
    begun: bool,
    closed: bool,
}

impl TimeBudget {
    fn new(now_ns: u64, end_ns: u64) -> Self {
        Self {
            end_ns,
            credit: 1,
            granted: 0,
            checked_ns: now_ns,
            begun: false,
            closed: false,
        }
    }

    /// Returns whether `want` more operations may be issued. Reads the clock only if necessary.
    #[inline]
    fn may_issue(&mut self, want: u64, now_ns: impl FnOnce() -> u64) -> bool {
        if self.credit < want && !self.closed {
            let now = now_ns();
            self.closed = self.begun && now >= self.end_ns;
            let left_ns = self.end_ns.saturating_sub(now);
            self.credit = next_credit(self.granted, now - self.checked_ns, left_ns);
            (self.granted, self.checked_ns) = (0, now);
        }
        if self.closed {
            return false;
        }
        self.begun = true;
        self.credit = self.credit.saturating_sub(want);
        self.granted += want;
        true
    }
}

impl Until {
    /// Stops after `count` operations (or batches, or round trips).
    pub fn operations(count: u64) -> Self {
        Self {
            end: LoopEnd::Operations,
            left: count,
        }
    }

    /// Stops at `end_ns` on the clock's scale; the loop starts now. A loop that got no CPU time until then still does
    /// one group of operations (or batches, or round trips): a trial without operations would measure nothing.
    pub fn time(clock: Clock, end_ns: u64) -> Self {
        let countdown = TimeBudget::new(clock.now_ns(), end_ns);
        Self {
            end: LoopEnd::Time { clock, countdown },
            left: u64::MAX,
        }
    }

    /// Stops after at most `count` operations.
    #[must_use]
    pub fn at_most(mut self, count: u64) -> Self {
        self.left = self.left.min(count);
        self
    }

    /// Returns how many of `want` operations may be issued now.
    #[inline]
    pub fn grant(&mut self, want: usize) -> usize {
        let want = (want as u64).min(self.left);
        let granted = match &mut self.end {
            LoopEnd::Operations => want,
            LoopEnd::Time { clock, countdown } => {
                match countdown.may_issue(want, || clock.now_ns()) {
                    true => want,
                    false => 0,
                }
            }
        };
        self.left -= granted;
        granted as usize
    }
}

/// Number of operations until the next clock read, estimated from the rate of the last ones. At most four times the
/// previous number, so that one fast burst cannot carry the loop far past its end.
fn next_credit(granted: u64, took_ns: u64, left_ns: u64) -> u64 {
    let aim_ns = CHECK_EVERY_NS.min(left_ns / 2);
    let by_rate = u128::from(granted) * u128::from(aim_ns) / u128::from(took_ns.max(1));
    u64::try_from(by_rate)
        .unwrap_or(u64::MAX)
        .clamp(1, granted.saturating_mul(4).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_count_ends_it_before_its_time() {
        let clock = Clock::new();
        let mut until = Until::time(clock, clock.now_ns() + 60_000_000_000).at_most(5);
        let granted: Vec<usize> = [3, 3, 1].map(|want| until.grant(want)).to_vec();
        assert_eq!(granted, [3, 2, 0]);
    }

    #[test]
    fn operations_are_counted_exactly() {
        let mut until = Until::operations(100).at_most(200);
        let total: usize = (0..10).map(|_| until.grant(16)).sum();
        assert_eq!(total, 100);
    }

    #[test]
    fn time_ends_near_its_end_with_few_clock_reads() {
        let clock = Clock::new();
        let start = clock.now_ns();
        let mut until = Until::time(clock, start + 20_000_000);
        while until.grant(1) == 1 {
            std::hint::black_box(());
        }
        let took = clock.now_ns() - start;
        assert!(took >= 20_000_000, "stopped {took} ns after the start");
    }

    /// Issues operations of 100 ns each until the countdown ends. Returns the end time and the number of clock reads.
    fn counted_down(end_ns: u64, want: u64) -> (u64, u32) {
        let (start_ns, mut reads) = (7_000_000, 0);
        let mut now_ns = start_ns;
        let mut countdown = TimeBudget::new(start_ns, start_ns + end_ns);
        let mut grants = |now_ns: u64| {
            countdown.may_issue(want, || {
                reads += 1;
                now_ns
            })
        };
        while grants(now_ns) {
            now_ns += 100 * want;
        }
        assert!(!grants(now_ns), "an ended countdown grants nothing");
        (now_ns - start_ns, reads)
    }

    #[test]
    fn the_clock_is_read_about_every_50_us() {
        for want in [1, 4] {
            let (took_ns, reads) = counted_down(20_000_000, want);
            assert!((20_000_000..20_100_000).contains(&took_ns), "{took_ns}");
            // About 400 reads in steady state, a few while the rate is being estimated, and a few near the end.
            assert!((400..460).contains(&reads), "{reads} readings");
        }
        // At the end time itself, the countdown is over.
        assert_eq!(counted_down(100, 1), (100, 1));
        let mut countdown = TimeBudget::new(0, 100);
        assert!(countdown.may_issue(1, || panic!("the first one is granted")));
    }

    #[test]
    fn a_loop_that_begins_after_its_end_still_does_something() {
        let clock = Clock::new();
        for want in [1, 16] {
            let mut until = Until::time(clock, clock.now_ns());
            assert_eq!(until.grant(want), want);
            let more: usize = (0..10).map(|_| until.grant(want)).sum();
            assert!(more <= want, "{more} more of {want}");
        }
    }

    #[test]
    fn credit_follows_the_rate_and_shrinks_towards_the_end() {
        assert_eq!(next_credit(0, 0, 1_000_000), 1);
        assert_eq!(next_credit(1000, 50_000, 1_000_000), 1000);
        assert_eq!(next_credit(1000, 100_000, 1_000_000), 500);
        assert_eq!(next_credit(1000, 50_000, 10_000), 100);
        assert_eq!(next_credit(10, 1, 1_000_000), 40);
    }
}
