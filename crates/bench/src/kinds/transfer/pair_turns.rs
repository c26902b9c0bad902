//! Turns of pairs: counted by their initiators, and taken beside the trials. Slow ones of a matrix have theirs again,
//! because what other programs did to a short turn looks like a slow link; loads of a file have theirs alone.

use std::collections::BTreeSet;

use super::crew::CrewReport;
use super::pair_times::{self, FlowTime, are_few};
use super::pairs::{self, PairSum};
use super::point::Lead;
use super::totals::TrialTotals;
use super::trial::{RoundStretch, Schedule, WARM_UP};
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use tonnage_engine::Verb;
use tonnage_plan::point::Traffic;
use tonnage_ranks::{pack, unpack};
use tonnage_record::transfer::judge;
use tonnage_units::Result;

/// The most times that slow pairs of a matrix have their turns again. What is slow by chance is so once in a few turns,
/// and the best one counts.
const LOOKS_MAX: u64 = 3;

impl Lead<'_, '_> {
    /// Counts the turn of a pair that this rank initiates. One that has the round for itself is known from both ends.
    pub(super) fn count_pair(
        &mut self,
        (round, again): (u32, bool),
        own: PairSum,
        all: &TrialTotals,
    ) {
        let roles = self.point.roles();
        let turn = match roles.pair_of_round(round) {
            Some(_) => PairSum::of(all),
            None => own,
        };
        let places = roles.in_round(self.rank.id(), round);
        if roles.traffic == Traffic::File || !roles.has_pairs_in_rounds() || places.is_empty() {
            return;
        }
        match again {
            false => self.taken.pairs.add(places.start, turn),
            true => self.taken.pairs.look_again(places.start, turn),
        }
    }

    /// Counts the pairs that this rank initiates in an execution of a file's loads.
    pub(super) fn count_times(&mut self, schedule: &Schedule, reports: &[CrewReport]) {
        if self.point.loads.is_none() || schedule.number == WARM_UP {
            return;
        }
        let mut times = self.own.flow_times(schedule);
        for report in reports {
            FlowTime::merge(&mut times, &report.times);
        }
        let places = self.own.in_round(schedule.round);
        if !places.is_empty() {
            self.taken.times.add(places.start, &times, schedule.again);
        }
    }

    /// Takes turns beside the trials: those of slow pairs of a matrix, and those of pairs with loads of a file, which
    /// then have the path for themselves.
    pub(super) fn turns_beside(&mut self) -> Result<(), StepFailure> {
        match self.point.traffic {
            Traffic::Matrix => self.look_again(),
            Traffic::File => self.each_alone(),
            _ => Ok(()),
        }
    }

    /// Gives each pair with bytes as many turns for itself as there were trials; each pair once before any has its
    /// second turn, so that what drifts is in all of them.
    fn each_alone(&mut self) -> Result<(), StepFailure> {
        let (roles, point) = (self.point.roles(), self.point);
        let Some(loads) = point.loads.as_ref().filter(|_| are_few(point)) else {
            return Ok(());
        };
        let trials = self.taken.trials.len() as u64;
        let rounds = loads.pairs().map(|(pair, _)| roles.round_alone(pair));
        let rounds: Vec<u32> = rounds.collect();
        for turn in 0..trials {
            // Data of its own, like that of further trials.
            let number = trials + 1 + turn;
            let turns = RoundStretch::beside(number, rounds.clone(), point.length.trial);
            self.stretch(&turns, "pair alone")?;
        }
        Ok(())
    }

    /// Takes the turns of slow pairs of a matrix again, until none is left that may be so by chance.
    fn look_again(&mut self) -> Result<(), StepFailure> {
        for look in 0..LOOKS_MAX {
            self.collect_pairs()?;
            let suspect = self.suspect_rounds()?;
            if suspect.is_empty() {
                break;
            }
            // Data of its own, like that of further trials.
            let number = self.taken.trials.len() as u64 + 1 + look;
            let turns = RoundStretch::beside(number, suspect, self.point.length.trial);
            self.stretch(&turns, "second look")?;
        }
        Ok(())
    }

    /// The rounds with pairs that are slow so far, as rank 0 tells all.
    fn suspect_rounds(&mut self) -> Result<Vec<u32>> {
        let mine = match self.rank.id() {
            0 => Some(pack(&self.rounds_of_slow())?),
            _ => None,
        };
        let what = "rounds with slow pairs";
        unpack(&self.rank.broadcast(what, mine, DEADLINES.step)?)
    }

    fn rounds_of_slow(&self) -> Vec<u32> {
        let (roles, slow) = (self.point.roles(), self.slow_pairs());
        let is_slow = |pair: &(u32, u32)| slow.contains(pair);
        let rounds = 0..roles.rounds();
        let suspect = rounds.filter(|&round| roles.pairs_of_round(round).iter().any(is_slow));
        suspect.collect()
    }

    /// Initiators and targets of the pairs that are slow so far, at rank 0.
    fn slow_pairs(&self) -> BTreeSet<(u32, u32)> {
        let reads = self.point.op == Verb::Read;
        let rates = &self.taken.rates;
        let verdict = judge(self.point.ranks, rates, reads).unwrap_or_default();
        let slow = rates.iter().filter(|pair| verdict.is_slow(pair, reads));
        slow.map(|pair| (pair.initiator, pair.target)).collect()
    }

    /// Brings what all pairs have moved to rank 0.
    pub(super) fn collect_pairs(&mut self) -> Result<()> {
        let roles = self.point.roles();
        if roles.traffic == Traffic::File {
            return self.collect_times();
        }
        if roles.has_pairs_in_rounds() {
            let what = "figures of pairs";
            let all = self.rank.collect(what, &self.taken.pairs, DEADLINES.step)?;
            self.taken.rates = pairs::rates(roles, self.rank.hosts(), all.iter());
        }
        Ok(())
    }

    fn collect_times(&mut self) -> Result<()> {
        if are_few(self.point) {
            let own = self.taken.times.outcomes();
            let all = self.rank.collect("times of pairs", &own, DEADLINES.step)?;
            let (hosts, moves_bytes) = (self.rank.hosts(), self.moves_bytes);
            self.taken.rates = pair_times::rates(self.point, hosts, all.iter(), moves_bytes);
        }
        Ok(())
    }
}
