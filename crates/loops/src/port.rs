//! A worker's engine, plus the duties common to all loops. These are counting arrivals, reposting receives, returning
//! credits, yielding a shared CPU, and ending when the run is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tonnage_sys::clock::Clock;

use super::BURST;
use super::credits::Credits;
use super::flow::{Flow, Receives};
use super::stall::{Stall, StallWatch};
use tonnage_engine::pattern::mix_bits;
use tonnage_engine::{ArmOutcome, Completion, Ending, Engine, Flush, Lane, Op};
use tonnage_ranks::Sleeper;
use tonnage_units::{Error, Result};

/// Arrivals from peers since the counters were last taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Number of operations that arrived.
    pub count: u64,
    /// Wrapping sum of [`arrival_mix`] over all arrivals. It identifies the set of arrivals, independent of their
    /// order.
    pub set: u64,
    /// Time when the last arrival was recorded, in nanoseconds on the worker's clock; 0 if nothing arrived. It is
    /// recorded at the next empty poll, or earlier if the counters are taken.
    pub last_ns: u64,
}

/// Maps an arrival to a 64-bit number. The sums of these numbers over two different sets are equal by chance only once
/// in 2^64. A sum of the immediates alone would be the same for 1, 1, 4, 4 as for 1, 2, 3, 4.
#[inline]
pub fn arrival_mix(peer: u32, immediate: u32) -> u64 {
    mix_bits(u64::from(peer) << 32 | u64::from(immediate))
}

/// A worker's engine and the common duties.
pub struct Port<'a> {
    /// The engine.
    pub engine: &'a mut dyn Engine,
    /// The worker's clock.
    pub clock: Clock,
    /// Arrivals of the running trial.
    pub arrivals: Arrivals,
    /// Whether something arrived after `arrivals.last_ns`. An answer must not wait for a clock read, so the time is
    /// read at the next empty poll or when the counters are taken.
    undated: bool,
    /// All bits set if arrivals don't name their peer; otherwise 0.
    unnamed: u32,
    stop: &'a AtomicBool,
    yielding: bool,
    /// True if an idle loop executes a pause instruction. False if every poll is a call into a library that takes
    /// longer anyway.
    pausing: bool,
    /// After a poll that reported arrivals but fewer completions than this, the loop waits briefly for more to gather.
    gathers: usize,
    receives: Vec<Receives>,
    /// Receives waiting to be posted, oldest first.
    staged: Vec<Op>,
    /// True if each arrival reposts its receive.
    reposting: bool,
    /// Credits of receivers. `None` if a completion already implies that the receiver consumed the message.
    credits: Option<&'a mut Credits>,
    /// Operations, including flushes, that have not completed.
    outstanding: u64,
    /// Maximum of `outstanding` since it was last taken.
    most_in_flight: u64,
    /// Operations that completed.
    completed: u64,
    /// Number of peers' answers that a loop is waiting for.
    pub awaited: u64,
    /// Answers received.
    pub answered: u64,
    /// Polls without work.
    idle_turns: u32,
    watch: Option<StallWatch>,
    stall: Option<Stall>,
    /// Puts an idle loop to sleep.
    sleeper: Option<Sleeper>,
    /// True while the loop must stay awake, because it waits for something other than a completion.
    wakeful: bool,
}

/// Spin-loop hints while arrivals gather, about 0.2 µs.
const GATHER_SPINS: u32 = 10;

/// Longest sleep. Afterwards the loop rechecks conditions that depend only on the clock.
const NAP: Duration = Duration::from_millis(10);

/// Idle polls per clock read, without and with yielding. A yielding loop reads the clock more often, because each yield
/// may last milliseconds.
const LOOK_TURNS: [u32; 2] = [256, 16];

impl<'a> Port<'a> {
    /// Creates a port that ends with an error when `stop` becomes true, and yields the CPU when idle if `yielding`.
    pub fn new(
        engine: &'a mut dyn Engine,
        clock: Clock,
        stop: &'a AtomicBool,
        yielding: bool,
    ) -> Self {
        Self {
            engine,
            clock,
            arrivals: Arrivals::default(),
            undated: false,
            unnamed: 0,
            stop,
            yielding,
            pausing: true,
            gathers: 0,
            receives: Vec::new(),
            staged: Vec::new(),
            reposting: true,
            credits: None,
            outstanding: 0,
            most_in_flight: 0,
            completed: 0,
            awaited: 0,
            answered: 0,
            idle_turns: 0,
            watch: None,
            stall: None,
            sleeper: None,
            wakeful: false,
        }
    }

    /// Makes the port sleep when idle, until the engine has an event or another thread wakes it.
    pub fn with_sleeper(mut self, sleeper: Sleeper) -> Self {
        self.sleeper = Some(sleeper);
        self
    }

    /// Sets whether the port yields the CPU when idle.
    pub fn set_yielding(&mut self, yielding: bool) {
        self.yielding = yielding;
    }

    /// Keeps the port awake, for example shortly before a start, or lets it sleep again.
    pub fn keep_awake(&mut self, wakeful: bool) {
        self.wakeful = wakeful;
    }

    /// Returns whether the port is kept awake, because its loop waits for something other than a completion.
    pub fn is_kept_awake(&self) -> bool {
        self.wakeful
    }

    /// Returns whether an idle poll may last as long as a sleep.
    #[inline]
    pub fn sleeps(&self) -> bool {
        self.sleeper.is_some() && !self.wakeful
    }

    /// Ends the loops with an error when operations make no progress.
    pub fn with_watch(mut self, watch: StallWatch) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Returns the stall, if operations without progress caused the error.
    pub fn stall(&self) -> Option<&Stall> {
        self.stall.as_ref()
    }

    /// Returns the flag that stops the loops.
    pub fn stop_flag(&self) -> &'a AtomicBool {
        self.stop
    }

    /// Records how many operations were in flight in a trial that the engine itself carried out.
    pub fn note_in_flight(&mut self, most: u64) {
        self.most_in_flight = self.most_in_flight.max(most);
    }

    /// Resets the time that flows were without progress, for example between two trials.
    pub fn restart_watch(&mut self) {
        self.awaited = 0;
        if let Some(watch) = &mut self.watch {
            watch.restart();
        }
    }

    /// Makes messages complete only once their receiver has consumed them, and returns credits to this worker's
    /// senders.
    pub fn with_credits(mut self, credits: &'a mut Credits) -> Self {
        self.credits = Some(credits);
        self
    }

    /// Returns all credits to senders, and waits until they have been sent.
    pub fn settle_credits(&mut self) -> Result<()> {
        let mut done = [Completion::EMPTY; BURST];
        while let Some(credits) = &mut self.credits
            && !credits.is_settled()
        {
            credits.return_all_credits(self.engine)?;
            self.poll(&mut done)?;
        }
        Ok(())
    }

    /// Counts arrivals without their peers, for engines that do not name the peer of an arrival.
    pub fn without_names(mut self) -> Self {
        self.unnamed = Lane::UNNAMED.0;
        self
    }

    /// Polls without a pause when idle. Used if arrivals happen only during a poll.
    pub fn without_pause(mut self) -> Self {
        self.pausing = false;
        self
    }

    /// Waits briefly after a poll with arrivals that returned fewer than `most` completions. If senders write into
    /// memory that this worker polls, each poll takes the cache line from a sender that is about to write it.
    pub fn with_accumulation(mut self, most: usize) -> Self {
        self.gathers = most;
        self
    }

    /// Posts `depth` receives per peer. Every arrival reposts one receive until [`Self::use_up_receives`].
    pub fn post_receives(&mut self, receives: Vec<Receives>, depth: u32) -> Result<()> {
        self.staged = Vec::with_capacity(receives.len() * depth as usize + BURST);
        self.receives = receives;
        for _ in 0..depth {
            for (index, receive) in self.receives.iter_mut().enumerate() {
                self.staged.push(receive.next_op(index as u32));
            }
        }
        while !self.staged.is_empty() {
            self.hand_over_receives()?;
            self.check_stop()?;
        }
        Ok(())
    }

    /// Stops reposting receives.
    pub fn use_up_receives(&mut self) {
        self.reposting = false;
    }

    /// Returns the arrival counters of the trial that just ended, and resets them.
    pub fn take_arrivals(&mut self) -> Arrivals {
        self.record_arrival_time();
        std::mem::take(&mut self.arrivals)
    }

    /// Waits until the data of peers' plain writes are visible. Returns the duration of this wait, at least 1 ns, or
    /// `None` if the engine needs no wait.
    pub fn flush_incoming(&mut self) -> Result<Option<u64>> {
        let began_ns = self.clock.now_ns();
        let is_needed = self.engine.flush_incoming()?;
        let taken_ns = self.clock.now_ns().saturating_sub(began_ns);
        Ok(is_needed.then_some(taken_ns.max(1)))
    }

    /// Polls once. Counts arrivals and reposts their receives before it returns; the caller handles `Done` completions.
    #[inline]
    pub fn poll(&mut self, done: &mut [Completion; BURST]) -> Result<usize> {
        let mut count = self.engine.poll(done)?;
        if let Some(credits) = &mut self.credits {
            count = credits.hold_back_early(done, count);
        }
        if count == 0 {
            return self.idle().map(|()| 0);
        }
        // If the engine completes operations while posting, the loop is never idle, so the flag is checked only here.
        self.check_stop()?;
        let (mut arrived, mut done_here) = (false, 0);
        for completion in &done[..count] {
            match completion.ending {
                Ending::Done => done_here += 1,
                Ending::Arrived => {
                    arrived = true;
                    self.arrivals.count += 1;
                    // The `lane` of an arrival is the rank of its sender (see `Completion::lane`).
                    let arrival = arrival_mix(completion.lane.0 | self.unnamed, completion.imm);
                    self.arrivals.set = self.arrivals.set.wrapping_add(arrival);
                    if self.reposting
                        && let Some(receive) = self.receives.get_mut(completion.tag as usize)
                    {
                        self.staged.push(receive.next_op(completion.tag));
                    }
                    if let Some(credits) = &mut self.credits {
                        credits.count_taken(completion.tag, self.engine)?;
                    }
                }
                Ending::Failed(_) => return Err(self.failed(completion)),
            }
        }
        if arrived {
            self.undated = true;
            self.hand_over_receives()?;
        }
        match self.outstanding.checked_sub(done_here) {
            Some(outstanding) => self.outstanding = outstanding,
            None => return Err(self.completed_twice(done_here)),
        }
        self.completed += done_here;
        if arrived && count < self.gathers {
            (0..GATHER_SPINS).for_each(|_| std::hint::spin_loop());
        }
        Ok(count)
    }

    /// Error for more completions than outstanding operations.
    #[cold]
    fn completed_twice(&self, done: u64) -> Error {
        Error::Failed(format!(
            "the engine completed {done} operations, but {} were in flight: it completed one twice, so its results \
             cannot be trusted",
            self.outstanding
        ))
    }

    /// Error for a failed operation, as the engine describes it.
    #[cold]
    fn failed(&self, completion: &Completion) -> Error {
        self.engine.failure(completion).into()
    }

    #[inline]
    fn record_arrival_time(&mut self) {
        if self.undated {
            self.arrivals.last_ns = self.clock.now_ns();
            self.undated = false;
        }
    }

    #[inline]
    fn hand_over_receives(&mut self) -> Result<()> {
        if !self.staged.is_empty() {
            let taken = self.engine.post(&self.staged)?;
            self.staged.drain(..taken);
        }
        Ok(())
    }

    /// Posts operations; returns the number accepted.
    #[inline]
    pub fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let taken = self.engine.post(ops)?;
        self.outstanding += taken as u64;
        self.most_in_flight = self.most_in_flight.max(self.outstanding);
        Ok(taken)
    }

    /// Returns the number of operations posted and not yet completed.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Returns the maximum number of outstanding operations since the last call.
    pub fn take_most_in_flight(&mut self) -> u64 {
        std::mem::take(&mut self.most_in_flight)
    }

    /// Handles a poll without work: checks the stop flag, posts receives, and rests.
    #[inline]
    fn idle(&mut self) -> Result<()> {
        self.record_arrival_time();
        self.check_stop()?;
        self.idle_turns = self.idle_turns.wrapping_add(1);
        if self
            .idle_turns
            .is_multiple_of(LOOK_TURNS[usize::from(self.yielding)])
        {
            self.check_stall()?;
        }
        if !self.staged.is_empty() {
            self.hand_over_receives()?;
        }
        if let Some(credits) = &mut self.credits {
            credits.return_when_idle(self.engine)?;
        }
        if self.sleeps() {
            self.sleep()?;
        } else if self.yielding {
            std::thread::yield_now();
        } else if self.pausing {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Sleeps for a while, unless the engine already has an event.
    #[cold]
    fn sleep(&mut self) -> Result<()> {
        self.check_stall()?;
        match (self.engine.arm()?, &self.sleeper) {
            (ArmOutcome::Sleep(descriptor), Some(sleeper)) => sleeper.sleep_on(descriptor, NAP),
            (ArmOutcome::Unsupported, Some(_)) => Err(Error::Failed(
                "the engine has no descriptor to sleep on: use --cq busy".into(),
            )),
            (ArmOutcome::Ready, _) | (_, None) => Ok(()),
        }
    }

    #[cold]
    fn check_stall(&mut self) -> Result<()> {
        let now_ns = self.clock.now_ns();
        let completed = self.completed + self.answered;
        let outstanding = self.outstanding + self.awaited;
        let look = |watch: &mut StallWatch| watch.check_worker(completed, outstanding, now_ns);
        let found = self.watch.as_mut().and_then(look);
        self.fail_if_stalled(found)
    }

    /// Fails if one of the flows makes no progress. Passes `count` to [`StallWatch::check_flows`]. Called occasionally
    /// by loops that aren't idle.
    #[cold]
    pub fn check_stalled_flows(
        &mut self,
        flows: &[Flow],
        count: impl Fn(usize) -> Option<u64>,
    ) -> Result<()> {
        let at = (self.outstanding, self.clock.now_ns());
        let look = |watch: &mut StallWatch| watch.check_flows(flows, count, at);
        let found = self.watch.as_mut().and_then(look);
        self.fail_if_stalled(found)
    }

    fn fail_if_stalled(&mut self, found: Option<Stall>) -> Result<()> {
        let Some(stall) = found else { return Ok(()) };
        let error = Error::Failed(format!(
            "no operation has ended for {:.1} s, with {} in flight",
            stall.quiet_ns as f64 / 1e9,
            stall.in_flight
        ));
        self.stall = Some(stall);
        Err(error)
    }

    /// Fails if the run was stopped. Loops that do not poll call this occasionally.
    #[inline]
    pub fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Failed("the run was stopped".into()));
        }
        Ok(())
    }

    /// Posts all of `ops` and waits for their completions. The caller allocates `done` once, because initializing it
    /// costs as much as an operation.
    pub fn complete(&mut self, ops: &[Op], done: &mut [Completion; BURST]) -> Result<()> {
        let (mut posted, mut completed) = (0, 0);
        while completed < ops.len() {
            if posted < ops.len() {
                posted += self.post(&ops[posted..])?;
            }
            let count = self.poll(done)?;
            completed += count_own(&done[..count]);
        }
        Ok(())
    }

    /// Flushes all flows with issued operations, to prove that written data has arrived.
    pub fn flush(&mut self, flows: &[Flow]) -> Result<()> {
        let mut done = [Completion::EMPTY; BURST];
        for flow in flows.iter().filter(|flow| flow.issued > 0) {
            let mut flushed = self.begin_flush(flow, 0)?;
            while flushed != Flush::Delivered {
                let count = self.poll(&mut done)?;
                flushed = match flushed {
                    Flush::Again => self.begin_flush(flow, 0)?,
                    _ if count_own(&done[..count]) > 0 => Flush::Delivered,
                    waiting => waiting,
                };
            }
        }
        Ok(())
    }

    /// Begins a flush. If it was posted, it completes like an operation with this tag.
    pub fn begin_flush(&mut self, flow: &Flow, tag: u32) -> Result<Flush> {
        let flushed = self.engine.flush(flow.lane, tag)?;
        self.outstanding += u64::from(flushed == Flush::Posted);
        Ok(flushed)
    }
}

/// Number of completions of this side's own operations.
#[inline]
pub fn count_own(done: &[Completion]) -> usize {
    done.iter()
        .filter(|completion| completion.ending == Ending::Done)
        .count()
}

#[cfg(test)]
mod tests;
