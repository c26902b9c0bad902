//! [`Alike`]: values of all ranks, at rank 0 or at all of them, where those that are the same are there once.
//!
//! They are put together on the way up, so that what describes ranks costs as much as there are kinds of ranks.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::channel::pack::unpack;
use crate::rank_set::RankSet;
use tonnage_units::{Error, Reduce, Result};

/// Bytes of values, each with the ranks that gave them.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Groups(BTreeMap<Vec<u8>, RankSet>);

impl Groups {
    /// The value of one rank.
    pub(super) fn of(value: Vec<u8>, rank: u32) -> Self {
        Self(BTreeMap::from([(value, RankSet::of([rank]))]))
    }
}

impl Reduce for Groups {
    fn merge(&mut self, other: Self) {
        for (value, ranks) in other.0 {
            let known = self.0.entry(value).or_default();
            *known = known.or(&ranks);
        }
    }
}

/// Values of ranks, those that are alike once.
#[derive(Debug, Clone, PartialEq)]
pub struct Alike<T> {
    values: Vec<T>,
    /// The place of each rank's value.
    of_ranks: Vec<u32>,
}

impl<T> Default for Alike<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            of_ranks: Vec::new(),
        }
    }
}

impl<T> Alike<T> {
    /// The value of a rank; `None` for one that gave none, and everywhere but at rank 0.
    pub fn get(&self, rank: u32) -> Option<&T> {
        let place = self.of_ranks.get(rank as usize)?;
        self.values.get(*place as usize)
    }

    /// The values of all ranks, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        let places = self.of_ranks.iter();
        places.filter_map(|place| self.values.get(*place as usize))
    }

    /// Number of values that differ.
    pub fn kinds(&self) -> usize {
        self.values.len()
    }

    /// Returns for these ranks what becomes of their values.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> Alike<U> {
        Alike {
            values: self.values.into_iter().map(of).collect(),
            of_ranks: self.of_ranks,
        }
    }
}

impl<T: DeserializeOwned> Alike<T> {
    /// Reads what came to rank 0 of `size` ranks.
    pub(super) fn of(groups: Groups, size: u32) -> Result<Self> {
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

/// Values in the order of the ranks, of which none are taken for alike.
impl<T> FromIterator<T> for Alike<T> {
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

    fn group(value: &str, ranks: &[u32]) -> Groups {
        let ranks = RankSet::of(ranks.iter().copied());
        Groups(BTreeMap::from([(pack(value).unwrap(), ranks)]))
    }

    #[test]
    fn values_that_are_alike_are_there_once() {
        let mut all = group("a", &[0]);
        for other in [group("b", &[2]), group("a", &[3]), group("a", &[1])] {
            all.merge(other);
        }
        let all: Alike<String> = Alike::of(all, 4).unwrap();
        assert_eq!(all.kinds(), 2);
        assert!(all.iter().eq(["a", "a", "b", "a"]));
        assert_eq!(all.get(2).map(String::as_str), Some("b"));
        assert_eq!(all.get(4), None);
        let mapped = all.map(|value| value.len());
        assert!(mapped.iter().eq(&[1; 4]) && mapped.kinds() == 2);
    }

    #[test]
    fn a_rank_that_gave_nothing_is_noticed() {
        let missing = Alike::<String>::of(group("a", &[0, 2]), 3);
        assert!(missing.unwrap_err().to_string().contains("not every rank"));
        let unreadable = Groups(BTreeMap::from([(vec![9], RankSet::all(1))]));
        assert!(Alike::<String>::of(unreadable, 1).is_err());
    }
}
