//! The watchdog for calls that a library makes in this process. A thread inside a library cannot be interrupted, so a
//! call that does not return must end the run. A separate thread watches the progress that the timed loop records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tonnage_ranks::Alarm;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Longest time between two checks. A stuck call is noticed at most two checks after its timeout. The process then ends
/// after the grace of the control channel. Together this takes less than five seconds.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Value of [`CallProgress`] while this rank makes no call.
const OUTSIDE: u64 = 0;

/// Number of the call that this rank is in, from 1; 0 between calls. All that the watchdog costs the timed thread is
/// one plain store per call.
#[derive(Debug, Default)]
pub struct CallProgress(AtomicU64);

impl CallProgress {
    /// Marks the start of a call into the library.
    #[inline]
    pub fn enter(&self, call: u64) {
        self.0.store(call, Ordering::Relaxed);
    }

    /// Marks that this rank is not inside a call.
    #[inline]
    pub fn leave(&self) {
        self.0.store(OUTSIDE, Ordering::Relaxed);
    }
}

/// A thread that ends the run if a call does not return.
#[derive(Debug)]
pub struct Watchdog {
    watched: Arc<WatchedCalls>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WatchedCalls {
    progress: CallProgress,
    duty: Mutex<WatchdogTask>,
    changed: Condvar,
}

/// The calls that the watchdog's thread watches.
#[derive(Debug, Default)]
struct WatchdogTask {
    is_over: bool,
    /// Description of the calls; `None` while none is in progress.
    calls: Option<String>,
    /// Distinguishes the calls of different trials, because call numbers restart at 1.
    generation: u64,
}

impl Watchdog {
    /// Starts the watchdog's thread, which may run on any of `cpus`. A call may take up to `limit`.
    pub fn start(alarm: Alarm, limit: Duration, cpus: Vec<u32>) -> Result<Self> {
        let watched = Arc::new(WatchedCalls::default());
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
            .map_err(|error| Error::start_error("the thread that watches calls", &error))?;
        Ok(Self {
            watched,
            thread: Some(thread),
        })
    }

    /// Returns the progress that the timed loop records.
    pub fn progress(&self) -> &CallProgress {
        &self.watched.progress
    }

    /// Starts watching calls with this description. `None` ends watching.
    pub fn watch(&self, calls: Option<String>) {
        self.progress().leave();
        lock(&self.watched.duty).watch(calls);
        self.watched.changed.notify_all();
    }
}

impl WatchdogTask {
    fn watch(&mut self, calls: Option<String>) {
        self.calls = calls;
        self.generation += 1;
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

impl WatchedCalls {
    /// Watches calls until the watchdog is dropped. Returns an error if a call does not return. Sleeps while there are
    /// no calls.
    fn watch(&self, limit: Duration) -> Option<Error> {
        let interval = (limit / 4).min(CHECK_INTERVAL_MAX);
        let mut seen = ((0, OUTSIDE), Instant::now());
        let mut duty = lock(&self.duty);
        while !duty.is_over {
            let call = self.progress.0.load(Ordering::Relaxed);
            let current = (duty.generation, call);
            if call == OUTSIDE || current != seen.0 || duty.calls.is_none() {
                seen = (current, Instant::now());
            }
            let stuck = seen.1.elapsed();
            if let Some(calls) = duty.calls.as_ref().filter(|_| stuck > limit) {
                return Some(overdue(calls, call, stuck, limit));
            }
            duty = if duty.calls.is_some() {
                let waited = self.changed.wait_timeout(duty, interval);
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

    fn watch(watched: &Arc<WatchedCalls>) -> JoinHandle<Option<Error>> {
        let own = Arc::clone(watched);
        std::thread::spawn(move || own.watch(LIMIT))
    }

    fn watched(calls: Option<&str>) -> Arc<WatchedCalls> {
        let watched = WatchedCalls::default();
        lock(&watched.duty).calls = calls.map(str::to_owned);
        Arc::new(watched)
    }

    #[test]
    fn a_call_that_does_not_return_is_named() {
        let watched = watched(Some("all-reduce of 8 B by mpi"));
        watched.progress.enter(3);
        let since = Instant::now();
        let error = watch(&watched).join().unwrap().unwrap().to_string();
        assert!(since.elapsed() >= LIMIT);
        let begin = "call 3 of all-reduce of 8 B by mpi has not come back for 0.";
        assert!(error.starts_with(begin), "{error}");
        assert!(error.contains("--timeout 0.2 s"), "{error}");
    }

    /// Each trial makes a single call. The watchdog never happens to check between two calls, and must not mistake two
    /// calls for one.
    #[test]
    fn first_calls_of_different_trials_are_distinguished() {
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
    fn progress_time_outside_and_idle_times_are_accepted() {
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
