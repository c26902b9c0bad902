//! Inputs for products: powers of two with exponents that are spread over the ranks, so that every partial product is
//! exact.
//!
//! For signed types, every rank matters in every element: ranks that get no exponent contribute -1 instead of 1. The
//! rank in seat 0 (see `spread`) also contributes an odd factor and a random sign. For a floating-point type, the odd
//! factor is a random significand. So the product depends on more than the exponents.

use super::hash::{Random, remix};
use super::spread::RankSpread;

/// Flag bits in [`Factor::packed`], above the exponent.
pub mod mark {
    /// The factor is negative.
    pub const NEGATIVE: u32 = 31;
    /// The factor includes the element's odd factor.
    pub const ODD: u32 = 30;
}

/// A factor, or the product of all factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Factor {
    /// The exponent of two, and flag bits from [`mark`].
    pub packed: u32,
    /// Random number from which the odd factor is derived.
    pub odd: u32,
}

/// Factors of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Power {
    ranks: u32,
    exponents: RankSpread,
    /// 1 for a type with negative numbers, otherwise 0.
    signed: u32,
}

impl Power {
    /// Factors with exponents that add up to at most `exponent_max`.
    pub fn new(ranks: u32, exponent_max: u32, signed: bool) -> Self {
        Self {
            ranks,
            exponents: RankSpread::new(ranks, exponent_max),
            signed: u32::from(signed),
        }
    }

    /// The factor of the rank at `place` in the circle.
    #[inline(always)]
    pub fn part(&self, random: Random, place: u32) -> Factor {
        let seat = self.exponents.seat(random, place);
        let is_first = u32::from(seat == 0);
        let beyond = u32::from(seat >= self.exponents.count(random));
        let negative = (beyond ^ (is_first & random.turn)) & self.signed & 1;
        Factor {
            packed: self.exponents.part(random, seat)
                | negative << mark::NEGATIVE
                | is_first << mark::ODD,
            odd: odd(random),
        }
    }

    /// The product of all factors.
    #[inline(always)]
    pub fn total(&self, random: Random) -> Factor {
        let beyond = self.ranks - self.exponents.count(random);
        let negative = (beyond ^ random.turn) & self.signed & 1;
        Factor {
            packed: self.exponents.total(random) | negative << mark::NEGATIVE | 1 << mark::ODD,
            odd: odd(random),
        }
    }

    /// Fraction of the elements for which a given rank's factor is not 1.
    pub fn share(&self) -> f64 {
        match self.signed {
            0 => self.exponents.share(),
            _ => 1.0,
        }
    }
}

#[inline(always)]
fn odd(random: Random) -> u32 {
    remix(random.value, 0x5bd1_e995)
}
