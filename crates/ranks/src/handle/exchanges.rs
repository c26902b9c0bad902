//! Collectives of all ranks: barriers, gathers, messages to single ranks, reductions, and a synchronized start. A group
//! of ranks can do the same without waking ranks outside the group.
//!
//! A rank enters every collective at its node of the tree, with a slot for the result. Collectives of a group also go
//! through the tree. They involve only the members, and the control threads of the nodes between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Rank;
use super::distinct::{Distinct, RanksByValue};
use crate::agreement::RankOutcome;
use crate::channel::message::{CallNumber, CollectiveKind, CollectiveTerms, clip_name};
use crate::channel::pack::{pack, unpack, unpack_first};
use crate::rank_set::RankSet;
use crate::tree::collective::{gather_entries, gather_entry, reduce_entries, reduce_entry};
use crate::tree::exchange::{read_messages, write_messages};
use crate::tree::shared::{CollectiveCall, CollectiveResult, CollectiveSlot, MergeFn};
use tonnage_units::{Error, Reduce, Result};

/// A collective that has been started but not finished.
#[derive(Debug)]
pub struct PendingCollective {
    terms: CollectiveTerms,
    since: Instant,
    slot: Arc<CollectiveSlot>,
}

impl PendingCollective {
    /// Returns whether [`Rank::finish_barrier`] would return at once. This is one atomic load, so a timed loop
    /// may call it between operations.
    pub fn is_done(&self) -> bool {
        self.slot.is_done()
    }
}

/// Merges contributions to a reduction. Some of them may already be results of earlier merges.
fn merge_entries<T: Reduce + DeserializeOwned>(entries: &[u8]) -> Result<T> {
    let mut all: Option<T> = None;
    for entry in reduce_entries(entries)? {
        let entry = unpack(entry)?;
        match &mut all {
            Some(all) => all.merge(entry),
            None => all = Some(entry),
        }
    }
    all.ok_or_else(|| Error::Failed("a reduction had no contributions".into()))
}

/// Merges several contributions into one.
fn merge_into_entry<T: Reduce + Serialize + DeserializeOwned>(entries: &[u8]) -> Result<Vec<u8>> {
    reduce_entry(&pack(&merge_entries::<T>(entries)?)?)
}

/// A group of ranks that take part in one collective. All members must create the group with the same arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankGroup {
    members: RankSet,
    turn: u64,
}

impl RankGroup {
    /// Creates a group from ranks in ascending order. `turn` is above 0 and distinguishes group collectives. Until the
    /// next collective of all ranks, no member may enter two group collectives with the same `turn`. The same holds
    /// for ranks between the members in the tree.
    pub fn new(turn: u64, members: impl IntoIterator<Item = u32>) -> Self {
        let members = RankSet::from_ranks(members);
        Self { members, turn }
    }

    /// Iterates over the ranks in order.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.members.iter()
    }

    /// Returns whether a rank is a member.
    pub fn contains(&self, rank: u32) -> bool {
        self.members.contains(rank)
    }
}

impl Rank {
    /// Gives every rank the bytes of every rank, in rank order.
    ///
    /// # Errors
    /// When the run has ended, when the contributions together exceed the control channel's limit, or when a rank does
    /// not arrive within `deadline`. In the last case, the error names the rank.
    pub fn all_gather(
        &mut self,
        what: &str,
        mine: Vec<u8>,
        deadline: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        self.check_share(what, &mine)?;
        let entry = gather_entry(self.id(), &mine)?;
        let pending = self.enter_collective(None, CollectiveKind::Gather, what, entry, None)?;
        let bytes = self.wait(pending, deadline)?;
        let all = gather_entries(&bytes, &RankSet::all(self.size()))?;
        Ok(all.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Gives every rank the value of every rank, in rank order.
    pub fn gather<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Vec<T>> {
        let all = self.all_gather(what, pack(mine)?, deadline)?;
        all.iter().map(|bytes| unpack(bytes)).collect()
    }

    /// Fails if this rank's contribution exceeds its share of the limit. So the rank that sends too many bytes is the
    /// one that fails.
    fn check_share(&self, what: &str, mine: &[u8]) -> Result<()> {
        let share = self.message_bytes_max / self.size() as usize - 64;
        if mine.len() <= share {
            return Ok(());
        }
        Err(Error::Failed(format!(
            "{} bytes are too many for \"{what}\": each of {} ranks may give {share}",
            mine.len(),
            self.size()
        )))
    }

    /// Sends messages to single ranks, at most one to each. Returns the messages sent to this rank, with their senders,
    /// in rank order. A rank that sends nothing passes an empty list.
    ///
    /// A rank's traffic does not grow with the number of ranks. Equal bytes for several ranks are transferred once.
    ///
    /// # Errors
    /// When the run has ended, when a receiver does not exist, or when two messages have the same receiver. Also when a
    /// connection would have to carry more than the control channel's limit. Also when a rank does not arrive within
    /// `deadline`; the error then names the rank.
    pub fn exchange(
        &mut self,
        what: &str,
        messages: Vec<(u32, Vec<u8>)>,
        deadline: Duration,
    ) -> Result<Vec<(u32, Vec<u8>)>> {
        let mine = self.encode_messages(what, messages)?;
        let pending = self.enter_collective(None, CollectiveKind::Exchange, what, mine, None)?;
        self.finish_exchange(pending, deadline)
    }

    /// Waits for the messages of a started exchange. Returns them with their senders, in rank order.
    pub fn finish_exchange(
        &mut self,
        pending: PendingCollective,
        deadline: Duration,
    ) -> Result<Vec<(u32, Vec<u8>)>> {
        read_messages(&self.wait(pending, deadline)?, self.size())
    }

    /// Encodes this rank's messages for the tree.
    fn encode_messages(&self, what: &str, messages: Vec<(u32, Vec<u8>)>) -> Result<Vec<u8>> {
        let about = |error| Error::Failed(format!("\"{what}\": {error}"));
        let mine = write_messages(self.id(), self.size(), messages).map_err(about)?;
        let bytes_max = self.message_bytes_max - 1024;
        if mine.len() > bytes_max {
            return Err(Error::Failed(format!(
                "{} bytes are too many for \"{what}\": the control channel carries {bytes_max}",
                mine.len()
            )));
        }
        Ok(mine)
    }

    /// Gives every rank the bytes of rank 0; all other ranks pass `None`.
    pub fn broadcast(
        &mut self,
        what: &str,
        from_root: Option<Vec<u8>>,
        deadline: Duration,
    ) -> Result<Vec<u8>> {
        if from_root.is_some() != (self.id() == 0) {
            return Err(Error::Failed(format!(
                "\"{what}\": rank 0 must pass bytes, and other ranks must not"
            )));
        }
        let mine = from_root.unwrap_or_default();
        let pending = self.enter_collective(None, CollectiveKind::Broadcast, what, mine, None)?;
        self.wait(pending, deadline)
    }

    /// Waits until every rank has arrived.
    pub fn barrier(&mut self, what: &str, deadline: Duration) -> Result<()> {
        let pending = self.start_barrier(what)?;
        self.finish_barrier(pending, deadline)
    }

    /// Enters a barrier without waiting for the other ranks.
    pub fn start_barrier(&mut self, what: &str) -> Result<PendingCollective> {
        self.enter_collective(None, CollectiveKind::Barrier, what, Vec::new(), None)
    }

    /// Waits until a started barrier is complete.
    pub fn finish_barrier(&mut self, pending: PendingCollective, deadline: Duration) -> Result<()> {
        self.wait(pending, deadline).map(|_| ())
    }

    /// Gives every rank the same outcome. If ranks failed, it is the failure of the lowest one. If ranks only lack a
    /// feature, it is the error of the lowest of these.
    pub fn agree(&mut self, what: &str, mine: Result<()>, deadline: Duration) -> Result<()> {
        let mine = RankOutcome::if_failed(self.id(), &self.host(), &mine);
        self.reduce(what, mine, deadline)?
            .map_or(Ok(()), |verdict| Err(verdict.into()))
    }

    /// Merges the contributions on the way up the tree, and gives every rank the result.
    ///
    /// # Errors
    /// When the run has ended, when a contribution cannot be decoded, or when the result exceeds the control channel's
    /// limit. Also when a rank does not arrive within `deadline`; the error then names the rank.
    pub fn reduce<T: Reduce + Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: T,
        deadline: Duration,
    ) -> Result<T> {
        let mine = reduce_entry(&pack(&mine)?)?;
        let pending = self.enter_collective(
            None,
            CollectiveKind::Reduce,
            what,
            mine,
            Some(merge_into_entry::<T>),
        )?;
        merge_entries(&self.wait(pending, deadline)?)
    }

    /// Waits like a barrier, and returns a common start time in nanoseconds of this host's `CLOCK_MONOTONIC`. The time
    /// is at least 500 µs after rank 0 knew that all ranks had arrived.
    pub fn aligned_start(&mut self, what: &str, deadline: Duration) -> Result<u64> {
        let pending = self.enter_collective(None, CollectiveKind::Start, what, Vec::new(), None)?;
        let start_ns: u64 = unpack(&self.wait(pending, deadline)?)?;
        Ok(self.local_ns(start_ns))
    }

    /// Gives rank 0 the value of every rank, with equal values stored once. The other ranks receive no values, but know
    /// afterwards that rank 0 has theirs.
    ///
    /// # Errors
    /// When the run has ended, when a value cannot be decoded, or when all values together exceed the control channel's
    /// limit. Also when a rank does not arrive within `deadline`; the error then names the rank.
    pub fn collect<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Distinct<T>> {
        let all = self.merge_distinct(CollectiveKind::Collect, what, mine, deadline)?;
        if self.id() != 0 {
            return Ok(Distinct::default());
        }
        Distinct::from_groups(merge_entries(&all)?, self.size())
    }

    /// Gives every rank the value of every rank, with equal values stored once. Use it for values that most ranks
    /// share.
    pub fn gather_distinct<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Distinct<T>> {
        let all = self.merge_distinct(CollectiveKind::Reduce, what, mine, deadline)?;
        Distinct::from_groups(merge_entries(&all)?, self.size())
    }

    fn merge_distinct<T: Serialize>(
        &mut self,
        kind: CollectiveKind,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Vec<u8>> {
        let value = pack(mine)?;
        self.check_share(what, &value)?;
        let mine = reduce_entry(&pack(&RanksByValue::of_one_rank(value, self.id()))?)?;
        let pending = self.enter_collective(
            None,
            kind,
            what,
            mine,
            Some(merge_into_entry::<RanksByValue>),
        )?;
        self.wait(pending, deadline)
    }

    /// Gives every member the merged contributions and a common start time, in nanoseconds of this host's
    /// `CLOCK_MONOTONIC`. The time is at least 500 µs after all members were known to have arrived.
    pub fn reduce_and_align_start<T: Reduce + Serialize + DeserializeOwned>(
        &mut self,
        circle: &RankGroup,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<(u64, T)> {
        let mine = reduce_entry(&pack(mine)?)?;
        let merge = Some(merge_into_entry::<T> as MergeFn);
        let pending =
            self.enter_collective(Some(circle), CollectiveKind::Start, what, mine, merge)?;
        let bytes = self.wait(pending, deadline)?;
        let (start_ns, merged) = unpack_first::<u64>(&bytes)?;
        Ok((self.local_ns(start_ns), merge_entries(merged)?))
    }

    /// Enters a group's barrier without waiting for the other members. [`Rank::finish_barrier`] waits for them.
    pub fn start_group_barrier(
        &mut self,
        circle: &RankGroup,
        what: &str,
    ) -> Result<PendingCollective> {
        self.enter_collective(
            Some(circle),
            CollectiveKind::Barrier,
            what,
            Vec::new(),
            None,
        )
    }

    /// Starts an exchange of messages between members. [`Rank::finish_exchange`] waits for the messages.
    pub fn start_exchange(
        &mut self,
        circle: &RankGroup,
        what: &str,
        messages: Vec<(u32, Vec<u8>)>,
    ) -> Result<PendingCollective> {
        if let Some((to, _)) = messages.iter().find(|(to, _)| !circle.contains(*to)) {
            return Err(Error::Failed(format!(
                "\"{what}\": a message for rank {to}, which is not a member"
            )));
        }
        let mine = self.encode_messages(what, messages)?;
        self.enter_collective(Some(circle), CollectiveKind::Exchange, what, mine, None)
    }

    /// Converts a time of rank 0's clock to a time of this host's clock.
    fn local_ns(&self, root_ns: u64) -> u64 {
        root_ns.saturating_add_signed(self.clock_offset().offset_ns)
    }

    /// Enters a collective of all ranks or of a group.
    fn enter_collective(
        &mut self,
        circle: Option<&RankGroup>,
        kind: CollectiveKind,
        what: &str,
        mine: Vec<u8>,
        merge: Option<MergeFn>,
    ) -> Result<PendingCollective> {
        if self.shared.stopped.load(Ordering::Acquire) {
            return Err(self.shared.error());
        }
        let all = RankSet::all(self.size());
        let few = circle.filter(|circle| circle.members != all);
        let terms = CollectiveTerms {
            // All members of a group have entered the same number of collectives of all ranks, so they agree on this
            // number.
            call: CallNumber {
                seq: self.next_seq,
                turn: few.map_or(0, |circle| circle.turn),
            },
            members: few.map_or(all, |circle| circle.members.clone()),
            kind,
            what: clip_name(what),
        };
        if few.is_none() {
            self.next_seq += 1;
        }
        let slot = CollectiveSlot::new(Arc::clone(&self.shared.sleepers));
        self.node.enter(CollectiveCall {
            terms: terms.clone(),
            mine,
            merge,
            slot: slot.clone(),
        });
        Ok(PendingCollective {
            terms,
            since: Instant::now(),
            slot,
        })
    }

    fn wait(&self, pending: PendingCollective, deadline: Duration) -> Result<Vec<u8>> {
        let PendingCollective { terms, since, slot } = pending;
        let what = terms.what.clone();
        let mut outcome = self.node.wait(&slot, Instant::now() + deadline)?;
        if outcome.is_none() {
            self.node.report_overdue(terms, since.elapsed());
            let deadline = Instant::now() + self.verdict_timeout;
            outcome = self.node.wait(&slot, deadline)?;
        }
        match outcome {
            Some(CollectiveResult::Result(bytes)) => Ok(bytes),
            Some(CollectiveResult::Stopped) => Err(self.shared.error()),
            None => Err(Error::Failed(format!(
                "\"{what}\" did not end within {:.1?}, and rank 0 did not report which rank is missing",
                since.elapsed()
            ))),
        }
    }
}
