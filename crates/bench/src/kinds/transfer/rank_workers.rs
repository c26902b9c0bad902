//! The workers of this rank at one point, as their leader uses them: its own worker, the following threads, and the
//! channel to other ranks.

use std::time::{Duration, Instant};

use super::background::WorkerPoints;
use super::totals::TrialTotals;
use super::transfer_worker::TransferWorker;
use super::trial::Schedule;
use super::verify::ExpectedOperations;
use super::verify::reports::{self, IssuedReports};
use super::worker_threads::{SharedTrialState, ThreadOrder, ThreadReport, Threads};
use crate::deadlines::DEADLINES;
use crate::latencies::merge_all;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::{Rank, RankGroup};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Reduce, Result};

/// The leader's access to all workers of its rank.
pub(super) struct RankWorkers<'a, 'b> {
    pub(super) rank: &'a mut Rank,
    pub(super) own: TransferWorker<'b>,
    pub(super) points: &'a WorkerPoints<'a>,
    pub(super) state: &'a SharedTrialState,
    pub(super) followers: Threads,
    pub(super) moves_bytes: bool,
}

impl RankWorkers<'_, '_> {
    fn count(&self) -> u32 {
        self.points.own.threads
    }

    /// Makes all followers (the other workers of this rank) carry out an order, after the leader has done so itself.
    pub(super) fn run_on_followers(&mut self, order: &ThreadOrder) -> Result<Vec<ThreadReport>> {
        self.followers.order(|_| order.clone())?;
        self.followers.collect()
    }

    /// Prepares all workers for trial `number`.
    pub(super) fn prepare(&mut self, number: u64, checked: bool) -> Result<()> {
        self.followers
            .order(|_| ThreadOrder::Prepare(number, checked))?;
        let prepared = self.own.prepare(number, checked);
        self.followers.collect()?;
        prepared
    }

    /// Prepares all workers for a round, before any of them drives it.
    pub(super) fn begin_round(&mut self) {
        self.state.reset(self.count());
        self.own.begin_round();
    }

    /// Drives the flows of all workers in a round, and serves peers until the last worker of this rank is done.
    pub(super) fn drive(&mut self, schedule: &Schedule) -> Result<TrialTotals> {
        self.followers.order(|_| ThreadOrder::Trial(*schedule))?;
        let driven = self.state.drive(0, &mut self.own, schedule);
        let deadline = Instant::now() + trial_deadline(schedule.length);
        self.serve_peers(deadline, SharedTrialState::all_done_driving)?;
        driven
    }

    /// Waits for late arrivals of a round. Adds the sums of all workers to `totals`, and returns their reports.
    pub(super) fn finish(
        &mut self,
        schedule: &Schedule,
        expected: &[ExpectedOperations],
        totals: &mut TrialTotals,
    ) -> Result<Vec<ThreadReport>> {
        self.state.finish(expected.to_vec());
        let own_expected = expected.first().cloned().unwrap_or_default();
        self.own.finish(schedule, &own_expected, totals)?;
        let reports = self.followers.collect()?;
        merge_reports(totals, &reports);
        Ok(reports)
    }

    /// Checks the memory of all workers after the rounds of a trial, and adds the results to `totals`.
    pub(super) fn check(
        &mut self,
        expected: Vec<ExpectedOperations>,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        self.state.expect(expected);
        self.followers.order(|_| ThreadOrder::Check)?;
        let own = self.state.check(0, &mut self.own);
        let others = self.followers.collect();
        totals.merge(own?);
        merge_reports(totals, &others?);
        Ok(())
    }

    /// Serves peers until `over` returns true, a following worker fails, or the deadline passes. If it passes, the
    /// caller's own wait names the missing ranks.
    fn serve_peers(
        &mut self,
        deadline: Instant,
        over: impl Fn(&SharedTrialState) -> bool,
    ) -> Result<()> {
        let state = self.state;
        let mut is_late = deadline_check(deadline, self.own.rounds_per_clock_read());
        self.own
            .serve_peers(|| is_late() || state.has_failed() || over(state))?;
        state.check_failed()
    }

    /// Waits until all ranks of a round have driven their flows, and serves peers meanwhile. Returns the operations
    /// that each worker of this rank should have seen.
    pub(super) fn exchange(
        &mut self,
        length: TrialLength,
        group: &RankGroup,
    ) -> Result<Vec<ExpectedOperations>> {
        const WHAT: &str = "end of a round";
        let deadline = Instant::now() + trial_deadline(length);
        let workers = self.count() as usize;
        let points: Vec<_> = (0..workers)
            .map(|worker| self.points.for_worker(worker))
            .collect();
        let is_needed =
            |point: &&TransferPoint| ExpectedOperations::is_needed(point, self.moves_bytes);
        if !points.iter().any(is_needed) {
            let pending = self.rank.start_group_barrier(group, WHAT)?;
            self.serve_peers(deadline, |_| pending.is_done())?;
            self.rank.finish_barrier(pending, time_left(deadline))?;
            return Ok(vec![ExpectedOperations::default(); workers]);
        }
        let (rank, issued) = (self.rank.id(), self.state.issued());
        let outgoing = reports::messages(&points, rank, &issued, group)?;
        let pending = self.rank.start_exchange(group, WHAT, outgoing)?;
        self.serve_peers(deadline, |_| pending.is_done())?;
        let incoming = self.rank.finish_exchange(pending, time_left(deadline))?;
        let reports = IssuedReports::new(issued, group.clone(), &incoming)?;
        let expected = points.into_iter().enumerate();
        expected
            .map(|(worker, point)| ExpectedOperations::new(point, rank, worker, &reports))
            .collect()
    }

    /// Returns the latencies of all ranks in the last trial.
    pub(super) fn latencies_of_trial(&mut self) -> Result<LatencyHistogram> {
        let mut own = self.own.latencies().of_trial().cloned().unwrap_or_default();
        for report in self.run_on_followers(&ThreadOrder::LatenciesOfTrial)? {
            if let Some(latencies) = &report.latencies {
                own.merge(latencies);
            }
        }
        merge_all(self.rank, "latencies of a half", &own, DEADLINES.step)
    }

    /// Returns the latencies of all ranks over all trials, and those of the phases of batches.
    pub(super) fn latencies(&mut self) -> Result<(LatencyHistogram, Option<PhaseHistograms>)> {
        let mut histogram = self.own.latencies().of_point().clone();
        let mut phases = self.own.latencies().phases().cloned();
        for report in self.run_on_followers(&ThreadOrder::Latencies)? {
            if let Some(latencies) = &report.latencies {
                histogram.merge(latencies);
            }
            if let (Some(phases), Some(others)) = (&mut phases, &report.phases) {
                phases.merge(others);
            }
        }
        let mut merged = |own| merge_all(self.rank, "merge histograms", own, DEADLINES.step);
        let histogram = merged(&histogram)?;
        let Some(phases) = &phases else {
            return Ok((histogram, None));
        };
        let phases = PhaseHistograms {
            prepare: merged(&phases.prepare)?,
            post: merged(&phases.post)?,
            complete: merged(&phases.complete)?,
        };
        Ok((histogram, Some(phases)))
    }

    /// Uses up everything that is posted, so that the next point starts with nothing posted.
    pub(super) fn close(&mut self) -> Result<()> {
        self.rank.set_phase("closing a point");
        self.rank.barrier("close the point", DEADLINES.step)?;
        let state = self.state;
        state.reset(self.count().saturating_sub(1));
        self.followers.order(|_| ThreadOrder::Close)?;
        let closed = self.own.close();
        self.own
            .poll_until(|| state.all_done_driving() || state.has_failed())?;
        state.check_failed()?;
        closed?;
        let pending = self.rank.start_barrier("point closed")?;
        let deadline = Instant::now() + DEADLINES.step;
        let mut is_late = deadline_check(deadline, self.own.rounds_per_clock_read());
        self.own
            .poll_until(|| is_late() || state.has_failed() || pending.is_done())?;
        state.check_failed()?;
        self.rank.finish_barrier(pending, time_left(deadline))?;
        state.finish(Vec::new());
        self.followers.collect().map(drop)
    }
}

/// Returns a function that checks whether the deadline has passed. It reads the clock only once in `rounds` calls,
/// because the calling loop must answer peers quickly.
fn deadline_check(deadline: Instant, rounds: u32) -> impl FnMut() -> bool {
    let mut round = 0u32;
    move || {
        round = round.wrapping_add(1);
        round.is_multiple_of(rounds) && Instant::now() > deadline
    }
}

fn merge_reports(totals: &mut TrialTotals, reports: &[ThreadReport]) {
    for report in reports.iter().filter_map(|report| report.totals.as_ref()) {
        totals.merge(report.clone());
    }
}

/// Returns the longest time to wait for the end of a trial.
pub(super) fn trial_deadline(length: TrialLength) -> Duration {
    match length {
        // A paced trial may take twice its duration, and with a large depth the last operations take time.
        TrialLength::DurationNs(ns) => Duration::from_nanos(ns.saturating_mul(3)) + DEADLINES.step,
        TrialLength::Iterations(_) => DEADLINES.operations,
    }
}

fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
