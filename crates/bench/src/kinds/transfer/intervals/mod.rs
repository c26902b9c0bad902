//! Intervals of trials. While bytes move, each initiating rank reports its progress to rank 0 once per interval. Rank 0
//! passes the reports to the listener, and keeps the series.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `ticker` | the reports of a rank, counted from the progress of its workers |
//! | `collector` | combines the reports of all ranks, on rank 0 |
//! | `watcher` | the thread that runs both, and that writes checkpoints of the record |
//!
//! [`tonnage_loops::loop_progress`] is the loops' part. Nothing in this folder runs inside a timed loop.

mod collector;
mod ticker;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use collector::IntervalCollector;
use ticker::Ticker;
use watcher::{Checkpoints, IntervalWatcher, TrialCollection, WatcherState};

use super::trial::{Schedule, WARM_UP};
use crate::kinds::kind::Stage;
use crate::observer::IntervalListener;
use tonnage_loops::loop_progress::LoopProgress;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::Notes;
use tonnage_record::Record;
use tonnage_record::transfer::{BrokenOff, Trial, TrialSeries};
use tonnage_sys::clock::Clock;
use tonnage_units::Result;

/// The intervals of a point's trials, on one rank. Contains `None` if the point has no intervals.
pub struct Intervals(Option<IntervalSetup>);

/// Settings and state for all trials of the point.
struct IntervalSetup {
    interval_ns: u64,
    size_bytes: u64,
    /// Progress of each worker; empty if this rank does not initiate.
    worker_progress: Arc<[Arc<LoopProgress>]>,
    notes: Notes,
    /// CPUs that the watcher's thread may run on.
    cpus: Vec<u32>,
    /// Ranks that initiate; empty on ranks other than 0.
    clients: Vec<u32>,
    listener: Option<IntervalListener>,
    checkpoints: Option<Checkpoints>,
    is_root: bool,
    running: Option<RunningTrial>,
}

/// A trial that is running.
struct RunningTrial {
    trial: u64,
    is_driven: Arc<AtomicBool>,
    watcher: Option<IntervalWatcher>,
    /// State that the thread returned when it was stopped.
    watch: Option<WatcherState>,
}

impl Intervals {
    /// Creates the intervals of this point's trials. `record` is the record of this point before measuring; `None` for
    /// a point without its own record.
    pub fn new(
        point: &TransferPoint,
        stage: &Stage<'_>,
        record: Option<&Record>,
        moves_bytes: bool,
    ) -> Self {
        let Some(interval_ns) = point.length.interval_ns else {
            return Self(None);
        };
        let (roles, rank) = (point.roles, &stage.rank);
        let initiates = roles.initiates(rank.id());
        let worker_progress = (0..point.threads).filter(|_| initiates);
        let is_root = rank.id() == 0;
        let ranks = (0..point.roles.ranks).filter(|_| is_root);
        Self(Some(IntervalSetup {
            interval_ns,
            size_bytes: if moves_bytes {
                point.slots.size_bytes.into()
            } else {
                0
            },
            worker_progress: worker_progress.map(|_| Arc::default()).collect(),
            notes: rank.notes(),
            cpus: stage.host.topology.allowed.clone(),
            clients: ranks.filter(|&rank| roles.initiates(rank)).collect(),
            listener: stage.observer.intervals().filter(|_| is_root),
            checkpoints: point
                .length
                .checkpoint_ns
                .filter(|_| is_root)
                .and_then(|ns| {
                    Some(Checkpoints {
                        every_ns: ns,
                        keeper: stage.observer.checkpoints()?,
                        record: record?.clone(),
                        written: 0,
                    })
                }),
            is_root,
            running: None,
        }))
    }

    /// Returns the progress that a worker updates; `None` if no thread reads it.
    pub fn loop_progress(&self, worker: u32) -> Option<Arc<LoopProgress>> {
        self.0
            .as_ref()?
            .worker_progress
            .get(worker as usize)
            .map(Arc::clone)
    }

    /// Begins a trial before its workers start. `ended` has the earlier trials. Does nothing in a warm-up.
    pub fn begin(&mut self, schedule: &Schedule, clock: Clock, ended: &[Trial]) -> Result<()> {
        // Extra turns outside the trials have no series either.
        let counts = schedule.number != WARM_UP && !schedule.is_extra;
        let Some(setup) = self.0.as_mut().filter(|_| counts) else {
            return Ok(());
        };
        if let Some(checkpoints) = &mut setup.checkpoints {
            checkpoints.begin(ended);
        }
        setup.begin(schedule, clock)
    }

    /// Records that all workers of this rank have driven their flows.
    pub fn note_driven(&self) {
        if let Some(running) = self.0.as_ref().and_then(|setup| setup.running.as_ref()) {
            running.is_driven.store(true, Ordering::Release);
        }
    }

    /// Sends this rank's exact number of operations, before the ranks merge their totals.
    pub fn send_last_count(&mut self, operations: u64, window_ns: u64) -> Result<()> {
        let Some(running) = self.0.as_mut().and_then(|setup| setup.running.as_mut()) else {
            return Ok(());
        };
        running.stop()?;
        let watch = running.watch.as_mut();
        let ticker = watch.and_then(|watch| watch.ticker.as_mut());
        ticker.map_or(Ok(()), |ticker| ticker.send_last(operations, window_ns))
    }

    /// On rank 0, returns the series of the trial after the totals of all ranks were merged.
    pub fn finish(&mut self, window_ns: u64) -> Result<Option<TrialSeries>> {
        let Some(setup) = &mut self.0 else {
            return Ok(None);
        };
        let Some(mut running) = setup.running.take() else {
            return Ok(None);
        };
        running.stop()?;
        let Some(mut collection) = running.watch.and_then(|watch| watch.collection) else {
            return Ok(None);
        };
        collection.take_notes()?;
        let series = collection.finish(window_ns);
        setup.listener = collection.listener.take();
        setup.checkpoints = collection.checkpoints.take();
        Ok(Some(series))
    }

    /// On rank 0, returns the series of a trial that did not complete.
    pub fn take_partial_series(&mut self) -> Option<BrokenOff> {
        let setup = self.0.as_mut()?;
        let mut running = setup.running.take()?;
        running.stop().ok()?;
        let mut collection = running.watch.and_then(|watch| watch.collection)?;
        collection.take_notes().ok()?;
        // What happened after the last reported interval is unknown.
        let elapsed_ns = collection.collector.intervals_reported().max(1) * setup.interval_ns;
        collection.collector.close(elapsed_ns);
        let (trial, series) = (running.trial, collection.collector.series());
        Some(BrokenOff { trial, series })
    }
}

impl IntervalSetup {
    fn begin(&mut self, schedule: &Schedule, clock: Clock) -> Result<()> {
        // Drops late ticks of a trial that failed on all ranks. All of these ticks have arrived, because all ranks have
        // since agreed on a start.
        self.notes.take_received();
        for loop_progress in self.worker_progress.iter() {
            loop_progress.begin_trial();
        }
        let (trial, is_driven) = (schedule.number, Arc::new(AtomicBool::new(false)));
        let ticker = || {
            let of = (trial, self.interval_ns);
            Ticker::new(
                of,
                Arc::clone(&self.worker_progress),
                self.notes.clone(),
                Arc::clone(&is_driven),
            )
        };
        let watch = WatcherState {
            ticker: (!self.worker_progress.is_empty()).then(ticker),
            collection: self.is_root.then(|| TrialCollection {
                collector: IntervalCollector::new(
                    trial,
                    self.interval_ns,
                    self.clients.iter().copied(),
                ),
                listener: self.listener.take(),
                checkpoints: self.checkpoints.take(),
                notes: self.notes.clone(),
                trial,
                interval_ns: self.interval_ns,
                size_bytes: self.size_bytes,
                reported: 0,
            }),
        };
        // A rank other than 0 that does not initiate has nothing to watch.
        let watcher = if watch.ticker.is_some() || watch.collection.is_some() {
            let times = (clock, schedule.start_ns, self.interval_ns);
            Some(IntervalWatcher::start(watch, times, self.cpus.clone())?)
        } else {
            None
        };
        self.running = Some(RunningTrial {
            trial,
            is_driven,
            watcher,
            watch: None,
        });
        Ok(())
    }
}

impl RunningTrial {
    fn stop(&mut self) -> Result<()> {
        if let Some(watcher) = self.watcher.take() {
            self.watch = Some(watcher.stop()?);
        }
        Ok(())
    }
}
