//! The rounds of a trial, and trials in two halves, without a background and with it.

use std::time::{Duration, Instant};

use super::crew::{CrewOrder, CrewReport, Deck};
use super::point::Lead;
use super::totals::{StretchTotals, TrialTotals};
use super::trial::{RoundStretch, Schedule, WARM_UP};
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::transfer::verify::Expected;
use crate::kinds::transfer::verify::reports::{self, Reports};
use crate::latencies::merge_all;
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::Circle;
use tonnage_record::transfer::{TrialBackground, TrialLatency};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Reduce, Result};

/// A round that this rank took part in, until those who did have added it up.
struct Driven {
    round: u32,
    first: u32,
    totals: TrialTotals,
}

/// The part of a rank in the rounds so far.
#[derive(Default)]
struct Progress {
    /// The number of this round among those of the stretch, from 1.
    turn: u64,
    /// Members of the round before.
    before: Vec<u32>,
    /// The round before, where this rank took part in it.
    last: Option<Driven>,
    /// Rounds that this rank has seen none of since its last one.
    missed: u32,
    /// Sum of the rounds whose first rank this one is.
    sum: TrialTotals,
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
        for &round in &stretch.rounds {
            let members = self.point.roles.members_of_round(round);
            progress.turn += 1;
            self.turn(stretch, round, &members, &mut progress)?;
            progress.before = members;
        }
        let last = progress.last;
        let own = last.as_ref().map(|last| last.totals.clone());
        let mut totals = StretchTotals {
            rounds: progress.sum,
            last: own.unwrap_or_default(),
        };
        if checked && self.moves_bytes {
            self.deck.expect(progress.expected);
            self.verify(&mut totals.last)?;
        }
        let mut all = self.rank.reduce("add up a trial", totals, DEADLINES.step)?;
        all.last = all.last.flushed();
        if let Some(last) = last {
            self.count_pair(stretch, last.round, &last.totals, &all.last);
        }
        Ok(all.whole())
    }

    /// Takes part in the turn of a round as far as this rank has to: in the hand-over of the one before, in the round.
    fn turn(
        &mut self,
        stretch: &RoundStretch,
        round: u32,
        members: &[u32],
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
        let start_ns = self.hand_over(stretch, members, progress, deadline)?;
        if takes_part {
            let circle = Circle::new(2 * progress.turn, members.iter().copied());
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
        members: &[u32],
        progress: &mut Progress,
        deadline: Duration,
    ) -> Result<u64> {
        let mut all = [&progress.before, members].concat();
        all.sort_unstable();
        all.dedup();
        let circle = Circle::new(2 * progress.turn - 1, all);
        let (last, none) = (progress.last.take(), TrialTotals::default());
        let mine = last.as_ref().map_or(&none, |last| &last.totals);
        let (start_ns, ended) =
            self.rank
                .start_together(&circle, "start of a round", mine, deadline)?;
        if let Some(last) = last {
            let ended = ended.flushed();
            self.count_pair(stretch, last.round, &last.totals, &ended);
            if last.first == self.rank.id() {
                progress.sum.then(ended);
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
            lead_ns: if stretch.is_loaded && self.point.background.is_some() {
                Schedule::lead_ns(length)
            } else {
                0
            },
        };
        self.deck.reset(self.point.workers);
        self.own.begin_round();
        self.intervals
            .begin(&schedule, self.own.clock(), &self.found.trials)?;
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
            let counted_ns = self.own.clock().now_ns().saturating_sub(start_ns);
            self.cpu.end(counted_ns);
            self.own_sums.add(&totals);
        }
        self.count_times(&schedule, &reports);
        self.intervals
            .tell_last(totals.operations, totals.window_ns)?;
        Ok((totals, expected))
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
            self.watch = None;
        }
        agreed
    }
}

fn merge(totals: &mut TrialTotals, reports: &[CrewReport]) {
    for report in reports.iter().filter_map(|report| report.totals.as_ref()) {
        totals.merge(report.clone());
    }
}

/// Longest time that the end of a trial may be waited for.
pub(super) fn deadline_of(length: TrialLength) -> Duration {
    match length {
        // A paced trial may take as long again, and a large window takes its time to drain.
        TrialLength::DurationNs(ns) => Duration::from_nanos(ns.saturating_mul(3)) + DEADLINES.step,
        TrialLength::Iterations(_) => DEADLINES.operations,
    }
}

pub(super) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// One half of a trial.
struct Half {
    is_loaded: bool,
    totals: TrialTotals,
    latencies: LatencyHistogram,
}

/// Refuses a half without the load in which it moved something: the ratio would be of the load to itself.
fn check_quiet(totals: &TrialTotals) -> Result<()> {
    match totals.background.operations {
        0 => Ok(()),
        moved => Err(Error::Failed(format!(
            "the background moved {moved} operations in the half of a trial that is without it"
        ))),
    }
}

impl Lead<'_, '_> {
    /// One trial in two halves, without the load and beside it; every second trial begins beside it, so that whatever
    /// the first half does to the second is in both alike. The totals are of the half beside the load.
    pub(super) fn trial_of_halves(
        &mut self,
        trial: u64,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        if trial == WARM_UP {
            return self.warm_up_of_halves(length, name);
        }
        // Each half has data of its own.
        let quiet = RoundStretch::quiet(2 * trial - 1, length);
        let loaded = RoundStretch::trial(2 * trial, [0], length);
        let mut halves = [quiet, loaded];
        if trial.is_multiple_of(2) {
            halves.reverse();
        }
        let [first, second] = halves;
        let first = self.half(&first, name)?;
        let second = self.half(&second, name)?;
        let elapsed_ns = second.totals.elapsed_ns;
        let [idle, loaded] = if second.is_loaded {
            [first, second]
        } else {
            [second, first]
        };
        let background = self.compared(&loaded.totals, &idle.latencies, &loaded.latencies)?;
        self.background = Some(background);
        let all = &mut self.found.idle;
        let all = all.get_or_insert_with(LatencyHistogram::new);
        all.merge(&idle.latencies);
        Ok(TrialTotals {
            elapsed_ns,
            ..loaded.totals
        })
    }

    /// Warms both halves up, each for half of the time.
    fn warm_up_of_halves(
        &mut self,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        let length = match length {
            TrialLength::DurationNs(ns) => TrialLength::DurationNs(ns.div_ceil(2)),
            length @ TrialLength::Iterations(_) => length,
        };
        let quiet = self
            .half(&RoundStretch::quiet(WARM_UP, length), name)?
            .totals;
        let loaded = RoundStretch::trial(WARM_UP, [0], length);
        let loaded = self.half(&loaded, name)?.totals;
        Ok(TrialTotals {
            unsettled: quiet.unsettled.max(loaded.unsettled),
            ..loaded
        })
    }

    fn half(&mut self, stretch: &RoundStretch, name: &str) -> Result<Half, StepFailure> {
        let how = if stretch.is_loaded {
            "beside"
        } else {
            "without"
        };
        let totals = self.stretch(stretch, &format!("{name} {how} the background"))?;
        if !stretch.is_loaded {
            check_quiet(&totals)?;
        }
        Ok(Half {
            latencies: self.latencies_of_half()?,
            is_loaded: stretch.is_loaded,
            totals,
        })
    }

    /// Latencies of all ranks in the half that just ended.
    fn latencies_of_half(&mut self) -> Result<LatencyHistogram> {
        let mut own = self.own.latencies().of_trial().cloned().unwrap_or_default();
        for report in self.everybody(&CrewOrder::LatenciesOfTrial)? {
            if let Some(latencies) = &report.latencies {
                own.merge(latencies);
            }
        }
        merge_all(self.rank, "latencies of a half", &own, DEADLINES.step)
    }

    fn compared(
        &self,
        totals: &TrialTotals,
        idle: &LatencyHistogram,
        loaded: &LatencyHistogram,
    ) -> Result<TrialBackground> {
        let of = |histogram: &LatencyHistogram, how: &str| {
            let none = || {
                Error::Failed(format!(
                    "no operation was timed in a half of a trial {how} the background: use a longer --trial-time"
                ))
            };
            TrialLatency::of(histogram).ok_or_else(none)
        };
        let load = totals.background;
        Ok(TrialBackground {
            window_ns: load.window_ns,
            operations: load.operations,
            payload_bytes: load.payload_bytes,
            bandwidth_bytes_per_s: load.payload_bytes as f64 * 1e9 / load.window_ns.max(1) as f64,
            verified_bytes: self.point.verify.is_on().then_some(load.verified_bytes),
            stall: load.stall,
            idle: of(idle, "without")?,
            loaded: of(loaded, "with")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::totals::BackgroundTotals;
    use super::*;

    #[test]
    fn a_load_that_does_not_rest_is_an_error() {
        assert!(check_quiet(&TrialTotals::default()).is_ok());
        let moved = TrialTotals {
            background: BackgroundTotals {
                operations: 3,
                ..BackgroundTotals::default()
            },
            ..TrialTotals::default()
        };
        let error = check_quiet(&moved).unwrap_err().to_string();
        assert!(error.contains("moved 3 operations"), "{error}");
    }
}
