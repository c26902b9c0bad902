//! A permutation of 0..n that needs no table: any element can be computed from its index, so that ranks and threads can
//! start anywhere in it, and an interrupted run can be taken up.
//!
//! It is a balanced Feistel network of four rounds over the smallest even number of bits that hold n, walked along its
//! cycles until the value is below n (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). The
//! domain is less than four times n, so that fewer than four steps are needed on average.

/// Rounds: with four, neighbours do not stay neighbours (Luby and Rackoff, 1988).
const ROUNDS: usize = 4;

/// A seeded permutation of `0..len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of `0..len` that belongs to a seed.
    pub fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let mut keys = [0; ROUNDS];
        for (round, key) in (1u64..).zip(&mut keys) {
            *key = mix(seed ^ mix(round));
        }
        Self {
            len,
            half_bits: bits.div_ceil(2).max(1),
            keys,
        }
    }

    /// The element at an index below `len`.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.len);
        let mut value = self.encipher(index);
        while value >= self.len {
            value = self.encipher(value);
        }
        value
    }

    #[inline]
    fn encipher(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (round(right, key) & mask));
        }
        left << self.half_bits | right
    }
}

/// One multiplication spreads the low bits upwards, the shift brings them back.
#[inline]
fn round(half: u64, key: u64) -> u64 {
    let product = (half ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ (product >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// The finalizer of SplitMix64, as in [`tonnage_engine::pattern`].
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_element_comes_once(len in 1u64..5000, seed: u64) {
            let order = Permutation::new(len, seed);
            let mut seen = vec![false; len as usize];
            for index in 0..len {
                let place = &mut seen[order.at(index) as usize];
                prop_assert!(!*place);
                *place = true;
            }
        }
    }

    #[test]
    fn large_ranges_stay_inside() {
        for len in [1 << 40, (1 << 40) + 1, u64::MAX >> 2] {
            let order = Permutation::new(len, 7);
            assert!((0..1000).all(|index| order.at(index) < len));
        }
    }

    #[test]
    fn neighbours_do_not_stay_neighbours() {
        let order = Permutation::new(1 << 16, 1);
        let kept = (1..1 << 16).filter(|&index| order.at(index) == order.at(index - 1) + 1);
        // By chance one in 65536 of them.
        assert!(kept.count() < 16);
        assert_ne!(order, Permutation::new(1 << 16, 2));
    }

    #[test]
    fn halves_of_the_order_are_spread_over_the_whole_range() {
        let order = Permutation::new(1 << 16, 3);
        let low = (0..1 << 15).filter(|&index| order.at(index) < 1 << 15);
        let low = low.count() as f64 / f64::from(1 << 15);
        assert!((0.45..0.55).contains(&low), "{low}");
    }
}
