//! Reductions over the contributions of several threads or ranks.

use serde::{Deserialize, Serialize};

/// A value that can be merged in any order, so that a tree of ranks can merge it on the way to the root.
pub trait Reduce {
    /// Adds another contribution.
    fn merge(&mut self, other: Self);
}

/// Merges the contributions that exist; `None` if no contributor has one.
impl<T: Reduce> Reduce for Option<T> {
    fn merge(&mut self, other: Self) {
        match (self.as_mut(), other) {
            (Some(mine), Some(other)) => mine.merge(other),
            (None, other) => *self = other,
            (Some(_), None) => {}
        }
    }
}

/// True if any contribution is true.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReduceAny(pub bool);

impl Reduce for ReduceAny {
    fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The largest contribution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReduceMax(pub u64);

impl Reduce for ReduceMax {
    fn merge(&mut self, other: Self) {
        self.0 = self.0.max(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_contributions_are_merged() {
        let all = |parts: [Option<ReduceMax>; 3]| {
            let [mut all, one, other] = parts;
            all.merge(one);
            all.merge(other);
            all
        };
        assert_eq!(all([None, Some(ReduceMax(3)), None]), Some(ReduceMax(3)));
        assert_eq!(
            all([Some(ReduceMax(4)), None, Some(ReduceMax(3))]),
            Some(ReduceMax(4))
        );
        assert_eq!(all([None; 3]), None);
        let mut any = ReduceAny(false);
        any.merge(ReduceAny(true));
        any.merge(ReduceAny(false));
        assert_eq!(any, ReduceAny(true));
    }
}
