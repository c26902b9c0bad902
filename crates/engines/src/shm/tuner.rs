//! Finds out which way of copying is fastest for the operations of one point.
//!
//! Which one wins depends on the size, the CPU and whether the footprint fits a cache, so no table of thresholds is
//! right everywhere. While operations are not timed, each method gets many short blocks in turn, and the median block
//! decides: one block that the system interrupted says nothing. A block is timed until its stores have left the CPU's
//! buffers; without that, streaming stores would seem to cost nothing.

use tonnage_sys::clock::Clock;
use tonnage_sys::copy::Method;
use tonnage_sys::mapping::OutOfRange;

/// Shorter operations are always copied by `memcpy`: the differences are below a nanosecond or two.
const TUNED_BYTES_MIN: u32 = 2048;

/// Bytes of a block, at least; one operation if that is longer.
const BLOCK_BYTES: u64 = 1 << 20;

/// Blocks that each method gets. Odd, so that the median is one of them.
const ROUNDS: usize = 9;

/// Most methods that are compared.
const METHODS_MAX: usize = 3;

/// The copy method of one point, found by trying.
pub(super) struct Tuner {
    clock: Clock,
    methods: &'static [Method],
    /// Bytes per nanosecond of each method's blocks.
    rates: [[f64; ROUNDS]; METHODS_MAX],
    block: usize,
    block_bytes: u64,
    block_ns: u64,
    trying: bool,
    /// True when operations are long enough to make it try.
    needed: bool,
    choice: Option<Method>,
}

impl Tuner {
    pub(super) fn new(clock: Clock, methods: &'static [Method]) -> Self {
        let choice = if methods.len() == 1 {
            Some(Method::Memcpy)
        } else {
            None
        };
        Self {
            clock,
            methods,
            rates: [[0.0; ROUNDS]; METHODS_MAX],
            block: 0,
            block_bytes: 0,
            block_ns: 0,
            trying: false,
            needed: false,
            choice,
        }
    }

    /// Forgets what was found: another point, for which another method may be the fastest.
    pub(super) fn restart(&mut self) {
        *self = Self {
            trying: self.trying,
            ..Self::new(self.clock, self.methods)
        };
    }

    /// Allows or forbids trying; returns whether nothing is left to be found out. What is not known when trying ends is
    /// copied by `memcpy`.
    pub(super) fn settle(&mut self, trying: bool) -> bool {
        self.trying = trying;
        self.choice.is_some() || !self.needed
    }

    /// The method that was found; `None` where only short operations came or trying never ended.
    pub(super) fn choice(&self) -> Option<Method> {
        self.choice
    }

    /// Carries out one copy by the right method.
    #[inline]
    pub(super) fn run(
        &mut self,
        len: u32,
        copy: impl FnOnce(Method) -> Result<(), OutOfRange>,
    ) -> Result<(), OutOfRange> {
        match self.choice {
            Some(method) if len >= TUNED_BYTES_MIN => copy(method),
            None if self.trying && len >= TUNED_BYTES_MIN => self.try_one(len, copy),
            _ => copy(Method::Memcpy),
        }
    }

    #[cold]
    fn try_one(
        &mut self,
        len: u32,
        copy: impl FnOnce(Method) -> Result<(), OutOfRange>,
    ) -> Result<(), OutOfRange> {
        self.needed = true;
        let index = self.block % self.methods.len();
        let start_ns = self.clock.now_ns_settled();
        copy(self.methods[index])?;
        self.block_ns += self.clock.now_ns_settled().saturating_sub(start_ns);
        self.block_bytes += u64::from(len);
        if self.block_bytes >= BLOCK_BYTES {
            let rate = self.block_bytes as f64 / self.block_ns.max(1) as f64;
            self.rates[index][self.block / self.methods.len()] = rate;
            (self.block_bytes, self.block_ns) = (0, 0);
            self.block += 1;
            if self.block == ROUNDS * self.methods.len() {
                self.choice = Some(self.fastest());
            }
        }
        Ok(())
    }

    fn fastest(&mut self) -> Method {
        let mut best = (0.0, Method::Memcpy);
        for (rates, &method) in self.rates.iter_mut().zip(self.methods) {
            rates.sort_by(f64::total_cmp);
            let median = rates[ROUNDS / 2];
            if median > best.0 {
                best = (median, method);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: &[Method] = &[Method::Memcpy, Method::RepMovsb, Method::NonTemporal];

    fn busy(clock: &Clock, ns: u64) {
        let end = clock.now_ns() + ns;
        while clock.now_ns() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn the_fastest_method_is_chosen_though_a_block_is_interrupted() {
        let clock = Clock::new();
        let mut tuner = Tuner::new(clock, METHODS);
        assert!(
            tuner.settle(true),
            "nothing is needed before an operation came"
        );
        for turn in 0..ROUNDS * METHODS.len() {
            assert_eq!(tuner.choice(), None);
            let interrupted = turn == 1;
            tuner
                .run(1 << 20, |method| {
                    let fast = method == Method::RepMovsb && !interrupted;
                    busy(&clock, if fast { 100_000 } else { 600_000 });
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(tuner.choice(), Some(Method::RepMovsb));
        assert!(tuner.settle(false));
        tuner.restart();
        assert_eq!(tuner.choice(), None);
    }

    #[test]
    fn timed_and_short_copies_are_not_tried_out() {
        for (trying, len) in [(false, 1 << 20), (true, 64)] {
            let mut tuner = Tuner::new(Clock::new(), METHODS);
            tuner.settle(trying);
            let memcpy = |method| {
                assert_eq!(method, Method::Memcpy);
                Ok(())
            };
            tuner.run(len, memcpy).unwrap();
            assert_eq!(tuner.block_bytes, 0);
        }
    }
}
