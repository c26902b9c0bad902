//! Finds out which way of copying is fastest for the operations of one lane.
//!
//! Which one wins depends on the size, the CPU and whether the footprint fits a cache, so no table of thresholds is
//! right everywhere. Each method gets blocks of some milliseconds in turn, long enough to bring the caches into the
//! state that this method leaves them in; the best block decides. This happens in the warm-up of a point.

use tonnage_sys::clock::Clock;
use tonnage_sys::copy::Method;
use tonnage_sys::mapping::OutOfRange;

/// Shorter operations are always copied by `memcpy`: the differences are below a nanosecond or two.
const TUNED_BYTES_MIN: u32 = 2048;

/// Length of a block.
const BLOCK_NS: u64 = 4_000_000;

/// Blocks that each method gets.
const ROUNDS: usize = 2;

/// An operation that takes this many times as long as the fastest of its block was interrupted: the slowest memory is
/// not that much slower than the fastest cache.
const INTERRUPTED: f64 = 8.0;

/// The copy method of one lane, found by trying.
pub(super) struct Tuner {
    methods: &'static [Method],
    /// Best bytes per nanosecond of each method so far.
    best: [f64; 3],
    block: usize,
    current: Block,
    choice: Option<Method>,
}

/// What one method did so far in its turn.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    /// All operations.
    spent_ns: u64,
    /// Those that were not interrupted.
    bytes: u64,
    ns: u64,
    fastest_ns_per_byte: f64,
}

impl Block {
    const EMPTY: Self = Self {
        spent_ns: 0,
        bytes: 0,
        ns: 0,
        fastest_ns_per_byte: f64::INFINITY,
    };

    fn add(&mut self, bytes: u64, ns: u64) {
        self.spent_ns += ns;
        let ns_per_byte = ns as f64 / bytes as f64;
        if ns_per_byte <= INTERRUPTED * self.fastest_ns_per_byte {
            self.bytes += bytes;
            self.ns += ns;
            self.fastest_ns_per_byte = self.fastest_ns_per_byte.min(ns_per_byte);
        }
    }

    fn bytes_per_ns(&self) -> f64 {
        self.bytes as f64 / self.ns.max(1) as f64
    }
}

impl Tuner {
    pub(super) fn new(methods: &'static [Method]) -> Self {
        let choice = if methods.len() == 1 {
            Some(Method::Memcpy)
        } else {
            None
        };
        Self {
            methods,
            best: [0.0; 3],
            block: 0,
            current: Block::EMPTY,
            choice,
        }
    }

    /// The method that was found; `None` while trying, or when only short operations came.
    pub(super) fn choice(&self) -> Option<Method> {
        self.choice
    }

    /// Carries out one copy by the right method.
    #[inline]
    pub(super) fn run(
        &mut self,
        clock: &Clock,
        len: u32,
        copy: impl FnOnce(Method) -> Result<(), OutOfRange>,
    ) -> Result<(), OutOfRange> {
        if len < TUNED_BYTES_MIN {
            return copy(Method::Memcpy);
        }
        match self.choice {
            Some(method) => copy(method),
            None => self.try_one(clock, len, copy),
        }
    }

    #[cold]
    fn try_one(
        &mut self,
        clock: &Clock,
        len: u32,
        copy: impl FnOnce(Method) -> Result<(), OutOfRange>,
    ) -> Result<(), OutOfRange> {
        let index = self.block % self.methods.len();
        let start_ns = clock.now_ns();
        copy(self.methods[index])?;
        self.current.add(u64::from(len), clock.now_ns() - start_ns);
        if self.current.spent_ns >= BLOCK_NS {
            self.best[index] = self.best[index].max(self.current.bytes_per_ns());
            self.current = Block::EMPTY;
            self.block += 1;
            if self.block == ROUNDS * self.methods.len() {
                self.choice = Some(self.fastest());
            }
        }
        Ok(())
    }

    fn fastest(&self) -> Method {
        let mut best = 0;
        for index in 1..self.methods.len() {
            if self.best[index] > self.best[best] {
                best = index;
            }
        }
        self.methods[best]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(clock: &Clock, ns: u64) {
        let end = clock.now_ns() + ns;
        while clock.now_ns() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn the_fastest_method_is_chosen() {
        let clock = Clock::new();
        let methods: &[Method] = &[Method::Memcpy, Method::RepMovsb, Method::NonTemporal];
        let mut tuner = Tuner::new(methods);
        for _ in 0..1000 {
            if tuner.choice().is_some() {
                break;
            }
            let cost = |method| {
                if method == Method::RepMovsb {
                    100_000
                } else {
                    500_000
                }
            };
            tuner
                .run(&clock, 1 << 20, |method| {
                    busy(&clock, cost(method));
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(tuner.choice(), Some(Method::RepMovsb));
    }

    #[test]
    fn an_interrupted_operation_does_not_count_against_its_method() {
        let mut block = Block::EMPTY;
        for _ in 0..10 {
            block.add(1 << 20, 50_000);
        }
        let rate = block.bytes_per_ns();
        block.add(1 << 20, 3_500_000);
        assert_eq!((block.bytes_per_ns(), block.spent_ns), (rate, 4_000_000));
        block.add(1 << 20, 150_000);
        assert!(block.bytes_per_ns() < rate, "slow is not interrupted");
    }

    #[test]
    fn short_copies_are_not_tried_out() {
        let mut tuner = Tuner::new(Method::available());
        let clock = Clock::new();
        tuner
            .run(&clock, 64, |method| {
                assert_eq!(method, Method::Memcpy);
                Ok(())
            })
            .unwrap();
        assert_eq!(tuner.current, Block::EMPTY);
    }
}
