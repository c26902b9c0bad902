//! The traits of a kind of experiment, and the resources that a kind can use.
//!
//! The conductor takes every point through the same steps; a kind implements these steps. A kind never uses the
//! conductor: both use [`Stage`].

use crate::cpu_time::CpuTimeMeter;
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::host::RankHost;
use crate::json::Json;
use crate::network_paths::PathWatch;
use crate::observer::Observer;
use crate::settings::Settings;
use tonnage_plan::{Planned, PointNotes};
use tonnage_ranks::Rank;
use tonnage_record::grouping::by_answer;
use tonnage_record::{Body, Effective, Record};
use tonnage_units::{Error, Result, number_list};

/// Everything that a kind can use on this rank.
pub struct Stage<'a> {
    /// Access to the other ranks.
    pub rank: &'a mut Rank,
    /// Settings that are not part of a point.
    pub settings: &'a Settings,
    /// This rank's host.
    pub host: &'a RankHost,
    /// CPU time that this rank's threads lose during their measured intervals.
    pub cpu: &'a mut CpuTimeMeter,
    /// Observed network paths of the engines' sockets.
    pub paths: &'a mut PathWatch,
    /// Gets progress and results, on rank 0.
    pub observer: &'a mut dyn Observer,
}

/// A point, with its notes.
#[derive(Debug)]
pub struct AnnotatedPoint<'a, P> {
    /// The cell of the sweep.
    pub point: &'a P,
    /// Notes for a reader of the results.
    pub reading: &'a PointNotes,
    /// Why the point cannot be measured, if that was known when the plan was expanded.
    pub impossible: Option<&'a str>,
}

impl<P> Clone for AnnotatedPoint<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for AnnotatedPoint<'_, P> {}

/// A point of one kind.
pub trait PointOfKind {
    /// Returns the point if it is one of this kind.
    fn from_planned(planned: &Planned) -> Option<&Self>;
}

/// One kind of experiment, with its state for a whole run.
pub trait Kind {
    /// One cell of a sweep of this kind.
    type Point: PointOfKind;
    /// Resources opened once for several points. Dropping them closes them.
    type Open;

    /// Whether `next` can be measured with the resources opened for `first`.
    fn shares_resources(_first: &Self::Point, _next: &Self::Point) -> bool {
        false
    }

    /// Returns the size that determines a point's demand for shared resources. The points with the largest sizes are
    /// left out if the demand cannot be met.
    fn requested_bytes(_point: &Self::Point) -> u64 {
        0
    }

    /// Returns a record's body before any measurement.
    fn body(asked: AnnotatedPoint<'_, Self::Point>) -> Body;

    /// Opens the resources that these points share, on all ranks.
    ///
    /// # Errors
    /// [`StepFailure::Point`] if none of them can be measured but other points can.
    fn open(
        &mut self,
        points: &[&Self::Point],
        stage: &mut Stage<'_>,
    ) -> Result<Self::Open, StepFailure>;

    /// Returns the two CPUs to measure in the canary before and after a point, or why there are none. `None` if the
    /// kind has no canary.
    fn canary_cpus(
        &self,
        _open: &Self::Open,
        _point: &Self::Point,
        _stage: &Stage<'_>,
    ) -> Option<Result<[u32; 2], String>> {
        None
    }

    /// Prepares a point, takes its steps through `run_steps`, and stores the results in the record. After a failure,
    /// stores the results that were measured before the failure.
    fn measure(
        &mut self,
        open: &mut Self::Open,
        asked: AnnotatedPoint<'_, Self::Point>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure>;

    /// Whether the open resources are still usable after a point ended with this error; the same on all ranks.
    fn stays_open_after(_ended: &Error) -> bool {
        false
    }

    /// Removes files and other resources that a failed point has left outside this process.
    fn abandon(&mut self) {}
}

/// Measures stretches of points of any kind. Implemented by the conductor.
pub trait KindRunner {
    /// Opens the resources for the next point, and measures it and the following points that share them.
    fn run_points<K: Kind>(&mut self, kind: &mut K) -> Result<()>;
}

/// Takes the steps of a point in the conductor's order. It is passed as a closure, so that a kind can keep resources of
/// several backends open around all the steps.
pub type StepRunner<'a> = &'a mut dyn FnMut(&mut dyn Steps) -> Result<(), StepFailure>;

/// The steps of a prepared point, in the order in which they are taken. All ranks take each step together. If a step
/// fails with [`StepFailure::Point`], the next one is [`Self::close`].
pub trait Steps {
    /// Measures the upper bound that results are compared with, outside the trials.
    fn bound(&mut self, _when: LimitMoment) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Prepares everything that all trials need, untimed.
    fn prepare(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Does the work of a trial untimed.
    fn warm_up(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Runs one timed repetition, including the untimed work around it: preparing data before, verification after.
    ///
    /// # Errors
    /// [`StepFailure::Point`] if, for example, data were wrong: the ranks are in step and can continue.
    fn trial(&mut self) -> Result<(), StepFailure>;

    /// Whether there are enough trials; the same on all ranks.
    fn enough(&mut self) -> Result<bool, StepFailure>;

    /// Cleans up for the next point.
    fn close(&mut self) -> Result<(), StepFailure>;

    /// Gathers the results of all ranks.
    fn gather(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }
}

/// When a bound is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitMoment {
    /// Before the first trial and the warm-up.
    Before,
    /// After the last trial.
    After,
}

/// Groups the effective configurations of all ranks, given in rank order. Equal ones are listed together, so that a
/// record of 44,000 ranks stays small.
pub fn group_equal(each: impl Iterator<Item = Effective>) -> Vec<Effective> {
    let groups = by_answer((0u32..).zip(each));
    let named = groups.into_iter().map(|(effective, ranks)| Effective {
        ranks: number_list::format(&ranks),
        ..effective
    });
    named.collect()
}

/// Collects the configurations of all ranks on rank 0; `own` is this rank's.
pub fn effective_of_all(what: &str, rank: &mut Rank, own: Effective) -> Result<Vec<Effective>> {
    let all = rank.collect(what, &Json(own), DEADLINES.step)?;
    Ok(group_equal(all.iter().map(|Json(one)| one.clone())))
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
        let all = group_equal([1, 2, 1, 1].into_iter().map(effective));
        let ranks: Vec<_> = all.iter().map(|group| group.ranks.as_str()).collect();
        assert_eq!(ranks, ["0,2-3", "1"]);
        assert_eq!(all[1].cpus, [Some(2)]);
    }
}
