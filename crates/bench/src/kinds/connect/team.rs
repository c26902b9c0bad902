//! The workers of a rank, led by its main thread: it alone talks to the other ranks, and exchanges the workers' cards.
//!
//! In a round all workers of all ranks set up their connections and take them down. The first round of a point is taken
//! with every step agreed upon, so that what cannot be had ends the point and not the run.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::capacity::Capacity;
use super::descriptors::Descriptors;
use super::figures::{Times, Totals, step_record, summarize};
use super::opened::Opened;
use super::worker::{Answer, Order, Refusal, refuse};
use crate::deadlines::DEADLINES;
use crate::failure::{Failure, await_first_cause};
use crate::kinds::kind::{Course, Stage, Steps};
use crate::latencies::merge_all;
use crate::opening::introduction::{Introduced, Introductions, locality, packed, unpacked};
use tonnage_engine::Peer;
use tonnage_plan::connect::ConnectPoint;
use tonnage_ranks::Rank;
use tonnage_record::ConnectBody;
use tonnage_record::connect::Step;
use tonnage_record::histogram::LatencyHistogram;
use tonnage_sys::clock::{Clock, process_cpu_ns};
use tonnage_units::{Error, Result};

/// Rounds go on untimed for at least this long: libraries load what they need at their first connections.
const WARM_UP: Duration = Duration::from_millis(50);

/// Orders to a worker, and its answers.
type Line = (Sender<Order>, Receiver<Result<Answer, Refusal>>);

/// The workers of this rank, each with a line for its orders and one for its answers.
pub struct Team<'a> {
    point: &'a ConnectPoint,
    rank: &'a mut Rank,
    clock: Clock,
    lines: Vec<Line>,
    /// The ranks that each worker is connected with.
    peers: Vec<Peer>,
    body: &'a mut ConnectBody,
    /// Time that a round takes, the same on all ranks.
    round_ns: u64,
    times: Times,
}

/// A round that all ranks take together.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// The first workers of each rank, so many, take part.
    workers: usize,
    /// True while what there is not enough of is a skip.
    rehearsing: bool,
}

/// The introductions of a worker's peers for each worker; `None` where a peer has none.
type Told = Option<Vec<Vec<Introduced>>>;

impl<'a> Team<'a> {
    /// Starts the workers of a point, and lets `course` take its steps.
    ///
    /// # Errors
    /// The failure of a step.
    pub fn work(
        opened: &Opened,
        point: &'a ConnectPoint,
        stage: &'a mut Stage<'_>,
        body: &'a mut ConnectBody,
        course: Course<'_>,
    ) -> Result<(), Failure> {
        let stopped = stage.rank.stopped();
        let workers = opened.workers(&stopped);
        std::thread::scope(|scope| {
            let mut lines = Vec::with_capacity(workers.len());
            for (worker, cpu) in workers {
                let (order_sender, orders) = channel();
                let (answers, answer_receiver) = channel();
                scope.spawn(move || {
                    // A worker that cannot be pinned says so at its first step.
                    match cpu.map_or(Ok(()), tonnage_machine::pin_thread) {
                        Ok(()) => worker.serve(&orders, &answers),
                        Err(error) => refuse(error, &orders, &answers),
                    }
                });
                lines.push((order_sender, answer_receiver));
            }
            let mut team = Team {
                point,
                rank: stage.rank,
                clock: stage.settings.clock,
                lines,
                peers: opened.peers(),
                body,
                round_ns: 0,
                times: Times::default(),
            };
            let ended = course(&mut team);
            if let Err(Failure::Run(error)) = &ended {
                // The workers may still be polling for peers that are gone; the stop flag ends them.
                await_first_cause(team.rank);
                team.rank.fail(error);
            }
            ended
        })
    }

    /// Gives an order to the first workers and waits for their answers.
    fn order(&self, workers: usize, order: impl Fn(usize) -> Order) -> Result<Vec<Answer>> {
        let answers = self.answers(workers, order).into_iter();
        answers
            .map(|answer| answer.map_err(|refusal| refusal.error))
            .collect()
    }

    /// Gives an order to take a step of a round. In the rehearsal workers may be refused what there is not enough of; the
    /// error says how many fit.
    fn step(&self, round: Round, order: impl Fn(usize) -> Order) -> Result<Vec<Answer>> {
        if !round.rehearsing {
            return self.order(round.workers, order);
        }
        let (mut served, mut refusals) = (Vec::new(), Vec::new());
        for answer in self.answers(round.workers, order) {
            match answer {
                Ok(answer) => served.push(answer),
                Err(refusal) => refusals.push(refusal),
            }
        }
        let capacity = Capacity {
            workers: round.workers,
            served: served.len(),
            register_bytes: self.point.register_bytes,
            lockable_bytes: Capacity::lockable_bytes(),
        };
        capacity.explain(refusals).map_or(Ok(served), Err)
    }

    fn answers(
        &self,
        workers: usize,
        order: impl Fn(usize) -> Order,
    ) -> Vec<Result<Answer, Refusal>> {
        for (index, (orders, _)) in self.lines.iter().take(workers).enumerate() {
            // Who has gone has said why, which the answers below are for.
            drop(orders.send(order(index)));
        }
        let gone = || Err(Error::Failed("a worker thread of this rank died".into()).into());
        let answers = self.lines.iter().take(workers);
        answers
            .map(|(_, answers)| answers.recv().unwrap_or_else(|_| gone()))
            .collect()
    }

    /// Every rank hears of the first failure, and all are in step.
    fn agree(&mut self, what: &str, mine: Result<()>) -> Result<(), Failure> {
        match self.rank.agree(what, mine, DEADLINES.step) {
            Ok(()) => Ok(()),
            Err(error) if self.rank.why_stopped().is_some() => Err(Failure::Run(error)),
            Err(error) => Err(Failure::Point(error)),
        }
    }

    /// Agrees upon a step that takes both ends. In the rehearsal shortages come first: the peers of a worker that lacks
    /// something wait in vain, and their failures say less.
    fn agree_step(&mut self, round: Round, what: &str, mine: Result<()>) -> Result<(), Failure> {
        if !round.rehearsing {
            return self.agree(what, mine);
        }
        let (short, mine) = match mine {
            Err(error @ Error::Unavailable { .. }) => (Err(error), Ok(())),
            other => (Ok(()), other),
        };
        self.agree(&format!("resources for {what}"), short)?;
        self.agree(what, mine)
    }

    /// One round of the first workers of each rank. Returns the connections that they began and accepted.
    fn round(&mut self, round: Round) -> Result<(u64, u64), Failure> {
        let connected = self.set_up(round)?;
        self.order(round.workers, |_| Order::Close)?;
        Ok(connected)
    }

    fn set_up(&mut self, round: Round) -> Result<(u64, u64), Failure> {
        let mut opened = self.step(round, |_| Order::Open);
        if round.rehearsing {
            let (answers, mine) = match opened {
                Ok(answers) => (answers, Ok(())),
                Err(error) => (Vec::new(), Err(error)),
            };
            self.agree("open connections", mine)?;
            opened = Ok(answers);
        }
        let opened = opened.map(|answers| answers.into_iter().filter_map(introductions).collect());
        let connected = match self.exchange(opened)? {
            Ok(Some(all)) => self.step(round, |index| {
                Order::Connect(all.get(index).cloned().unwrap_or_default())
            }),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        self.agree_step(round, "connect", connected.map(drop))?;
        let done = self.step(round, |_| Order::Meet);
        self.agree_step(round, "first contact", done.map(drop))?;
        let mut connected = (0, 0);
        let done = self.step(round, |_| Order::FirstByte);
        let done = done.map(|answers| {
            for answer in answers {
                if let Answer::Connected(begun, accepted) = answer {
                    connected = (connected.0 + begun, connected.1 + accepted);
                }
            }
        });
        // Nobody closes while a peer still waits for its byte to go.
        self.agree_step(round, "the first byte", done)?;
        Ok(connected)
    }

    /// Sends what this rank's workers tell their peers, and returns for each worker what its peers told it: `None` where a
    /// peer has nothing to tell. A rank that failed tells nothing, so that all get as far as the next agreement, where it
    /// says why.
    fn exchange(&mut self, opened: Result<Vec<Introductions>>) -> Result<Result<Told>> {
        let count = opened.as_ref().map_or(0, Vec::len);
        let (told, failed) = match opened.and_then(packed) {
            Ok(told) => (told, None),
            Err(error) => {
                let nothing = self.peers.iter().map(|&peer| (peer, Vec::new()));
                (nothing.collect(), Some(error))
            }
        };
        let heard = self.rank.exchange("exchange cards", told, DEADLINES.step)?;
        if let Some(error) = failed {
            return Ok(Err(error));
        }
        if heard.iter().any(|(_, message)| message.is_empty()) {
            return Ok(Ok(None));
        }
        let place = |peer| locality(self.rank, peer);
        Ok(unpacked(&heard, &self.peers, count, place).map(Some))
    }

    /// Takes so many rounds from an aligned start, added up over all ranks.
    fn rounds(&mut self, count: u64) -> Result<Totals, Failure> {
        let round = Round {
            workers: self.lines.len(),
            rehearsing: false,
        };
        let start_ns = self
            .rank
            .aligned_start("start of a trial", DEADLINES.step)?;
        self.clock.resync();
        let cpu_ns = process_cpu_ns();
        while self.clock.now_ns() < start_ns {
            std::thread::yield_now();
        }
        let mut mine = Totals {
            start_skew_ns: self.clock.now_ns().saturating_sub(start_ns),
            ..Totals::default()
        };
        for _ in 0..count {
            let (begun, accepted) = self.round(round)?;
            mine.begun += begun;
            mine.accepted += accepted;
        }
        mine.window_ns = self.clock.now_ns().saturating_sub(start_ns);
        mine.cpu_ns = process_cpu_ns().saturating_sub(cpu_ns);
        let all = self.rank.reduce("add up a trial", mine, DEADLINES.step)?;
        self.round_ns = (all.window_ns / count.max(1)).max(1);
        if all.begun != all.accepted {
            return Err(Failure::Point(Error::Failed(format!(
                "{} connections were begun and {} accepted",
                all.begun, all.accepted
            ))));
        }
        Ok(all)
    }

    /// Takes the workers' times.
    fn take_times(&mut self) -> Result<()> {
        for answer in self.order(self.lines.len(), |_| Order::Tell)? {
            if let Answer::Times(times) = answer {
                self.times.merge(&times);
            }
        }
        Ok(())
    }
}

impl Steps for Team<'_> {
    /// Counts what one worker of each rank needs, and then sets up all connections once.
    fn prepare(&mut self) -> Result<(), Failure> {
        self.rank.phase("setting up a first connection");
        let before = Descriptors::count();
        let rehearsal = |workers| Round {
            workers,
            rehearsing: true,
        };
        self.set_up(rehearsal(1))?;
        let of_one = Descriptors::count()
            .zip(before)
            .map_or(0, |(after, before)| after.open.saturating_sub(before.open));
        self.order(1, |_| Order::Close)?;
        let fits = before.map_or(Ok(()), |before| before.check(of_one, self.point.workers));
        self.agree("file descriptors", fits)?;
        self.round(rehearsal(self.lines.len()))?;
        Ok(())
    }

    fn warm_up(&mut self) -> Result<(), Failure> {
        self.rank.phase("warm-up of connections");
        let mut count = 1;
        while self.rounds(count)?.window_ns < WARM_UP.as_nanos() as u64 {
            count *= 2;
        }
        self.take_times()?;
        self.times.clear();
        Ok(())
    }

    fn trial(&mut self) -> Result<(), Failure> {
        let number = self.body.trials.len() + 1;
        self.rank.phase(&format!("trial {number} of connections"));
        let mut totals = Totals::default();
        let mut left_ns = self.point.trial_ns;
        while let Some(count) = rounds_in(left_ns, self.round_ns, totals.window_ns == 0) {
            totals.follow(&self.rounds(count)?);
            left_ns = self.point.trial_ns.saturating_sub(totals.window_ns);
        }
        self.body.trials.push(totals.trial());
        Ok(())
    }

    fn enough(&mut self) -> Result<bool, Failure> {
        Ok(self.body.trials.len() >= self.point.trials as usize)
    }

    fn close(&mut self) -> Result<(), Failure> {
        self.order(self.lines.len(), |_| Order::Close)?;
        self.rank
            .barrier("connections are closed", DEADLINES.step)?;
        Ok(())
    }

    fn gather(&mut self) -> Result<(), Failure> {
        self.take_times()?;
        let mine: Vec<(Step, LatencyHistogram)> = self
            .times
            .steps()
            .map(|(step, histogram)| (step, histogram.clone()))
            .collect();
        for (step, histogram) in mine {
            let what = "merge times of a step";
            let all = merge_all(self.rank, what, &histogram, DEADLINES.step)?;
            self.body.steps.extend(step_record(step, &all));
        }
        self.body.summary = Some(summarize(&self.body.trials));
        Ok(())
    }
}

/// Number of rounds to take next in the time that is left; `None` where not even half of one is. The first go takes half
/// of them, and so tells their time for the others.
fn rounds_in(left_ns: u64, round_ns: u64, first: bool) -> Option<u64> {
    let round_ns = round_ns.max(1);
    match first {
        true => Some((left_ns / round_ns / 2).max(1)),
        false => Some((left_ns + round_ns / 2) / round_ns).filter(|&count| count > 0),
    }
}

fn introductions(answer: Answer) -> Option<Introductions> {
    match answer {
        Answer::Introductions(all) => Some(all),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_as_long_as_it_was_asked_to_be() {
        // Rounds take twice as long as the warm-up said.
        let (mut round_ns, mut left_ns, mut taken_ns) = (50, 10_000u64, 0);
        while let Some(count) = rounds_in(left_ns, round_ns, taken_ns == 0) {
            taken_ns += count * 100;
            left_ns = 10_000u64.saturating_sub(taken_ns);
            round_ns = 100;
        }
        assert_eq!(taken_ns, 10_000);
        // They take as long.
        let (mut left_ns, mut taken_ns, mut goes) = (10_000u64, 0, 0);
        while let Some(count) = rounds_in(left_ns, 300, taken_ns == 0) {
            taken_ns += count * 300;
            left_ns = 10_000u64.saturating_sub(taken_ns);
            goes += 1;
        }
        assert_eq!((taken_ns, goes), (9_900, 2));
        // At least one, however long.
        assert_eq!(rounds_in(10, 1000, true), Some(1));
        assert_eq!(rounds_in(0, 1000, false), None);
    }
}
