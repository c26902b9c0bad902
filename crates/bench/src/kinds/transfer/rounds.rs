//! The rounds of a trial. With a background, a trial has two halves: one without load and one with load.

use std::time::Duration;

use super::point::PointLeader;
use super::rank_workers::trial_deadline;
use super::totals::{SequenceTotals, TrialTotals};
use super::trial::{RoundSequence, Schedule, WARM_UP};
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::transfer::verify::ExpectedOperations;
use tonnage_plan::transfer::TrialLength;
use tonnage_ranks::RankGroup;
use tonnage_record::transfer::{TrialBackground, TrialLatency};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Result};

/// A finished round of this rank. It is kept until its members have merged their totals.
struct FinishedRound {
    round: u32,
    first: u32,
    totals: TrialTotals,
}

/// This rank's progress through the rounds of a trial.
#[derive(Default)]
struct RoundProgress {
    /// Number of the current round in this trial, from 1.
    turn: u64,
    /// Members of the previous round.
    before: Vec<u32>,
    /// The previous round; `None` if this rank took no part in it.
    last: Option<FinishedRound>,
    /// Number of rounds since the last one in which this rank took part.
    missed: u32,
    /// Sum of the rounds in which this rank is the first member.
    sum: TrialTotals,
    /// Operations that each worker of this rank should have seen, over all rounds.
    expected: Vec<ExpectedOperations>,
}

impl PointLeader<'_, '_> {
    /// Runs all rounds of a trial: fills memory, drives the rounds, adds them up, and verifies.
    pub(super) fn run_rounds(
        &mut self,
        sequence: &RoundSequence,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        let point = self.workers.points.own;
        let (op, size_bytes) = (point.op.name(), point.slots.size_bytes);
        let workers = &mut self.workers;
        workers
            .rank
            .set_phase(&format!("{name} of {op} {size_bytes} B"));
        // Turns of single pairs are not checked. They would fill and check all memory each time, and the trials have
        // already verified their transfers.
        let checked = point.verify.is_on() && !(sequence.is_extra && point.loads.is_some());
        workers.prepare(sequence.number, checked)?;
        let mut progress = RoundProgress {
            expected: vec![ExpectedOperations::default(); point.threads as usize],
            ..RoundProgress::default()
        };
        for &round in &sequence.rounds {
            let members = point.roles.members_of_round(round);
            progress.turn += 1;
            self.run_own_round(sequence, round, &members, &mut progress)?;
            progress.before = members;
        }
        let last = progress.last;
        let own = last.as_ref().map(|last| last.totals.clone());
        let mut totals = SequenceTotals {
            rounds: progress.sum,
            last: own.unwrap_or_default(),
        };
        if checked && self.workers.moves_bytes {
            self.verify(progress.expected, &mut totals.last)?;
        }
        let rank = &mut *self.workers.rank;
        let mut all = rank.reduce("add up a trial", totals, DEADLINES.step)?;
        all.last = all.last.with_flush_time();
        if let Some(last) = last {
            self.sums.count_pair(
                &self.workers,
                sequence,
                (last.round, &last.totals),
                &all.last,
            );
        }
        Ok(all.into_totals())
    }

    /// Runs this rank's part of a round. First it merges the totals of the previous round.
    fn run_own_round(
        &mut self,
        sequence: &RoundSequence,
        round: u32,
        members: &[u32],
        progress: &mut RoundProgress,
    ) -> Result<(), StepFailure> {
        let me = self.workers.rank.id();
        let takes_part = members.binary_search(&me).is_ok();
        if !takes_part && progress.last.is_none() {
            progress.missed += 1;
            return Ok(());
        }
        // A rank that missed rounds must wait for all of them. Members of the previous round know that it has ended.
        let others =
            trial_deadline(sequence.length).saturating_mul(std::mem::take(&mut progress.missed));
        let deadline = DEADLINES.step.saturating_add(others);
        if takes_part && sequence.is_of_trial() {
            // The counters are read before the common start is set. The start is only 0.5 ms ahead then, and reading
            // could take longer.
            self.cpu.begin(self.workers.followers.threads());
        }
        let start_ns = self.await_next_round(sequence, members, progress, deadline)?;
        if takes_part {
            let group = RankGroup::new(2 * progress.turn, members.iter().copied());
            let (totals, expected) = self.drive_and_reduce(sequence, round, start_ns, &group)?;
            for (all, later) in progress.expected.iter_mut().zip(&expected) {
                all.add_round(later);
            }
            progress.last = members.first().map(|&first| FinishedRound {
                round,
                first,
                totals,
            });
        }
        Ok(())
    }

    /// Waits until all members of the previous round have finished, and all members of the next round are ready.
    /// Returns the start time of the next round.
    fn await_next_round(
        &mut self,
        sequence: &RoundSequence,
        members: &[u32],
        progress: &mut RoundProgress,
        deadline: Duration,
    ) -> Result<u64> {
        let mut all = [&progress.before, members].concat();
        all.sort_unstable();
        all.dedup();
        let group = RankGroup::new(2 * progress.turn - 1, all);
        let (last, none) = (progress.last.take(), TrialTotals::default());
        let mine = last.as_ref().map_or(&none, |last| &last.totals);
        let rank = &mut *self.workers.rank;
        let (start_ns, ended) =
            rank.reduce_and_align_start(&group, "start of a round", mine, deadline)?;
        if let Some(last) = last {
            let ended = ended.with_flush_time();
            self.sums
                .count_pair(&self.workers, sequence, (last.round, &last.totals), &ended);
            if last.first == self.workers.rank.id() {
                progress.sum.append_round(ended);
            }
        }
        Ok(start_ns)
    }

    /// Drives one round of the ranks in `group`, which includes this rank, and waits for the others. Returns this rank's
    /// totals, and the operations that each of its workers should have seen.
    fn drive_and_reduce(
        &mut self,
        sequence: &RoundSequence,
        round: u32,
        start_ns: u64,
        group: &RankGroup,
    ) -> Result<(TrialTotals, Vec<ExpectedOperations>), StepFailure> {
        let (number, length) = (sequence.number, sequence.length);
        let schedule = Schedule {
            start_ns,
            length,
            number,
            round,
            is_extra: sequence.is_extra,
            is_loaded: sequence.is_loaded,
            lead_ns: if sequence.is_loaded && self.workers.points.own.background.is_some() {
                Schedule::lead_ns(length)
            } else {
                0
            },
        };
        let workers = &mut self.workers;
        workers.begin_round();
        self.intervals
            .begin(&schedule, workers.own.driver.clock(), &self.found.trials)?;
        let mut totals = workers.drive(&schedule)?;
        self.intervals.note_driven();
        let expected = workers.exchange(length, group)?;
        let reports = workers.finish(&schedule, &expected, &mut totals)?;
        if sequence.is_of_trial() {
            // The counts of lost CPU time include verification and the end of the round, so this time must include them
            // too. It excludes the wait for the start, when threads sleep, because a longer time would hide their
            // losses in the round.
            let counted_ns = workers.own.driver.clock().now_ns().saturating_sub(start_ns);
            self.cpu.end(counted_ns);
        }
        self.sums
            .count_round(workers, sequence, &schedule, &totals, &reports);
        self.intervals
            .send_last_count(totals.operations, totals.window_ns)?;
        Ok((totals, expected))
    }

    fn verify(
        &mut self,
        expected: Vec<ExpectedOperations>,
        totals: &mut TrialTotals,
    ) -> Result<(), StepFailure> {
        let mine = self.workers.check(expected, totals);
        // Wrong data end the point, but not the run. All ranks learn of it here, and continue at the same step.
        let rank = &mut *self.workers.rank;
        let agreed = agree(rank, "verify a trial", mine, DEADLINES.step);
        if let Err(StepFailure::Point(_)) = agreed {
            self.proof.give_up();
        }
        agreed
    }
}

/// One half of a trial with a background.
struct TrialHalf {
    is_loaded: bool,
    totals: TrialTotals,
    latencies: LatencyHistogram,
}

/// Fails if the background moved bytes in the half without load. The ratio would then compare load with load.
fn check_half_without_background(totals: &TrialTotals) -> Result<()> {
    match totals.background.operations {
        0 => Ok(()),
        moved => Err(Error::Failed(format!(
            "the background moved {moved} operations in the half of a trial without it"
        ))),
    }
}

impl PointLeader<'_, '_> {
    /// Runs one trial in two halves, one without load and one with load. Every second trial begins with the load, so
    /// that the first half's effect on the second one does not favor either. Returns the totals of the half with load.
    pub(super) fn run_trial_in_halves(
        &mut self,
        trial: u64,
        length: TrialLength,
        name: &str,
    ) -> Result<(TrialTotals, Option<TrialBackground>), StepFailure> {
        if trial == WARM_UP {
            let totals = self.warm_up_in_halves(length, name)?;
            return Ok((totals, None));
        }
        // Each half has data of its own.
        let quiet = RoundSequence::without_background(2 * trial - 1, length);
        let loaded = RoundSequence::trial(2 * trial, [0], length);
        let mut halves = [quiet, loaded];
        if trial.is_multiple_of(2) {
            halves.reverse();
        }
        let [first, second] = halves;
        let first = self.run_half(&first, name)?;
        let second = self.run_half(&second, name)?;
        let elapsed_ns = second.totals.elapsed_ns;
        let [idle, loaded] = if second.is_loaded {
            [first, second]
        } else {
            [second, first]
        };
        let background = self.compare_halves(&loaded.totals, &idle.latencies, &loaded.latencies)?;
        let all = &mut self.found.idle;
        let all = all.get_or_insert_with(LatencyHistogram::new);
        all.merge(&idle.latencies);
        let totals = TrialTotals {
            elapsed_ns,
            ..loaded.totals
        };
        Ok((totals, Some(background)))
    }

    /// Warms up both halves. Each of them gets half of the time.
    fn warm_up_in_halves(
        &mut self,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        let length = match length {
            TrialLength::DurationNs(ns) => TrialLength::DurationNs(ns.div_ceil(2)),
            length @ TrialLength::Iterations(_) => length,
        };
        let quiet = self
            .run_half(&RoundSequence::without_background(WARM_UP, length), name)?
            .totals;
        let loaded = RoundSequence::trial(WARM_UP, [0], length);
        let loaded = self.run_half(&loaded, name)?.totals;
        Ok(TrialTotals {
            unsettled: quiet.unsettled.max(loaded.unsettled),
            ..loaded
        })
    }

    fn run_half(&mut self, sequence: &RoundSequence, name: &str) -> Result<TrialHalf, StepFailure> {
        let how = if sequence.is_loaded {
            "beside"
        } else {
            "without"
        };
        let totals = self.run_rounds(sequence, &format!("{name} {how} the background"))?;
        if !sequence.is_loaded {
            check_half_without_background(&totals)?;
        }
        Ok(TrialHalf {
            latencies: self.workers.latencies_of_trial()?,
            is_loaded: sequence.is_loaded,
            totals,
        })
    }

    fn compare_halves(
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
            TrialLatency::summarize(histogram).ok_or_else(none)
        };
        let load = totals.background;
        Ok(TrialBackground {
            window_ns: load.window_ns,
            operations: load.operations,
            payload_bytes: load.payload_bytes,
            bandwidth_bytes_per_s: load.payload_bytes as f64 * 1e9 / load.window_ns.max(1) as f64,
            verified_bytes: self
                .workers
                .points
                .own
                .verify
                .is_on()
                .then_some(load.verified_bytes),
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
    fn a_load_that_does_not_pause_is_an_error() {
        assert!(check_half_without_background(&TrialTotals::default()).is_ok());
        let moved = TrialTotals {
            background: BackgroundTotals {
                operations: 3,
                ..BackgroundTotals::default()
            },
            ..TrialTotals::default()
        };
        let error = check_half_without_background(&moved)
            .unwrap_err()
            .to_string();
        assert!(error.contains("moved 3 operations"), "{error}");
    }
}
