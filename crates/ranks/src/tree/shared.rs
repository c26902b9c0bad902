//! State that the main thread of a rank and its control thread share: commands, results, and why the run ended.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::clock::KnownClock;
use crate::RankInfo;
use crate::channel::message::{Cause, Terms};
use crate::sleepers::Sleepers;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Merges contributions that are one after the other (`super::collective::reduce_entries`), this rank's first, into
/// one.
pub(crate) type Merge = fn(&[u8]) -> Result<Vec<u8>>;

/// Command to the control thread.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// This rank ends the run.
    Abort(Cause),
    /// The run ends, so the next one may have rank 0's port; the slot says when.
    CloseDoor(Arc<Slot>),
    /// The main thread is done with the channel: say goodbye and end.
    Leave,
}

/// One rank's part in a collective.
#[derive(Debug)]
pub(crate) struct Enter {
    pub(crate) terms: Terms,
    pub(crate) mine: Vec<u8>,
    pub(crate) merge: Option<Merge>,
    pub(crate) slot: Arc<Slot>,
}

/// A place where a result appears.
#[derive(Debug)]
pub(crate) struct Slot {
    done: AtomicBool,
    inner: Mutex<SlotInner>,
    ready: Condvar,
    sleepers: Arc<Sleepers>,
}

#[derive(Debug, Default)]
struct SlotInner {
    result: Option<CollectiveResult>,
    /// Waking nobody is a system call too.
    is_waited_for: bool,
}

/// Outcome of a collective.
#[derive(Debug)]
pub(crate) enum CollectiveResult {
    Result(Vec<u8>),
    /// The run ended; [`Shared::error`] says why.
    Stopped,
}

impl Slot {
    /// A place whose result wakes these.
    pub(crate) fn waking(sleepers: Arc<Sleepers>) -> Arc<Self> {
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

    /// The first result stays.
    pub(crate) fn set(&self, outcome: CollectiveResult) {
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
    pub(crate) fn take(&self) -> Option<CollectiveResult> {
        if !self.is_done() {
            return None;
        }
        lock(&self.inner).result.take()
    }

    /// Waits until there is a result, and takes it; `None` when the time is up.
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

/// Work of a rank that is left to whoever ends its process.
#[derive(Default)]
pub(crate) struct LastWill(pub(crate) Option<Box<dyn FnOnce() + Send>>);

impl std::fmt::Debug for LastWill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LastWill").field(&self.0.is_some()).finish()
    }
}

/// State that both threads of a rank see.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) commands: Mutex<VecDeque<ControlCommand>>,
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) phase: Mutex<(String, Instant)>,
    pub(crate) clock: Mutex<KnownClock>,
    pub(crate) clock_known: Arc<Slot>,
    /// Work to do when the process has to be ended from outside its main thread.
    pub(crate) bequest: Mutex<LastWill>,
    /// Bytes that have come on all connections since they are this thread's.
    pub(crate) received_bytes: AtomicU64,
    /// Bytes of what was said on them.
    pub(crate) sent_bytes: AtomicU64,
    /// Threads of this rank that sleep on descriptors of their own.
    pub(crate) sleepers: Arc<Sleepers>,
    /// Notes that have come to rank 0, with their ranks.
    pub(crate) notes: Mutex<Vec<(u32, Vec<u8>)>>,
    /// All ranks, once this one knows them.
    pub(crate) infos: OnceLock<Arc<[RankInfo]>>,
    cause: Mutex<Option<Cause>>,
    /// True once one of the threads says the cause, or has left it to other ranks.
    is_reported: AtomicBool,
    pub(super) wake: OwnedFd,
}

impl Shared {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("cannot make an eventfd", error))?;
        let sleepers = Arc::new(Sleepers::default());
        Ok(Arc::new(Self {
            commands: Mutex::new(VecDeque::new()),
            stopped: Arc::new(AtomicBool::new(false)),
            phase: Mutex::new(("starting".into(), Instant::now())),
            clock: Mutex::new(KnownClock::default()),
            clock_known: Slot::waking(Arc::clone(&sleepers)),
            sleepers,
            bequest: Mutex::default(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            notes: Mutex::default(),
            infos: OnceLock::new(),
            cause: Mutex::new(None),
            is_reported: AtomicBool::new(false),
            wake,
        }))
    }

    /// Hands a command to the control thread and wakes it.
    pub(crate) fn command(&self, command: ControlCommand) {
        lock(&self.commands).push_back(command);
        self.call();
    }

    /// Wakes the control thread.
    pub(crate) fn call(&self) {
        // It fails only when the counter is full, and then the thread is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Takes the wake-up, so that the next wait sleeps.
    pub(crate) fn awake(&self) {
        let mut count = [0u8; 8];
        // Nothing to read means that nobody has woken us.
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    /// Keeps the first cause; true if this is it.
    pub(crate) fn stop(&self, cause: &Cause) -> bool {
        let mut known = lock(&self.cause);
        if known.is_some() {
            return false;
        }
        *known = Some(cause.clone());
        self.stopped.store(true, Ordering::Release);
        self.sleepers.wake();
        true
    }

    /// Claims to say the cause, once; false where the other thread has done so.
    pub(crate) fn claim_report(&self) -> bool {
        !self.is_reported.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        lock(&self.cause).clone()
    }

    /// The reason why the run ended.
    pub(crate) fn error(&self) -> Error {
        self.cause().as_ref().map_or_else(
            || Error::Failed("the control channel of this rank has ended".into()),
            Error::from,
        )
    }
}

/// Returns whether this rank reports the end of the run: rank 0 does, also a failure of its own that others have told
/// it of, and when it is the lost one its direct children do, unless a supervisor sees it end.
pub(crate) fn speaks(rank: u32, parent_is_root: bool, supervised: bool, cause: &Cause) -> bool {
    let root_lost = matches!(cause, Cause::Lost { rank: 0, .. });
    rank == 0 || root_lost && parent_is_root && !supervised
}
