//! Seeded permutations of the numbers below any bound, computed for one number at a time. An order of millions of slots
//! or transfers therefore needs no table, and ranks and threads can start anywhere in it.
//!
//! A number of b bits is mixed by invertible steps: adding a key, multiplying by an odd number (both modulo 2^b), and
//! xoring its own upper half. This follows the finalizer of SplitMix64 for b = 64 (Steele, Lea and Flood, "Fast
//! splittable pseudorandom number generators", OOPSLA 2014). Invertible steps make a permutation of all 2^b numbers.
//! For a bound below 2^b, cycle walking is used (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
//! 2002): a result outside the bound is mixed again until it is inside. 2^b is the next power of two, so this takes
//! less than two rounds on average.

pub use tonnage_engine::pattern::{GOLDEN, mix_bits};

/// Rounds of mixing. With two rounds, adjacent numbers stay adjacent too often if the bound is small.
const ROUNDS: usize = 3;

/// A permutation of the numbers below a bound.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    below: u64,
    mask: u64,
    half: u32,
    /// Summand and odd factor of each round.
    keys: [(u64, u64); ROUNDS],
}

impl Permutation {
    /// Creates a permutation of the numbers below `below` (at least one). Different seeds give different permutations,
    /// as far as enough permutations exist.
    pub fn new(below: u64, seed: u64) -> Self {
        let below = below.max(1);
        let bits = (u64::BITS - (below - 1).leading_zeros()).max(1);
        let mut state = seed;
        let mut drawn = || {
            state = state.wrapping_add(GOLDEN);
            mix_bits(state)
        };
        Self {
            below,
            mask: u64::MAX >> (u64::BITS - bits),
            half: (bits / 2).max(1),
            keys: std::array::from_fn(|_| (drawn(), drawn() | 1)),
        }
    }

    /// Returns the image of `number`, which must be below the bound.
    #[inline]
    pub fn permute(&self, number: u64) -> u64 {
        let mut mixed = number;
        loop {
            for (add, odd) in self.keys {
                mixed = mixed.wrapping_add(add) & self.mask;
                mixed = (mixed ^ (mixed >> self.half)).wrapping_mul(odd) & self.mask;
            }
            mixed ^= mixed >> self.half;
            if mixed < self.below {
                return mixed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_number_comes_once(below in 1u64..3000, seed in any::<u64>()) {
            let permutation = Permutation::new(below, seed);
            let mut seen = vec![false; below as usize];
            for number in 0..below {
                let place = permutation.permute(number) as usize;
                prop_assert!(!std::mem::replace(&mut seen[place], true));
            }
        }

        #[test]
        fn any_bound_is_kept(below in any::<u64>(), seed in any::<u64>(), number in any::<u64>()) {
            let permutation = Permutation::new(below, seed);
            prop_assert!(permutation.permute(number % below.max(1)) < below.max(1));
        }
    }

    /// Each position is equally likely for each number, and adjacent numbers stay adjacent no more often than by
    /// chance.
    #[test]
    fn seeds_spread_numbers_evenly() {
        for below in [5u64, 8, 100] {
            let (mut firsts, mut neighbours) = (vec![0u32; below as usize], 0u32);
            for seed in 0..10_000 {
                let permutation = Permutation::new(below, seed);
                firsts[permutation.permute(0) as usize] += 1;
                neighbours += u32::from(permutation.permute(0) + 1 == permutation.permute(1));
            }
            let mean = 10_000 / below as u32;
            let even = |&count: &u32| count > mean * 6 / 10 && count < mean * 14 / 10;
            assert!(firsts.iter().all(even), "{below}: {firsts:?}");
            assert!(
                neighbours > mean / 2 && neighbours < mean * 3 / 2,
                "{below}: {neighbours}"
            );
        }
    }

    #[test]
    fn large_ranges_stay_inside() {
        for below in [1 << 40, (1 << 40) + 1, u64::MAX >> 2] {
            let order = Permutation::new(below, 7);
            assert!((0..1000).all(|index| order.permute(index) < below));
        }
    }

    #[test]
    fn neighbours_do_not_stay_neighbours() {
        let order = Permutation::new(1 << 16, 1);
        let kept =
            (1..1 << 16).filter(|&index| order.permute(index) == order.permute(index - 1) + 1);
        // By chance, one in 65536 stays adjacent.
        assert!(kept.count() < 16);
        let other = Permutation::new(1 << 16, 2);
        assert!((0..16).any(|index| order.permute(index) != other.permute(index)));
    }

    #[test]
    fn halves_of_the_order_are_spread_over_the_whole_range() {
        let order = Permutation::new(1 << 16, 3);
        let low = (0..1 << 15).filter(|&index| order.permute(index) < 1 << 15);
        let low = low.count() as f64 / f64::from(1 << 15);
        assert!((0.45..0.55).contains(&low), "{low}");
    }

    /// A bound just above half of a power of two needs the most cycle walking.
    #[test]
    fn the_worst_bound_is_quick() {
        let below = (1 << 20) + 1;
        let permutation = Permutation::new(below, 7);
        let mut seen = std::collections::HashSet::new();
        assert!((0..100_000).all(|number| seen.insert(permutation.permute(number))));
    }
}
