//! [`Distinct`]: the values of all ranks, with equal values stored once. They are gathered at rank 0, or at every rank.
//!
//! Equal values are merged on the way up the tree, so the cost grows with the number of distinct values, not of ranks.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::channel::pack::unpack;
use crate::rank_set::RankSet;
use tonnage_units::{Error, Reduce, Result};

/// Encoded values, each with the ranks that contributed this value.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RanksByValue(BTreeMap<Vec<u8>, RankSet>);

impl RanksByValue {
    /// Creates the group with one rank's value.
    pub(super) fn of_one_rank(value: Vec<u8>, rank: u32) -> Self {
        Self(BTreeMap::from([(value, RankSet::from_ranks([rank]))]))
    }
}

impl Reduce for RanksByValue {
    fn merge(&mut self, other: Self) {
        for (value, ranks) in other.0 {
            let known = self.0.entry(value).or_default();
            *known = known.union(&ranks);
        }
    }
}

/// Values of all ranks, with equal values stored once.
#[derive(Debug, Clone, PartialEq)]
pub struct Distinct<T> {
    values: Vec<T>,
    /// Index of each rank's value in `values`.
    of_ranks: Vec<u32>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            of_ranks: Vec::new(),
        }
    }
}

impl<T> Distinct<T> {
    /// Returns a rank's value. `None` for an unknown rank. After `collect`, it is `None` for all ranks, except on rank
    /// 0.
    pub fn get(&self, rank: u32) -> Option<&T> {
        let place = self.of_ranks.get(rank as usize)?;
        self.values.get(*place as usize)
    }

    /// Iterates over the values of all ranks, in rank order.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        let places = self.of_ranks.iter();
        places.filter_map(|place| self.values.get(*place as usize))
    }

    /// Returns the number of distinct values.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Applies a function to each distinct value.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> Distinct<U> {
        Distinct {
            values: self.values.into_iter().map(of).collect(),
            of_ranks: self.of_ranks,
        }
    }
}

impl<T: DeserializeOwned> Distinct<T> {
    /// Decodes the merged groups of `size` ranks.
    pub(super) fn from_groups(groups: RanksByValue, size: u32) -> Result<Self> {
        let mut all = Self {
            values: Vec::with_capacity(groups.0.len()),
            of_ranks: vec![u32::MAX; size as usize],
        };
        for (place, (value, ranks)) in (0u32..).zip(groups.0) {
            all.values.push(unpack(&value)?);
            for rank in ranks.iter() {
                if let Some(of_rank) = all.of_ranks.get_mut(rank as usize) {
                    *of_rank = place;
                }
            }
        }
        if all.of_ranks.contains(&u32::MAX) {
            return Err(Error::Failed("not every rank has given its value".into()));
        }
        Ok(all)
    }
}

/// Collects values in rank order. Equal values are not merged.
impl<T> FromIterator<T> for Distinct<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values: Vec<T> = values.into_iter().collect();
        let of_ranks = (0u32..).zip(&values).map(|(rank, _)| rank).collect();
        Self { values, of_ranks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack;

    fn group(value: &str, ranks: &[u32]) -> RanksByValue {
        let ranks = RankSet::from_ranks(ranks.iter().copied());
        RanksByValue(BTreeMap::from([(pack(value).unwrap(), ranks)]))
    }

    #[test]
    fn equal_values_are_stored_once() {
        let mut all = group("a", &[0]);
        for other in [group("b", &[2]), group("a", &[3]), group("a", &[1])] {
            all.merge(other);
        }
        let all: Distinct<String> = Distinct::from_groups(all, 4).unwrap();
        assert_eq!(all.count(), 2);
        assert!(all.iter().eq(["a", "a", "b", "a"]));
        assert_eq!(all.get(2).map(String::as_str), Some("b"));
        assert_eq!(all.get(4), None);
        let mapped = all.map(|value| value.len());
        assert!(mapped.iter().eq(&[1; 4]) && mapped.count() == 2);
    }

    #[test]
    fn a_missing_value_is_an_error() {
        let missing = Distinct::<String>::from_groups(group("a", &[0, 2]), 3);
        assert!(missing.unwrap_err().to_string().contains("not every rank"));
        let unreadable = RanksByValue(BTreeMap::from([(vec![9], RankSet::all(1))]));
        assert!(Distinct::<String>::from_groups(unreadable, 1).is_err());
    }
}
