//! Meetings of a few ranks: what all ranks do together in `exchanges`, these do without waking the others.
//!
//! The way of what they tell each other is the tree's: nodes between them pass it on, but only their control threads,
//! and their main threads sleep.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Rank;
use super::exchanges::{Pending, fold, merging};
use crate::channel::message::{CallNumber, CollectiveKind};
use crate::channel::pack::{pack, unpack_first};
use crate::rank_set::RankSet;
use crate::tree::collective::reduce_entry;
use crate::tree::shared::Merge;
use tonnage_units::{Error, Reduce, Result};

/// Ranks that meet once. All of them make it alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circle {
    members: RankSet,
    turn: u64,
}

impl Circle {
    /// Ranks that meet, in ascending order. `turn` tells their meeting from others that its ranks or those between them
    /// may have before all ranks meet again; it is above 0.
    pub fn new(turn: u64, members: impl IntoIterator<Item = u32>) -> Self {
        let members = RankSet::of(members);
        Self { members, turn }
    }

    /// The ranks, in order.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.members.iter()
    }

    /// Returns whether a rank is one of them.
    pub fn contains(&self, rank: u32) -> bool {
        self.members.contains(rank)
    }
}

impl Rank {
    /// Every member gets all contributions merged and knows the same instant a little in the future (at least 500 µs
    /// from when it was known that all had come), in nanoseconds of this host's `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// As [`Rank::reduce`], of the members.
    pub fn start_together<T: Reduce + Serialize + DeserializeOwned>(
        &mut self,
        circle: &Circle,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<(u64, T)> {
        let mine = reduce_entry(&pack(mine)?)?;
        let kind = CollectiveKind::Start;
        let pending = self.enter_circle(circle, kind, what, mine, Some(merging::<T>))?;
        let bytes = self.wait(pending, deadline)?;
        let (start_ns, merged) = unpack_first::<u64>(&bytes)?;
        Ok((self.local_ns(start_ns), fold(merged)?))
    }

    /// Says that this rank has come to a meeting of a few, without waiting for the others; [`Rank::finish`] does.
    ///
    /// # Errors
    /// When the run has ended.
    pub fn start_meeting(&mut self, circle: &Circle, what: &str) -> Result<Pending> {
        self.enter_circle(circle, CollectiveKind::Barrier, what, Vec::new(), None)
    }

    /// Starts an exchange of messages for single members; [`Rank::finish_exchange`] waits for them.
    ///
    /// # Errors
    /// When the run has ended, a message is for a rank that is no member, or as [`Rank::exchange`].
    pub fn start_exchange(
        &mut self,
        circle: &Circle,
        what: &str,
        messages: Vec<(u32, Vec<u8>)>,
    ) -> Result<Pending> {
        if let Some((to, _)) = messages.iter().find(|(to, _)| !circle.contains(*to)) {
            return Err(Error::Failed(format!(
                "\"{what}\": a message for rank {to}, which does not meet"
            )));
        }
        let mine = self.written(what, messages)?;
        self.enter_circle(circle, CollectiveKind::Exchange, what, mine, None)
    }

    fn enter_circle(
        &mut self,
        circle: &Circle,
        kind: CollectiveKind,
        what: &str,
        mine: Vec<u8>,
        merge: Option<Merge>,
    ) -> Result<Pending> {
        let Circle { members, turn } = circle;
        if *members == RankSet::all(self.size()) {
            return self.enter(kind, what, mine, merge);
        }
        // All ranks have met as often when these meet.
        let call = CallNumber {
            seq: self.next_seq,
            turn: *turn,
        };
        self.enter_call(call, members.clone(), kind, what, (mine, merge))
    }
}
