//! A total spread over ranks. Each rank's part varies between elements, and the sum is known without adding up the
//! parts.
//!
//! Ranks have places in a circle, in one of a few [`Orders`]. Each element rotates the circle by a random number: the
//! rank at place i gets seat p = (i + turn) mod n. Its part is
//!
//! > base + u + p mod m + (1 if p < c)
//!
//! where u and c are random numbers of the element, and base and m depend on the range of the sum. Each seat has
//! exactly one rank, so the total is n (base + u) + Σ(p mod m) + c.

use super::hash::{ElementRun, Random, mix, scale};

/// Parts of ranks, with a bounded total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankSpread {
    ranks: u32,
    /// 1 if the range has room for a nonzero part of every rank in every element, otherwise 0.
    base: u32,
    /// Number of values of u.
    varied: u32,
    /// m - 1; m is a power of two.
    seats_mask: u32,
    /// Sum over all seats of p mod m.
    seats_total: u32,
    /// Smallest c.
    count_min: u32,
    /// Number of values of c.
    counts: u32,
}

impl RankSpread {
    /// Parts with a sum of at most `total_max`, even if any one of them is counted twice.
    ///
    /// If parts can only be 0 or 1, at least half of the largest possible number of ranks have a 1.
    pub fn new(ranks: u32, total_max: u32) -> Self {
        let each_max = total_max / ranks.saturating_add(1);
        let count_max = match each_max {
            0 => ranks.min((total_max.max(2)) - 1),
            _ => ranks,
        };
        let base = u32::from(each_max >= 2);
        let room = each_max.max(1) - base;
        let half = room.div_ceil(2).max(1);
        let largest = (1 << half.ilog2()).min(ranks.next_power_of_two());
        let (circles, rest) = (u64::from(ranks / largest), u64::from(ranks % largest));
        let circle = u64::from(largest) * u64::from(largest - 1) / 2;
        Self {
            ranks,
            base,
            varied: room + 1 - largest,
            seats_mask: largest - 1,
            seats_total: (circles * circle + rest * rest.saturating_sub(1) / 2) as u32,
            count_min: count_max / 2,
            counts: count_max - count_max / 2 + 1,
        }
    }

    /// Seat of the rank at `place` in the circle.
    #[inline(always)]
    pub fn seat(&self, random: Random, place: u32) -> u32 {
        seat(random, place, self.ranks)
    }

    /// Number of ranks that add 1 to their part of this element: those in the first seats of the circle.
    #[inline(always)]
    pub fn count(&self, random: Random) -> u32 {
        self.count_min + scale(random.count, self.counts)
    }

    /// The part of the rank at `seat`.
    #[inline(always)]
    pub fn part(&self, random: Random, seat: u32) -> u32 {
        let varied = scale(random.value, self.varied);
        let one_more = u32::from(seat < self.count(random));
        self.base + varied + (seat & self.seats_mask) + one_more
    }

    /// The sum of all ranks' parts.
    #[inline(always)]
    pub fn total(&self, random: Random) -> u32 {
        let alike = self.base + scale(random.value, self.varied);
        self.ranks * alike + self.seats_total + self.count(random)
    }

    /// Fraction of the elements for which a given rank's part is not 0.
    pub fn share(&self) -> f64 {
        match self.base {
            0 => {
                let mean = f64::from(self.count_min) + f64::from(self.counts - 1) / 2.0;
                mean / f64::from(self.ranks)
            }
            _ => 1.0,
        }
    }
}

/// Seat of the rank at `place` in the circle.
#[inline(always)]
pub fn seat(random: Random, place: u32, ranks: u32) -> u32 {
    let seat = place + scale(random.turn, ranks);
    if seat >= ranks { seat - ranks } else { seat }
}

/// Several orders of the ranks in the circle; each run of elements uses one. Neighbours in the circle nearly always
/// have the same part, so a single order could not distinguish these two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orders {
    ranks: u32,
    /// Distance in the circle from rank 0 to rank 1, in each order. All are coprime to the number of ranks.
    strides: [u32; Self::COUNT],
}

impl Orders {
    const COUNT: usize = 8;

    /// Orders for a number of ranks, which must be at least one.
    pub fn new(ranks: u32) -> Self {
        let stride = |index| {
            let first = 1 + scale(mix(index) as u32, ranks);
            let mut strides = (first..).chain(1..);
            strides.find(|stride| gcd(*stride, ranks) == 1).unwrap_or(1)
        };
        Self {
            ranks,
            strides: std::array::from_fn(|index| stride(index as u64 + 1)),
        }
    }

    /// Place of a rank in the run's order.
    pub fn place(&self, run: &ElementRun, rank: u32) -> u32 {
        let stride = self.strides[run.order() as usize % Self::COUNT];
        (u64::from(rank) * u64::from(stride) % u64::from(self.ranks)) as u32
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
