//! Offset of this host's clock from rank 0's, estimated along the tree.
//!
//! Each rank asks its parent for its clock, several times when it joins and again with every heartbeat, and believes
//! the answer that leaves the least doubt: the true offset cannot be further from the middle of a round trip than half
//! of it, and clocks drift apart as the answer grows old. The parent's own estimate is added. Ranks of one boot share
//! one clock, so there the offset is exactly 0.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::ClockOffset;
use crate::channel::message::Head;

/// Round trips at the beginning, before anything is estimated; and those to a parent whose clock is the same, which
/// tell only how long the way is.
const SAMPLES: u32 = 16;
const SAMPLES_OF_ONE_CLOCK: u32 = 4;

/// Two clocks gain on each other by less than one part in so many (100 ppm): the crystals of computers are specified to
/// 50 ppm or better.
const DRIFT_ONE_IN: u64 = 10_000;

/// Nanoseconds that two clocks may have come apart in so many.
fn drift_ns(age_ns: u64) -> u64 {
    age_ns.div_ceil(DRIFT_ONE_IN)
}

/// Nanoseconds of this host's `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock counts from boot, so neither part is negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// An estimate against rank 0 and the path that it was made over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) clock: ClockOffset,
    /// Round trips of all links to rank 0, added up.
    pub(crate) path_rtt_ns: u64,
}

/// This rank's estimate, of which the doubt grows from when it was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KnownClock {
    /// At the time below.
    pub(crate) base: Base,
    /// Time by this clock; `None` where the clock is rank 0's own.
    pub(crate) known_ns: Option<u64>,
}

impl KnownClock {
    /// The estimate at a time of this clock.
    pub(crate) fn at(&self, now_ns: u64) -> ClockOffset {
        let age_ns = self
            .known_ns
            .map_or(0, |known_ns| now_ns.saturating_sub(known_ns));
        let ClockOffset {
            offset_ns,
            uncertainty_ns,
        } = self.base.clock;
        ClockOffset {
            offset_ns,
            // Both of this clock's way to rank 0's: its own drift from the parent's, and the parent's from rank 0's.
            uncertainty_ns: uncertainty_ns.saturating_add(2 * drift_ns(age_ns)),
        }
    }
}

/// One answer of the parent.
#[derive(Debug, Clone, Copy)]
struct Sample {
    rtt_ns: u64,
    offset_ns: i64,
    /// Time by this clock at which it came.
    came_ns: u64,
}

impl Sample {
    /// The most that it can be off by now.
    fn doubt_ns(&self, now_ns: u64) -> u64 {
        let age_ns = now_ns.saturating_sub(self.came_ns);
        self.rtt_ns.div_ceil(2).saturating_add(drift_ns(age_ns))
    }
}

/// The clock that a rank is compared with.
enum Against {
    /// Rank 0's is its own.
    Itself,
    /// The parent's, once it has told what it knows of rank 0's, with the time by this clock at which it came.
    Parent(Option<(Base, u64)>),
}

/// The state of one rank's estimate.
pub(crate) struct ClockSync {
    samples_left: u32,
    best: Option<Sample>,
    against: Against,
    same_boot: bool,
    /// Time by this clock of the last question that came after those of the beginning.
    asked_ns: u64,
}

impl ClockSync {
    /// Rank 0 needs no estimate.
    pub(crate) fn root() -> Self {
        Self {
            samples_left: 0,
            best: None,
            against: Against::Itself,
            same_boot: true,
            asked_ns: 0,
        }
    }

    /// Any other rank; `same_boot` when rank 0 runs on the same boot of the same host.
    pub(crate) fn child(same_boot: bool) -> Self {
        Self {
            samples_left: if same_boot {
                SAMPLES_OF_ONE_CLOCK
            } else {
                SAMPLES
            },
            best: None,
            against: Against::Parent(None),
            same_boot,
            asked_ns: 0,
        }
    }

    /// Returns whether the parent should be asked again at once.
    pub(crate) fn wants_sample(&self) -> bool {
        self.samples_left > 0
    }

    /// Returns whether the estimate grows old, so that the parent should be asked now and then.
    pub(crate) fn ages(&self) -> bool {
        !self.same_boot && self.samples_left == 0
    }

    /// The question for the parent that is due at `now_ns`: one in each interval, however much else is said.
    pub(crate) fn question(&mut self, now_ns: u64, interval: Duration) -> Option<Head> {
        let since_ns = now_ns.saturating_sub(self.asked_ns);
        if !self.ages() || u128::from(since_ns) < interval.as_nanos() {
            return None;
        }
        self.asked_ns = now_ns;
        Some(Head::ClockPing { sent_ns: now_ns })
    }

    /// The parent's answer: asked at `sent_ns`, received at `now_ns` by this clock, `at_ns` by the parent's.
    pub(crate) fn sample(&mut self, sent_ns: u64, at_ns: u64, now_ns: u64) {
        self.samples_left = self.samples_left.saturating_sub(1);
        let rtt_ns = now_ns.saturating_sub(sent_ns);
        let middle_ns = sent_ns.saturating_add(rtt_ns / 2);
        let sample = Sample {
            rtt_ns,
            offset_ns: middle_ns.wrapping_sub(at_ns).cast_signed(),
            came_ns: now_ns,
        };
        // All grow old alike, so that one that is better now stays better.
        let doubt_ns = sample.doubt_ns(now_ns);
        if self
            .best
            .is_none_or(|best| doubt_ns <= best.doubt_ns(now_ns))
        {
            self.best = Some(sample);
        }
    }

    /// The parent's own estimate, which came at `now_ns`.
    pub(crate) fn parent_knows(&mut self, base: Base, now_ns: u64) {
        self.against = Against::Parent(Some((base, now_ns)));
    }

    /// This rank's estimate at `now_ns`, once everything for it has come.
    pub(crate) fn result(&self, now_ns: u64) -> Option<KnownClock> {
        let Against::Parent(parent) = &self.against else {
            return Some(KnownClock::default());
        };
        let best = self.best.filter(|_| self.samples_left == 0)?;
        let (parent, told_ns) = (*parent)?;
        let path_rtt_ns = parent.path_rtt_ns.saturating_add(best.rtt_ns);
        if self.same_boot {
            let clock = ClockOffset::default();
            return Some(KnownClock {
                base: Base { clock, path_rtt_ns },
                known_ns: None,
            });
        }
        // A parent that shares rank 0's clock says so once, and that does not grow old.
        let parents_doubt_ns = match parent.clock.uncertainty_ns {
            0 => 0,
            told => told.saturating_add(drift_ns(now_ns.saturating_sub(told_ns))),
        };
        let clock = ClockOffset {
            offset_ns: parent.clock.offset_ns.saturating_add(best.offset_ns),
            uncertainty_ns: parents_doubt_ns.saturating_add(best.doubt_ns(now_ns)),
        };
        Some(KnownClock {
            base: Base { clock, path_rtt_ns },
            known_ns: Some(now_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(offset_ns: i64, uncertainty_ns: u64) -> Base {
        Base {
            clock: ClockOffset {
                offset_ns,
                uncertainty_ns,
            },
            path_rtt_ns: 100,
        }
    }

    #[test]
    fn the_shortest_round_trip_is_believed_and_the_parents_estimate_added() {
        let mut sync = ClockSync::child(false);
        // This clock is 1000 ahead of the parent's; one way takes 10 and the other 30, or once 500 and 900.
        sync.sample(2000, 1500, 3400);
        for at in 0..u64::from(SAMPLES) - 1 {
            assert!(sync.result(2040).is_none());
            sync.sample(2000 + at, 1010 + at, 2040 + at);
        }
        let now_ns = 2039 + u64::from(SAMPLES) - 1;
        assert!(sync.result(now_ns).is_none(), "the parent's is missing");
        sync.parent_knows(base(-5000, 7), now_ns);
        let result = sync.result(now_ns).unwrap();
        assert_eq!(
            result.at(now_ns),
            ClockOffset {
                offset_ns: 1010 - 5000,
                uncertainty_ns: 27
            }
        );
        assert_eq!(result.base.path_rtt_ns, 140);
        assert_eq!(result.at(now_ns + 1_000_000).uncertainty_ns, 27 + 200);
    }

    /// A clock that gains 20 ppm on its parent's, asked twice a second over a path that delays at random.
    fn worst_error_ns(hour_ns: u64, asked_again: bool) -> (u64, u64) {
        let (mut sync, mut seed, mut worst) = (ClockSync::child(false), 1u64, (0, 0));
        sync.parent_knows(Base::default(), 0);
        let mut delay_ns = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            10_000 + (seed >> 33) % 200_000
        };
        let parents = |now_ns: u64| now_ns - now_ns / 50_000;
        let mut now_ns = 0;
        while now_ns < hour_ns {
            let (sent_ns, there_ns) = (now_ns, now_ns + delay_ns());
            now_ns = there_ns + delay_ns();
            if asked_again || sync.wants_sample() {
                sync.sample(sent_ns, parents(there_ns), now_ns);
            }
            if let Some(known) = sync.result(now_ns) {
                let (offset, true_ns) = (known.at(now_ns), now_ns - parents(now_ns));
                let error_ns = offset.offset_ns.abs_diff(true_ns.cast_signed());
                assert!(error_ns <= offset.uncertainty_ns, "{error_ns} {offset:?}");
                worst = (worst.0.max(error_ns), worst.1.max(offset.uncertainty_ns));
            }
            now_ns += 500_000_000;
        }
        worst
    }

    #[test]
    fn a_clock_that_drifts_is_followed_and_never_further_off_than_said() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let (error_ns, _) = worst_error_ns(HOUR_NS, false);
        assert!(error_ns > 70_000_000, "it drifts, {error_ns}");
        let (error_ns, uncertainty_ns) = worst_error_ns(HOUR_NS, true);
        assert!(error_ns < 150_000, "{error_ns}");
        assert!(uncertainty_ns < 300_000, "{uncertainty_ns}");
    }

    #[test]
    fn questions_are_due_by_time_and_only_where_clocks_differ() {
        let interval = Duration::from_nanos(500);
        for same_boot in [false, true] {
            let mut sync = ClockSync::child(same_boot);
            assert!(
                sync.question(5000, interval).is_none(),
                "those of the beginning"
            );
            for _ in 0..SAMPLES {
                sync.sample(0, 77, 10);
            }
            let asked =
                [5000, 5499, 5500, 5501].map(|now_ns| sync.question(now_ns, interval).is_some());
            let due = [true, false, true, false].map(|due| due && !same_boot);
            assert_eq!(asked, due);
        }
    }

    #[test]
    fn the_same_boot_has_the_same_clock() {
        let mut sync = ClockSync::child(true);
        sync.parent_knows(base(5, 5), 0);
        for _ in 0..SAMPLES {
            sync.sample(0, 77, 10);
        }
        let known = sync.result(10).unwrap();
        assert_eq!(known.at(1 << 60), ClockOffset::default());
        assert!(!sync.ages());
        let root = ClockSync::root().result(10).unwrap();
        assert_eq!(root.at(1 << 60), ClockOffset::default());
        assert_eq!(root.base.path_rtt_ns, 0);
    }

    #[test]
    fn absurd_clocks_do_not_overflow() {
        let mut sync = ClockSync::child(false);
        sync.parent_knows(base(i64::MIN, u64::MAX), u64::MAX);
        for _ in 0..SAMPLES {
            sync.sample(u64::MAX, 0, 0);
        }
        assert!(sync.result(0).is_some());
        assert!(sync.result(u64::MAX).unwrap().at(u64::MAX).uncertainty_ns > 0);
    }
}
