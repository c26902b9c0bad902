//! Pseudorandom numbers from a seed, the same on every machine.

use tonnage_engine::pattern::{GOLDEN, mix_bits};

/// A sequence of pseudorandom numbers.
#[derive(Debug, Clone)]
pub(super) struct RandomSource {
    state: u64,
}

impl RandomSource {
    /// Creates the sequence that has these numbers as its seed.
    pub(super) fn new(of: &[u64]) -> Self {
        let add =
            |state: u64, &number: &u64| mix_bits(state.wrapping_add(GOLDEN) ^ mix_bits(number));
        Self {
            state: of.iter().fold(0, add),
        }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix_bits(self.state)
    }

    /// Returns a number from 0 to `end` - 1; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // Takes the high half of the product. The bias is negligible for bounds far below 2^64.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns true with probability 1/`many`.
    pub(super) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Returns one of these values; `None` if there are none.
    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.below(of.len() as u64) as usize).cloned()
    }

    /// Returns a number from `low` to `high`, with every length in bits equally likely. The number is often a power of
    /// two, or next to one.
    pub(super) fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let bits = self.between(low.max(1).ilog2().into(), high.max(1).ilog2().into());
        let power = 1u64 << bits;
        let near = match self.below(4) {
            0 => power - 1,
            1 => power + 1,
            2 => power + self.below(power),
            _ => power,
        };
        near.clamp(low, high.max(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_the_seed_and_stay_within_their_bounds() {
        let draw = |seed: &[u64]| {
            let mut dice = RandomSource::new(seed);
            let numbers: Vec<u64> = (0..1000).map(|_| dice.magnitude(3, 1 << 20)).collect();
            numbers
        };
        assert_eq!(draw(&[1, 2]), draw(&[1, 2]));
        assert_ne!(draw(&[1, 2]), draw(&[2, 1]));
        let numbers = draw(&[7]);
        assert!(numbers.iter().all(|number| (3..=1 << 20).contains(number)));
        for bits in 2..20 {
            assert!(numbers.contains(&(1 << bits)), "2^{bits}");
        }
        let mut dice = RandomSource::new(&[0]);
        assert_eq!(
            (dice.below(0), dice.below(1), dice.between(5, 5)),
            (0, 0, 5)
        );
        assert_eq!(dice.magnitude(9, 9), 9);
        assert_eq!(dice.pick::<u8>(&[]), None);
    }
}
