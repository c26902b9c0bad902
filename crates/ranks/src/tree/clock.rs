//! Estimates the offset of this rank's clock from rank 0's clock, along the tree.
//!
//! Each rank asks its parent for the time: several times when it joins, and later once per clock interval if the clocks
//! differ. It keeps the answer with the smallest uncertainty.
//!
//! The parent read its clock between question and answer. So the offset computed from their middle is wrong by at most
//! half the round trip, plus the drift of the clocks since then. The parent's own estimate is added.
//!
//! Ranks with the same boot ID and time namespace should read the same clock. A few round trips test this, because
//! restored snapshots of a machine share the boot ID but not the clock. An offset within its uncertainty counts as
//! exactly 0. If the offset is larger, the clock is tracked like any other.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::ClockOffset;
use crate::channel::message::{ClockBase, MessageHead};

/// Number of round trips before the first estimate. The second constant is for two clocks with the same name.
const SAMPLES: u32 = 16;
const SAMPLES_OF_ONE_CLOCK: u32 = 4;

/// Upper bound on the drift between two clocks, apart from slewing by the kernels. Computer crystals are specified to
/// 50 ppm or better.
const DRIFT_PPB: u64 = 100_000;

/// Returns the drift that two clocks may accumulate in `age_ns`, if their kernels slew them by `slew_ppb` in total.
fn drift_ns(age_ns: u64, slew_ppb: u64) -> u64 {
    let drift = u128::from(age_ns) * u128::from(DRIFT_PPB.saturating_add(slew_ppb));
    u64::try_from(drift.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}

/// Returns this host's `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock counts from boot, so neither number is negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// This rank's estimate of rank 0's clock. Its uncertainty grows with its age.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClockEstimate {
    /// The estimate as of `known_ns`.
    pub(crate) base: ClockBase,
    /// Time of the estimate, by this rank's clock; `None` if this clock is rank 0's.
    pub(crate) known_ns: Option<u64>,
    /// Twice the largest slew rate of any clock on the path to rank 0. Two neighbouring clocks together slew at most at
    /// this rate.
    pub(crate) slew_ppb: u64,
}

impl ClockEstimate {
    /// Returns the estimate at `now_ns`, a time of this rank's clock.
    pub(crate) fn offset_at(&self, now_ns: u64) -> ClockOffset {
        let age_ns = self
            .known_ns
            .map_or(0, |known_ns| now_ns.saturating_sub(known_ns));
        // The drift counts twice: between this rank's clock and its parent's, and between the parent's and rank 0's.
        let drift_ns = drift_ns(age_ns, self.slew_ppb).saturating_mul(2);
        let mut clock = self.base.clock;
        clock.uncertainty_ns = clock.uncertainty_ns.saturating_add(drift_ns);
        clock
    }
}

/// One answer of the parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockAnswer {
    /// Time of the question, by this rank's clock.
    pub(crate) sent_ns: u64,
    /// Time of the answer, by the parent's clock.
    pub(crate) at_ns: u64,
    /// Arrival time of the answer, by this rank's clock.
    pub(crate) came_ns: u64,
    /// Largest rate at which the kernel slews this rank's clock at present, in parts per 10^9.
    pub(crate) own_slew_ppb: u64,
    /// Largest rate at which the parent's clock, or any other clock on its path to rank 0, is slewed.
    pub(crate) parent_slew_ppb: u64,
}

/// The offset from the parent's clock according to one answer.
#[derive(Debug, Clone, Copy)]
struct ClockSample {
    rtt_ns: u64,
    offset_ns: i64,
    /// Arrival time, by this rank's clock.
    came_ns: u64,
    /// Largest total slew rate of both clocks since `came_ns`.
    slew_ppb: u64,
}

impl ClockSample {
    /// Returns the largest possible error of the offset at `now_ns`.
    fn error_bound_ns(&self, now_ns: u64) -> u64 {
        let age_ns = now_ns.saturating_sub(self.came_ns);
        let drift_ns = drift_ns(age_ns, self.slew_ppb);
        self.rtt_ns.div_ceil(2).saturating_add(drift_ns)
    }
}

/// Relation of a rank's clock to rank 0's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockRelation {
    /// The clocks have the same name, but no exchange has tested this yet.
    Claimed,
    /// The clocks are the same, and an exchange has confirmed it.
    Same,
    /// The clocks are different, by their names or according to an exchange.
    Other,
}

/// The state of one rank's estimate.
pub(crate) struct ClockSync {
    samples_left: u32,
    best: Option<ClockSample>,
    is_root: bool,
    /// The parent's estimate, and its arrival time by this rank's clock; `None` until it has arrived.
    parent: Option<(ClockBase, u64)>,
    relation: ClockRelation,
    /// Largest slew rate of any clock on the path to rank 0, including this rank's, as of the parent's last answer.
    slew_ppb: u64,
    /// Time of the last periodic question, by this rank's clock. The initial questions do not count.
    asked_ns: u64,
}

impl ClockSync {
    /// Creates the state of rank 0, which needs no estimate.
    pub(crate) fn root() -> Self {
        Self {
            samples_left: 0,
            best: None,
            is_root: true,
            parent: None,
            relation: ClockRelation::Same,
            slew_ppb: 0,
            asked_ns: 0,
        }
    }

    /// Creates the state of a rank other than 0. `has_roots_clock` is true if its clock has the same name as rank 0's.
    pub(crate) fn child(has_roots_clock: bool) -> Self {
        let (samples_left, relation) = if has_roots_clock {
            (SAMPLES_OF_ONE_CLOCK, ClockRelation::Claimed)
        } else {
            (SAMPLES, ClockRelation::Other)
        };
        Self {
            samples_left,
            is_root: false,
            relation,
            ..Self::root()
        }
    }

    /// Returns whether the parent must be asked again at once.
    pub(crate) fn wants_sample(&self) -> bool {
        self.samples_left > 0
    }

    /// Returns whether the estimate ages, so that the parent must be asked periodically.
    pub(crate) fn needs_resampling(&self) -> bool {
        self.relation == ClockRelation::Other && self.samples_left == 0
    }

    /// Returns the question for the parent if one is due. One is due per interval, regardless of other messages.
    pub(crate) fn next_question(&mut self, now_ns: u64, interval: Duration) -> Option<MessageHead> {
        let since_ns = now_ns.saturating_sub(self.asked_ns);
        if !self.needs_resampling() || u128::from(since_ns) < interval.as_nanos() {
            return None;
        }
        self.asked_ns = now_ns;
        Some(MessageHead::ClockPing { sent_ns: now_ns })
    }

    /// Returns the largest slew rate of a clock on the path to rank 0, given this rank's own rate `own_ppb`.
    pub(crate) fn path_slew_ppb(&self, own_ppb: u64) -> u64 {
        self.slew_ppb.max(own_ppb)
    }

    /// Handles the parent's answer.
    pub(crate) fn add_answer(&mut self, answer: ClockAnswer) {
        self.samples_left = self.samples_left.saturating_sub(1);
        self.slew_ppb = answer.own_slew_ppb.max(answer.parent_slew_ppb);
        let rtt_ns = answer.came_ns.saturating_sub(answer.sent_ns);
        let middle_ns = answer.sent_ns.saturating_add(rtt_ns / 2);
        let came_ns = answer.came_ns;
        let sample = ClockSample {
            rtt_ns,
            offset_ns: middle_ns.wrapping_sub(answer.at_ns).cast_signed(),
            came_ns,
            slew_ppb: answer.own_slew_ppb.saturating_add(answer.parent_slew_ppb),
        };
        if let Some(best) = &mut self.best {
            best.slew_ppb = best.slew_ppb.max(sample.slew_ppb);
        }
        // All samples age at the same rate, so the better of two always stays the better one.
        let error_bound_ns = sample.error_bound_ns(came_ns);
        let is_better = |best: ClockSample| error_bound_ns <= best.error_bound_ns(came_ns);
        if self.best.is_none_or(is_better) {
            self.best = Some(sample);
        }
        self.test_relation(came_ns);
    }

    /// Handles the parent's own estimate, which arrived at `now_ns`. Returns whether the parent must be asked again at
    /// once.
    pub(crate) fn set_parent_base(&mut self, base: ClockBase, now_ns: u64) -> bool {
        self.parent = Some((base, now_ns));
        let asks = self.wants_sample();
        self.test_relation(now_ns);
        !asks && self.wants_sample()
    }

    /// Once both estimates have arrived, tests whether this clock is rank 0's. If it is not, it is measured and tracked
    /// like any other clock.
    fn test_relation(&mut self, now_ns: u64) {
        if self.relation != ClockRelation::Claimed {
            return;
        }
        let Some(ClockBase { clock: known, .. }) = self.estimate(now_ns) else {
            return;
        };
        if known.offset_ns.unsigned_abs() <= known.uncertainty_ns {
            self.relation = ClockRelation::Same;
        } else {
            self.relation = ClockRelation::Other;
            self.samples_left = SAMPLES - SAMPLES_OF_ONE_CLOCK;
        }
    }

    /// Returns this rank's estimate at `now_ns`; `None` until both estimates have arrived.
    pub(crate) fn result(&self, now_ns: u64) -> Option<ClockEstimate> {
        if self.is_root {
            return Some(ClockEstimate::default());
        }
        let measured = self.estimate(now_ns)?;
        Some(if self.relation == ClockRelation::Other {
            ClockEstimate {
                base: measured,
                known_ns: Some(now_ns),
                slew_ppb: self.slew_ppb.saturating_mul(2),
            }
        } else {
            let clock = ClockOffset::default();
            ClockEstimate {
                base: ClockBase { clock, ..measured },
                ..ClockEstimate::default()
            }
        })
    }

    /// Returns the measured offset and uncertainty, and the path's total round trip.
    fn estimate(&self, now_ns: u64) -> Option<ClockBase> {
        let best = self.best.filter(|_| self.samples_left == 0)?;
        let (parent, parent_came_ns) = self.parent?;
        // If the parent shares rank 0's clock, it sends an uncertainty of 0, and only once. That estimate does not age.
        let parents_error_bound_ns = match parent.clock.uncertainty_ns {
            0 => 0,
            uncertainty_ns => uncertainty_ns.saturating_add(drift_ns(
                now_ns.saturating_sub(parent_came_ns),
                self.slew_ppb.saturating_mul(2),
            )),
        };
        let clock = ClockOffset {
            offset_ns: parent.clock.offset_ns.saturating_add(best.offset_ns),
            uncertainty_ns: parents_error_bound_ns.saturating_add(best.error_bound_ns(now_ns)),
        };
        Some(ClockBase {
            clock,
            path_rtt_ns: parent.path_rtt_ns.saturating_add(best.rtt_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer over a path on which no clock is slewed.
    fn answer(sent_ns: u64, at_ns: u64, came_ns: u64) -> ClockAnswer {
        ClockAnswer {
            sent_ns,
            at_ns,
            came_ns,
            own_slew_ppb: 0,
            parent_slew_ppb: 0,
        }
    }

    fn base(offset_ns: i64, uncertainty_ns: u64) -> ClockBase {
        ClockBase {
            clock: ClockOffset {
                offset_ns,
                uncertainty_ns,
            },
            path_rtt_ns: 100,
        }
    }

    #[test]
    fn the_shortest_round_trip_wins_and_the_parents_estimate_is_added() {
        let mut sync = ClockSync::child(false);
        // This clock is 1000 ahead of the parent's. The two directions usually take 10 and 30, but 500 and 900 in the
        // first exchange.
        sync.add_answer(answer(2000, 1500, 3400));
        for at in 0..u64::from(SAMPLES) - 1 {
            assert!(sync.result(2040).is_none());
            sync.add_answer(answer(2000 + at, 1010 + at, 2040 + at));
        }
        let now_ns = 2039 + u64::from(SAMPLES) - 1;
        assert!(
            sync.result(now_ns).is_none(),
            "the parent's estimate is missing"
        );
        sync.set_parent_base(base(-5000, 7), now_ns);
        let result = sync.result(now_ns).unwrap();
        let expected = ClockOffset {
            offset_ns: 1010 - 5000,
            uncertainty_ns: 27,
        };
        assert_eq!(result.offset_at(now_ns), expected);
        assert_eq!(result.base.path_rtt_ns, 140);
        assert_eq!(
            result.offset_at(now_ns + 1_000_000).uncertainty_ns,
            27 + 200
        );
    }

    /// Tracks a clock that gains 20 ppm on its parent's clock, with two samples per second over a path with random
    /// delays. Returns the worst error and the worst uncertainty.
    fn worst_error_ns(hour_ns: u64, asked_again: bool) -> (u64, u64) {
        let (mut sync, mut seed, mut worst) = (ClockSync::child(false), 1u64, (0, 0));
        sync.set_parent_base(ClockBase::default(), 0);
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
                sync.add_answer(answer(sent_ns, parents(there_ns), now_ns));
            }
            if let Some(known) = sync.result(now_ns) {
                let (offset, true_ns) = (known.offset_at(now_ns), now_ns - parents(now_ns));
                let error_ns = offset.offset_ns.abs_diff(true_ns.cast_signed());
                assert!(error_ns <= offset.uncertainty_ns, "{error_ns} {offset:?}");
                worst = (worst.0.max(error_ns), worst.1.max(offset.uncertainty_ns));
            }
            now_ns += 500_000_000;
        }
        worst
    }

    #[test]
    fn a_drifting_clock_is_tracked_within_its_uncertainty() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let (error_ns, _) = worst_error_ns(HOUR_NS, false);
        assert!(error_ns > 70_000_000, "it drifts, {error_ns}");
        let (error_ns, uncertainty_ns) = worst_error_ns(HOUR_NS, true);
        assert!(error_ns < 150_000, "{error_ns}");
        assert!(uncertainty_ns < 300_000, "{uncertainty_ns}");
    }

    #[test]
    fn periodic_questions_are_only_for_different_clocks() {
        let interval = Duration::from_nanos(500);
        for same_boot in [false, true] {
            let mut sync = ClockSync::child(same_boot);
            let beginning = sync.next_question(5000, interval);
            assert!(beginning.is_none());
            for _ in 0..SAMPLES {
                sync.add_answer(answer(0, 77, 10));
            }
            let asked = [5000, 5499, 5500, 5501]
                .map(|now_ns| sync.next_question(now_ns, interval).is_some());
            let due = [true, false, true, false].map(|due| due && !same_boot);
            assert_eq!(asked, due);
        }
    }

    #[test]
    fn a_clock_of_the_same_name_is_the_same_if_an_exchange_confirms_it() {
        // The parent is on another host. Its clock is 1000 ± 30 behind rank 0's, and its answers have an uncertainty of
        // 5.
        for offset_ns in [0i64, 35, -35, 36, -36] {
            let is_same = offset_ns.abs() <= 35;
            let at_ns = 4005u64.saturating_add_signed(-offset_ns);
            for parent_knows_first in [true, false] {
                let mut sync = ClockSync::child(true);
                if parent_knows_first {
                    assert!(!sync.set_parent_base(base(-1000, 30), 5010));
                }
                for _ in 0..SAMPLES_OF_ONE_CLOCK {
                    sync.add_answer(answer(5000, at_ns, 5010));
                }
                if !parent_knows_first {
                    assert_eq!(sync.set_parent_base(base(-1000, 30), 5010), !is_same);
                }
                assert_eq!(sync.wants_sample(), !is_same, "{offset_ns}");
                for _ in 0..SAMPLES {
                    sync.add_answer(answer(5000, at_ns, 5010));
                }
                assert_eq!(sync.needs_resampling(), !is_same);
                let known = sync.result(5010).unwrap().offset_at(5010);
                let expected = if is_same {
                    ClockOffset::default()
                } else {
                    ClockOffset {
                        offset_ns,
                        uncertainty_ns: 35,
                    }
                };
                assert_eq!(known, expected);
                assert_eq!(
                    sync.result(5010).unwrap().offset_at(1 << 60) == expected,
                    is_same
                );
            }
        }
        let root = ClockSync::root().result(10).unwrap();
        assert_eq!(root.offset_at(1 << 60), ClockOffset::default());
        assert_eq!(root.base.path_rtt_ns, 0);
    }

    /// Ranks with the same boot ID, but in time namespaces that are an hour apart, in either direction.
    #[test]
    fn a_clock_an_hour_off_is_measured_even_if_its_name_is_the_same() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        for offset_ns in [HOUR_NS, -HOUR_NS] {
            let mut sync = ClockSync::child(true);
            sync.set_parent_base(ClockBase::default(), 0);
            let sent_ns: u64 = 5_000_000_000_000;
            let at_ns = (sent_ns + 20).saturating_add_signed(-offset_ns);
            while sync.wants_sample() {
                sync.add_answer(answer(sent_ns, at_ns, sent_ns + 40));
            }
            let known = sync.result(sent_ns + 40).unwrap().offset_at(sent_ns + 40);
            assert_eq!((known.offset_ns, known.uncertainty_ns), (offset_ns, 20));
        }
    }

    #[test]
    fn reported_slew_widens_the_uncertainty() {
        let at_ns = |own_slew_ppb, parent_slew_ppb| {
            let mut sync = ClockSync::child(false);
            sync.set_parent_base(ClockBase::default(), 1000);
            for _ in 0..SAMPLES {
                sync.add_answer(ClockAnswer {
                    own_slew_ppb,
                    parent_slew_ppb,
                    ..answer(980, 0, 1000)
                });
            }
            let slew_ppb = sync.path_slew_ppb(7);
            assert_eq!(slew_ppb, own_slew_ppb.max(parent_slew_ppb).max(7));
            let known = sync.result(1000).unwrap();
            known.offset_at(1_000_001_000).uncertainty_ns
        };
        // Uncertainty after a second: twice 100 ppm of drift, plus twice the total slew.
        assert_eq!(at_ns(0, 0), 10 + 200_000);
        assert_eq!(at_ns(500_000, 0), 10 + 2_200_000);
        assert_eq!(at_ns(0, 83_000_000), 10 + 332_200_000);
    }

    #[test]
    fn absurd_clocks_do_not_overflow() {
        let mut sync = ClockSync::child(false);
        sync.set_parent_base(base(i64::MIN, u64::MAX), u64::MAX);
        for _ in 0..SAMPLES {
            sync.add_answer(answer(u64::MAX, 0, 0));
        }
        assert!(sync.result(0).is_some());
        assert!(
            sync.result(u64::MAX)
                .unwrap()
                .offset_at(u64::MAX)
                .uncertainty_ns
                > 0
        );
    }
}
