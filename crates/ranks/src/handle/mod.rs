//! [`Rank`]: the main thread's side of the control channel.
//!
//! Joining, what a rank knows, and its end are here; what ranks do together is in `exchanges`. While the main thread is
//! stuck in a library, the control thread answers the others.

mod alike;
mod exchanges;

pub use alike::Alike;
pub use exchanges::{Circle, Pending};

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bootstrap::options::JoinOptions;
use crate::channel::message::{Cause, short};
use crate::channel::pack::{pack, unpack};
use crate::hosts::{Hosts, count_local_ranks};
use crate::join::{self, JoinBytes, MARGIN, RankFailure};
use crate::patience;
use crate::rank_list::RankList;
use crate::signals::{Signals, received_by};
use crate::sleepers::Sleepers;
use crate::start_lead::StartLead;
use crate::tree::clock::monotonic_ns;
use crate::tree::control::Control;
use crate::tree::missing::COLLECT;
use crate::tree::node::{BEATS, ControlSettings, TreeNode};
use crate::tree::node_handle::NodeHandle;
use crate::tree::shape::{message_bytes_max, parent_of};
use crate::tree::shared::{CollectiveResult, ControlCommand, Shared, Slot, speaks};
use crate::{ClockOffset, RankInfo};
use tonnage_units::identity::{Identity, Meeting};
use tonnage_units::lock::lock;
use tonnage_units::reduce::Largest;
use tonnage_units::{Error, Result};

/// Beginning of a message of the debug level about the step that a rank takes, before its number.
pub const STEP_MARK: &str = "step of rank ";

/// This process among the ranks of a run. Dropping it without [`Rank::close`] ends the run for all.
#[derive(Debug)]
pub struct Rank {
    identity: Identity,
    infos: Arc<[RankInfo]>,
    hosts: Hosts,
    local_ip: Option<IpAddr>,
    shared: Arc<Shared>,
    node: NodeHandle,
    thread: Option<JoinHandle<()>>,
    next_seq: u64,
    message_bytes_max: usize,
    close_timeout: Duration,
    network_timeout: Duration,
    /// Time in which the verdict must come after a complaint about a missing rank.
    verdict_timeout: Duration,
    parent_is_root: bool,
}

/// Usual time in which the verdict must come after a complaint about a missing rank.
const VERDICT: Duration = Duration::from_secs(3);

/// The most time that rank 0's port takes to close.
const DOOR: Duration = Duration::from_secs(1);

impl Rank {
    /// Finds the other ranks, and returns when all are there and their clocks are known.
    ///
    /// # Errors
    /// [`Error::Rank`] names ranks that did not come in time or do not fit this run; [`Error::Usage`] an address that
    /// is not this host's; [`Error::Interrupted`] a signal that came meanwhile.
    pub fn join(
        identity: Identity,
        mut options: JoinOptions,
    ) -> std::result::Result<Self, RankFailure> {
        let deadline = Instant::now() + options.join_timeout + 2 * MARGIN;
        let me = options.info(&identity);
        let mut signals = match options.signals.take() {
            Some(signals) => signals,
            None if options.handle_signals => Signals::ending()?,
            None => Signals::none(),
        };
        let tree =
            join::join(&identity, &me, &mut options, &mut signals).map_err(|mut failure| {
                // A rank that got a signal while it joined says so itself. Of a rank 0 that is no more its supervisor
                // tells.
                failure.error = received_by(failure.error, me.rank, &me.host);
                let of_other =
                    |of: &Option<(u32, String)>| of.as_ref().is_some_and(|of| of.0 != me.rank);
                failure.is_told |=
                    matches!(&failure.error, Error::Interrupted { rank, .. } if of_other(rank));
                failure
            })?;
        let beyond = patience::beyond(options.crowd_timeout, tree.ranks_per_cpu);
        let network_timeout = options.network_timeout.saturating_add(beyond);
        let start_lead = Arc::new(OnceLock::new());
        let settings = ControlSettings {
            me,
            size: identity.size,
            fanout: options.fanout,
            message_bytes_max: message_bytes_max(identity.size),
            heartbeat_timeout: options.heartbeat_timeout.saturating_add(beyond),
            network_timeout,
            clock_interval: options.heartbeat_timeout / BEATS,
            collect_time: COLLECT.saturating_add(beyond),
            grace: options.grace,
            end_process: options.end_process,
            supervised: matches!(identity.meeting, Meeting::Local { .. }),
            start_lead: Arc::clone(&start_lead),
        };
        let table = tree.table.clone();
        let local_ip = tree.local_ip();
        let parent_is_root = identity.rank > 0 && parent_of(identity.rank, options.fanout) == 0;
        let shared = Shared::new()?;
        let (node, door) = TreeNode::new(settings, tree, shared.clone())?;
        let control = Control::new(Arc::clone(&node), signals, door, options.launcher);
        let thread = control.start_thread()?;
        let mut rank = Self {
            message_bytes_max: message_bytes_max(identity.size),
            identity,
            infos: Arc::new([]),
            hosts: Hosts::default(),
            local_ip,
            shared,
            node: NodeHandle::new(&node),
            thread: Some(thread),
            next_seq: 0,
            close_timeout: options.close_timeout,
            network_timeout,
            verdict_timeout: VERDICT.saturating_add(beyond),
            parent_is_root,
        };
        match rank.settle(table, &start_lead, options.fanout, deadline) {
            Ok(()) => Ok(rank),
            Err(error) => {
                rank.fail(&error);
                let is_told = !rank.claims_report();
                Err(RankFailure { error, is_told })
            }
        }
    }

    /// Tells everybody who everybody is, and rank 0 the time that a message to the last one takes.
    fn settle(
        &mut self,
        table: Vec<RankInfo>,
        start_lead: &OnceLock<StartLead>,
        fanout: u32,
        deadline: Instant,
    ) -> Result<()> {
        let left = || {
            deadline
                .saturating_duration_since(Instant::now())
                .max(MARGIN)
        };
        let is_root = self.id() == 0;
        let mine = is_root.then(|| pack(&RankList::of(table))).transpose()?;
        let bytes = self.broadcast("the list of ranks", mine, left())?;
        let mut infos = unpack::<RankList>(&bytes)?.infos(self.identity.size)?;
        self.hosts = Hosts::of(&infos);
        count_local_ranks(&mut infos, &self.hosts);
        self.infos = infos.into();
        if let Some(mine) = self.infos.get(self.identity.rank as usize) {
            self.identity.local_rank = mine.local_rank;
            self.identity.local_size = mine.local_size;
        }
        self.shared.infos.get_or_init(|| Arc::clone(&self.infos));
        match self.shared.clock_known.wait(Instant::now() + left()) {
            Some(CollectiveResult::Result(_)) => {}
            Some(CollectiveResult::Stopped) => return Err(self.shared.error()),
            None => {
                return Err(Error::Failed(
                    "the clock of rank 0 did not answer in time".into(),
                ));
            }
        }
        let path_rtt_ns = lock(&self.shared.clock).base.path_rtt_ns;
        let what = "round trip of the control channel";
        let Largest(longest_ns) = self.reduce(what, Largest(path_rtt_ns), left())?;
        start_lead.get_or_init(|| StartLead::new(longest_ns, &self.infos, fanout));
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

    /// The machines, networks and hosts that ranks share.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Processes of the other ranks that this one can find by their numbers.
    pub fn pids_of_container(&self) -> Vec<u32> {
        let here = self.hosts.ranks_of_container(self.id());
        let others = here.into_iter().filter(|rank| *rank != self.id());
        let infos = others.filter_map(|rank| self.infos.get(rank as usize));
        infos.map(|info| info.pid).collect()
    }

    /// This host's own address on the control channel; `None` for a rank that is alone.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.local_ip
    }

    /// Identity of this rank, with the place on this host filled in.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Silence after which a rank of another host counts as lost.
    pub fn network_timeout(&self) -> Duration {
        self.network_timeout
    }

    /// Bytes of the control channel until this rank had its place among the others.
    pub fn join_bytes(&self) -> JoinBytes {
        self.node.join_bytes
    }

    /// Bytes that have come to this rank on the control channel since the ranks joined.
    pub fn received_bytes(&self) -> u64 {
        self.shared.received_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that this rank has said on the control channel since the ranks joined.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }

    /// States what this rank is doing now; it is reported when others wait for it in vain.
    pub fn phase(&self, text: &str) {
        log::debug!("{STEP_MARK}{}: {text}", self.id());
        *lock(&self.shared.phase) = (short(text), Instant::now());
    }

    /// Says what is to be done should the run end while the main thread is stuck in a library, so that its process is
    /// ended without it. What was said before is forgotten.
    pub fn bequeath(&self, last_will: impl FnOnce() + Send + 'static) {
        lock(&self.shared.bequest).0 = Some(Box::new(last_will));
    }

    /// Threads of this rank that sleep on descriptors of their own: what the control channel brings, and the end of the
    /// run, wakes them.
    pub fn sleepers(&self) -> Arc<Sleepers> {
        Arc::clone(&self.shared.sleepers)
    }

    /// Notes to rank 0, for any thread of this rank.
    pub fn notes(&self) -> Notes {
        Notes {
            shared: Arc::clone(&self.shared),
            node: self.node.clone(),
            message_bytes_max: self.message_bytes_max,
        }
    }

    /// Becomes true when the run ends early; timed loops look at it.
    pub fn stopped(&self) -> Arc<AtomicBool> {
        self.shared.stopped.clone()
    }

    /// State that outlives this handle, and the node.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (Arc<Shared>, &NodeHandle) {
        (Arc::clone(&self.shared), &self.node)
    }

    /// The estimate of this host's clock as it was made last.
    #[cfg(test)]
    pub(crate) fn known_clock(&self) -> crate::tree::clock::KnownClock {
        *lock(&self.shared.clock)
    }

    /// Returns the reason why the run ended early, once it has.
    pub fn why_stopped(&self) -> Option<Error> {
        self.shared.cause().as_ref().map(Error::from)
    }

    /// Ends the run for all ranks because of an error of this one. Only the first cause counts.
    pub fn fail(&self, error: &Error) {
        self.alarm().raise(error);
    }

    /// The end of the run for a thread beside this rank's main one.
    pub fn alarm(&self) -> Alarm {
        Alarm {
            shared: Arc::clone(&self.shared),
            rank: self.id(),
            host: self.host(),
        }
    }

    /// Claims to report why the run ended early: true for the one call after which this rank's main thread has to, and
    /// never where the control thread has done so.
    pub fn claims_report(&self) -> bool {
        let supervised = matches!(self.identity.meeting, Meeting::Local { .. });
        let speaks = match self.shared.cause() {
            Some(cause) => speaks(self.id(), self.parent_is_root, supervised, &cause),
            // The control thread is about to take up the cause, and must not say it again.
            None => self.id() == 0,
        };
        speaks && self.shared.claim_report()
    }

    /// Difference between this host's clock and rank 0's. It is estimated anew with every heartbeat.
    pub fn clock_offset(&self) -> ClockOffset {
        lock(&self.shared.clock).at(monotonic_ns())
    }

    /// Ends the run in order: waits until every rank is here, after which nobody is reported as lost.
    pub fn close(mut self) -> std::result::Result<(), RankFailure> {
        self.phase("end of the run");
        if self.id() == 0 && !self.shared.stopped.load(Ordering::Acquire) {
            // Before anybody can have left, so that no rank of a next run at the same port comes to this one.
            let closed = Slot::waking(Arc::clone(&self.shared.sleepers));
            self.shared
                .command(ControlCommand::CloseDoor(Arc::clone(&closed)));
            // A control thread that has ended meanwhile has closed it.
            closed.wait(Instant::now() + DOOR);
        }
        let outcome = self.barrier("end of the run", self.close_timeout);
        let is_told = outcome.is_err() && !self.claims_report();
        self.leave();
        outcome.map_err(|error| RankFailure { error, is_told })
    }

    fn leave(&mut self) {
        self.shared.command(ControlCommand::Leave);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the control thread of this rank ended by a panic");
        }
    }

    fn host(&self) -> String {
        let mine = self.infos.get(self.identity.rank as usize);
        mine.map_or_else(tonnage_sys::host::name, |info| info.host.to_string())
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

/// Ends the run for all ranks in the name of one, by a thread beside its main one, which may be stuck in a library.
#[derive(Debug, Clone)]
pub struct Alarm {
    shared: Arc<Shared>,
    rank: u32,
    host: String,
}

impl Alarm {
    /// Ends the run because of an error of the rank. Only the first cause counts. A process whose main thread does not
    /// end by itself is ended after a grace, where [`crate::JoinOptions::end_process`] says so.
    pub fn raise(&self, error: &Error) {
        let cause = Cause::of(error, self.rank, &self.host);
        self.shared.command(ControlCommand::Abort(cause));
    }
}

/// Bytes of a message beside the note in it.
const HEAD_BYTES: usize = 1024;

/// Notes: what a rank tells rank 0 while the run goes on, such as how far it is. Nobody waits for one.
///
/// Notes of a rank come in the order in which they were sent, and before anything that the rank enters later: once an
/// exchange is over on rank 0, the notes that ranks sent before they entered it are there.
#[derive(Debug, Clone)]
pub struct Notes {
    shared: Arc<Shared>,
    node: NodeHandle,
    message_bytes_max: usize,
}

impl Notes {
    /// Sends a note to rank 0, which may send some itself.
    pub fn send(&self, note: Vec<u8>) -> Result<()> {
        if note.len() + HEAD_BYTES > self.message_bytes_max {
            return Err(Error::Failed(format!(
                "a note of {} bytes is too long for the control channel: {} are the most",
                note.len(),
                self.message_bytes_max - HEAD_BYTES
            )));
        }
        self.node.note(note);
        Ok(())
    }

    /// Takes the notes that have come to rank 0 since they were taken last, with the ranks that sent them; those of one
    /// rank in their order. Other ranks have none.
    pub fn take(&self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut lock(&self.shared.notes))
    }
}
