//! Collectives of all ranks: barriers, gathers, messages to single ranks, reductions, and a synchronized start. Groups
//! of a few ranks can do the same without waking the others.
//!
//! Every collective is entered at this rank's node of the tree, with a slot for the result. Collectives of a group also
//! go through the tree, but involve only the control threads of the nodes between the members.

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
    /// Whether `finish` would return at once. This is one atomic load, so a timed loop may call it between operations.
    pub fn is_done(&self) -> bool {
        self.slot.is_done()
    }
}

/// Merges contributions to a reduction; some may already be merged.
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

/// A group of ranks that take part in one collective. All members must create it with the same arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankGroup {
    members: RankSet,
    turn: u64,
}

impl RankGroup {
    /// Creates a group from ranks in ascending order. `turn` must be above 0 and distinguish this meeting from others
    /// that the members, or ranks between them in the tree, may have before all ranks meet again.
    pub fn new(turn: u64, members: impl IntoIterator<Item = u32>) -> Self {
        let members = RankSet::from_ranks(members);
        Self { members, turn }
    }

    /// Iterates over the ranks in order.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.members.iter()
    }

    /// Whether a rank is a member.
    pub fn contains(&self, rank: u32) -> bool {
        self.members.contains(rank)
    }
}

impl Rank {
    /// Gives every rank the bytes of every rank, in rank order.
    ///
    /// # Errors
    /// When the run has ended, a rank does not arrive within `deadline` (it is named), or the contributions together
    /// exceed the control channel's bound.
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

    /// Refuses a contribution above this rank's share of the bound, so that the rank with too many bytes is the one
    /// that fails.
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

    /// Sends messages to single ranks, at most one to each. Returns the messages for this rank with their senders, in
    /// rank order. A rank without messages passes an empty list.
    ///
    /// The traffic of a rank does not grow with the number of ranks, and equal bytes for several ranks travel once.
    ///
    /// # Errors
    /// When the run has ended, a rank does not arrive within `deadline` (it is named), two messages have the same
    /// receiver, a receiver does not exist, or a connection would have to carry more than the control channel's bound.
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
        self.finish(pending, deadline)
    }

    /// Enters a barrier without waiting for the others.
    pub fn start_barrier(&mut self, what: &str) -> Result<PendingCollective> {
        self.enter_collective(None, CollectiveKind::Barrier, what, Vec::new(), None)
    }

    /// Waits for a started barrier.
    pub fn finish(&mut self, pending: PendingCollective, deadline: Duration) -> Result<()> {
        self.wait(pending, deadline).map(|_| ())
    }

    /// Gives every rank the same outcome: the failure of the lowest failing rank, if any. If no rank failed but some
    /// lack a feature, the outcome is that of the lowest of these.
    pub fn agree(&mut self, what: &str, mine: Result<()>, deadline: Duration) -> Result<()> {
        let mine = RankOutcome::if_failed(self.id(), &self.host(), &mine);
        self.reduce(what, mine, deadline)?
            .map_or(Ok(()), |verdict| Err(verdict.into()))
    }

    /// Gives every rank the merged contributions. They are merged on the way up the tree.
    ///
    /// # Errors
    /// When the run has ended, a rank does not arrive within `deadline` (it is named), a contribution cannot be
    /// decoded, or the result exceeds the control channel's bound.
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

    /// A barrier that returns a common start time, in nanoseconds of this host's `CLOCK_MONOTONIC`. It is at least 500
    /// µs after rank 0 knew that all had arrived.
    pub fn aligned_start(&mut self, what: &str, deadline: Duration) -> Result<u64> {
        let pending = self.enter_collective(None, CollectiveKind::Start, what, Vec::new(), None)?;
        let start_ns: u64 = unpack(&self.wait(pending, deadline)?)?;
        Ok(self.local_ns(start_ns))
    }

    /// Gives rank 0 the value of every rank, with equal values once. The others receive no values, whatever the number
    /// of ranks, but learn that rank 0 has theirs.
    ///
    /// # Errors
    /// When the run has ended, a rank does not arrive within `deadline` (it is named), a value cannot be decoded, or
    /// all of them together exceed the control channel's bound.
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

    /// Gives every rank the value of every rank, with equal values once: for values that most ranks share.
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
    /// `CLOCK_MONOTONIC`. It is at least 500 µs after all were known to have arrived.
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

    /// Enters a group's barrier without waiting for the others; [`Rank::finish`] waits.
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

    /// Starts an exchange of messages between members; [`Rank::finish_exchange`] waits for them.
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

    /// Converts a time of rank 0's clock to this host's.
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
            // Members of a group have all taken part in the same number of collectives of all ranks.
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
