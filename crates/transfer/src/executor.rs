//! A small executor for one thread. It polls woken tasks and endpoints; completions at endpoints wake tasks.
//!
//! The executor never sleeps. A caller that wants to sleep calls [`TransferEndpoint::arm`]. For timers, channels and
//! sockets, use another executor; it can poll the same futures.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::cell::SharedEndpoint;
use crate::endpoint::TransferEndpoint;
use crate::error::{ErrorSubject, TransferError, TransferErrorKind, TransferResult};

/// Number of tasks that share one word of bits.
const WORD_TASKS: usize = u64::BITS as usize;

/// Iterations between two clock reads while no task is woken.
const IDLE_CLOCK_TURNS: u32 = 64;

/// Iterations between two clock reads while tasks are woken.
const BUSY_CLOCK_TURNS: u32 = 1 << 10;

thread_local! {
    /// The address of this variable is unique among living threads.
    static MARK: u8 = const { 0 };
}

/// Returns a number that no other living thread has.
#[inline]
fn thread_identity() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// One bit per task, set if the task was woken. Wakers may be used by any thread, but usually the executor's own thread
/// wakes tasks. That thread has a separate word, which it can write without a locked instruction.
struct WokenTasks {
    /// Identity of the executor's thread. The executor cannot move to another thread.
    owner: usize,
    /// Bits set by the owner, the only thread that writes this word.
    own: AtomicU64,
    /// Bits set by other threads.
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

    /// Takes all bits. Writes nothing in the usual case that no bits are set. Only the owner may call this.
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

/// Marks a task as woken by setting its bit in a word.
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

/// An executor for tasks that wait for operations of its endpoints.
pub struct Executor<'a> {
    endpoints: Vec<SharedEndpoint>,
    tasks: Vec<Option<SpawnedTask<'a>>>,
    /// One bit for each task, set if the task was woken.
    words: Vec<Arc<WokenTasks>>,
    /// Number of unfinished tasks.
    left: usize,
    /// Indices of finished tasks, for reuse.
    free: Vec<usize>,
    turns: u32,
}

impl<'a> Executor<'a> {
    /// Creates an executor for tasks that wait for operations of this endpoint.
    pub fn new(endpoint: &TransferEndpoint) -> Self {
        Self::for_endpoints([endpoint])
    }

    /// Creates an executor for tasks that wait for operations of several endpoints of this thread.
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

    /// Adds a task. The executor polls it when it runs.
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

    /// Runs until all spawned tasks have finished.
    ///
    /// # Errors
    /// `Deadline` after `timeout`; the tasks are kept, and can be run again.
    pub fn run(&mut self, timeout: Duration) -> TransferResult<()> {
        let mut limit = TimeLimit::new(timeout);
        while self.left > 0 {
            let polled = self.poll_woken();
            self.progress(polled, &mut limit)?;
        }
        Ok(())
    }

    /// Runs one iteration: polls the woken tasks, then the endpoints, then the tasks that completions have woken.
    /// Returns whether there was anything to do. Never waits, so that a loop with other work can call it.
    ///
    /// # Errors
    /// An endpoint's error, unless the waiting tasks get it.
    #[inline]
    pub fn poll_once(&mut self) -> TransferResult<bool> {
        let mut works = self.poll_woken();
        works |= self.take_completions()?;
        works |= self.poll_woken();
        Ok(works)
    }

    /// Returns whether a task was woken and has not been polled since.
    pub fn has_woken(&self) -> bool {
        self.words.iter().any(|word| word.has_some())
    }

    /// Returns the length of the task table, including unused entries.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the number of unfinished tasks.
    pub fn tasks(&self) -> usize {
        self.left
    }

    /// Runs a future to completion, together with the spawned tasks.
    ///
    /// # Errors
    /// `Deadline` after `timeout`; the future is then dropped.
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
                // If the engine failed, tasks with operations in flight were woken and get the error. If arrivals are
                // full, a task may be about to take them.
                Err(error) if tasks_report(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(some)
    }

    /// Polls the endpoints, and sometimes checks the time limit.
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

/// Returns whether waiting tasks handle this error of an endpoint.
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
