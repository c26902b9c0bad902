//! Value of an element: the contributions that were reduced to it.

/// The most ranks for which a set has room.
pub const RANKS_MAX: u32 = 64;

/// The reduction of one element of the inputs of some ranks in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contributions {
    call: u32,
    /// Index of the element in each input.
    element: u32,
    /// One bit for each rank.
    ranks: u64,
    is_divided: bool,
}

/// Value of an element, or `None` if it was never written.
pub type Value = Option<Contributions>;

impl Contributions {
    pub fn from_one(rank: u32, element: u32, call: u32) -> Self {
        Self {
            call,
            element,
            ranks: 1 << rank,
            is_divided: false,
        }
    }

    pub fn from_all(ranks: u32, element: u32, call: u32, is_divided: bool) -> Self {
        Self {
            call,
            element,
            ranks: u64::MAX >> (RANKS_MAX - ranks),
            is_divided,
        }
    }

    /// Combines both sets of contributions, which must not overlap.
    pub fn with(self, other: Self) -> Result<Self, String> {
        let same = |one: Self| (one.call, one.element);
        if same(self) != same(other) || self.is_divided || other.is_divided {
            return Err(format!("{self:?} and {other:?} do not belong together"));
        }
        if self.ranks & other.ranks != 0 {
            return Err(format!("{self:?} and {other:?} have ranks in common"));
        }
        let ranks = self.ranks | other.ranks;
        Ok(Self { ranks, ..self })
    }

    pub fn divide(self) -> Result<Self, String> {
        match self.is_divided {
            true => Err(format!("{self:?} is divided twice")),
            false => Ok(Self {
                is_divided: true,
                ..self
            }),
        }
    }
}
