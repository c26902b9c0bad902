//! Latencies of one worker: in the current trial, over the point, and of the phases of its batches.

use std::rc::Rc;
use std::sync::Arc;

use super::assignment::WorkerAssignment;
use super::flow_driver::{FlowDriver, PendingLatencies};
use super::totals::TrialTotals;
use super::trial::{Schedule, WARM_UP};
use tonnage_engine::carried::CarriedProgress;
use tonnage_loops::loop_progress::WorkerProgress;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_loops::timed_loop::Recording;
use tonnage_plan::transfer::Pacing;
use tonnage_units::Result;
use tonnage_units::histogram::LatencyHistogram;

/// Histograms of one worker during one point.
pub(super) struct WorkerLatencies<'a> {
    assignment: Rc<WorkerAssignment<'a>>,
    trial: LatencyHistogram,
    point: LatencyHistogram,
    /// Phases of batches; `None` unless the point has batches.
    phases: Option<PhaseHistograms>,
    /// Progress that is updated during trials; `None` if no thread reads it.
    loop_progress: Option<WorkerProgress>,
}

/// Returns whether another thread reads the progress. It does not during the warm-up.
fn is_progress_read(schedule: &Schedule) -> bool {
    schedule.number != WARM_UP
}

impl<'a> WorkerLatencies<'a> {
    pub(super) fn new(assignment: &Rc<WorkerAssignment<'a>>) -> Self {
        let point = assignment.point;
        let times_batches = point.latency && matches!(point.pacing, Pacing::Batch { .. });
        Self {
            trial: LatencyHistogram::new(),
            point: LatencyHistogram::new(),
            phases: times_batches.then(PhaseHistograms::default),
            loop_progress: assignment
                .setup
                .loop_progress
                .clone()
                .map(WorkerProgress::new),
            assignment: Rc::clone(assignment),
        }
    }

    /// Begins a trial. Called before the measured interval.
    pub(super) fn begin(&mut self) {
        self.trial.clear();
        if let Some(worker) = &mut self.loop_progress {
            worker.begin();
        }
    }

    /// Returns where the loop of this trial stores its samples.
    pub(super) fn recording(&mut self, schedule: &Schedule) -> Recording<'_> {
        let worker = self
            .loop_progress
            .as_mut()
            .filter(|_| is_progress_read(schedule));
        let (loop_progress, latencies) = match worker {
            Some(worker) => (Some(&*worker.loop_progress), &mut worker.latencies),
            None => (None, &mut self.trial),
        };
        let records = self.assignment.records_latencies();
        Recording {
            latencies: records.then_some(latencies),
            phases: self.phases.as_mut(),
            loop_progress,
        }
    }

    /// Begins to follow the progress of a trial that the device runs itself.
    pub(super) fn follow(&self, schedule: &Schedule, progress: Arc<dyn CarriedProgress>) {
        if let Some(worker) = self
            .loop_progress
            .as_ref()
            .filter(|_| is_progress_read(schedule))
        {
            worker.loop_progress.follow(progress);
        }
    }

    /// Stops following a trial, because it failed.
    pub(super) fn stop_following(&self) {
        if let Some(worker) = &self.loop_progress {
            worker.loop_progress.end_following(0, None);
        }
    }

    /// Completes the latencies of the last round, and adds their sums to `totals`. This takes time, so it happens after
    /// the measured interval.
    pub(super) fn finish_round(
        &mut self,
        driver: &mut FlowDriver<'_>,
        schedule: &Schedule,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        let assignment = &*self.assignment;
        let trial = &mut self.trial;
        let mut never_issued = Vec::new();
        match driver.take_pending_latencies() {
            PendingLatencies::Carried(operations) => {
                let latencies = driver.carried_latencies()?;
                if let Some(worker) = self
                    .loop_progress
                    .as_ref()
                    .filter(|_| is_progress_read(schedule))
                {
                    worker
                        .loop_progress
                        .end_following(operations, latencies.as_ref());
                }
                if let Some(latencies) = &latencies {
                    trial.merge_binned(latencies);
                }
            }
            PendingLatencies::Paced {
                flows,
                timetable,
                ended_ns,
            } if assignment.records_latencies() => {
                never_issued.extend(driver.never_issued(flows, &timetable, ended_ns));
            }
            PendingLatencies::Paced { .. } | PendingLatencies::Nothing => {}
        }
        let count = |latencies: &mut LatencyHistogram| {
            let each = never_issued.iter();
            each.for_each(|waits| latencies.record_unfinished(waits));
        };
        let worker = self.loop_progress.as_mut();
        match worker.filter(|_| is_progress_read(schedule) && !assignment.caps.carried) {
            Some(worker) => worker.finish(trial, count),
            None => count(trial),
        }
        totals.samples = trial.count();
        totals.unfinished = trial.unfinished();
        totals.latency_ns_min = trial.min_ns();
        totals.latency_ns_max = trial.max_ns().unwrap_or(0);
        totals.latency_ns_sum = trial
            .mean_ns()
            .map_or(0, |mean| (mean * totals.samples as f64) as u64);
        if !schedule.is_extra {
            self.point.merge(trial);
        }
        Ok(())
    }

    /// Returns the latencies of the last trial; `None` for a worker of the background load.
    pub(super) fn of_trial(&self) -> Option<&LatencyHistogram> {
        Some(&self.trial).filter(|_| !self.assignment.setup.role.is_background)
    }

    /// Returns the latencies of all trials.
    pub(super) fn of_point(&self) -> &LatencyHistogram {
        &self.point
    }

    /// Returns the phases of batches over all trials.
    pub(super) fn phases(&self) -> Option<&PhaseHistograms> {
        self.phases.as_ref()
    }

    /// Discards the latencies of the warm-up.
    pub(super) fn discard_warm_up(&mut self) {
        self.point.clear();
        if let Some(phases) = &mut self.phases {
            phases.clear();
        }
    }
}
