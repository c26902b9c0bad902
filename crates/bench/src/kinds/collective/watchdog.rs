//! The watchdog of calls that a library makes in this process: nobody can take a thread out of a library, so a call
//! that does not come back ends the run, by a thread beside it that looks at what the timed loop writes down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tonnage_ranks::Alarm;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Longest time between two looks. A call is noticed two looks after its time at most, and its process is ended after
/// the grace of the control channel: less than five seconds together.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Value of [`CallProgress`] while this rank is outside the library.
const OUTSIDE: u64 = 0;

/// Number of the call that this rank is in, from 1; 0 between calls. One plain store is all that the timed thread does
/// for the watchdog.
#[derive(Debug, Default)]
pub struct CallProgress(AtomicU64);

impl CallProgress {
    /// This rank goes into the library for a call.
    #[inline]
    pub fn enter(&self, call: u64) {
        self.0.store(call, Ordering::Relaxed);
    }

    /// This rank is outside the library.
    #[inline]
    pub fn leave(&self) {
        self.0.store(OUTSIDE, Ordering::Relaxed);
    }
}

/// A thread that ends the run when a call does not come back.
#[derive(Debug)]
pub struct Watchdog {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Watched {
    progress: CallProgress,
    duty: Mutex<Duty>,
    changed: Condvar,
}

/// Duty of the thread.
#[derive(Debug, Default)]
struct Duty {
    is_over: bool,
    /// The calls in words, while there are any.
    calls: Option<String>,
    /// Number of times that calls were told: their numbers begin anew with each.
    turn: u64,
}

impl Watchdog {
    /// Starts the thread, which may run on any of these CPUs, for calls that may take so long.
    pub fn start(alarm: Alarm, limit: Duration, cpus: Vec<u32>) -> Result<Self> {
        let watched = Arc::new(Watched::default());
        let own = Arc::clone(&watched);
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                if let Err(error) = tonnage_machine::spread_thread(&cpus) {
                    log::debug!("{error}: calls are watched on the CPU that makes them");
                }
                if let Some(error) = own.watch(limit) {
                    alarm.raise(&error);
                }
            })
            .map_err(|error| Error::not_started("the thread that watches calls", &error))?;
        Ok(Self {
            watched,
            thread: Some(thread),
        })
    }

    /// Place where the calls are counted.
    pub fn progress(&self) -> &CallProgress {
        &self.watched.progress
    }

    /// Watches from now on, calls in these words; `None` for none.
    pub fn watch(&self, calls: Option<String>) {
        self.progress().leave();
        lock(&self.watched.duty).watch(calls);
        self.watched.changed.notify_all();
    }
}

impl Duty {
    fn watch(&mut self, calls: Option<String>) {
        self.calls = calls;
        self.turn += 1;
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        lock(&self.watched.duty).is_over = true;
        self.watched.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that watches calls ended by a panic");
        }
    }
}

impl Watched {
    /// Looks until it is over; returns why the run has to end, if it has. It sleeps while there are no calls.
    fn watch(&self, limit: Duration) -> Option<Error> {
        let look = (limit / 4).min(LOOK_MAX);
        let mut seen = ((0, OUTSIDE), Instant::now());
        let mut duty = lock(&self.duty);
        while !duty.is_over {
            let call = self.progress.0.load(Ordering::Relaxed);
            let in_turn = (duty.turn, call);
            if call == OUTSIDE || in_turn != seen.0 || duty.calls.is_none() {
                seen = (in_turn, Instant::now());
            }
            let stuck = seen.1.elapsed();
            if let Some(calls) = duty.calls.as_ref().filter(|_| stuck > limit) {
                return Some(overdue(calls, call, stuck, limit));
            }
            duty = if duty.calls.is_some() {
                let waited = self.changed.wait_timeout(duty, look);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let waited = self.changed.wait(duty);
                waited.unwrap_or_else(PoisonError::into_inner)
            };
        }
        None
    }
}

fn overdue(calls: &str, call: u64, stuck: Duration, limit: Duration) -> Error {
    Error::Failed(format!(
        "call {call} of {calls} has not come back for {:.1} s, longer than --timeout {} s: a rank is missing there, or \
         the library hangs",
        stuck.as_secs_f64(),
        limit.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    fn watch(watched: &Arc<Watched>) -> JoinHandle<Option<Error>> {
        let own = Arc::clone(watched);
        std::thread::spawn(move || own.watch(LIMIT))
    }

    fn watched(calls: Option<&str>) -> Arc<Watched> {
        let watched = Watched::default();
        lock(&watched.duty).calls = calls.map(str::to_owned);
        Arc::new(watched)
    }

    #[test]
    fn a_call_that_does_not_come_back_is_named() {
        let watched = watched(Some("all-reduce of 8 B by mpi"));
        watched.progress.enter(3);
        let since = Instant::now();
        let said = watch(&watched).join().unwrap().unwrap().to_string();
        assert!(since.elapsed() >= LIMIT);
        let begin = "call 3 of all-reduce of 8 B by mpi has not come back for 0.";
        assert!(said.starts_with(begin), "{said}");
        assert!(said.contains("--timeout 0.2 s"), "{said}");
    }

    /// Trials of one call each, in which the thread never looks while the rank is outside.
    #[test]
    fn the_first_calls_of_several_trials_are_several() {
        let watched = watched(Some("calls"));
        watched.progress.enter(1);
        let thread = watch(&watched);
        for _ in 0..8 {
            std::thread::sleep(LIMIT / 4);
            lock(&watched.duty).watch(Some("calls".into()));
        }
        lock(&watched.duty).is_over = true;
        watched.changed.notify_all();
        assert!(thread.join().unwrap().is_none());
    }

    #[test]
    fn calls_that_go_on_time_outside_and_no_calls_are_no_matter() {
        for (calls, enters) in [(Some("calls"), true), (Some("calls"), false), (None, false)] {
            let watched = watched(calls);
            if calls.is_none() {
                watched.progress.enter(1);
            }
            let thread = watch(&watched);
            for call in 1..=8 {
                if enters {
                    watched.progress.enter(call);
                }
                std::thread::sleep(LIMIT / 4);
            }
            lock(&watched.duty).is_over = true;
            watched.changed.notify_all();
            assert!(thread.join().unwrap().is_none());
        }
    }
}
