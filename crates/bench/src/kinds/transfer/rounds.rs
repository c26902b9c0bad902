//! Rounds of a trial, one after the other, each driven by the ranks at the ends of its flows. The others sleep: what a
//! round takes does not depend on the number of ranks.
//!
//! Between two rounds those who took part in the first hand over to those of the second, and with it they add up what
//! the round came to; its first rank keeps the sum. Data are put in place once before all rounds, and checked and added
//! up over all ranks once after them. Traffic with one round is no other case: all ranks take part in it.

use std::time::{Duration, Instant};

use super::crew::{CrewOrder, CrewReport, Deck};
use super::pairs::PairSum;
use super::point::Lead;
use super::stretch_totals::StretchTotals;
use super::totals::TrialTotals;
use super::trial::{RoundStretch, Schedule, WARM_UP};
use super::waits::{deadline_of, left};
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::transfer::verify::Expected;
use crate::kinds::transfer::verify::reports::{self, Reports};
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::Circle;
use tonnage_units::{Reduce, Result};

/// A round that this rank took part in, until those who did have added it up.
struct Driven {
    round: u32,
    first: u32,
    totals: TrialTotals,
}

/// The part of a rank in the rounds so far.
#[derive(Default)]
struct Progress {
    /// The round before, where this rank took part in it.
    last: Option<Driven>,
    /// Rounds that this rank has seen none of since its last one.
    missed: u32,
    /// Sum of the rounds whose first rank this one is.
    sum: Option<TrialTotals>,
    /// Expected sights of each worker in all rounds.
    expected: Vec<Expected>,
}

impl Lead<'_, '_> {
    /// Rounds on all ranks, one after the other: data in place, each round, then count and check.
    pub(super) fn stretch(
        &mut self,
        stretch: &RoundStretch,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        let (op, size_bytes) = (self.point.op.name(), self.point.size_bytes);
        self.rank.phase(&format!("{name} of {op} {size_bytes} B"));
        // Turns of single pairs fill and check the memory of all, again and again, and move what trials have proven.
        let checked = self.point.verify.is_on() && !(stretch.again && self.point.loads.is_some());
        self.followers
            .order(|_| CrewOrder::Prepare(stretch.number, checked))?;
        let prepared = self.own.prepare(stretch.number, checked);
        self.followers.collect()?;
        prepared?;
        let mut progress = Progress {
            expected: vec![Expected::default(); self.point.workers as usize],
            ..Progress::default()
        };
        let (roles, mut before) = (self.point.roles(), Vec::new());
        for (turn, &round) in (1..).zip(&stretch.rounds) {
            let members = roles.members_of_round(round);
            self.turn(stretch, (turn, round), (&before, &members), &mut progress)?;
            before = members;
        }
        let Progress {
            last,
            sum,
            expected,
            ..
        } = progress;
        let mut totals = StretchTotals {
            rounds: sum.unwrap_or(TrialTotals::NONE),
            last: last
                .as_ref()
                .map_or(TrialTotals::NONE, |last| last.totals.clone()),
        };
        if checked && self.moves_bytes {
            self.deck.expect(expected);
            self.verify(&mut totals.last)?;
        }
        let mut all = self.rank.reduce("add up a trial", totals, DEADLINES.step)?;
        all.last = all.last.flushed();
        if let Some(last) = last {
            self.count_round(stretch, &last, &all.last);
        }
        Ok(all.whole())
    }

    /// Takes part in the turn of a round as far as this rank has to: in the hand-over of the one before, in the round.
    fn turn(
        &mut self,
        stretch: &RoundStretch,
        (turn, round): (u64, u32),
        (before, members): (&[u32], &[u32]),
        progress: &mut Progress,
    ) -> Result<(), StepFailure> {
        let me = self.rank.id();
        let takes_part = members.binary_search(&me).is_ok();
        if !takes_part && progress.last.is_none() {
            progress.missed += 1;
            return Ok(());
        }
        // Those who come early wait for all rounds until then, and those of the round before know that it is over.
        let others =
            deadline_of(stretch.length).saturating_mul(std::mem::take(&mut progress.missed));
        let deadline = DEADLINES.step.saturating_add(others);
        if takes_part && stretch.counts() {
            // The common start has a lead of half a millisecond, which reading the counts must not use up.
            self.cpu.begin(self.followers.threads());
        }
        let start_ns = self.hand_over(stretch, (turn, before, members), progress, deadline)?;
        if takes_part {
            let circle = Circle::new(2 * turn, members.iter().copied());
            let (totals, expected) = self.one_round(stretch, round, start_ns, &circle)?;
            for (all, later) in progress.expected.iter_mut().zip(&expected) {
                all.add(later);
            }
            progress.last = members.first().map(|&first| Driven {
                round,
                first,
                totals,
            });
        }
        Ok(())
    }

    /// Waits until all who took part in the round before have ended it, and all of the next one are there. Returns its
    /// start.
    fn hand_over(
        &mut self,
        stretch: &RoundStretch,
        (turn, before, members): (u64, &[u32], &[u32]),
        progress: &mut Progress,
        deadline: Duration,
    ) -> Result<u64> {
        let mut all = [before, members].concat();
        all.sort_unstable();
        all.dedup();
        let circle = Circle::new(2 * turn - 1, all);
        let (last, none) = (progress.last.take(), TrialTotals::NONE);
        let mine = last.as_ref().map_or(&none, |last| &last.totals);
        let (start_ns, ended) =
            self.rank
                .start_together(&circle, "start of a round", mine, deadline)?;
        if let Some(last) = last {
            let ended = ended.flushed();
            self.count_round(stretch, &last, &ended);
            if last.first == self.rank.id() {
                match &mut progress.sum {
                    Some(sum) => sum.then(ended),
                    None => progress.sum = Some(ended),
                }
            }
        }
        Ok(start_ns)
    }

    /// One round of the ranks in `circle`, of which this is one: drive, wait for each other. Returns this rank's totals
    /// and what each of its workers should have seen.
    fn one_round(
        &mut self,
        stretch: &RoundStretch,
        round: u32,
        start_ns: u64,
        circle: &Circle,
    ) -> Result<(TrialTotals, Vec<Expected>), StepFailure> {
        let (number, length) = (stretch.number, stretch.length);
        let schedule = Schedule {
            start_ns,
            length,
            number,
            round,
            again: stretch.again,
            is_loaded: stretch.is_loaded,
            lead_ns: match stretch.is_loaded && self.point.background.is_some() {
                true => Schedule::lead_ns(length),
                false => 0,
            },
        };
        self.deck.reset(self.point.workers);
        self.own.begin_round();
        self.intervals
            .begin(&schedule, self.own.port.clock, &self.taken.trials)?;
        self.followers.order(|_| CrewOrder::Trial(schedule))?;
        let driven = self.deck.drive(0, &mut self.own, &schedule);
        self.serve_peers(Instant::now() + deadline_of(length), Deck::all_driven)?;
        let mut totals = driven?;
        self.intervals.driven();
        let expected = self.exchange(length, circle)?;
        let own_expected = expected.first().cloned().unwrap_or_default();
        self.deck.finish(expected.clone());
        self.own.finish(&schedule, &own_expected, &mut totals)?;
        let reports = self.followers.collect()?;
        merge(&mut totals, &reports);
        if stretch.counts() {
            // Verification and the round's end are in the counts, and so in the time. Waiting for the start is not:
            // threads sleep meanwhile, which would hide what they lose in the round.
            let counted_ns = self.own.port.clock.now_ns().saturating_sub(start_ns);
            self.cpu.end(counted_ns);
            self.taken.own.add(&totals);
        }
        self.count_times(&schedule, &reports);
        self.intervals
            .tell_last(totals.operations, totals.window_ns)?;
        Ok((totals, expected))
    }

    /// Counts a round that has been added up by those who took part.
    fn count_round(&mut self, stretch: &RoundStretch, driven: &Driven, all: &TrialTotals) {
        if stretch.number != WARM_UP {
            let own = PairSum::of(&driven.totals);
            self.count_pair((driven.round, stretch.again), own, all);
        }
    }

    /// Waits until all of a round have driven their flows, polling meanwhile, and returns what the local workers should
    /// have seen.
    fn exchange(&mut self, length: TrialLength, circle: &Circle) -> Result<Vec<Expected>> {
        const WHAT: &str = "end of a round";
        let deadline = Instant::now() + deadline_of(length);
        let workers = self.point.workers as usize;
        let points: Vec<_> = (0..workers).map(|worker| self.points.of(worker)).collect();
        let is_needed = |point: &&TransferPoint| Expected::is_needed(point, self.moves_bytes);
        if !points.iter().any(is_needed) {
            let pending = self.rank.start_meeting(circle, WHAT)?;
            self.serve_peers(deadline, |_| pending.is_done())?;
            self.rank.finish(pending, left(deadline))?;
            return Ok(vec![Expected::default(); workers]);
        }
        let (rank, issued) = (self.rank.id(), self.deck.issued());
        let told = reports::messages(&points, rank, &issued, circle)?;
        let pending = self.rank.start_exchange(circle, WHAT, told)?;
        self.serve_peers(deadline, |_| pending.is_done())?;
        let heard = self.rank.finish_exchange(pending, left(deadline))?;
        let reports = Reports::new(issued, circle.clone(), &heard)?;
        let expected = points.into_iter().enumerate();
        expected
            .map(|(worker, point)| Expected::new(point, rank, worker, &reports))
            .collect()
    }

    fn verify(&mut self, totals: &mut TrialTotals) -> Result<(), StepFailure> {
        self.followers.order(|_| CrewOrder::Check)?;
        let own = self.deck.check(0, &mut self.own);
        let others = self.followers.collect();
        let mine = own.and_then(|own| {
            totals.merge(own);
            merge(totals, &others?);
            Ok(())
        });
        // A wrong byte ends the point, not the run: all ranks hear of it here and stay in step.
        let agreed = agree(self.rank, "verify a trial", mine, DEADLINES.step);
        if let Err(StepFailure::Point(_)) = agreed {
            // Nobody asks by which way wrong bytes came.
            self.taken.watch = None;
        }
        agreed
    }
}

fn merge(totals: &mut TrialTotals, reports: &[CrewReport]) {
    for report in reports.iter().filter_map(|report| report.totals.as_ref()) {
        totals.merge(report.clone());
    }
}
