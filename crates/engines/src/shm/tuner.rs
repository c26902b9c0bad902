//! Determines the fastest copy method for the operations of one point.
//!
//! The fastest method depends on the size, the CPU, and whether the footprint fits a cache. So no table of thresholds
//! is right everywhere. Outside measured intervals, the methods take turns; each turn is called a stretch. A stretch
//! begins with an untimed pass over the footprint, because each method leaves the caches in another state. For example,
//! streaming stores evict the destination, which would slow down the next method. Timed blocks follow. Methods are
//! compared by the median over their blocks, so that one interrupted block has no effect. The time of a block ends when
//! its stores have left the CPU's buffers. Otherwise streaming stores would seem to take no time.

use tonnage_sys::clock::Clock;
use tonnage_sys::copy::Method;
use tonnage_sys::mapping::OutOfRange;

/// Shorter operations always use `memcpy`, because methods differ by at most one or two nanoseconds.
const TUNED_BYTES_MIN: u32 = 2048;

/// Minimum number of bytes in a block. A longer operation is a block of its own.
const BLOCK_BYTES: u64 = 1 << 20;

/// Maximum number of bytes in an untimed pass, even for a larger footprint, because no cache holds more.
const PASS_BYTES_MAX: u64 = 256 << 20;

/// Number of stretches per method, and of timed blocks per stretch.
const ROUNDS: usize = 3;
const BLOCKS: usize = 3;

/// Maximum number of methods compared.
const METHODS_MAX: usize = 3;

/// Measures the copy methods for one point, and chooses the fastest.
pub(super) struct Tuner {
    clock: Clock,
    methods: &'static [Method],
    /// Bytes to copy in an untimed pass.
    pass_bytes: u64,
    /// Rate of each method's blocks, in bytes per nanosecond.
    rates: [[f64; ROUNDS * BLOCKS]; METHODS_MAX],
    /// Number of finished stretches.
    stretch: usize,
    /// Number of finished timed blocks of this stretch.
    block: usize,
    /// Whether the untimed pass of this stretch is finished.
    warm: bool,
    /// Bytes and time of the current block, or bytes of the untimed pass.
    block_bytes: u64,
    block_ns: u64,
    trying: bool,
    /// Whether any operation was long enough for a choice to matter.
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
            pass_bytes: 0,
            rates: [[0.0; ROUNDS * BLOCKS]; METHODS_MAX],
            stretch: 0,
            block: 0,
            warm: false,
            block_bytes: 0,
            block_ns: 0,
            trying: false,
            needed: false,
            choice,
        }
    }

    /// Starts over for another point, for which another method may be the fastest. Its operations touch at most
    /// `footprint_bytes` before they reuse the same bytes.
    pub(super) fn restart(&mut self, footprint_bytes: u64) {
        *self = Self {
            trying: self.trying,
            pass_bytes: footprint_bytes.min(PASS_BYTES_MAX),
            ..Self::new(self.clock, self.methods)
        };
    }

    /// Allows or forbids measuring. Returns whether the choice is final. Before that, operations use `memcpy`.
    pub(super) fn settle(&mut self, trying: bool) -> bool {
        self.trying = trying;
        self.choice.is_some() || !self.needed
    }

    /// The chosen method; `None` if all operations were short, or if measuring has not finished.
    pub(super) fn choice(&self) -> Option<Method> {
        self.choice
    }

    /// Makes one copy, with the chosen method or with the one that is being measured.
    #[inline]
    pub(super) fn run(
        &mut self,
        len: u32,
        copy: impl FnOnce(Method) -> Result<(), OutOfRange>,
    ) -> Result<(), OutOfRange> {
        match self.choice {
            Some(method) if len >= TUNED_BYTES_MIN => copy(method),
            None if self.trying && len >= TUNED_BYTES_MIN => self.measure_one(len, copy),
            _ => copy(Method::Memcpy),
        }
    }

    #[cold]
    fn measure_one(
        &mut self,
        len: u32,
        copy: impl FnOnce(Method) -> Result<(), OutOfRange>,
    ) -> Result<(), OutOfRange> {
        self.needed = true;
        let start_ns = self.clock.now_ns_settled();
        copy(self.methods[self.stretch % self.methods.len()])?;
        self.block_ns += self.clock.now_ns_settled().saturating_sub(start_ns);
        self.block_bytes += u64::from(len);
        if !self.warm {
            self.warm = self.block_bytes >= self.pass_bytes;
            if !self.warm {
                return Ok(());
            }
        } else if self.block_bytes >= BLOCK_BYTES {
            self.end_block();
        } else {
            return Ok(());
        }
        (self.block_bytes, self.block_ns) = (0, 0);
        Ok(())
    }

    /// Records the rate of the block, and begins the next stretch after the last block.
    fn end_block(&mut self) {
        let (method, round) = (
            self.stretch % self.methods.len(),
            self.stretch / self.methods.len(),
        );
        let rate = self.block_bytes as f64 / self.block_ns.max(1) as f64;
        self.rates[method][round * BLOCKS + self.block] = rate;
        self.block += 1;
        if self.block < BLOCKS {
            return;
        }
        (self.stretch, self.block, self.warm) = (self.stretch + 1, 0, false);
        if self.stretch == ROUNDS * self.methods.len() {
            self.choice = Some(self.fastest());
        }
    }

    fn fastest(&mut self) -> Method {
        let mut best = (0.0, Method::Memcpy);
        for (rates, &method) in self.rates.iter_mut().zip(self.methods) {
            rates.sort_by(f64::total_cmp);
            let median = rates[ROUNDS * BLOCKS / 2];
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
    fn an_interrupted_block_does_not_change_the_choice() {
        let clock = Clock::new();
        let mut tuner = Tuner::new(clock, METHODS);
        assert!(
            tuner.settle(true),
            "no choice is needed before the first operation"
        );
        // Each stretch has an untimed pass of one operation, then the blocks.
        let turns = ROUNDS * METHODS.len() * (1 + BLOCKS);
        for turn in 0..turns {
            assert_eq!(tuner.choice(), None);
            let interrupted = turn == 1 + BLOCKS + 1;
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
        tuner.restart(0);
        assert_eq!(tuner.choice(), None);
    }

    #[test]
    fn a_method_does_not_pay_for_caches_that_the_previous_one_emptied() {
        let clock = Clock::new();
        let mut tuner = Tuner::new(clock, METHODS);
        tuner.settle(true);
        tuner.restart(4 << 20);
        let (mut last, mut turns) = (None, 0);
        while tuner.choice().is_none() {
            tuner
                .run(1 << 20, |method| {
                    // In this test, streaming stores always take the same time, and `memcpy` is faster after its own
                    // untimed pass.
                    turns = if last == Some(method) { turns + 1 } else { 0 };
                    last = Some(method);
                    let us = match method {
                        Method::NonTemporal => 40,
                        Method::Memcpy if turns >= 4 => 20,
                        _ => 80,
                    };
                    busy(&clock, 1000 * us);
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(tuner.choice(), Some(Method::Memcpy));
    }

    #[test]
    fn timed_and_short_copies_use_memcpy() {
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
