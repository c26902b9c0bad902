//! End of issuing operations: after a number of them, or at a time without reading the clock for each.

use tonnage_sys::clock::Clock;

/// The clock is read about this often when only the end of the trial depends on it. Overshooting a 200 ms trial by 50
/// µs changes nothing, since a window ends with the last completion and not with the planned time.
const CHECK_EVERY_NS: u64 = 50_000;

/// Hands out permission to issue operations.
#[derive(Debug)]
pub struct Until {
    end: End,
}

#[derive(Debug)]
enum End {
    Operations {
        left: u64,
    },
    Time {
        clock: Clock,
        end_ns: u64,
        credit: u64,
        granted: u64,
        checked_ns: u64,
        begun: bool,
        closed: bool,
    },
}

impl Until {
    /// Stops after `count` operations (or batches, or round trips).
    pub fn operations(count: u64) -> Self {
        Self {
            end: End::Operations { left: count },
        }
    }

    /// Stops at `end_ns` on the clock's scale; the loop starts now. A loop that the system kept from beginning until
    /// then still does one operation (or batch, or round trip): a trial of none would measure nothing.
    pub fn time(clock: Clock, end_ns: u64) -> Self {
        let checked_ns = clock.now_ns();
        Self {
            end: End::Time {
                clock,
                end_ns,
                credit: 1,
                granted: 0,
                checked_ns,
                begun: false,
                closed: false,
            },
        }
    }

    /// Number of the `want` operations that may be issued now.
    #[inline]
    pub fn grant(&mut self, want: usize) -> usize {
        match &mut self.end {
            End::Operations { left } => {
                let granted = (want as u64).min(*left);
                *left -= granted;
                granted as usize
            }
            End::Time {
                clock,
                end_ns,
                credit,
                granted,
                checked_ns,
                begun,
                closed,
            } => {
                if *credit < want as u64 && !*closed {
                    let now = clock.now_ns();
                    *closed = *begun && now >= *end_ns;
                    *credit = next_credit(*granted, now - *checked_ns, end_ns.saturating_sub(now));
                    (*granted, *checked_ns) = (0, now);
                }
                if *closed {
                    return 0;
                }
                *begun = true;
                *credit = credit.saturating_sub(want as u64);
                *granted += want as u64;
                want
            }
        }
    }
}

/// Number of operations until the clock is read again, from how fast the last ones went. At most four times as many as
/// last time, so that one fast burst cannot carry the loop far past its end.
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
    fn operations_are_counted_exactly() {
        let mut until = Until::operations(100);
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
