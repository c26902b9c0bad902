//! Random numbers derived from keys. There are keys for a call, for a rank's data in a call, for a run of elements, and
//! for one element.
//!
//! Keys are mixed by the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014). Elements use 32-bit multiplications instead, which a CPU can vectorize.

/// The increment of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: a bijection.
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Scales a random number to the range `0..below`, preserving order.
#[inline(always)]
pub fn scale(random: u32, below: u32) -> u32 {
    ((u64::from(random) * u64::from(below)) >> 32) as u32
}

/// Key from which random numbers are derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataKey(u64);

impl DataKey {
    /// The key of one call's data.
    pub fn new(seed: u64, call: u64) -> Self {
        Self(mix(seed ^ mix(call.wrapping_add(GOLDEN))))
    }

    /// The key of one part of this key's data.
    pub fn part(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number ^ GOLDEN)))
    }

    /// The 64-bit random word with this index.
    #[inline(always)]
    pub fn word(self, index: u64) -> u64 {
        mix(self.0 ^ index.wrapping_mul(GOLDEN))
    }
}

/// Number of consecutive elements that derive their random numbers from one 128-bit key.
pub const RUN: usize = 256;

/// Keys of a run of [`RUN`] elements.
#[derive(Debug, Clone, Copy)]
pub struct ElementRun {
    keys: [u32; 3],
    order: u32,
}

/// Three random numbers of one element.
#[derive(Debug, Clone, Copy)]
pub struct Random {
    /// Determines the value.
    pub value: u32,
    /// Determines how many ranks add 1 to their part (c in `spread`).
    pub count: u32,
    /// Determines how far the circle of ranks is rotated.
    pub turn: u32,
}

impl ElementRun {
    /// The run with this index among a call's elements.
    pub fn new(key: DataKey, index: u64) -> Self {
        let (one, two) = (key.word(2 * index), key.word(2 * index + 1));
        Self {
            keys: [one as u32, (one >> 32) as u32, two as u32],
            order: (two >> 32) as u32,
        }
    }

    /// Random number that selects one of the orders of ranks.
    pub fn order(&self) -> u32 {
        self.order
    }

    /// Random numbers of the element at index `place` of the run.
    #[inline(always)]
    pub fn random(&self, place: u32) -> Random {
        let [a, b, c] = self.keys;
        let mut value = place.wrapping_mul(GOLDEN as u32) ^ a;
        value = (value ^ (value >> 16)).wrapping_mul(0x7feb_352d);
        value = (value ^ (value >> 15)).wrapping_mul(0x846c_a68b);
        value ^= value >> 16;
        Random {
            value,
            count: remix(value, b),
            turn: remix(value, c),
        }
    }
}

/// Derives another random number from one that is already random.
#[inline(always)]
pub fn remix(random: u32, key: u32) -> u32 {
    let other = (random ^ key).wrapping_mul(0x21f0_aaad);
    other ^ (other >> 15)
}
