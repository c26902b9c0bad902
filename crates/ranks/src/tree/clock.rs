//! Offset of this host's clock from rank 0's, estimated along the tree.
//!
//! Each rank asks its parent for its clock several times and believes the answer with the shortest round trip: the true
//! offset cannot be further from the middle of it than half that round trip. The parent's own estimate is added. Ranks
//! of one boot share one clock, so there the offset is exactly 0.

use rustix::time::{ClockId, clock_gettime};

use crate::ClockOffset;

/// Round trips of which the shortest is believed.
const SAMPLES: u32 = 16;

/// Nanoseconds of this host's `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock counts from boot, so neither part is negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// An estimate against rank 0 and the path that it was made over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) clock: ClockOffset,
    /// Round trips of all links to rank 0, added up.
    pub(crate) path_rtt_ns: u64,
}

/// The state of one rank's estimate.
pub(crate) struct ClockSync {
    samples_left: u32,
    best: Option<(u64, i64)>,
    base: Option<Base>,
    same_boot: bool,
}

impl ClockSync {
    /// Rank 0 needs no estimate.
    pub(crate) fn root() -> Self {
        let base = Base {
            clock: ClockOffset::default(),
            path_rtt_ns: 0,
        };
        Self {
            samples_left: 0,
            best: Some((0, 0)),
            base: Some(base),
            same_boot: true,
        }
    }

    /// Any other rank; `same_boot` when rank 0 runs on the same boot of the same host.
    pub(crate) fn child(same_boot: bool) -> Self {
        Self {
            samples_left: SAMPLES,
            best: None,
            base: None,
            same_boot,
        }
    }

    /// Returns whether the parent should be asked again.
    pub(crate) fn wants_sample(&self) -> bool {
        self.samples_left > 0
    }

    /// The parent's answer: asked at `sent_ns`, received at `now_ns` by this clock, `at_ns` by the parent's.
    pub(crate) fn sample(&mut self, sent_ns: u64, at_ns: u64, now_ns: u64) {
        self.samples_left = self.samples_left.saturating_sub(1);
        let rtt_ns = now_ns.saturating_sub(sent_ns);
        let middle_ns = sent_ns.saturating_add(rtt_ns / 2);
        let offset_ns = middle_ns.wrapping_sub(at_ns).cast_signed();
        if self.best.is_none_or(|(best_ns, _)| rtt_ns < best_ns) {
            self.best = Some((rtt_ns, offset_ns));
        }
    }

    /// The parent's own estimate.
    pub(crate) fn parent_knows(&mut self, base: Base) {
        self.base = Some(base);
    }

    /// This rank's estimate, once everything for it has come.
    pub(crate) fn result(&self) -> Option<Base> {
        let (rtt_ns, offset_ns) = self.best.filter(|_| self.samples_left == 0)?;
        let base = self.base?;
        let path_rtt_ns = base.path_rtt_ns.saturating_add(rtt_ns);
        let clock = if self.same_boot {
            ClockOffset::default()
        } else {
            ClockOffset {
                offset_ns: base.clock.offset_ns.saturating_add(offset_ns),
                uncertainty_ns: base.clock.uncertainty_ns.saturating_add(rtt_ns.div_ceil(2)),
            }
        };
        Some(Base { clock, path_rtt_ns })
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
            assert_eq!(sync.result(), None);
            sync.sample(2000 + at, 1010 + at, 2040 + at);
        }
        assert_eq!(sync.result(), None, "the parent's estimate is missing");
        sync.parent_knows(base(-5000, 7));
        let result = sync.result().unwrap();
        assert_eq!(
            result.clock,
            ClockOffset {
                offset_ns: 1010 - 5000,
                uncertainty_ns: 27
            }
        );
        assert_eq!(result.path_rtt_ns, 140);
    }

    #[test]
    fn the_same_boot_has_the_same_clock() {
        let mut sync = ClockSync::child(true);
        sync.parent_knows(base(5, 5));
        for _ in 0..SAMPLES {
            sync.sample(0, 77, 10);
        }
        assert_eq!(sync.result().unwrap().clock, ClockOffset::default());
        assert_eq!(ClockSync::root().result().unwrap().path_rtt_ns, 0);
    }

    #[test]
    fn absurd_clocks_do_not_overflow() {
        let mut sync = ClockSync::child(false);
        sync.parent_knows(base(i64::MIN, u64::MAX));
        for _ in 0..SAMPLES {
            sync.sample(u64::MAX, 0, 0);
        }
        assert!(sync.result().is_some());
    }
}
