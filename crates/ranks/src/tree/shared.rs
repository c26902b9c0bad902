//! State that a rank's main thread and control thread share: commands, results, and why the run ended.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::clock::ClockEstimate;
use crate::RankInfo;
use crate::channel::message::{CollectiveTerms, EndCause};
use crate::sleepers::Sleepers;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Merges concatenated contributions (`super::collective::reduce_entries`) into one. The first of them is this rank's
/// own.
pub(crate) type MergeFn = fn(&[u8]) -> Result<Vec<u8>>;

/// A command to the control thread.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// End the run for this cause.
    Abort(EndCause),
    /// Close rank 0's port, so that the next run can use it. The slot gets a result when the port is closed.
    ClosePort(Arc<CollectiveSlot>),
    /// The main thread no longer uses the channel, so say goodbye and end.
    Leave,
}

/// One rank's call of a collective.
#[derive(Debug)]
pub(crate) struct CollectiveCall {
    pub(crate) terms: CollectiveTerms,
    pub(crate) mine: Vec<u8>,
    pub(crate) merge: Option<MergeFn>,
    pub(crate) slot: Arc<CollectiveSlot>,
}

/// A slot for one result, on which threads can wait.
#[derive(Debug)]
pub(crate) struct CollectiveSlot {
    done: AtomicBool,
    inner: Mutex<CollectiveSlotState>,
    ready: Condvar,
    sleepers: Arc<Sleepers>,
}

#[derive(Debug, Default)]
struct CollectiveSlotState {
    result: Option<CollectiveResult>,
    /// Whether a thread waits on the slot. If none does, the wake-up is skipped to save a system call.
    is_waited_for: bool,
}

/// Outcome of a collective.
#[derive(Debug)]
pub(crate) enum CollectiveResult {
    Result(Vec<u8>),
    /// The run ended; [`SharedNodeState::error`] has the reason.
    Stopped,
}

impl CollectiveSlot {
    /// Creates a slot that also wakes `sleepers` when its result is set.
    pub(crate) fn new(sleepers: Arc<Sleepers>) -> Arc<Self> {
        Arc::new(Self {
            sleepers,
            done: AtomicBool::new(false),
            inner: Mutex::default(),
            ready: Condvar::new(),
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Sets the result, unless it is already set.
    pub(crate) fn set_result(&self, outcome: CollectiveResult) {
        let mut inner = lock(&self.inner);
        if inner.result.is_none() && !self.is_done() {
            inner.result = Some(outcome);
            self.done.store(true, Ordering::Release);
            if inner.is_waited_for {
                self.ready.notify_all();
            }
            self.sleepers.wake();
        }
    }

    /// Takes the result, if there is one.
    pub(crate) fn take_result(&self) -> Option<CollectiveResult> {
        if !self.is_done() {
            return None;
        }
        lock(&self.inner).result.take()
    }

    /// Waits for the result and takes it; `None` when the time is up.
    pub(crate) fn wait(&self, deadline: Instant) -> Option<CollectiveResult> {
        let mut inner = lock(&self.inner);
        inner.is_waited_for = true;
        loop {
            if let Some(outcome) = inner.result.take() {
                return Some(outcome);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            inner = self
                .ready
                .wait_timeout(inner, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Cleanup function to run if the control thread ends the process.
#[derive(Default)]
pub(crate) struct ExitHook(pub(crate) Option<Box<dyn FnOnce() + Send>>);

impl std::fmt::Debug for ExitHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ExitHook").field(&self.0.is_some()).finish()
    }
}

/// State that both threads of a rank share.
#[derive(Debug)]
pub(crate) struct SharedNodeState {
    pub(crate) commands: Mutex<VecDeque<ControlCommand>>,
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) phase: Mutex<(String, Instant)>,
    pub(crate) clock: Mutex<ClockEstimate>,
    pub(crate) clock_known: Arc<CollectiveSlot>,
    /// Cleanup to run if a thread other than the main thread has to end the process.
    pub(crate) exit_hook: Mutex<ExitHook>,
    /// Number of bytes received on all connections since the ranks joined.
    pub(crate) received_bytes: AtomicU64,
    /// Number of bytes sent on all connections since the ranks joined.
    pub(crate) sent_bytes: AtomicU64,
    /// Threads of this rank that sleep on descriptors of their own.
    pub(crate) sleepers: Arc<Sleepers>,
    /// Notes received by rank 0, with their senders.
    pub(crate) notes: Mutex<Vec<(u32, Vec<u8>)>>,
    /// All ranks, once the list has arrived.
    pub(crate) infos: OnceLock<Arc<[RankInfo]>>,
    cause: Mutex<Option<EndCause>>,
    /// Whether one of the threads has reported the cause, or has left the report to other ranks.
    is_reported: AtomicBool,
    pub(super) wake: OwnedFd,
}

impl SharedNodeState {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("cannot make an eventfd", error))?;
        let sleepers = Arc::new(Sleepers::default());
        Ok(Arc::new(Self {
            commands: Mutex::new(VecDeque::new()),
            stopped: Arc::new(AtomicBool::new(false)),
            phase: Mutex::new(("starting".into(), Instant::now())),
            clock: Mutex::new(ClockEstimate::default()),
            clock_known: CollectiveSlot::new(Arc::clone(&sleepers)),
            sleepers,
            exit_hook: Mutex::default(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            notes: Mutex::default(),
            infos: OnceLock::new(),
            cause: Mutex::new(None),
            is_reported: AtomicBool::new(false),
            wake,
        }))
    }

    /// Sends a command to the control thread and wakes it.
    pub(crate) fn send_command(&self, command: ControlCommand) {
        lock(&self.commands).push_back(command);
        self.wake_control();
    }

    /// Wakes the control thread.
    pub(crate) fn wake_control(&self) {
        // The write fails only if the counter is full, and the thread has then already been woken.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Clears the wake-up, so that the next wait sleeps.
    pub(crate) fn clear_wake_up(&self) {
        let mut count = [0u8; 8];
        // The read fails only if there was no wake-up.
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    /// Stores the cause, unless there is one already. Returns whether it was stored.
    pub(crate) fn stop(&self, cause: &EndCause) -> bool {
        let mut known = lock(&self.cause);
        if known.is_some() {
            return false;
        }
        *known = Some(cause.clone());
        self.stopped.store(true, Ordering::Release);
        self.sleepers.wake();
        true
    }

    /// Claims the right to report the cause. Only the first call returns true.
    pub(crate) fn claim_report(&self) -> bool {
        !self.is_reported.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn cause(&self) -> Option<EndCause> {
        lock(&self.cause).clone()
    }

    /// Returns why the run ended.
    pub(crate) fn error(&self) -> Error {
        self.cause().as_ref().map_or_else(
            || Error::Failed("the control channel of this rank has ended".into()),
            Error::from,
        )
    }
}

/// Returns whether this rank reports the end of the run. Rank 0 does, even if other ranks found its failure. If rank 0
/// is lost, its children do, unless a supervisor reports the loss. No rank reports a time limit, which is not a failure.
pub(crate) fn reports_end(
    rank: u32,
    parent_is_root: bool,
    supervised: bool,
    cause: &EndCause,
) -> bool {
    let root_lost = matches!(cause, EndCause::Lost { rank: 0, .. });
    let is_time_limit = matches!(cause, EndCause::TimeLimit { .. });
    !is_time_limit && (rank == 0 || root_lost && parent_is_root && !supervised)
}
