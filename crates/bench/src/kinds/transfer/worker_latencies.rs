//! Latencies of one worker: in the current trial, over the point, and of the phases of its batches.

use std::rc::Rc;
use std::sync::Arc;

use super::assignment::WorkerAssignment;
use super::flow_driver::{FlowDriver, PendingLatencies};
use super::totals::TrialTotals;
use super::trial::{Schedule, WARM_UP};
use tonnage_engine::carried::CarriedProgress;
use tonnage_loops::pulse::WorkerPulse;
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
    /// Pulse that is updated during trials; `None` if no thread reads it.
    pulse: Option<WorkerPulse>,
}

/// Returns whether another thread reads the pulse. It does not during the warm-up.
fn is_pulse_read(schedule: &Schedule) -> bool {
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
            pulse: assignment.setup.pulse.clone().map(WorkerPulse::new),
            assignment: Rc::clone(assignment),
        }
    }

    /// Begins a trial. Called before the measured interval.
    pub(super) fn begin(&mut self) {
        self.trial.clear();
        if let Some(felt) = &mut self.pulse {
            felt.begin();
        }
    }

    /// Returns where the loop of this trial stores its samples.
    pub(super) fn recording(&mut self, schedule: &Schedule) -> Recording<'_> {
        let felt = self.pulse.as_mut().filter(|_| is_pulse_read(schedule));
        let (pulse, latencies) = match felt {
            Some(felt) => (Some(&*felt.pulse), &mut felt.latencies),
            None => (None, &mut self.trial),
        };
        let records = self.assignment.records_latencies();
        Recording {
            latencies: records.then_some(latencies),
            phases: self.phases.as_mut(),
            pulse,
        }
    }

    /// Begins to follow the progress of a trial that the device runs itself.
    pub(super) fn follow(&self, schedule: &Schedule, progress: Arc<dyn CarriedProgress>) {
        if let Some(felt) = self.pulse.as_ref().filter(|_| is_pulse_read(schedule)) {
            felt.pulse.follow(progress);
        }
    }

    /// Stops following a trial, because it failed.
    pub(super) fn stop_following(&self) {
        if let Some(felt) = &self.pulse {
            felt.pulse.end_following(0, None);
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
                if let Some(felt) = self.pulse.as_ref().filter(|_| is_pulse_read(schedule)) {
                    felt.pulse.end_following(operations, latencies.as_ref());
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
        let felt = self.pulse.as_mut();
        match felt.filter(|_| is_pulse_read(schedule) && !assignment.caps.carried) {
            Some(felt) => felt.finish(trial, count),
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
