//! Exchanges of all ranks: barriers, gathers, messages to single ranks, reductions, and a common start.
//!
//! Every exchange is an entry at this rank's node of the tree and a place where the result appears.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Rank;
use crate::agreement::Verdict;
use crate::channel::message::{CallNumber, CollectiveKind, Terms, short};
use crate::channel::pack::{pack, unpack};
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

    fn members(&self) -> &RankSet {
        &self.terms.members
    }
}

/// Merges contributions to a reduction, of which some may have been merged already.
pub(super) fn fold<T: Reduce + DeserializeOwned>(entries: &[u8]) -> Result<T> {
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
pub(super) fn merging<T: Reduce + Serialize + DeserializeOwned>(entries: &[u8]) -> Result<Vec<u8>> {
    reduce_entry(&pack(&fold::<T>(entries)?)?)
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
        let pending = self.start_all_gather(what, &mine)?;
        self.finish_all_gather(pending, deadline)
    }

    /// Every rank gets every rank's value, in the order of the ranks.
    ///
    /// # Errors
    /// As [`Rank::all_gather`], and when a value cannot be read.
    pub fn gather<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        mine: &T,
        deadline: Duration,
    ) -> Result<Vec<T>> {
        let all = self.all_gather(what, pack(mine)?, deadline)?;
        all.iter().map(|bytes| unpack(bytes)).collect()
    }

    /// Starts an [`Rank::all_gather`] without waiting for it.
    ///
    /// # Errors
    /// When the run has ended, or this contribution is too long.
    pub fn start_all_gather(&mut self, what: &str, mine: &[u8]) -> Result<Pending> {
        self.check_share(what, mine)?;
        let entry = gather_entry(self.id(), mine)?;
        self.enter(CollectiveKind::Gather, what, entry, None)
    }

    /// Waits for an all-gather that was started.
    ///
    /// # Errors
    /// As [`Rank::all_gather`].
    pub fn finish_all_gather(
        &mut self,
        pending: Pending,
        deadline: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        let members = pending.members().clone();
        let entries = gather_entries(&self.wait(pending, deadline)?, &members)?;
        Ok(entries.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Each rank checks its own share, so that the one that sends too much is the one that says so.
    pub(super) fn check_share(&self, what: &str, mine: &[u8]) -> Result<()> {
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
        let pending = self.enter(CollectiveKind::Exchange, what, mine, None)?;
        self.finish_exchange(pending, deadline)
    }

    /// Waits for the messages of an exchange that was started, with their senders in the order of the ranks.
    ///
    /// # Errors
    /// As [`Rank::exchange`].
    pub fn finish_exchange(
        &mut self,
        pending: Pending,
        deadline: Duration,
    ) -> Result<Vec<(u32, Vec<u8>)>> {
        read_messages(&self.wait(pending, deadline)?, self.size())
    }

    /// Messages of this rank as they enter the tree.
    pub(super) fn written(&self, what: &str, messages: Vec<(u32, Vec<u8>)>) -> Result<Vec<u8>> {
        let about = |error| Error::Failed(format!("\"{what}\": {error}"));
        let mine = write_messages(self.id(), self.size(), messages).map_err(about)?;
        let bytes_max = self.message_bytes_max - 1024;
        match mine.len() > bytes_max {
            true => Err(Error::Failed(format!(
                "{} bytes are too many for \"{what}\": the control channel carries {bytes_max}",
                mine.len()
            ))),
            false => Ok(mine),
        }
    }

    /// Every rank gets rank 0's bytes; the others give `None`.
    ///
    /// # Errors
    /// When the run has ended, or a rank does not come within `deadline`; it is named.
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
        let pending = self.enter(
            CollectiveKind::Broadcast,
            what,
            from_root.unwrap_or_default(),
            None,
        )?;
        self.wait(pending, deadline)
    }

    /// Waits until every rank is here.
    ///
    /// # Errors
    /// When the run has ended, or a rank does not come within `deadline`; it is named.
    pub fn barrier(&mut self, what: &str, deadline: Duration) -> Result<()> {
        let pending = self.start_barrier(what)?;
        self.finish(pending, deadline)
    }

    /// Says that this rank has come to a barrier, without waiting for the others.
    ///
    /// # Errors
    /// When the run has ended.
    pub fn start_barrier(&mut self, what: &str) -> Result<Pending> {
        self.enter(CollectiveKind::Barrier, what, Vec::new(), None)
    }

    /// Waits for a barrier that was started.
    ///
    /// # Errors
    /// As [`Rank::barrier`].
    pub fn finish(&mut self, pending: Pending, deadline: Duration) -> Result<()> {
        self.wait(pending, deadline).map(|_| ())
    }

    /// Every rank gets the same outcome. If any failed it is the failure of the lowest failing rank; if something is
    /// only unavailable on some ranks and nothing failed, it is that.
    ///
    /// # Errors
    /// The agreed failure, or as [`Rank::barrier`].
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
        let pending = self.enter(CollectiveKind::Reduce, what, mine, Some(merging::<T>))?;
        fold(&self.wait(pending, deadline)?)
    }

    /// A barrier after which all ranks know the same instant a little in the future (at least 500 µs from when rank 0
    /// knew that all had come): returns it in nanoseconds of this host's `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// As [`Rank::barrier`].
    pub fn aligned_start(&mut self, what: &str, deadline: Duration) -> Result<u64> {
        let pending = self.enter(CollectiveKind::Start, what, Vec::new(), None)?;
        let start_ns: u64 = unpack(&self.wait(pending, deadline)?)?;
        Ok(self.local_ns(start_ns))
    }

    /// An instant of rank 0's clock on this host's.
    pub(super) fn local_ns(&self, root_ns: u64) -> u64 {
        root_ns.saturating_add_signed(self.clock_offset().offset_ns)
    }

    pub(super) fn enter(
        &mut self,
        kind: CollectiveKind,
        what: &str,
        mine: Vec<u8>,
        merge: Option<Merge>,
    ) -> Result<Pending> {
        let call = CallNumber {
            seq: self.next_seq,
            turn: 0,
        };
        let members = RankSet::all(self.size());
        let pending = self.enter_call(call, members, kind, what, (mine, merge))?;
        self.next_seq += 1;
        Ok(pending)
    }

    pub(super) fn enter_call(
        &mut self,
        call: CallNumber,
        members: RankSet,
        kind: CollectiveKind,
        what: &str,
        (mine, merge): (Vec<u8>, Option<Merge>),
    ) -> Result<Pending> {
        if self.shared.stopped.load(Ordering::Acquire) {
            return Err(self.shared.error());
        }
        let slot = Slot::waking(Arc::clone(&self.shared.sleepers));
        let terms = Terms {
            call,
            kind,
            what: short(what),
            members,
        };
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

    pub(super) fn wait(&self, pending: Pending, deadline: Duration) -> Result<Vec<u8>> {
        let Pending { terms, since, slot } = pending;
        let in_time = self.node.wait(&slot, Instant::now() + deadline)?;
        let what = terms.what.clone();
        let outcome = match in_time {
            Some(result) => Some(result),
            None => {
                self.node.overdue(terms, since.elapsed());
                self.node
                    .wait(&slot, Instant::now() + self.verdict_timeout)?
            }
        };
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
