//! The workers of a rank. Its main thread leads them, and is the only thread that talks to other ranks. It also
//! exchanges the workers' endpoint addresses.
//!
//! In a round, all workers of all ranks set up their connections and close them again. In a point's first round, the
//! ranks agree after every step. A missing resource then ends only the point, not the run.

use std::thread::Scope;
use std::time::Duration;

use super::capacity::{Capacity, Descriptors};
use super::connections::ConnectionCounts;
use super::figures::{StepTimes, TrialTotals, step_record, summarize};
use super::opened::OpenDevices;
use super::worker::{ConnectWorker, WorkerAnswer, WorkerOrder, WorkerRefusal, refuse};
use crate::cpu_loss::CpuLossMeter;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree, await_first_cause};
use crate::kinds::kind::{Stage, Steps};
use crate::latencies::merge_all;
use crate::network_paths::PathWatch;
use crate::opening::introduction::{
    Introductions, PeerIntroduction, PeerMessages, introductions_of, locality,
};
use crate::threads::Followers;
use tonnage_engine::Peer;
use tonnage_plan::connect::ConnectPoint;
use tonnage_ranks::Rank;
use tonnage_record::ConnectBody;
use tonnage_sys::clock::{Clock, process_cpu_ns};
use tonnage_units::{Error, Result};

/// Minimum time of untimed rounds. Libraries load code at their first connections, which must not be measured.
const WARM_UP: Duration = Duration::from_millis(50);

/// The workers' threads.
type Threads = Followers<WorkerOrder, WorkerAnswer, WorkerRefusal>;

/// The workers of this rank, with the state of the main thread that leads them.
pub struct RankWorkers<'a> {
    point: &'a ConnectPoint,
    rank: &'a mut Rank,
    cpu: &'a mut CpuLossMeter,
    paths: &'a mut PathWatch,
    clock: Clock,
    threads: Threads,
    /// The ranks that each worker is connected to.
    peers: Vec<Peer>,
    /// False for an engine that moves no bytes. Targets then cannot observe their connections.
    moves_bytes: bool,
    body: &'a mut ConnectBody,
    /// Duration of a round. It is the same on all ranks.
    round_ns: u64,
    times: StepTimes,
    /// A wrong byte that was noticed while connections closed. It is reported at the next agreement.
    pending_error: Option<Error>,
}

/// The introductions that each worker received from its peers; `None` if a peer has none.
type PeerIntroductions = Option<Vec<Vec<PeerIntroduction>>>;

/// Starts the threads of the workers.
fn start_workers<'scope>(
    scope: &'scope Scope<'scope, '_>,
    workers: Vec<(ConnectWorker, Option<u32>)>,
) -> Result<Threads> {
    let serve = |(worker, cpu): (ConnectWorker, Option<u32>)| {
        // A worker that cannot be pinned reports the error at its first step.
        move |orders: &_, answers: &_| match cpu.map_or(Ok(()), tonnage_machine::pin_thread) {
            Ok(()) => worker.serve(orders, answers),
            Err(error) => refuse(error, orders, answers),
        }
    };
    Followers::start(scope, 0, workers.into_iter().map(serve))
}

impl<'a> RankWorkers<'a> {
    /// Starts the workers of a point, and runs `take_steps` with them.
    pub fn run_with_workers<T>(
        opened: &OpenDevices,
        point: &'a ConnectPoint,
        stage: &'a mut Stage<'_>,
        body: &'a mut ConnectBody,
        take_steps: impl FnOnce(&mut RankWorkers<'_>) -> Result<T, StepFailure>,
    ) -> Result<T, StepFailure> {
        let stopped = stage.rank.stop_flag();
        let workers = opened.workers(&stopped);
        std::thread::scope(|scope| {
            let threads = start_workers(scope, workers)?;
            let mut workers = RankWorkers {
                point,
                rank: stage.rank,
                cpu: stage.cpu,
                paths: stage.paths,
                clock: stage.settings.clock,
                threads,
                peers: opened.peers(),
                moves_bytes: opened.moves_bytes,
                body,
                round_ns: 0,
                times: StepTimes::default(),
                pending_error: None,
            };
            let ended = take_steps(&mut workers);
            if let Err(StepFailure::Run(error)) = &ended {
                // Workers may still be polling for peers that have ended. The stop flag ends these workers.
                await_first_cause(workers.rank);
                workers.rank.fail(error);
            }
            ended
        })
    }

    /// Gives an order to the workers, and returns their answers.
    fn order(&self, order: impl Fn(usize) -> WorkerOrder) -> Result<Vec<WorkerAnswer>> {
        let answers = self.answers(order).into_iter();
        answers
            .map(|answer| answer.map_err(|refusal| refusal.error))
            .collect()
    }

    /// Orders a step of a round. In the rehearsal, workers may be refused because a resource is missing. The error then
    /// has the number of workers that fit.
    fn order_step(
        &self,
        rehearsing: bool,
        order: impl Fn(usize) -> WorkerOrder,
    ) -> Result<Vec<WorkerAnswer>> {
        if !rehearsing {
            return self.order(order);
        }
        let (mut served, mut refusals) = (Vec::new(), Vec::new());
        for answer in self.answers(order) {
            match answer {
                Ok(answer) => served.push(answer),
                Err(refusal) => refusals.push(refusal),
            }
        }
        let (workers, register_bytes) = (self.threads.count(), self.point.register_bytes);
        let capacity = Capacity::new(workers, served.len(), register_bytes);
        capacity.explain(refusals).map_or(Ok(served), Err)
    }

    fn answers(
        &self,
        order: impl Fn(usize) -> WorkerOrder,
    ) -> Vec<Result<WorkerAnswer, WorkerRefusal>> {
        // If a worker has ended, its reason is among the answers.
        drop(self.threads.order(order));
        self.threads.answers()
    }

    /// Agrees on a result. Every rank learns of the first failure, and all ranks continue at the same step.
    fn agree<T>(&mut self, what: &str, mine: Result<T>) -> Result<T, StepFailure> {
        agree(self.rank, what, mine, DEADLINES.step)
    }

    /// Agrees on a step in which both ends take part. In the rehearsal, shortages take precedence. The peers of a
    /// worker that lacks a resource only report a timeout, which is less specific.
    fn agree_step(
        &mut self,
        rehearsing: bool,
        what: &str,
        mine: Result<()>,
    ) -> Result<(), StepFailure> {
        if !rehearsing {
            return self.agree(what, mine);
        }
        let (short, mine) = match mine {
            Err(error @ Error::Unavailable { .. }) => (Err(error), Ok(())),
            other => (Ok(()), other),
        };
        self.agree(&format!("resources for {what}"), short)?;
        self.agree(what, mine)
    }

    /// Sets up all connections once and closes them. Returns the file descriptors that were open in between; `None` if
    /// they cannot be counted.
    ///
    /// # Errors
    /// [`StepFailure::Point`] with [`Error::Unavailable`] if a resource runs out. The error has the number of workers
    /// that fit.
    pub fn rehearse(&mut self) -> Result<Option<Descriptors>, StepFailure> {
        self.connect_all(true)?;
        let descriptors = Descriptors::count();
        self.paths.read_sockets();
        // Wait until all ranks have counted: when one end closes a connection, it disappears at the other end too.
        self.agree("file descriptors", Ok(()))?;
        self.close_and_count();
        let pending_error = self.pending_error.take().map_or(Ok(()), Err);
        self.agree("the first bytes", pending_error)?;
        Ok(descriptors)
    }

    /// Runs one round of all workers. Returns the numbers of connections that this rank's workers counted.
    fn run_round(&mut self) -> Result<ConnectionCounts, StepFailure> {
        self.connect_all(false)?;
        Ok(self.close_and_count())
    }

    /// Closes all connections, and returns their number. An error is reported at the next agreement, so that closing
    /// needs no agreement of its own.
    fn close_and_count(&mut self) -> ConnectionCounts {
        let mut all = ConnectionCounts::default();
        for answer in self.answers(|_| WorkerOrder::Close) {
            match answer {
                Ok(WorkerAnswer::Closed(Some(counted))) => all.add(counted),
                Ok(_) => {}
                Err(refusal) => drop(self.pending_error.get_or_insert(refusal.error)),
            }
        }
        all
    }

    fn connect_all(&mut self, rehearsing: bool) -> Result<(), StepFailure> {
        let mut opened = self.order_step(rehearsing, |_| WorkerOrder::Open);
        if rehearsing {
            opened = Ok(self.agree("open connections", opened)?);
        }
        let introductions = |answer| match answer {
            WorkerAnswer::Introductions(all) => Some(all),
            _ => None,
        };
        let opened = opened.map(|answers| answers.into_iter().filter_map(introductions).collect());
        let connected = match self.exchange(opened)? {
            Ok(Some(all)) => self.order_step(rehearsing, |index| {
                WorkerOrder::Connect(all.get(index).cloned().unwrap_or_default())
            }),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let connected = self.pending_error.take().map_or(connected, Err);
        self.agree_step(rehearsing, "connect", connected.map(drop))?;
        let done = self.order_step(rehearsing, |_| WorkerOrder::Meet);
        self.agree_step(rehearsing, "first contact", done.map(drop))?;
        let done = self.order_step(rehearsing, |_| WorkerOrder::FirstByte);
        // No rank may close connections while a peer still waits for its byte to leave.
        self.agree_step(rehearsing, "the first byte", done.map(drop))
    }

    /// Sends the introductions of this rank's workers to their peers. Returns for each worker the introductions of its
    /// peers; `None` if a peer has none. A rank that failed sends an empty message. So all ranks reach the next
    /// agreement, where this rank reports its failure.
    fn exchange(
        &mut self,
        opened: Result<Vec<Introductions>>,
    ) -> Result<Result<PeerIntroductions>> {
        let count = opened.as_ref().map_or(0, Vec::len);
        let (outgoing, failed) =
            match opened.and_then(|outgoing| PeerMessages::new(outgoing)?.encode(None)) {
                Ok(outgoing) => (outgoing, None),
                Err(error) => {
                    let nothing = self.peers.iter().map(|&peer| (peer, Vec::new()));
                    (nothing.collect(), Some(error))
                }
            };
        let incoming = self
            .rank
            .exchange("exchange cards", outgoing, DEADLINES.step)?;
        if let Some(error) = failed {
            return Ok(Err(error));
        }
        if incoming.iter().any(|(_, message)| message.is_empty()) {
            return Ok(Ok(None));
        }
        let place = |peer| locality(self.rank, peer);
        let introductions = introductions_of(count, (&self.peers, &incoming), place, |_, _| {});
        Ok(introductions.map(Some))
    }

    /// Runs `count` rounds from an aligned start. Returns the totals over all ranks.
    fn run_rounds(&mut self, count: u64) -> Result<TrialTotals, StepFailure> {
        let start_ns = self
            .rank
            .aligned_start("start of a trial", DEADLINES.step)?;
        let cpu_ns = process_cpu_ns();
        while self.clock.now_ns() < start_ns {
            std::thread::yield_now();
        }
        let mut mine = TrialTotals {
            start_skew_ns: self.clock.now_ns().saturating_sub(start_ns),
            ..TrialTotals::default()
        };
        for _ in 0..count {
            mine.counted.add(self.run_round()?);
        }
        mine.window_ns = self.clock.now_ns().saturating_sub(start_ns);
        mine.cpu_ns = process_cpu_ns().saturating_sub(cpu_ns);
        let pending_error = self.pending_error.take().map_or(Ok(()), Err);
        self.agree("the first bytes", pending_error)?;
        let all = self.rank.reduce("add up a trial", mine, DEADLINES.step)?;
        self.round_ns = (all.window_ns / count.max(1)).max(1);
        let expected = count * self.point.connections();
        all.check(expected, self.moves_bytes)
            .map_err(StepFailure::Point)?;
        Ok(all)
    }

    /// Collects the times that the workers measured.
    fn take_times(&mut self) -> Result<()> {
        for answer in self.order(|_| WorkerOrder::ReportTimes)? {
            if let WorkerAnswer::Times(times) = answer {
                self.times.merge(&times);
            }
        }
        Ok(())
    }
}

impl Steps for RankWorkers<'_> {
    fn rank(&mut self) -> &mut Rank {
        self.rank
    }

    fn prepare(&mut self) -> Result<(), StepFailure> {
        self.rank.set_phase("setting up all connections once");
        self.rehearse().map(drop)
    }

    fn warm_up(&mut self) -> Result<(), StepFailure> {
        self.rank.set_phase("warm-up of connections");
        let mut count = 1;
        while self.run_rounds(count)?.window_ns < WARM_UP.as_nanos() as u64 {
            count *= 2;
        }
        self.take_times()?;
        self.times.clear();
        Ok(())
    }

    fn trial(&mut self) -> Result<(), StepFailure> {
        let number = self.body.trials.len() + 1;
        self.rank
            .set_phase(&format!("trial {number} of connections"));
        let mut totals = TrialTotals::default();
        let mut left_ns = self.point.trial_ns;
        while let Some(count) = rounds_that_fit(left_ns, self.round_ns, totals.window_ns == 0) {
            let begin_ns = self.clock.now_ns();
            self.cpu.begin(self.threads.threads());
            let rounds = self.run_rounds(count)?;
            self.cpu.end(self.clock.now_ns().saturating_sub(begin_ns));
            totals.append_round(&rounds);
            left_ns = self.point.trial_ns.saturating_sub(totals.window_ns);
        }
        self.body.trials.push(totals.trial());
        Ok(())
    }

    fn enough(&mut self) -> Result<bool, StepFailure> {
        Ok(self.body.trials.len() >= self.point.trials as usize)
    }

    fn close(&mut self) -> Result<(), StepFailure> {
        self.close_and_count();
        self.rank
            .barrier("connections are closed", DEADLINES.step)?;
        Ok(())
    }

    fn gather(&mut self) -> Result<(), StepFailure> {
        self.take_times()?;
        for (step, histogram) in self.times.steps() {
            let what = "merge times of a step";
            let all = merge_all(self.rank, what, histogram, DEADLINES.step)?;
            self.body.steps.extend(step_record(step, &all));
        }
        self.body.summary = Some(summarize(&self.body.trials));
        Ok(())
    }
}

/// Returns how many rounds to run next in the time that is left; `None` if less than half a round fits. The first time,
/// rounds take only half of the time, and show how long a round takes.
fn rounds_that_fit(left_ns: u64, round_ns: u64, first: bool) -> Option<u64> {
    let round_ns = round_ns.max(1);
    if first {
        return Some((left_ns / round_ns / 2).max(1));
    }
    Some((left_ns + round_ns / 2) / round_ns).filter(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_lasts_as_long_as_requested() {
        // A round takes twice as long as in the warm-up.
        let (mut round_ns, mut left_ns, mut taken_ns) = (50, 10_000u64, 0);
        while let Some(count) = rounds_that_fit(left_ns, round_ns, taken_ns == 0) {
            taken_ns += count * 100;
            left_ns = 10_000u64.saturating_sub(taken_ns);
            round_ns = 100;
        }
        assert_eq!(taken_ns, 10_000);
        // A round takes as long as in the warm-up.
        let (mut left_ns, mut taken_ns, mut goes) = (10_000u64, 0, 0);
        while let Some(count) = rounds_that_fit(left_ns, 300, taken_ns == 0) {
            taken_ns += count * 300;
            left_ns = 10_000u64.saturating_sub(taken_ns);
            goes += 1;
        }
        assert_eq!((taken_ns, goes), (9_900, 2));
        // First, half of the rounds that fit. Then, the number of rounds that ends nearest to the requested time.
        assert_eq!(rounds_that_fit(10_000, 300, true), Some(16));
        assert_eq!(rounds_that_fit(10_000, 300, false), Some(33));
        assert_eq!(rounds_that_fit(10_100, 300, false), Some(34));
        assert_eq!(rounds_that_fit(150, 300, false), Some(1));
        assert_eq!(rounds_that_fit(149, 300, false), None);
        // The first time, there is at least one round, even if it takes longer than the requested time.
        assert_eq!(rounds_that_fit(10, 1000, true), Some(1));
        assert_eq!(rounds_that_fit(0, 1000, false), None);
    }
}
