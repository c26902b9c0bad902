//! Inputs for min and max. In each element one rank, selected by random numbers, has the extreme value.
//!
//! Only a missing extreme can be detected. A part that is counted twice changes no minimum or maximum, so it cannot be
//! detected.

use super::hash::{Random, mix, remix, scale};
use super::spread::seat;

/// Parts for a maximum or minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extreme {
    ranks: u32,
    /// The value from which distances are measured: the smallest value for a maximum, the largest for a minimum.
    origin: i32,
    /// Distance from `origin` to the other end of the range.
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

    /// The part of the rank at `place` in the circle (see `spread`). `rank_key` is the result of [`rank_key`].
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

    /// Fraction of the elements for which a given rank's part is the extreme.
    pub fn share(&self) -> f64 {
        1.0 / f64::from(self.ranks)
    }
}

/// A key that differs between ranks, and so makes their elements differ.
pub fn rank_key(rank: u32) -> u32 {
    mix(u64::from(rank) + 1) as u32
}
