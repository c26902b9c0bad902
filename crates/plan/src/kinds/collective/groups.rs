//! Groups of ranks that call at the same time, independently of each other, like `split` in nccl-tests.

use std::fmt;
use std::str::FromStr;

use crate::refuse::usage_error;
use serde::{Deserialize, Serialize};
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

/// Largest group for which the members are listed one by one.
const LISTED_MAX: u32 = 4;

/// Rule by which ranks are divided into groups of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "String", try_from = "String")]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
pub enum Groups {
    /// One group of all ranks: all.
    #[default]
    All,
    /// Consecutive ranks, K to a group: div:K.
    Div(u32),
    /// Ranks with the same remainder after division by K: mod:K.
    Mod(u32),
}

/// Ranks of a run, divided into groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    groups: Groups,
    ranks: u32,
}

/// Position of a rank in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPosition {
    grouping: Grouping,
    /// The group, counted from 0.
    pub group: u32,
    /// The rank's position in the group, from 0.
    pub place: u32,
}

impl Groups {
    /// Divides `ranks` ranks into groups. Refuses unequal groups.
    pub fn grouping(self, ranks: u32) -> Result<Grouping> {
        if self.divides(ranks) {
            return Ok(Grouping {
                groups: self,
                ranks,
            });
        }
        let (name, number) = match self {
            Self::All => ("all", 1),
            Self::Div(number) => ("div", number),
            Self::Mod(number) => ("mod", number),
        };
        let divides = |it: &u32| ranks.is_multiple_of(*it);
        let nearest = (1..=ranks)
            .filter(divides)
            .min_by_key(|it| it.abs_diff(number));
        usage_error(format!(
            "--groups {self} does not divide {ranks} ranks into equal groups: use --groups {name}:{}",
            nearest.unwrap_or(1)
        ))
    }

    /// Returns whether this number of ranks divides into equal groups.
    fn divides(self, ranks: u32) -> bool {
        match self {
            Self::All => true,
            Self::Div(number) | Self::Mod(number) => {
                (1..=ranks).contains(&number) && ranks.is_multiple_of(number)
            }
        }
    }
}

impl Grouping {
    /// One group of all ranks.
    pub fn of_all_ranks(ranks: u32) -> Self {
        Self {
            groups: Groups::All,
            ranks,
        }
    }

    /// Returns the groups of a plan, which was checked when it was read. A record may contain anything: groups that are
    /// impossible become one group of all ranks.
    pub(super) fn from_checked(groups: Groups, ranks: u32) -> Self {
        if groups.divides(ranks) {
            return Self { groups, ranks };
        }
        Self::of_all_ranks(ranks)
    }

    /// Number of ranks in each group.
    pub fn size(&self) -> u32 {
        match self.groups {
            Groups::All => self.ranks,
            Groups::Div(size) => size,
            Groups::Mod(count) => self.ranks / count,
        }
    }

    /// Number of groups.
    pub fn count(&self) -> u32 {
        self.ranks.checked_div(self.size()).unwrap_or(1)
    }

    /// Returns the group of a rank and its position there.
    pub fn position(&self, rank: u32) -> GroupPosition {
        let (group, place) = match self.groups {
            Groups::All => (0, rank),
            Groups::Div(size) => (rank / size, rank % size),
            Groups::Mod(count) => (rank % count, rank / count),
        };
        GroupPosition {
            grouping: *self,
            group,
            place,
        }
    }

    /// Returns the rank of the run at this position of a group. Does not overflow, even with arbitrary numbers from a
    /// record.
    pub fn rank(&self, group: u32, place: u32) -> u32 {
        match self.groups {
            Groups::All => place,
            Groups::Div(size) => group.saturating_mul(size).saturating_add(place),
            Groups::Mod(count) => place.saturating_mul(count).saturating_add(group),
        }
    }

    /// Ranks of a group, in ascending order.
    pub fn members(&self, group: u32) -> impl Iterator<Item = u32> {
        let grouping = *self;
        (0..self.size()).map(move |place| grouping.rank(group, place))
    }

    /// Returns the ranks of a group in short form: `4-7`, or `1,3,…,31`.
    pub fn describe_members(&self, group: u32) -> String {
        let size = self.size();
        let rank = |place| self.rank(group, place);
        let last = rank(size.saturating_sub(1));
        match self.groups {
            Groups::Mod(1) | Groups::All | Groups::Div(_) if size > 1 => {
                format!("{}-{last}", rank(0))
            }
            _ if size <= LISTED_MAX => {
                let all: Vec<_> = self.members(group).map(|rank| rank.to_string()).collect();
                all.join(",")
            }
            _ => format!("{},{},…,{last}", rank(0), rank(1)),
        }
    }
}

impl GroupPosition {
    /// Returns the rank of the run at this position of the group.
    pub fn rank(&self, place: u32) -> u32 {
        self.grouping.rank(self.group, place)
    }

    /// Ranks of the group, in ascending order.
    pub fn members(&self) -> impl Iterator<Item = u32> {
        self.grouping.members(self.group)
    }
}

impl FromStr for Groups {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |text: &str| text.parse().ok().filter(|&number| number > 0);
        let read = match text.split_once(':') {
            Some(("div", size)) => number(size).map(Self::Div),
            Some(("mod", count)) => number(count).map(Self::Mod),
            _ => (text == "all").then_some(Self::All),
        };
        read.ok_or_else(|| {
            Error::Usage(format!(
                "{} is not a division of ranks: use all, div:K (K consecutive ranks) or mod:K (every K-th rank), \
                 such as div:2",
                quote(text)
            ))
        })
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Div(size) => write!(f, "div:{size}"),
            Self::Mod(count) => write!(f, "mod:{count}"),
        }
    }
}

impl From<Groups> for String {
    fn from(groups: Groups) -> Self {
        groups.to_string()
    }
}

impl TryFrom<String> for Groups {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_one_seat() {
        for (groups, ranks) in [
            (Groups::All, 6),
            (Groups::Div(2), 6),
            (Groups::Mod(2), 6),
            (Groups::Div(6), 6),
            (Groups::Mod(6), 6),
        ] {
            let grouping = groups.grouping(ranks).unwrap();
            assert_eq!(grouping.size() * grouping.count(), ranks);
            let mut all: Vec<u32> = (0..grouping.count())
                .flat_map(|group| grouping.members(group))
                .collect();
            all.sort_unstable();
            assert_eq!(all, (0..ranks).collect::<Vec<_>>());
            for rank in 0..ranks {
                let position = grouping.position(rank);
                assert_eq!(position.rank(position.place), rank, "{groups}");
                assert!(position.members().any(|it| it == rank));
            }
        }
    }

    #[test]
    fn neighbours_are_divided_and_remainders_gathered() {
        let words =
            |groups: Groups, ranks, group| groups.grouping(ranks).unwrap().describe_members(group);
        assert_eq!(words(Groups::Div(4), 8, 1), "4-7");
        assert_eq!(words(Groups::Mod(2), 4, 1), "1,3");
        assert_eq!(words(Groups::Mod(2), 32, 1), "1,3,…,31");
        assert_eq!(words(Groups::Mod(1), 3, 0), "0-2");
        assert_eq!(words(Groups::Div(1), 3, 2), "2");
        assert_eq!(words(Groups::All, 2, 0), "0-1");
    }

    #[test]
    fn unequal_groups_are_refused_with_the_nearest_ones() {
        let refused = |groups: Groups, ranks| groups.grouping(ranks).unwrap_err().to_string();
        assert!(refused(Groups::Div(3), 8).contains("use --groups div:2"));
        assert!(refused(Groups::Mod(9), 8).contains("use --groups mod:8"));
    }

    #[test]
    fn invalid_numbers_of_a_record_do_not_panic() {
        let whole = Grouping::from_checked(Groups::Div(7), u32::MAX - 1);
        assert_eq!((whole.count(), whole.size()), (1, u32::MAX - 1));
        let grouping = Grouping::from_checked(Groups::Mod(2), 4);
        assert!(grouping.describe_members(u32::MAX).contains("4294967295"));
        assert_eq!(Grouping::from_checked(Groups::All, 0).count(), 1);
    }

    #[test]
    fn names_are_read_back() {
        for text in ["all", "div:2", "mod:17"] {
            assert_eq!(text.parse::<Groups>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "div",
            "div:",
            "div:0",
            "mod:-1",
            "halves",
            "div:4294967296",
        ] {
            let refused = text.parse::<Groups>().unwrap_err();
            assert!(refused.to_string().contains("div:K"), "{text}");
        }
    }
}
