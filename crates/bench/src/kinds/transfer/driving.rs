//! The timed part of a worker's trial: its loop, by pacing, between the aligned start and the closing flush.

use tonnage_sys::clock::thread_cpu_ns;

use super::flows::flows_of;
use super::totals::{OperationSums, TrialTotals};
use super::trial::{Schedule, WARM_UP};
use super::work::Work;
use super::{paced, rails};
use tonnage_engine::Verb;
use tonnage_engine::carried::CarriedFlow;
use tonnage_loops::batch::BatchLoop;
use tonnage_loops::flow::Flow;
use tonnage_loops::paced::Timetable;
use tonnage_loops::timed_loop::{Pace, Recording, TimedLoop};
use tonnage_loops::until::Until;
use tonnage_plan::transfer::{BatchCall, Pacing, TrialLength};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Result};

/// Latencies of the last trial that are still elsewhere: to fetch them in the window would take time from it.
pub(super) enum Unsettled {
    /// None.
    Nothing,
    /// Those of a trial with so many operations, with whoever carried it out.
    Carried(u64),
    /// Those of operations that were due and never issued.
    Paced {
        flows: usize,
        timetable: Timetable,
        ended_ns: u64,
    },
}

/// Returns whether somebody feels the pulses of workers: not while engines warm up.
pub(super) fn is_felt(schedule: &Schedule) -> bool {
    schedule.number != WARM_UP
}

impl Work<'_> {
    /// Waits for the aligned start, then drives this worker's own flows to their end, the closing flush included.
    pub fn drive(&mut self, schedule: &Schedule) -> Result<TrialTotals> {
        let driven = self.drive_trial(&schedule.of_worker(self.station.part.is_background));
        if let (Err(error), Some(shared)) = (&driven, &self.station.shared) {
            shared.abandon(self.station.worker, error);
        }
        driven
    }

    fn drive_trial(&mut self, schedule: &Schedule) -> Result<TrialTotals> {
        if let Some(trial) = &mut self.trial {
            trial.clear();
        }
        if let Some(felt) = &mut self.pulse {
            felt.begin();
        }
        self.port.take_arrivals();
        // The background rests in the half of a trial without one.
        self.station.part.is_resting = self.station.part.is_background && !schedule.is_loaded;
        self.active = if self.begins() && !self.station.part.is_resting {
            self.in_round(schedule.round)
        } else {
            0..0
        };
        self.unsettled = Unsettled::Nothing;
        let carried = self.begin_carried(schedule)?;
        let yields = self
            .station
            .part
            .yields(self.station.yielding, schedule.is_loaded);
        self.port.set_yielding(yields);
        let clock = self.port.clock;
        // A peer may begin a moment earlier by its clock, so peers are served while it waits.
        self.port.keep_awake(true);
        self.serve_peers(|| clock.now_ns() >= schedule.start_ns)?;
        self.port.keep_awake(false);
        self.port.take_most_in_flight();
        self.cpu_began_ns = thread_cpu_ns();
        let began_ns = clock.now_ns();
        // Whoever takes no part, or rests, may be late.
        let skew_ns = began_ns.saturating_sub(schedule.start_ns);
        let mut totals = TrialTotals {
            start_skew_ns: if self.takes_part() && !self.rests_as_target {
                skew_ns
            } else {
                0
            },
            ..TrialTotals::default()
        };
        if !self.active.is_empty() {
            self.port.restart_watch();
            self.port.engine.take_rail_loads();
            self.drive_flows(schedule, carried.as_deref(), &mut totals)
                .map_err(|error| self.with_stalled(error))?;
            totals.initiator_cpu_ns = thread_cpu_ns() - self.cpu_began_ns;
            self.window_end_ns = clock.now_ns();
            totals.own_ns = self.window_end_ns.saturating_sub(schedule.start_ns);
            totals.in_flight_max = self.port.take_most_in_flight();
            let loads = self.port.engine.take_rail_loads();
            totals.rails = rails::of_worker(&loads, self.window_end_ns - schedule.start_ns);
            totals.least_rail = rails::least(
                (self.station.rank, self.station.worker),
                self.point.division.rails,
                &loads,
                &totals.rails,
            );
        } else {
            self.window_end_ns = schedule.start_ns;
        }
        self.active = 0..flows_of(&self.table, &self.flows).len();
        if self.caps.moves_bytes {
            totals.payload_bytes = totals.operations * u64::from(self.point.size_bytes);
        }
        Ok(totals)
    }

    /// Puts the latencies of the trial that was driven where they belong, and their sums into `totals`. That takes time,
    /// so it comes after the window.
    pub(super) fn settle_latencies(
        &mut self,
        schedule: &Schedule,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        let Some(mut trial) = self.trial.take() else {
            return Ok(());
        };
        let records = self.point.latency && !self.follows_batches();
        let mut never_issued = Vec::new();
        match std::mem::replace(&mut self.unsettled, Unsettled::Nothing) {
            Unsettled::Carried(operations) => {
                self.settle_carried(schedule, operations, &mut trial)?
            }
            Unsettled::Paced {
                flows,
                timetable,
                ended_ns,
            } if records => {
                let left = self.scratch.never_issued(flows, &timetable, ended_ns);
                never_issued.extend(left);
            }
            Unsettled::Paced { .. } | Unsettled::Nothing => {}
        }
        let count = |latencies: &mut LatencyHistogram| {
            let each = never_issued.iter();
            each.for_each(|waits| latencies.record_unfinished(waits));
        };
        match self
            .pulse
            .as_mut()
            .filter(|_| is_felt(schedule) && !self.caps.carried)
        {
            Some(felt) => felt.finish(&mut trial, count),
            None => count(&mut trial),
        }
        totals.samples = trial.count();
        totals.unfinished = trial.unfinished();
        totals.latency_ns_min = trial.min_ns();
        totals.latency_ns_max = trial.max_ns().unwrap_or(0);
        totals.latency_ns_sum = trial
            .mean_ns()
            .map_or(0, |mean| (mean * totals.samples as f64) as u64);
        self.trial = Some(trial);
        let roles = self.point.roles;
        if roles.bidirectional && roles.is_behind(self.station.rank) {
            totals.back = OperationSums::of(totals);
        }
        Ok(())
    }

    /// Names what made no progress, if that is the error.
    pub(super) fn with_stalled(&mut self, error: Error) -> Error {
        let Some(stall) = self.port.stall().cloned() else {
            return error;
        };
        let waiting = match self.point.pacing {
            Pacing::Stream { .. } | Pacing::Paced { .. } => self.scratch.waiting_flows(),
            _ => Vec::new(),
        };
        self.station.names.error(
            self.point,
            &stall,
            &flows_of(&self.table, &self.flows)[self.active.clone()],
            &waiting,
            self.port.engine,
        )
    }

    /// Returns whether another worker times the batches that this one has a share of.
    fn follows_batches(&self) -> bool {
        self.station.shared.is_some() && self.station.worker > 0
    }

    fn drive_flows(
        &mut self,
        schedule: &Schedule,
        carried: Option<&[CarriedFlow]>,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        if let Some(flows) = carried {
            return self.drive_carried(schedule, flows, totals);
        }
        let (mut trial, mut phases) = (self.trial.take(), self.phases.take());
        let mut pulse = self.pulse.take();
        let felt = pulse.as_mut().filter(|_| is_felt(schedule));
        let (pulse_of, histogram) = match felt {
            Some(felt) => (Some(&*felt.pulse), Some(&mut felt.latencies)),
            None => (None, trial.as_mut()),
        };
        let records = self.point.latency && !self.follows_batches();
        let recording = Recording {
            latencies: histogram.filter(|_| records),
            phases: phases.as_mut(),
            pulse: pulse_of,
        };
        let result = self.drive_recording(schedule, totals, recording);
        (self.trial, self.phases, self.pulse) = (trial, phases, pulse);
        result
    }

    /// Gives the flows of a round their operations, where a file says them; the warm-up drives the same flows without
    /// an end.
    fn set_loads(&mut self, schedule: &Schedule) {
        let (rank, worker, point) = (self.station.rank, self.station.worker, self.point);
        let operations = |flow: &Flow| match point.load_operations(rank, flow.peer, worker) {
            0 => 0,
            _ if schedule.number == WARM_UP => u64::MAX,
            operations => operations,
        };
        if let Some(loads) = &mut self.loads {
            let flows = &self.flows[self.active.clone()];
            loads.set(self.port.clock, flows.iter().map(operations));
        }
    }

    /// End of the round's operations.
    fn until(&self, schedule: &Schedule) -> Until {
        let until = match (schedule.length, &self.loads) {
            (TrialLength::DurationNs(ns), _) => {
                Until::time(self.port.clock, schedule.start_ns + ns)
            }
            (TrialLength::Iterations(_), Some(loads)) => Until::operations(loads.operations()),
            (TrialLength::Iterations(count), None) => Until::operations(count),
        };
        until.at_most(self.point.iterations_max().unwrap_or(u64::MAX))
    }

    fn drive_recording(
        &mut self,
        schedule: &Schedule,
        totals: &mut TrialTotals,
        recording: Recording<'_>,
    ) -> Result<()> {
        self.set_loads(schedule);
        let mut until = self.until(schedule);
        let batching = BatchLoop {
            size: self.point.batch_share(self.station.worker),
            in_flight: self.point.batching.in_flight,
            one_call: self.point.batching.call == BatchCall::One,
            merged_bytes_max: self.merged_bytes_max,
        };
        let timetable = match self.point.pacing {
            Pacing::Paced { rate, .. } => {
                let place = self.station.part.place;
                Some(paced::timetable(self.point, rate, place, schedule))
            }
            _ => None,
        };
        let flows = match &mut self.table {
            Some(table) => {
                table.activate(self.active.clone());
                &mut []
            }
            None => &mut self.flows[self.active.clone()],
        };
        let pace = match (self.point.pacing, &timetable) {
            (Pacing::Paced { .. }, Some(timetable)) => Pace::Paced(timetable),
            (Pacing::Batch { .. }, _) => match &self.station.shared {
                None => Pace::Batch(batching),
                Some(shared) => Pace::SharedBatch(batching, shared, self.station.worker),
            },
            (Pacing::PingPong, _) => match &mut self.table {
                Some(table) => Pace::PingPong(table),
                None => Pace::ReadInTurn,
            },
            _ => Pace::Stream(self.loads.as_mut()),
        };
        let timed_loop = TimedLoop {
            pace,
            port: &mut self.port,
            flows,
            scratch: &mut self.scratch,
            until: &mut until,
        };
        let driven = timed_loop.run(recording)?;
        totals.operations = driven.operations;
        totals.handed_over = driven.handed_over;
        if let (Some(punctuality), Some(timetable)) = (driven.punctuality, timetable) {
            let flows = &self.flows[self.active.clone()];
            (totals.due, totals.late) = (timetable.operations, punctuality.late);
            totals.stall = paced::stall(&punctuality, self.station.rank, flows, schedule);
            self.unsettled = Unsettled::Paced {
                flows: flows.len(),
                timetable,
                ended_ns: punctuality.ended_ns,
            };
        }
        // Flows that end by themselves have been flushed.
        let writes = matches!(self.point.op, Verb::Write | Verb::WriteImm)
            && (self.loads.is_none() || schedule.number == WARM_UP);
        let flows = &flows_of(&self.table, &self.flows)[self.active.clone()];
        if writes {
            self.port.flush(flows)
        } else {
            Ok(())
        }
    }
}
