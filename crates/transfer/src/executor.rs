//! A small executor for one thread. It polls the woken tasks, and the endpoints, whose completions wake them.
//!
//! It never sleeps. A caller that wants to sleep between two turns uses [`TransferEndpoint::arm`]. Timers, channels and
//! sockets are left to other executors, which can poll the same futures.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::cell::SharedEndpoint;
use crate::endpoint::TransferEndpoint;
use crate::error::{ErrorSubject, TransferError, TransferErrorKind, TransferResult};

/// Number of tasks with wakers in one word.
const WORD_TASKS: usize = u64::BITS as usize;

/// Turns between two clock reads while no task is woken.
const IDLE_CLOCK_TURNS: u32 = 64;

/// Turns between two clock reads while tasks are woken all the time.
const BUSY_CLOCK_TURNS: u32 = 1 << 10;

thread_local! {
    /// Its address is unique among living threads.
    static MARK: u8 = const { 0 };
}

/// Returns a number that no other living thread has.
#[inline]
fn thread_identity() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// One bit per task: set if the task was woken. Any thread may use a waker. Nearly all are woken by the executor's own
/// thread, which needs no locked instruction for a word that it alone writes.
struct WokenTasks {
    /// The executor's thread. The executor cannot move to another.
    owner: usize,
    /// Woken by the owner, which alone writes this.
    own: AtomicU64,
    /// Woken by other threads.
    others: AtomicU64,
}

impl WokenTasks {
    fn new() -> Self {
        Self {
            owner: thread_identity(),
            own: AtomicU64::new(0),
            others: AtomicU64::new(0),
        }
    }

    #[inline]
    fn set(&self, bits: u64) {
        if self.owner == thread_identity() {
            let own = self.own.load(Ordering::Relaxed);
            self.own.store(own | bits, Ordering::Relaxed);
        } else {
            self.others.fetch_or(bits, Ordering::Release);
        }
    }

    /// Takes all bits. Usually there are none, and then nothing is written. Only the owner may call this.
    #[inline]
    fn take(&self) -> u64 {
        let mut bits = self.own.load(Ordering::Relaxed);
        if bits != 0 {
            self.own.store(0, Ordering::Relaxed);
        }
        if self.others.load(Ordering::Relaxed) != 0 {
            bits |= self.others.swap(0, Ordering::Acquire);
        }
        bits
    }

    fn has_some(&self) -> bool {
        self.own.load(Ordering::Relaxed) | self.others.load(Ordering::Relaxed) != 0
    }
}

/// Sets one bit of a word to mark a task as woken.
struct TaskWaker {
    word: Arc<WokenTasks>,
    bit: u64,
}

impl Wake for TaskWaker {
    #[inline]
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        self.word.set(self.bit);
    }
}

/// A spawned task.
struct SpawnedTask<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    waker: Waker,
}

/// An executor for tasks that are driven by the completions of its endpoints.
pub struct Executor<'a> {
    endpoints: Vec<SharedEndpoint>,
    tasks: Vec<Option<SpawnedTask<'a>>>,
    /// The bits of woken tasks.
    words: Vec<Arc<WokenTasks>>,
    /// Number of tasks that are not done.
    left: usize,
    /// Indices of tasks that are done.
    free: Vec<usize>,
    turns: u32,
}

impl<'a> Executor<'a> {
    /// Creates an executor for tasks that wait for this endpoint.
    pub fn new(endpoint: &TransferEndpoint) -> Self {
        Self::for_endpoints([endpoint])
    }

    /// Creates an executor for tasks that wait for several endpoints of this thread.
    pub fn for_endpoints<'e>(endpoints: impl IntoIterator<Item = &'e TransferEndpoint>) -> Self {
        let endpoints = endpoints
            .into_iter()
            .map(|endpoint| endpoint.cell().clone());
        Self {
            endpoints: endpoints.collect(),
            tasks: Vec::new(),
            words: Vec::new(),
            left: 0,
            free: Vec::new(),
            turns: 0,
        }
    }

    /// Adds a task, which is polled when the executor runs.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'a) {
        let index = self.free.pop().unwrap_or(self.tasks.len());
        if index == self.words.len() * WORD_TASKS {
            self.words.push(Arc::new(WokenTasks::new()));
        }
        let word = &self.words[index / WORD_TASKS];
        let waker = Arc::new(TaskWaker {
            word: Arc::clone(word),
            bit: 1 << (index % WORD_TASKS),
        });
        waker.wake_by_ref();
        let task = Some(SpawnedTask {
            future: Box::pin(future),
            waker: waker.into(),
        });
        match self.tasks.get_mut(index) {
            Some(place) => *place = task,
            None => self.tasks.push(task),
        }
        self.left += 1;
    }

    /// Runs until all spawned tasks are done.
    ///
    /// # Errors
    /// `Deadline` after `timeout`; the tasks stay, and can be run again.
    pub fn run(&mut self, timeout: Duration) -> TransferResult<()> {
        let mut limit = TimeLimit::new(timeout);
        while self.left > 0 {
            let polled = self.poll_woken();
            self.progress(polled, &mut limit)?;
        }
        Ok(())
    }

    /// Takes one turn: polls the woken tasks, takes completions from the endpoints, and polls the tasks that these have
    /// woken. Returns whether any of this found work. It never waits, so a loop with other work can call it.
    ///
    /// # Errors
    /// An endpoint's error, unless tasks report it.
    #[inline]
    pub fn poll_once(&mut self) -> TransferResult<bool> {
        let mut works = self.poll_woken();
        works |= self.take_completions()?;
        works |= self.poll_woken();
        Ok(works)
    }

    /// Returns whether a task was woken and not polled since.
    pub fn has_woken(&self) -> bool {
        self.words.iter().any(|word| word.has_some())
    }

    /// Returns the length of the task table, including unused entries.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the number of tasks that are not done.
    pub fn tasks(&self) -> usize {
        self.left
    }

    /// Runs a future to its end, together with the spawned tasks.
    ///
    /// # Errors
    /// `Deadline` after `timeout`; the future is dropped then.
    pub fn block_on<F: Future>(
        &mut self,
        future: F,
        timeout: Duration,
    ) -> TransferResult<F::Output> {
        let mut future = pin!(future);
        let word = Arc::new(WokenTasks::new());
        let waker = Waker::from(Arc::new(TaskWaker {
            word: Arc::clone(&word),
            bit: 1,
        }));
        waker.wake_by_ref();
        let mut context = Context::from_waker(&waker);
        let mut limit = TimeLimit::new(timeout);
        loop {
            let mut polled = false;
            if word.take() != 0 {
                polled = true;
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return Ok(output);
                }
            }
            if self.left > 0 {
                polled |= self.poll_woken();
            }
            self.progress(polled, &mut limit)?;
        }
    }

    /// Polls the woken tasks; returns whether there were any.
    fn poll_woken(&mut self) -> bool {
        let mut polled = false;
        for (index, word) in self.words.iter().enumerate() {
            let mut woken = word.take();
            while woken != 0 {
                let place = index * WORD_TASKS + woken.trailing_zeros() as usize;
                woken &= woken - 1;
                polled = true;
                let Some(task) = &mut self.tasks[place] else {
                    continue;
                };
                let mut context = Context::from_waker(&task.waker);
                if task.future.as_mut().poll(&mut context).is_ready() {
                    self.tasks[place] = None;
                    self.free.push(place);
                    self.left -= 1;
                }
            }
        }
        polled
    }

    /// Polls the endpoints; returns whether they had completions.
    #[inline]
    fn take_completions(&self) -> TransferResult<bool> {
        let mut some = false;
        for endpoint in &self.endpoints {
            match endpoint.progress() {
                Ok(count) => some |= count > 0,
                // Tasks whose operations failed with the engine were woken, and get the error from these operations.
                // Other tasks may be about to take the arrivals.
                Err(error) if tasks_report(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(some)
    }

    /// Polls the endpoints, and checks the clock now and then.
    #[inline]
    fn progress(&mut self, polled: bool, limit: &mut TimeLimit) -> TransferResult<()> {
        let idle = !self.take_completions()? && !polled;
        self.turns = self.turns.wrapping_add(1);
        let clock_turns = if idle {
            IDLE_CLOCK_TURNS
        } else {
            BUSY_CLOCK_TURNS
        };
        if self.turns.is_multiple_of(clock_turns) {
            if idle {
                self.endpoints
                    .iter()
                    .for_each(SharedEndpoint::pause_before_poll);
            }
            return limit.check(|| self.subject());
        }
        Ok(())
    }

    fn subject(&self) -> ErrorSubject {
        let first = self.endpoints.first();
        let subject = first.map(|endpoint| endpoint.borrow().subject.clone());
        subject
            .unwrap_or_default()
            .with_operation("running tasks", None)
    }
}

/// Returns whether the waiting tasks get this error of an endpoint.
#[cold]
fn tasks_report(error: &TransferError) -> bool {
    matches!(
        error.kind(),
        TransferErrorKind::EndpointFailed | TransferErrorKind::ArrivalsFull
    )
}

/// Time limit of a run.
struct TimeLimit {
    timeout: Duration,
    deadline: Option<Instant>,
}

impl TimeLimit {
    fn new(timeout: Duration) -> Self {
        let deadline = Instant::now().checked_add(timeout);
        Self { timeout, deadline }
    }

    #[cold]
    fn check(&self, subject: impl Fn() -> ErrorSubject) -> TransferResult<()> {
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => {
                Err(TransferError::deadline(subject(), self.timeout))
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Executor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor")
            .field("endpoints", &self.endpoints.len())
            .field("tasks", &self.left)
            .finish()
    }
}
