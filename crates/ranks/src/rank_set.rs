//! Sets of ranks, stored as ranges. This form is compact if the ranks are consecutive.

use serde::{Deserialize, Serialize};

/// A set of ranks as (first, count) ranges. The ranges are in order, and neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSet(Vec<(u32, u32)>);

impl RankSet {
    /// Collects ranks from a sorted sequence.
    pub(crate) fn from_ranks(ranks: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::default();
        for rank in ranks {
            set.add(rank, 1);
        }
        set
    }

    /// Appends a range that begins after all existing ones.
    pub(crate) fn add(&mut self, first: u32, count: u32) {
        match self.0.last_mut() {
            Some((start, len)) if *start + *len == first => *len += count,
            _ => self.0.push((first, count)),
        }
    }

    /// Returns all ranks of a run of `size` ranks.
    pub(crate) fn all(size: u32) -> Self {
        let mut set = Self::default();
        set.add(0, size);
        set
    }

    /// Returns the number of ranks.
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, rank: u32) -> bool {
        let stretch = self.0.partition_point(|(first, _)| *first <= rank);
        let before = stretch.checked_sub(1).and_then(|place| self.0.get(place));
        before.is_some_and(|(first, count)| rank - first < *count)
    }

    /// Returns whether the ranges are valid: in order, not touching, and below `size`. A set received from a peer must
    /// be checked first.
    pub(crate) fn is_valid(&self, size: u32) -> bool {
        let mut after = None;
        self.0.iter().all(|&(first, count)| {
            let end = first.checked_add(count).filter(|&end| end <= size);
            let apart = count > 0 && after.is_none_or(|after| first > after);
            after = end;
            apart && end.is_some()
        })
    }

    /// Iterates over the ranks in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0
            .iter()
            .flat_map(|&(first, count)| first..first.saturating_add(count))
    }

    /// Returns the ranks that are in this set, in `other`, or in both.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut either = Self::default();
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let first = |stretch: Option<&&(u32, u32)>| stretch.map(|(first, _)| *first);
        while let Some(&(first, count)) = match (first(mine.peek()), first(theirs.peek())) {
            (Some(one), Some(other)) if one <= other => mine.next(),
            (_, Some(_)) => theirs.next(),
            (_, None) => mine.next(),
        } {
            either.push_range(first, first.saturating_add(count));
        }
        either
    }

    /// Adds a range that begins no earlier than the last one, and merges the two if they touch or overlap.
    fn push_range(&mut self, first: u32, end: u32) {
        match self.0.last_mut() {
            Some((start, len)) if start.saturating_add(*len) >= first => {
                *len = (*len).max(end - *start);
            }
            _ => self.0.push((first, end - first)),
        }
    }

    /// Returns the ranks that are in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(&&(a, a_count)), Some(&&(b, b_count))) = (mine.peek(), theirs.peek()) {
            let (first, end) = (a.max(b), (a + a_count).min(b + b_count));
            if first < end {
                both.add(first, end - first);
            }
            if a + a_count <= b + b_count {
                mine.next();
            } else {
                theirs.next();
            }
        }
        both
    }

    /// Returns the ranks of this set that are not in `other`.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for &(first, count) in &self.0 {
            let (mut from, end) = (first, first + count);
            let next = other.0.partition_point(|(b, b_count)| b + b_count <= from);
            for &(b, b_count) in other.0.iter().skip(next).take_while(|(b, _)| *b < end) {
                if b > from {
                    rest.add(from, b - from);
                }
                from = from.max(b + b_count);
            }
            if from < end {
                rest.add(from, end - from);
            }
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_ranges_are_rejected() {
        for stretches in [
            vec![(0, 0)],
            vec![(0, 4)],
            vec![(1, 1), (0, 1)],
            vec![(u32::MAX, 2)],
        ] {
            assert!(!RankSet(stretches.clone()).is_valid(3), "{stretches:?}");
        }
        assert!(RankSet::all(3).is_valid(3) && RankSet::from_ranks([0, 2]).is_valid(3));
        assert_eq!(
            (RankSet::all(3).count(), RankSet::from_ranks([0, 2]).count()),
            (3, 2)
        );
    }

    fn ranks() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::btree_set(0u32..40, 0..30).prop_map(|set| set.into_iter().collect())
    }

    proptest! {
        #[test]
        fn set_operations_match_the_standard_library(a in ranks(), b in ranks()) {
            let (one, other) = (RankSet::from_ranks(a.clone()), RankSet::from_ranks(b.clone()));
            prop_assert!(one.is_valid(40));
            let both = a.iter().copied().filter(|rank| b.contains(rank));
            prop_assert_eq!(one.intersection(&other), RankSet::from_ranks(both));
            let either: std::collections::BTreeSet<u32> = a.iter().chain(&b).copied().collect();
            prop_assert!(one.union(&other).iter().eq(either.iter().copied()));
            prop_assert_eq!(one.union(&other), RankSet::from_ranks(either));
            let rest = a.iter().copied().filter(|rank| !b.contains(rank));
            prop_assert_eq!(one.difference(&other), RankSet::from_ranks(rest));
            for rank in 0..40 {
                prop_assert_eq!(one.contains(rank), a.contains(&rank));
            }
        }
    }
}
