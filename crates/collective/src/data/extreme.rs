//! Inputs for min and max: one rank, chosen by the element, has the extreme, and all others stay within it.
//!
//! Only a missing extreme can be detected, and a part counted twice never can: that is inherent in the reduction.

use super::hash::{Random, mix, remix, scale};
use super::spread::seat;

/// Parts for a maximum or minimum: one of them is the extreme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extreme {
    ranks: u32,
    /// The end of the range from which extremes are measured: the smallest value for a maximum.
    origin: i32,
    /// Distance to the other end.
    range: u32,
    /// -1 for a minimum, 0 for a maximum.
    downwards: i32,
}

impl Extreme {
    /// Parts within an inclusive range.
    pub fn new(ranks: u32, least: i32, largest: i32, is_minimum: bool) -> Self {
        Self {
            ranks,
            origin: if is_minimum { largest } else { least },
            range: largest.wrapping_sub(least) as u32,
            downwards: -i32::from(is_minimum),
        }
    }

    /// The part of the rank at `place` in the circle; `rank_key` is the result of [`rank_key`].
    #[inline(always)]
    pub fn part(&self, random: Random, place: u32, rank_key: u32) -> i32 {
        let extreme = 1 + scale(random.value, self.range);
        let below = scale(remix(random.count, rank_key), extreme);
        let has_extreme = seat(random, place, self.ranks) == 0;
        self.place(if has_extreme { extreme } else { below })
    }

    /// The extreme of all parts.
    #[inline(always)]
    pub fn total(&self, random: Random) -> i32 {
        self.place(1 + scale(random.value, self.range))
    }

    #[inline(always)]
    fn place(&self, distance: u32) -> i32 {
        let signed = (distance as i32 ^ self.downwards).wrapping_sub(self.downwards);
        self.origin.wrapping_add(signed)
    }

    /// Share of the elements in which a given rank's part is the extreme.
    pub fn share(&self) -> f64 {
        1.0 / f64::from(self.ranks)
    }
}

/// A number that makes each rank's elements different.
pub fn rank_key(rank: u32) -> u32 {
    mix(u64::from(rank) + 1) as u32
}
