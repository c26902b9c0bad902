//! The traits that make a kind of experiment, and what a kind has at hand.
//!
//! The conductor takes every point through the same steps; a kind says what each step is for it. A kind never uses the
//! conductor: what both need is in [`Stage`].

use crate::cpu_time::CpuTime;
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::host::RankHost;
use crate::json::Json;
use crate::network_paths::PathWatch;
use crate::observer::Observer;
use crate::settings::Settings;
use tonnage_plan::{Planned, Reading};
use tonnage_ranks::Rank;
use tonnage_record::grouping::by_answer;
use tonnage_record::{Body, Effective, Record};
use tonnage_units::{Error, Result, number_list};

/// Everything that a kind has at hand on this rank.
pub struct Stage<'a> {
    /// The other ranks.
    pub rank: &'a mut Rank,
    /// Choices that are no part of a point.
    pub settings: &'a Settings,
    /// This rank's host.
    pub host: &'a RankHost,
    /// CPU time that this rank's threads do not get during their measured intervals.
    pub cpu: &'a mut CpuTime,
    /// Settings of the paths of engines' sockets.
    pub paths: &'a mut PathWatch,
    /// Told how it goes, on rank 0.
    pub observer: &'a mut dyn Observer,
}

/// A point, and what stands beside its results.
#[derive(Debug)]
pub struct AnnotatedPoint<'a, P> {
    /// The cell of the sweep.
    pub point: &'a P,
    /// Notes that only a reader of the results needs.
    pub reading: &'a Reading,
    /// Reason why it cannot be measured, known when the plan was expanded.
    pub impossible: Option<&'a str>,
}

impl<P> Clone for AnnotatedPoint<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for AnnotatedPoint<'_, P> {}

/// A point of one kind.
pub trait OfKind {
    /// The point, if it is one of this kind.
    fn of(planned: &Planned) -> Option<&Self>;
}

/// One kind of experiment, for as long as a run lasts.
pub trait Kind {
    /// One cell of a sweep of this kind.
    type Point: OfKind;
    /// Everything that is opened once for several points; dropping it closes it.
    type Open;

    /// Returns whether `next` can be measured on what was opened for `first`.
    fn shares(_first: &Self::Point, _next: &Self::Point) -> bool {
        false
    }

    /// Bytes that decide how much a point asks of what it shares with others: one that asks for too much is left out.
    fn asks_bytes(_point: &Self::Point) -> u64 {
        0
    }

    /// A record's body before anything was measured.
    fn body(asked: AnnotatedPoint<'_, Self::Point>) -> Body;

    /// Opens on all ranks what these points share.
    ///
    /// # Errors
    /// [`StepFailure::Point`] when none of them can be measured, but other points can.
    fn open(
        &mut self,
        points: &[&Self::Point],
        stage: &mut Stage<'_>,
    ) -> Result<Self::Open, StepFailure>;

    /// Two CPUs that a point depends on, for the canary before and after it, or why there are none; `None` where the
    /// kind has no canary.
    fn canary_cpus(
        &self,
        _open: &Self::Open,
        _point: &Self::Point,
        _stage: &Stage<'_>,
    ) -> Option<Result<[u32; 2], String>> {
        None
    }

    /// Makes a point ready, lets `course` take its steps, and puts into the record what came of them; where they
    /// failed, what was measured before.
    fn measure(
        &mut self,
        open: &mut Self::Open,
        asked: AnnotatedPoint<'_, Self::Point>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        course: Course<'_>,
    ) -> Result<(), StepFailure>;

    /// Returns whether what is open can carry the next point after one has ended like this; all ranks say the same.
    fn stays_open_after(_ended: &Error) -> bool {
        false
    }

    /// Removes what a point that failed has left behind outside this process.
    fn abandon(&mut self) {}
}

/// Measures stretches of points, whatever their kind. The conductor does.
pub trait Stretches {
    /// Opens what the next point needs, and measures it and those after it that share what is open.
    fn stretch<K: Kind>(&mut self, kind: &mut K) -> Result<()>;
}

/// The order in which steps are taken, which is the conductor's. Points of several backends can be open at once and
/// their steps taken in turn, because each is inside a course.
pub type Course<'a> = &'a mut dyn FnMut(&mut dyn Steps) -> Result<(), StepFailure>;

/// The steps of a point that is ready, in the order in which they are taken. All ranks take each of them together.
/// After one that fails with [`StepFailure::Point`], the next is [`Self::close`].
pub trait Steps {
    /// Measures the upper bound that results are a fraction of, beside the trials.
    fn limit(&mut self, _when: When) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Puts in place, outside the clock, what all trials need.
    fn prepare(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Does untimed what the trials do.
    fn warm_up(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }

    /// One timed repetition, with what lies outside its clock: data in place before, verification after.
    ///
    /// # Errors
    /// [`StepFailure::Point`] when the bytes were wrong, for one: the ranks are in step and can go on.
    fn trial(&mut self) -> Result<(), StepFailure>;

    /// Returns whether the trials suffice, the same on all ranks.
    fn enough(&mut self) -> Result<bool, StepFailure>;

    /// Leaves nothing behind for the next point.
    fn close(&mut self) -> Result<(), StepFailure>;

    /// Brings together what the ranks measured.
    fn gather(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }
}

/// Choice of when a limit is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before the first trial and the warm-up.
    Before,
    /// After the last trial.
    After,
}

/// Effective configurations of all ranks, in their order, those that are the same listed together, so that a record of
/// 44,000 ranks stays small.
pub fn together(each: impl Iterator<Item = Effective>) -> Vec<Effective> {
    let groups = by_answer((0u32..).zip(each));
    let named = groups.into_iter().map(|(effective, ranks)| Effective {
        ranks: number_list::format(&ranks),
        ..effective
    });
    named.collect()
}

/// Collects what each rank found in a step, at rank 0 alone; `own` is this rank's.
pub fn effective_of_all(what: &str, rank: &mut Rank, own: Effective) -> Result<Vec<Effective>> {
    let all = rank.collect(what, &Json(own), DEADLINES.step)?;
    Ok(together(all.iter().map(|Json(one)| one.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_the_same_answer_are_listed_together() {
        let effective = |cpu| Effective {
            cpus: vec![Some(cpu)],
            ..Effective::default()
        };
        let all = together([1, 2, 1, 1].into_iter().map(effective));
        let ranks: Vec<_> = all.iter().map(|group| group.ranks.as_str()).collect();
        assert_eq!(ranks, ["0,2-3", "1"]);
        assert_eq!(all[1].cpus, [Some(2)]);
    }
}
