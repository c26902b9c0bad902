//! [`Rank`]: the main thread's side of the control channel.
//!
//! Every exchange is a request to the control thread and a place where the result appears. Nothing here touches a
//! socket, so a main thread that is stuck in a library does not stop this rank from answering the others.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::agreement;
use crate::bootstrap::options::JoinOptions;
use crate::channel::message::{Cause, Kind, clip};
use crate::join::{self, MARGIN};
use crate::settle::{count_local_ranks, keep_larger, lead_ns};
use crate::signals::Signals;
use crate::tree::collective::{gather_entries, gather_entry};
use crate::tree::control::{Control, Settings, speaks};
use crate::tree::shape::{message_bytes_max, parent_of};
use crate::tree::shared::{Command, Enter, Merge, Outcome, Shared, Slot, lock};
use crate::{ClockOffset, RankInfo};
use tonnage_units::identity::{Identity, Meeting};
use tonnage_units::{Error, Result};

/// After a complaint about a missing rank, the verdict must come within this time.
const VERDICT: Duration = Duration::from_secs(3);
/// Bound on the caller's name for an exchange.
const WHAT_BYTES_MAX: usize = 256;

/// This process among the ranks of a run. Dropping it without [`Rank::close`] ends the run for all.
#[derive(Debug)]
pub struct Rank {
    identity: Identity,
    infos: Vec<RankInfo>,
    local_ip: Option<IpAddr>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    next_seq: u64,
    message_bytes_max: usize,
    close_timeout: Duration,
    parent_is_root: bool,
}

/// An exchange that has been started and not finished.
#[derive(Debug)]
pub struct Pending {
    seq: u64,
    what: String,
    since: Instant,
    slot: Arc<Slot>,
}

impl Pending {
    /// Whether `finish` will not wait. One atomic load, so a timed loop may ask between operations.
    pub fn is_done(&self) -> bool {
        self.slot.is_done()
    }
}

impl Rank {
    /// Finds the other ranks, and returns when all are there and their clocks are known.
    ///
    /// # Errors
    /// [`Error::Rank`] names ranks that did not come in time or do not fit this run; [`Error::Usage`] an address that is
    /// not this host's; [`Error::Interrupted`] a signal that came meanwhile.
    pub fn join(identity: Identity, mut options: JoinOptions) -> Result<Self> {
        let deadline = Instant::now() + options.join_timeout + 2 * MARGIN;
        let me = RankInfo {
            rank: identity.rank,
            host: options.host.clone(),
            pid: std::process::id(),
            boot_id: options.boot_id.clone(),
            local_rank: identity.local_rank,
            local_size: identity.local_size,
        };
        let mut signals = if options.handle_signals {
            Signals::ending()?
        } else {
            Signals::none()
        };
        let tree = join::join(&identity, &me, &mut options, &mut signals)?;
        let start_lead_ns = Arc::new(AtomicU64::new(0));
        let settings = Settings {
            me,
            size: identity.size,
            message_bytes_max: message_bytes_max(identity.size),
            heartbeat_timeout: options.heartbeat_timeout,
            network_timeout: options.network_timeout,
            grace: options.grace,
            end_process: options.end_process,
            supervised: matches!(identity.meeting, Meeting::Local { .. }),
            start_lead_ns: start_lead_ns.clone(),
        };
        let table = tree.table.clone();
        let local_ip = tree.local_ip();
        let parent_is_root = identity.rank > 0 && parent_of(identity.rank, options.fanout) == 0;
        let shared = Shared::new()?;
        let control = Control::new(settings, tree, shared.clone(), signals);
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || control.run())
            .map_err(|error| Error::io("cannot start the control thread", error))?;
        let mut rank = Self {
            message_bytes_max: message_bytes_max(identity.size),
            identity,
            infos: Vec::new(),
            local_ip,
            shared,
            thread: Some(thread),
            next_seq: 0,
            close_timeout: options.close_timeout,
            parent_is_root,
        };
        match rank.settle(table, &start_lead_ns, options.fanout, deadline) {
            Ok(()) => Ok(rank),
            Err(error) => {
                rank.fail(&error);
                Err(error)
            }
        }
    }

    /// Everybody learns who everybody is, and rank 0 how long a message to the last one takes.
    fn settle(
        &mut self,
        table: Vec<RankInfo>,
        start_lead_ns: &AtomicU64,
        fanout: u32,
        deadline: Instant,
    ) -> Result<()> {
        let left = || {
            deadline
                .saturating_duration_since(Instant::now())
                .max(MARGIN)
        };
        let unreadable = |error| Error::Failed(format!("the list of ranks is unreadable: {error}"));
        let mine = match self.id() {
            0 => Some(serde_json::to_vec(&table).map_err(unreadable)?),
            _ => None,
        };
        let bytes = self.broadcast("the list of ranks", mine, left())?;
        self.infos = serde_json::from_slice(&bytes).map_err(unreadable)?;
        self.infos.sort_by_key(|info| info.rank);
        if self.infos.len() != self.identity.size as usize {
            return Err(Error::Failed("the list of ranks is not complete".into()));
        }
        count_local_ranks(&mut self.infos);
        if let Some(mine) = self.infos.get(self.identity.rank as usize) {
            self.identity.local_rank = mine.local_rank;
            self.identity.local_size = mine.local_size;
        }
        match self.shared.clock_known.wait(Instant::now() + left()) {
            Some(Outcome::Result(_)) => {}
            Some(Outcome::Stopped) => return Err(self.shared.error()),
            None => {
                return Err(Error::Failed(
                    "the clock of rank 0 did not answer in time".into(),
                ));
            }
        }
        let path_rtt_ns = lock(&self.shared.clock).1;
        let longest = self.reduce(
            "round trip of the control channel",
            path_rtt_ns.to_le_bytes().to_vec(),
            keep_larger,
            left(),
        )?;
        let longest_ns = longest
            .try_into()
            .map(u64::from_le_bytes)
            .unwrap_or_default();
        start_lead_ns.store(lead_ns(longest_ns, &self.infos, fanout), Ordering::Relaxed);
        Ok(())
    }

    /// This rank's number.
    pub fn id(&self) -> u32 {
        self.identity.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.identity.size
    }

    /// All ranks in the order of their numbers.
    pub fn infos(&self) -> &[RankInfo] {
        &self.infos
    }

    /// This host's own address on the control channel; `None` for a rank that is alone.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.local_ip
    }

    /// Who this is, with the place on this host filled in.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

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

    /// Starts an [`Rank::all_gather`] without waiting for it.
    ///
    /// # Errors
    /// When the run has ended, or this contribution is too long.
    pub fn start_all_gather(&mut self, what: &str, mine: &[u8]) -> Result<Pending> {
        // Each rank checks its own share, so that the one that sends too much is the one that says so.
        let share = self.message_bytes_max / self.size() as usize - 64;
        if mine.len() > share {
            return Err(Error::Failed(format!(
                "{} bytes are too many for \"{what}\": each of {} ranks may give {share}",
                mine.len(),
                self.size()
            )));
        }
        let entry = gather_entry(self.id(), mine)?;
        self.enter(Kind::Gather, what, entry, None)
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
        gather_entries(&self.wait(pending, deadline)?, self.size())
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
        let pending = self.enter(Kind::Broadcast, what, from_root.unwrap_or_default(), None)?;
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
        self.enter(Kind::Barrier, what, Vec::new(), None)
    }

    /// Waits for a barrier that was started.
    ///
    /// # Errors
    /// As [`Rank::barrier`].
    pub fn finish(&mut self, pending: Pending, deadline: Duration) -> Result<()> {
        self.wait(pending, deadline).map(|_| ())
    }

    /// Every rank gets the same outcome. If any failed it is the failure of the lowest failing rank; if something is only
    /// unavailable on some ranks and nothing failed, it is that.
    ///
    /// # Errors
    /// The agreed failure, or as [`Rank::barrier`].
    pub fn agree(&mut self, what: &str, mine: Result<()>, deadline: Duration) -> Result<()> {
        let host = self.host();
        let mine = agreement::write(self.id(), &host, &mine)?;
        agreement::outcome(&self.reduce(what, mine, agreement::merge, deadline)?)
    }

    /// Every rank gets all contributions merged, which happens on the way: `merge` must not care about order.
    ///
    /// # Errors
    /// When the run has ended, a rank does not come within `deadline` (it is named), or the result grows above the
    /// control channel's bound.
    pub fn reduce(
        &mut self,
        what: &str,
        mine: Vec<u8>,
        merge: fn(&mut Vec<u8>, &[u8]),
        deadline: Duration,
    ) -> Result<Vec<u8>> {
        let pending = self.enter(Kind::Reduce, what, mine, Some(merge))?;
        self.wait(pending, deadline)
    }

    /// A barrier after which all ranks know the same instant a little in the future (at least 500 µs from when rank 0
    /// knew that all had come): returns it in nanoseconds of this host's `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// As [`Rank::barrier`].
    pub fn aligned_start(&mut self, what: &str, deadline: Duration) -> Result<u64> {
        let pending = self.enter(Kind::Start, what, Vec::new(), None)?;
        let bytes = self.wait(pending, deadline)?;
        let start_ns = bytes.try_into().map(u64::from_le_bytes);
        let start_ns =
            start_ns.map_err(|_| Error::Failed("the common start cannot be read".into()))?;
        Ok(start_ns.saturating_add_signed(self.clock_offset().offset_ns))
    }

    /// Says what this rank is doing now; it is reported when others wait for it in vain.
    pub fn phase(&self, text: &str) {
        *lock(&self.shared.phase) = (cut(text), Instant::now());
    }

    /// Names the files to remove should the run end while the main thread is stuck in a library, so that its process is
    /// ended without it. Those that were named before are forgotten.
    pub fn bequeath(&self, files: Vec<PathBuf>) {
        *lock(&self.shared.bequest) = files;
    }

    /// Becomes true when the run ends early; timed loops look at it.
    pub fn stopped(&self) -> Arc<AtomicBool> {
        self.shared.stopped.clone()
    }

    /// Why the run ended early, once it has.
    pub fn why_stopped(&self) -> Option<Error> {
        self.shared.cause().as_ref().map(Error::from)
    }

    /// Ends the run for all ranks because of an error of this one. Only the first cause counts.
    pub fn fail(&self, error: &Error) {
        self.shared
            .command(Command::Abort(Cause::of(error, self.id(), &self.host())));
    }

    /// Whether this rank is the one that reports why the run ended early.
    pub fn reports_failure(&self) -> bool {
        let supervised = matches!(self.identity.meeting, Meeting::Local { .. });
        match self.shared.cause() {
            Some(cause) => speaks(self.id(), self.parent_is_root, supervised, &cause),
            None => self.id() == 0,
        }
    }

    /// How this host's clock differs from rank 0's.
    pub fn clock_offset(&self) -> ClockOffset {
        lock(&self.shared.clock).0
    }

    /// Ends the run in order: waits until every rank is here, after which nobody is reported as lost.
    ///
    /// # Errors
    /// Why the run ended early, if it did.
    pub fn close(mut self) -> Result<()> {
        self.phase("end of the run");
        let outcome = self.barrier("end of the run", self.close_timeout);
        self.leave();
        outcome
    }

    fn leave(&mut self) {
        self.shared.command(Command::Leave);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the control thread of this rank ended by a panic");
        }
    }

    fn host(&self) -> String {
        let mine = self.infos.get(self.identity.rank as usize);
        mine.map_or_else(tonnage_sys::host::name, |info| info.host.clone())
    }

    fn enter(
        &mut self,
        kind: Kind,
        what: &str,
        mine: Vec<u8>,
        merge: Option<Merge>,
    ) -> Result<Pending> {
        if self.shared.stopped.load(Ordering::Acquire) {
            return Err(self.shared.error());
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let (what, slot) = (cut(what), Slot::new());
        self.shared.command(Command::Enter(Enter {
            seq,
            kind,
            what: what.clone(),
            mine,
            merge,
            slot: slot.clone(),
        }));
        Ok(Pending {
            seq,
            what,
            since: Instant::now(),
            slot,
        })
    }

    fn wait(&self, pending: Pending, deadline: Duration) -> Result<Vec<u8>> {
        let Pending {
            seq,
            what,
            since,
            slot,
        } = pending;
        let outcome = slot.wait(Instant::now() + deadline).or_else(|| {
            let overdue = Command::Overdue {
                seq,
                what: what.clone(),
                waited: since.elapsed(),
            };
            self.shared.command(overdue);
            slot.wait(Instant::now() + VERDICT)
        });
        match outcome {
            Some(Outcome::Result(bytes)) => Ok(bytes),
            Some(Outcome::Stopped) => Err(self.shared.error()),
            None => Err(Error::Failed(format!(
                "\"{what}\" did not end within {:.1?}, and rank 0 does not say which rank is missing",
                since.elapsed()
            ))),
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.fail(&Error::Failed(
                "it ended before the run did: look at its output for the reason".into(),
            ));
            self.leave();
        }
    }
}

fn cut(text: &str) -> String {
    if text.len() <= WHAT_BYTES_MAX {
        clip(text)
    } else {
        text.chars().take(64).collect()
    }
}
