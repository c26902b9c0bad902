//! The thread that counts a rank's operations at the end of each interval. On rank 0, the thread also reports the
//! progress of all ranks, and writes checkpoints of the point's record.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::collector::IntervalCollector;
use super::ticker::{Tick, Ticker};
use crate::observer::{CheckpointKeeper, IntervalListener, IntervalReport};
use crate::run::unix_ns;
use tonnage_ranks::{Notes, unpack};
use tonnage_record::transfer::{BrokenOff, SERIES_CLIENTS_MAX, Trial, TrialSeries};
use tonnage_record::{Body, Outcome, Record};
use tonnage_sys::clock::Clock;
use tonnage_units::Nanos;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Longest wait for the workers' latencies before a tick is sent, and time between two checks for these latencies.
const HAND_OVER_NS_MAX: u64 = 20_000_000;
const LOOK_NS: u64 = 500_000;

/// Longest wait for other ranks' ticks before an interval is reported.
const GRACE_NS_MAX: u64 = 50_000_000;

/// The thread's state during a trial.
pub(super) struct WatcherState {
    /// Counts this rank's operations; `None` if the rank does not initiate.
    pub(super) ticker: Option<Ticker>,
    /// Collects the ticks of all ranks; `None` on ranks other than 0.
    pub(super) collection: Option<TrialCollection>,
}

/// Rank 0's part: collects the ticks of all ranks.
pub(super) struct TrialCollection {
    pub(super) collector: IntervalCollector,
    pub(super) listener: Option<IntervalListener>,
    pub(super) checkpoints: Option<Checkpoints>,
    pub(super) notes: Notes,
    pub(super) trial: u64,
    pub(super) interval_ns: u64,
    pub(super) size_bytes: u64,
    /// Number of intervals that were already reported.
    pub(super) reported: u64,
}

/// The running thread of one trial.
pub(super) struct IntervalWatcher {
    over: Arc<EndSignal>,
    thread: JoinHandle<Result<WatcherState>>,
}

/// Signals the end of a trial to the thread.
#[derive(Default)]
struct EndSignal {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl EndSignal {
    /// Waits until `time_ns` on `clock`. Returns true if the trial ends earlier.
    fn wait_until(&self, clock: &Clock, time_ns: u64) -> bool {
        let mut is_over = lock(&self.is_over);
        loop {
            let left_ns = time_ns.saturating_sub(clock.now_ns());
            if *is_over || left_ns == 0 {
                return *is_over;
            }
            let left = Duration::from_nanos(left_ns);
            let waited = self.changed.wait_timeout(is_over, left);
            is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl IntervalWatcher {
    /// Starts the thread for a trial that begins at `start_ns` on `clock`. It may run on any of `cpus`, because the
    /// worker that starts it needs its own CPU.
    pub(super) fn start(
        watch: WatcherState,
        (clock, start_ns, interval_ns): (Clock, u64, u64),
        cpus: Vec<u32>,
    ) -> Result<Self> {
        let over = Arc::new(EndSignal::default());
        let until = Arc::clone(&over);
        let thread = std::thread::Builder::new()
            .name("intervals".into())
            .spawn(move || {
                if let Err(error) = tonnage_machine::spread_thread(&cpus) {
                    log::debug!("{error}: intervals are counted on a thread's CPU");
                }
                watch.run(&until, &clock, start_ns, interval_ns)
            })
            .map_err(|error| Error::start_error("the thread of intervals", &error))?;
        Ok(Self { over, thread })
    }

    /// Stops the thread and returns its state.
    pub(super) fn stop(self) -> Result<WatcherState> {
        *lock(&self.over.is_over) = true;
        self.over.changed.notify_all();
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(Error::Failed("the thread of intervals panicked".into())))
    }
}

impl WatcherState {
    fn run(
        mut self,
        over: &EndSignal,
        clock: &Clock,
        start_ns: u64,
        interval_ns: u64,
    ) -> Result<Self> {
        let hand_over_ns = (interval_ns / 10).min(HAND_OVER_NS_MAX);
        let grace_ns = (interval_ns / 4).min(GRACE_NS_MAX);
        let mut ended = 1u64;
        loop {
            let end_ns = start_ns.saturating_add(ended.saturating_mul(interval_ns));
            if over.wait_until(clock, end_ns) {
                return Ok(self);
            }
            if let Some(ticker) = &mut self.ticker {
                let counted_ns = clock.now_ns();
                ticker.count(counted_ns - start_ns);
                let mut look_ns = counted_ns;
                while !ticker.is_answered() && look_ns < counted_ns + hand_over_ns {
                    look_ns += LOOK_NS;
                    if over.wait_until(clock, look_ns) {
                        return Ok(self);
                    }
                }
                ticker.send()?;
            }
            if let Some(collection) = &mut self.collection {
                if over.wait_until(clock, end_ns + grace_ns) {
                    return Ok(self);
                }
                collection.take_notes()?;
                // If a rank's tick is missing, it may just be late. The interval is then reported only when the next
                // one ends.
                let complete = ended - u64::from(!collection.collector.have_all_reported(ended));
                collection.report_until(complete, interval_ns);
                collection.checkpoint(complete);
            }
            // If the thread did not run for some time, the intervals that have passed are reported together.
            ended = ((clock.now_ns() - start_ns) / interval_ns).max(ended) + 1;
        }
    }
}

impl TrialCollection {
    /// Processes the ticks that have been received.
    pub(super) fn take_notes(&mut self) -> Result<()> {
        for (rank, note) in self.notes.take_received() {
            let tick: Tick = unpack(&note)?;
            self.collector.add_tick(rank, &tick)?;
        }
        Ok(())
    }

    /// Ends a trial of `window_ns`, reports its remaining intervals, and returns its series.
    pub(super) fn finish(&mut self, window_ns: u64) -> TrialSeries {
        let count = self.collector.close(window_ns) as u64;
        let last_ns = window_ns.saturating_sub((count - 1) * self.interval_ns);
        self.report_until(count, last_ns.max(1));
        self.collector.series()
    }

    /// Reports all intervals up to number `ended`. The last of them took `last_ns`.
    fn report_until(&mut self, ended: u64, last_ns: u64) {
        for at in self.reported..ended {
            let length_ns = if at + 1 == ended {
                last_ns
            } else {
                self.interval_ns
            };
            self.report(at, length_ns);
        }
        self.reported = self.reported.max(ended);
    }

    /// Writes a checkpoint after `ended` intervals, if one is due.
    fn checkpoint(&mut self, ended: u64) {
        if let Some(checkpoints) = &mut self.checkpoints {
            let elapsed_ns = ended * self.interval_ns;
            checkpoints.write_if_due(self.trial, elapsed_ns, || self.collector.so_far(elapsed_ns));
        }
    }

    fn report(&mut self, at: u64, length_ns: u64) {
        let Some(listener) = &mut self.listener else {
            return;
        };
        let end_ns = at * self.interval_ns + length_ns;
        let at = at as usize;
        let per_s = |operations: u64| operations as f64 * 1e9 / length_ns as f64;
        let collector = &self.collector;
        let clients = match collector.extremes(at) {
            None => {
                let moved = collector.operations_by_client(at).take(SERIES_CLIENTS_MAX);
                moved.map(|one| (one.rank, per_s(one.operations))).collect()
            }
            Some(known) => vec![
                (known.slowest_rank, per_s(known.slowest_operations)),
                (known.fastest_rank, per_s(known.fastest_operations)),
            ],
        };
        let silent = collector
            .operations_by_client(at)
            .filter(|moved| moved.is_silent);
        let operations_per_s = per_s(collector.operations(at));
        listener(&IntervalReport {
            trial: self.trial,
            end: Duration::from_nanos(end_ns),
            operations_per_s,
            bytes_per_s: operations_per_s * self.size_bytes as f64,
            clients,
            clients_count: collector.clients_count(),
            silent: silent.map(|moved| moved.rank).collect(),
            latency: collector.latency(at),
        });
    }
}

/// Checkpoints of a point. Each is the record that would remain if the run were lost at that moment.
pub(super) struct Checkpoints {
    pub(super) every_ns: u64,
    /// The point's record without the running trial. A checkpoint is a copy of this record with the series up to now.
    pub(super) record: Record,
    pub(super) keeper: CheckpointKeeper,
    /// Number of checkpoints that were written in this trial.
    pub(super) written: u64,
}

impl Checkpoints {
    /// Begins a trial. `ended` has the earlier trials.
    pub(super) fn begin(&mut self, ended: &[Trial]) {
        self.written = 0;
        if let Body::Transfer(body) = &mut self.record.body {
            body.trials = ended.to_vec();
        }
    }

    /// If a checkpoint is due, writes it with the series up to now.
    pub(super) fn write_if_due(
        &mut self,
        trial: u64,
        elapsed_ns: u64,
        series: impl FnOnce() -> TrialSeries,
    ) {
        let due = elapsed_ns / self.every_ns;
        if due <= self.written {
            return;
        }
        self.written = due;
        let elapsed = Nanos(elapsed_ns);
        self.record.outcome = Outcome::Failed {
            why: format!(
                "it had not ended when this checkpoint was written, {elapsed} after trial {trial} began"
            ),
        };
        self.record.time_unix_ns = unix_ns();
        if let Body::Transfer(body) = &mut self.record.body {
            let series = series();
            body.broken_off = Some(BrokenOff { trial, series });
        }
        (self.keeper)(&self.record);
    }
}
