//! [`Rank`]: the main thread's side of the control channel.
//!
//! This file is about joining, the facts that a rank knows, and its end; collectives are in `exchanges`. While the main
//! thread is stuck in a library, the control thread answers the other ranks.

mod distinct;
mod exchanges;

pub use distinct::Distinct;
pub use exchanges::{PendingCollective, RankGroup};

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bootstrap::options::JoinOptions;
use crate::channel::message::{EndCause, clip_name};
use crate::channel::pack::{pack, unpack};
use crate::hosts::{Hosts, count_local_ranks};
use crate::join::{self, JoinBytes, MARGIN, RankFailure};
use crate::rank_list::RankList;
use crate::shared_cpu_time;
use crate::signals::{Signals, with_interrupted_rank};
use crate::sleepers::Sleepers;
use crate::start_lead::StartLead;
use crate::tree::clock::monotonic_ns;
use crate::tree::control::ControlThread;
use crate::tree::missing::COLLECT;
use crate::tree::node::{BEATS, ControlSettings, TreeNode};
use crate::tree::node_handle::NodeHandle;
use crate::tree::shape::{message_bytes_max, parent_of};
use crate::tree::shared::{
    CollectiveResult, CollectiveSlot, ControlCommand, SharedNodeState, reports_end,
};
use crate::{ClockOffset, RankInfo};
use tonnage_units::identity::{Identity, Meeting};
use tonnage_units::lock::lock;
use tonnage_units::reduce::ReduceMax;
use tonnage_units::{Error, Result};

/// Prefix of the debug log message about a rank's current step. The rank's number follows.
pub const STEP_MARK: &str = "step of rank ";

/// This process as a rank of a run. Dropping it without [`Rank::close`] ends the run for all ranks.
#[derive(Debug)]
pub struct Rank {
    identity: Identity,
    infos: Arc<[RankInfo]>,
    hosts: Hosts,
    local_ip: Option<IpAddr>,
    shared: Arc<SharedNodeState>,
    node: NodeHandle,
    thread: Option<JoinHandle<()>>,
    next_seq: u64,
    message_bytes_max: usize,
    close_timeout: Duration,
    network_timeout: Duration,
    /// Longest wait for rank 0's verdict, after this rank has reported a missing rank.
    verdict_timeout: Duration,
    parent_is_root: bool,
}

/// Base of the longest wait for rank 0's verdict on a missing rank.
const VERDICT: Duration = Duration::from_secs(3);

/// Longest wait until the control thread has closed rank 0's port.
const DOOR: Duration = Duration::from_secs(1);

impl Rank {
    /// Finds the other ranks. Returns once all have joined and their clocks are known.
    ///
    /// # Errors
    /// [`Error::Rank`] names the ranks that did not join in time or do not fit this run. [`Error::Usage`] names an
    /// address that this host does not have. [`Error::Interrupted`] is a signal that was received while joining.
    pub fn join(
        identity: Identity,
        mut options: JoinOptions,
    ) -> std::result::Result<Self, RankFailure> {
        let deadline = Instant::now() + options.join_timeout + 2 * MARGIN;
        let me = options.info(&identity);
        let mut signals = match options.signals.take() {
            Some(signals) => signals,
            None if options.handle_signals => Signals::for_termination()?,
            None => Signals::none(),
        };
        let tree =
            join::join(&identity, &me, &mut options, &mut signals).map_err(|mut failure| {
                // A rank that received a signal while joining reports the signal itself. If rank 0 was the one that
                // received it, rank 0's supervisor reports it.
                failure.error = with_interrupted_rank(failure.error, me.rank, &me.host);
                let of_other =
                    |of: &Option<(u32, String)>| of.as_ref().is_some_and(|of| of.0 != me.rank);
                failure.is_told |=
                    matches!(&failure.error, Error::Interrupted { rank, .. } if of_other(rank));
                failure
            })?;
        let beyond = shared_cpu_time::extra_time(options.crowd_timeout, tree.ranks_per_cpu);
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
        let shared = SharedNodeState::new()?;
        let (node, door) = TreeNode::new(settings, tree, shared.clone())?;
        let control = ControlThread::new(Arc::clone(&node), signals, door, options.launcher);
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
        match rank.complete_join(table, &start_lead, options.fanout, deadline) {
            Ok(()) => Ok(rank),
            Err(error) => {
                rank.fail(&error);
                let is_told = !rank.claims_report();
                Err(RankFailure { error, is_told })
            }
        }
    }

    /// Distributes the list of all ranks, and waits until this host's clock is known. Measures the longest round trip,
    /// from which rank 0 computes how far ahead a common start must be.
    fn complete_join(
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
        let mine = is_root
            .then(|| pack(&RankList::from_infos(table)))
            .transpose()?;
        let bytes = self.broadcast("the list of ranks", mine, left())?;
        let mut infos = unpack::<RankList>(&bytes)?.infos(self.identity.size)?;
        self.hosts = Hosts::from_infos(&infos);
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
        let ReduceMax(longest_ns) = self.reduce(what, ReduceMax(path_rtt_ns), left())?;
        start_lead.get_or_init(|| StartLead::new(longest_ns, &self.infos, fanout));
        Ok(())
    }

    /// Returns this rank's number.
    pub fn id(&self) -> u32 {
        self.identity.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.identity.size
    }

    /// Returns all ranks in order.
    pub fn rank_infos(&self) -> &[RankInfo] {
        &self.infos
    }

    /// Returns the machines, networks and hosts that ranks share.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Returns the PIDs of the other ranks that share this rank's PID namespace.
    pub fn pids_of_container(&self) -> Vec<u32> {
        let here = self.hosts.ranks_of_container(self.id());
        let others = here.into_iter().filter(|rank| *rank != self.id());
        let infos = others.filter_map(|rank| self.infos.get(rank as usize));
        infos.map(|info| info.pid).collect()
    }

    /// Returns this host's address on the control channel; `None` if there is only one rank.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.local_ip
    }

    /// Returns this rank's identity, with its local rank and size filled in.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the silence after which a rank behind a network counts as lost.
    pub fn network_timeout(&self) -> Duration {
        self.network_timeout
    }

    /// Returns the number of control-channel bytes that joining took.
    pub fn join_bytes(&self) -> JoinBytes {
        self.node.join_bytes
    }

    /// Returns the number of bytes received on the control channel since the ranks joined.
    pub fn received_bytes(&self) -> u64 {
        self.shared.received_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes sent on the control channel since the ranks joined.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }

    /// Sets the name of this rank's current phase. It is reported if other ranks wait for this rank too long.
    pub fn set_phase(&self, text: &str) {
        log::debug!("{STEP_MARK}{}: {text}", self.id());
        *lock(&self.shared.phase) = (clip_name(text), Instant::now());
    }

    /// Sets the cleanup function that is called if the process must be ended while its main thread is stuck in a
    /// library. It replaces an earlier cleanup function.
    pub fn set_exit_hook(&self, last_will: impl FnOnce() + Send + 'static) {
        lock(&self.shared.exit_hook).0 = Some(Box::new(last_will));
    }

    /// Returns the registry of threads that sleep on descriptors of their own. Messages on the control channel and the
    /// end of the run wake these threads.
    pub fn sleepers(&self) -> Arc<Sleepers> {
        Arc::clone(&self.shared.sleepers)
    }

    /// Returns a handle for sending notes to rank 0. Any thread may use the handle.
    pub fn notes(&self) -> Notes {
        Notes {
            shared: Arc::clone(&self.shared),
            node: self.node.clone(),
            message_bytes_max: self.message_bytes_max,
        }
    }

    /// Returns the flag that becomes true when the run ends early. Timed loops check it.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.shared.stopped.clone()
    }

    /// Returns this rank's node, and the shared state, which outlives this handle.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (Arc<SharedNodeState>, &NodeHandle) {
        (Arc::clone(&self.shared), &self.node)
    }

    /// Returns the latest estimate of this host's clock.
    #[cfg(test)]
    pub(crate) fn known_clock(&self) -> crate::tree::clock::ClockEstimate {
        *lock(&self.shared.clock)
    }

    /// Returns the reason why the run ended early; `None` as long as it has not.
    pub fn why_stopped(&self) -> Option<Error> {
        self.shared.cause().as_ref().map(Error::from)
    }

    /// Ends the run for all ranks because of an error of this rank. Only the first cause of a run's end counts.
    pub fn fail(&self, error: &Error) {
        self.alarm().raise(error);
    }

    /// Returns a handle by which another thread can end the run.
    pub fn alarm(&self) -> Alarm {
        Alarm {
            shared: Arc::clone(&self.shared),
            rank: self.id(),
            host: self.host(),
        }
    }

    /// Returns whether this rank's main thread must report why the run ended early. It returns true at most once, and
    /// never if the control thread has already reported it.
    pub fn claims_report(&self) -> bool {
        let supervised = matches!(self.identity.meeting, Meeting::Local { .. });
        let speaks = match self.shared.cause() {
            Some(cause) => reports_end(self.id(), self.parent_is_root, supervised, &cause),
            // The control thread has not handled the cause yet. When it does, it must not report the cause again.
            None => self.id() == 0,
        };
        speaks && self.shared.claim_report()
    }

    /// Returns the difference between this host's clock and rank 0's. Every heartbeat updates the estimate.
    pub fn clock_offset(&self) -> ClockOffset {
        lock(&self.shared.clock).offset_at(monotonic_ns())
    }

    /// Ends the run normally: waits until every rank has called this. From then on, no rank is reported as lost.
    pub fn close(mut self) -> std::result::Result<(), RankFailure> {
        self.set_phase("end of the run");
        if self.id() == 0 && !self.shared.stopped.load(Ordering::Acquire) {
            // The port must be closed before any rank can leave. Otherwise a rank of the next run at the same port
            // could reach this run.
            let closed = CollectiveSlot::new(Arc::clone(&self.shared.sleepers));
            self.shared
                .send_command(ControlCommand::ClosePort(Arc::clone(&closed)));
            // If the control thread has already ended, it has closed the port.
            closed.wait(Instant::now() + DOOR);
        }
        let outcome = self.barrier("end of the run", self.close_timeout);
        let is_told = outcome.is_err() && !self.claims_report();
        self.leave();
        outcome.map_err(|error| RankFailure { error, is_told })
    }

    fn leave(&mut self) {
        self.shared.send_command(ControlCommand::Leave);
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

/// A handle that ends the run for all ranks. Other threads use it, because a rank's main thread may be stuck in a
/// library.
#[derive(Debug, Clone)]
pub struct Alarm {
    shared: Arc<SharedNodeState>,
    rank: u32,
    host: String,
}

impl Alarm {
    /// Ends the run because of the rank's error. Only the first cause of a run's end counts. With
    /// [`crate::JoinOptions::end_process`], the process is ended after a grace period if its main thread does not end.
    pub fn raise(&self, error: &Error) {
        let cause = EndCause::from_error(error, self.rank, &self.host);
        self.shared.send_command(ControlCommand::Abort(cause));
    }
}

/// Bytes reserved for the head of a message that carries a note.
const HEAD_BYTES: usize = 1024;

/// Notes from ranks to rank 0 during the run, such as progress. No rank waits for notes.
///
/// Notes of a rank arrive in order, and before its contributions to later collectives. Once a collective is complete on
/// rank 0, all notes sent before it have arrived.
#[derive(Debug, Clone)]
pub struct Notes {
    shared: Arc<SharedNodeState>,
    node: NodeHandle,
    message_bytes_max: usize,
}

impl Notes {
    /// Sends a note to rank 0. Rank 0 may also send notes to itself.
    pub fn send(&self, note: Vec<u8>) -> Result<()> {
        if note.len() + HEAD_BYTES > self.message_bytes_max {
            return Err(Error::Failed(format!(
                "a note of {} bytes is too long for the control channel: {} are the most",
                note.len(),
                self.message_bytes_max - HEAD_BYTES
            )));
        }
        self.node.send_note(note);
        Ok(())
    }

    /// Takes the notes that rank 0 has received since the last call, with their senders. Notes of one rank are in
    /// order. Always empty on other ranks.
    pub fn take_received(&self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut lock(&self.shared.notes))
    }
}
