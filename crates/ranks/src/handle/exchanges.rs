//! Exchanges of all ranks: barriers, gathers, messages to single ranks, reductions, and a common start; and meetings of a
//! few ranks, which do the same without waking the others.
//!
//! Every exchange is an entry at this rank's node of the tree and a place where the result appears. What a few ranks tell
//! each other goes through the tree too, but only by the control threads of the nodes between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Rank;
use super::alike::{Alike, Groups};
use crate::agreement::Verdict;
use crate::channel::message::{CallNumber, CollectiveKind, Terms, short};
use crate::channel::pack::{pack, unpack, unpack_first};
use crate::rank_set::RankSet;
use crate::tree::collective::{gather_entries, gather_entry, reduce_entries, reduce_entry};
use crate::tree::exchange::{read_messages, write_messages};
use crate::tree::shared::{CollectiveResult, Enter, Merge, Slot};
use tonnage_units::{Error, Reduce, Result};

/// An exchange that has been started and not finished.
#[derive(Debug)]
pub struct Pending {
    terms: Terms,
    since: Instant,
    slot: Arc<Slot>,
}

impl Pending {
    /// Returns whether `finish` will not wait. One atomic load, so a timed loop may ask between operations.
    pub fn is_done(&self) -> bool {
        self.slot.is_done()
    }
}

/// Merges contributions to a reduction, of which some may have been merged already.
fn fold<T: Reduce + DeserializeOwned>(entries: &[u8]) -> Result<T> {
    let mut all: Option<T> = None;
    for entry in reduce_entries(entries)? {
        let entry = unpack(entry)?;
        match &mut all {
            Some(all) => all.merge(entry),
            None => all = Some(entry),
        }
    }
    all.ok_or_else(|| Error::Failed("a reduction came to nothing".into()))
}

/// Makes one contribution of several.
fn merging<T: Reduce + Serialize + DeserializeOwned>(entries: &[u8]) -> Result<Vec<u8>> {
    reduce_entry(&pack(&fold::<T>(entries)?)?)
}

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
    /// Every rank gets every rank's bytes, in the order of the ranks.
    ///
    /// # Errors
    /// When the run has ended, a rank does not come within `deadline` (it is named), or the contributions are together
    /// above the control channel's bound.
    pub fn all_gather(
        &mut self,
        what: &str,
        mine: Vec<u8>,
        deadline: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        self.check_share(what, &mine)?;
        let entry = gather_entry(self.id(), &mine)?;
        let pending = self.enter(None, CollectiveKind::Gather, what, entry, None)?;
        let bytes = self.wait(pending, deadline)?;
        let all = gather_entries(&bytes, &RankSet::all(self.size()))?;
        Ok(all.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Every rank gets every rank's value, in the order of the ranks.
    pub fn gather<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Vec<T>> {
        let all = self.all_gather(what, pack(mine)?, deadline)?;
        all.iter().map(|bytes| unpack(bytes)).collect()
    }

    /// Each rank checks its own share, so that the one that sends too much is the one that says so.
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

    /// Every rank sends messages to single ranks, at most one to each, and gets those that are for it with their
    /// senders, in the order of the ranks. A rank that has nothing to send takes part with an empty list.
    ///
    /// What a rank receives does not depend on the number of ranks; what is the same for several travels once.
    ///
    /// # Errors
    /// When the run has ended, a rank does not come within `deadline` (it is named), two messages are for one rank or
    /// one is for a rank that there is not, or what one connection would have to carry is above the control channel's
    /// bound.
    pub fn exchange(
        &mut self,
        what: &str,
        messages: Vec<(u32, Vec<u8>)>,
        deadline: Duration,
    ) -> Result<Vec<(u32, Vec<u8>)>> {
        let mine = self.written(what, messages)?;
        let pending = self.enter(None, CollectiveKind::Exchange, what, mine, None)?;
        self.finish_exchange(pending, deadline)
    }

    /// Waits for the messages of an exchange that was started, with their senders in the order of the ranks.
    pub fn finish_exchange(
        &mut self,
        pending: Pending,
        deadline: Duration,
    ) -> Result<Vec<(u32, Vec<u8>)>> {
        read_messages(&self.wait(pending, deadline)?, self.size())
    }

    /// Messages of this rank as they enter the tree.
    fn written(&self, what: &str, messages: Vec<(u32, Vec<u8>)>) -> Result<Vec<u8>> {
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

    /// Every rank gets rank 0's bytes; the others give `None`.
    pub fn broadcast(
        &mut self,
        what: &str,
        from_root: Option<Vec<u8>>,
        deadline: Duration,
    ) -> Result<Vec<u8>> {
        if from_root.is_some() != (self.id() == 0) {
            return Err(Error::Failed(format!(
                "\"{what}\": rank 0 and nobody else gives bytes"
            )));
        }
        let mine = from_root.unwrap_or_default();
        let pending = self.enter(None, CollectiveKind::Broadcast, what, mine, None)?;
        self.wait(pending, deadline)
    }

    /// Waits until every rank is here.
    pub fn barrier(&mut self, what: &str, deadline: Duration) -> Result<()> {
        let pending = self.start_barrier(what)?;
        self.finish(pending, deadline)
    }

    /// Says that this rank has come to a barrier, without waiting for the others.
    pub fn start_barrier(&mut self, what: &str) -> Result<Pending> {
        self.enter(None, CollectiveKind::Barrier, what, Vec::new(), None)
    }

    /// Waits for a barrier that was started.
    pub fn finish(&mut self, pending: Pending, deadline: Duration) -> Result<()> {
        self.wait(pending, deadline).map(|_| ())
    }

    /// Every rank gets the same outcome. If any failed it is the failure of the lowest failing rank; if something is
    /// only unavailable on some ranks and nothing failed, it is that.
    pub fn agree(&mut self, what: &str, mine: Result<()>, deadline: Duration) -> Result<()> {
        let mine = Verdict::of(self.id(), &self.host(), &mine);
        self.reduce(what, mine, deadline)?
            .map_or(Ok(()), |verdict| Err(verdict.into()))
    }

    /// Every rank gets all contributions merged, which happens on the way.
    ///
    /// # Errors
    /// When the run has ended, a rank does not come within `deadline` (it is named), a contribution cannot be read, or
    /// the result grows above the control channel's bound.
    pub fn reduce<T: Reduce + Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: T,
        deadline: Duration,
    ) -> Result<T> {
        let mine = reduce_entry(&pack(&mine)?)?;
        let pending = self.enter(None, CollectiveKind::Reduce, what, mine, Some(merging::<T>))?;
        fold(&self.wait(pending, deadline)?)
    }

    /// A barrier after which all ranks know the same instant a little in the future (at least 500 µs from when rank 0
    /// knew that all had come): returns it in nanoseconds of this host's `CLOCK_MONOTONIC`.
    pub fn aligned_start(&mut self, what: &str, deadline: Duration) -> Result<u64> {
        let pending = self.enter(None, CollectiveKind::Start, what, Vec::new(), None)?;
        let start_ns: u64 = unpack(&self.wait(pending, deadline)?)?;
        Ok(self.local_ns(start_ns))
    }

    /// Rank 0 gets every rank's value, those that are alike once. The others get none, however many ranks there are,
    /// and know that rank 0 has got theirs.
    ///
    /// # Errors
    /// When the run has ended, a rank does not come within `deadline` (it is named), a value cannot be read, or all of
    /// them are together above the control channel's bound.
    pub fn collect<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Alike<T>> {
        let all = self.merge_alike(CollectiveKind::Collect, what, mine, deadline)?;
        if self.id() != 0 {
            return Ok(Alike::default());
        }
        Alike::of(fold(&all)?, self.size())
    }

    /// Every rank gets every rank's value, those that are alike once: for what is the same on most ranks.
    pub fn gather_alike<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Alike<T>> {
        let all = self.merge_alike(CollectiveKind::Reduce, what, mine, deadline)?;
        Alike::of(fold(&all)?, self.size())
    }

    fn merge_alike<T: Serialize>(
        &mut self,
        kind: CollectiveKind,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Vec<u8>> {
        let value = pack(mine)?;
        self.check_share(what, &value)?;
        let mine = reduce_entry(&pack(&Groups::of(value, self.id()))?)?;
        let pending = self.enter(None, kind, what, mine, Some(merging::<Groups>))?;
        self.wait(pending, deadline)
    }

    /// Every member gets all contributions merged and knows the same instant a little in the future (at least 500 µs
    /// from when it was known that all had come), in nanoseconds of this host's `CLOCK_MONOTONIC`.
    pub fn start_together<T: Reduce + Serialize + DeserializeOwned>(
        &mut self,
        circle: &Circle,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<(u64, T)> {
        let mine = reduce_entry(&pack(mine)?)?;
        let merge = Some(merging::<T> as Merge);
        let pending = self.enter(Some(circle), CollectiveKind::Start, what, mine, merge)?;
        let bytes = self.wait(pending, deadline)?;
        let (start_ns, merged) = unpack_first::<u64>(&bytes)?;
        Ok((self.local_ns(start_ns), fold(merged)?))
    }

    /// Says that this rank has come to a meeting of a few, without waiting for the others; [`Rank::finish`] does.
    pub fn start_meeting(&mut self, circle: &Circle, what: &str) -> Result<Pending> {
        self.enter(
            Some(circle),
            CollectiveKind::Barrier,
            what,
            Vec::new(),
            None,
        )
    }

    /// Starts an exchange of messages for single members; [`Rank::finish_exchange`] waits for them.
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
        self.enter(Some(circle), CollectiveKind::Exchange, what, mine, None)
    }

    /// An instant of rank 0's clock on this host's.
    fn local_ns(&self, root_ns: u64) -> u64 {
        root_ns.saturating_add_signed(self.clock_offset().offset_ns)
    }

    /// Enters a collective of all ranks, or of a circle of them.
    fn enter(
        &mut self,
        circle: Option<&Circle>,
        kind: CollectiveKind,
        what: &str,
        mine: Vec<u8>,
        merge: Option<Merge>,
    ) -> Result<Pending> {
        if self.shared.stopped.load(Ordering::Acquire) {
            return Err(self.shared.error());
        }
        let all = RankSet::all(self.size());
        let few = circle.filter(|circle| circle.members != all);
        let terms = Terms {
            // All ranks have met as often when a few of them meet.
            call: CallNumber {
                seq: self.next_seq,
                turn: few.map_or(0, |circle| circle.turn),
            },
            members: few.map_or(all, |circle| circle.members.clone()),
            kind,
            what: short(what),
        };
        if few.is_none() {
            self.next_seq += 1;
        }
        let slot = Slot::waking(Arc::clone(&self.shared.sleepers));
        self.node.enter(Enter {
            terms: terms.clone(),
            mine,
            merge,
            slot: slot.clone(),
        });
        Ok(Pending {
            terms,
            since: Instant::now(),
            slot,
        })
    }

    fn wait(&self, pending: Pending, deadline: Duration) -> Result<Vec<u8>> {
        let Pending { terms, since, slot } = pending;
        let what = terms.what.clone();
        let mut outcome = self.node.wait(&slot, Instant::now() + deadline)?;
        if outcome.is_none() {
            self.node.overdue(terms, since.elapsed());
            let deadline = Instant::now() + self.verdict_timeout;
            outcome = self.node.wait(&slot, deadline)?;
        }
        match outcome {
            Some(CollectiveResult::Result(bytes)) => Ok(bytes),
            Some(CollectiveResult::Stopped) => Err(self.shared.error()),
            None => Err(Error::Failed(format!(
                "\"{what}\" did not end within {:.1?}, and rank 0 does not say which rank is missing",
                since.elapsed()
            ))),
        }
    }
}
