//! The traits of a kind of experiment, and the resources that all kinds can use.
//!
//! The conductor takes every point through the same steps, which each kind implements. Kinds don't use the conductor.
//! Both use [`Stage`].

use std::time::Duration;

use crate::cpu_loss::CpuLossMeter;
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

/// Resources of this rank that every kind can use.
pub struct Stage<'a> {
    /// Access to the other ranks.
    pub rank: &'a mut Rank,
    /// Settings that are not part of a point.
    pub settings: &'a Settings,
    /// This rank's host.
    pub host: &'a RankHost,
    /// Measures the CPU time that this rank's threads lose during measured intervals.
    pub cpu: &'a mut CpuLossMeter,
    /// Records the network paths of the engines' sockets.
    pub paths: &'a mut PathWatch,
    /// Receives progress and results on rank 0.
    pub observer: &'a mut dyn Observer,
}

/// A point, with its notes.
#[derive(Debug)]
pub struct AnnotatedPoint<'a, P> {
    /// The cell of the sweep.
    pub point: &'a P,
    /// Notes for readers of the results.
    pub reading: &'a PointNotes,
    /// Why the point cannot be measured; `None` unless this was found when the plan was expanded.
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
    /// Returns the point if it belongs to this kind.
    fn from_planned(planned: &Planned) -> Option<&Self>;
}

/// One kind of experiment, with its state over a whole run.
pub trait Kind {
    /// One cell of a sweep of this kind.
    type Point: PointOfKind;
    /// Resources that are opened once for several points. They close when they are dropped.
    type Open;

    /// Returns whether `next` can be measured with the resources that were opened for `first`.
    fn shares_resources(_first: &Self::Point, _next: &Self::Point) -> bool {
        false
    }

    /// Returns the size that determines how much of the shared resources a point needs. If the resources are not
    /// sufficient, points with the largest sizes are left out.
    fn requested_bytes(_point: &Self::Point) -> u64 {
        0
    }

    /// Returns the body of a record, without results.
    fn empty_body(asked: AnnotatedPoint<'_, Self::Point>) -> Body;

    /// Opens the resources that these points share. All ranks call this together.
    ///
    /// # Errors
    /// [`StepFailure::Point`] if none of these points can be measured, but later points may be.
    fn open(
        &mut self,
        points: &[&Self::Point],
        stage: &mut Stage<'_>,
    ) -> Result<Self::Open, StepFailure>;

    /// Returns the CPUs for the canary before and after a point, or why there are none. `None` if the kind has no
    /// canary.
    fn canary_cpus(
        &self,
        _open: &Self::Open,
        _point: &Self::Point,
        _stage: &Stage<'_>,
    ) -> Option<Result<[u32; 2], String>> {
        None
    }

    /// Prepares a point, takes its steps by `run_steps`, and stores the results in the record. If the point fails,
    /// stores the results up to the failure.
    fn measure(
        &mut self,
        open: &mut Self::Open,
        asked: AnnotatedPoint<'_, Self::Point>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure>;

    /// Returns whether the open resources are still usable after a point failed with this error. It must be the same on
    /// all ranks.
    fn stays_open_after(_ended: &Error) -> bool {
        false
    }

    /// Removes files and other resources that a failed point left outside this process.
    fn abandon(&mut self) {}
}

/// Measures stretches of points of any kind. The conductor implements this.
pub trait KindRunner {
    /// Opens resources for the next point, and measures this point and the following points that share the resources.
    fn run_points<K: Kind>(&mut self, kind: &mut K) -> Result<()>;
}

/// The conductor's closure that takes all steps of a point in order. A kind calls it, and can keep backends open around
/// the call.
pub type StepRunner<'a> = &'a mut dyn FnMut(&mut dyn Steps) -> Result<(), StepFailure>;

/// The steps of a prepared point, in the order in which they are taken. All ranks take each step together. If a step
/// fails with [`StepFailure::Point`], [`Self::close`] is the next step.
pub trait Steps {
    /// Returns this rank. The conductor uses it to agree with all other ranks whether the time limit leaves time for
    /// another trial.
    fn rank(&mut self) -> &mut Rank;

    /// Measures the upper bound for the results. The conductor calls this outside the trials.
    fn bound(&mut self, _when: LimitMoment) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Prepares everything that all trials need. This is not timed.
    fn prepare(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Does the same work as a trial, without timing it.
    fn warm_up(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Runs one timed repetition. It includes untimed work: data are prepared before the timed part, and verified
    /// afterwards.
    ///
    /// # Errors
    /// [`StepFailure::Point`] if, for example, data were wrong. All ranks are then at the same step and can continue.
    fn trial(&mut self) -> Result<(), StepFailure>;

    /// Returns whether there are enough trials. It must be the same on all ranks.
    fn enough(&mut self) -> Result<bool, StepFailure>;

    /// Returns the time that the point takes after its trials. If a bound was also measured before the trials, its
    /// measurement is not included.
    fn closing_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Cleans up, so that the next point can be measured.
    fn close(&mut self) -> Result<(), StepFailure>;

    /// Gathers the results of all ranks on rank 0.
    fn gather(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }
}

/// Time at which a bound is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitMoment {
    /// Before the first trial and the warm-up.
    Before,
    /// After the last trial.
    After,
}

/// Groups the effective configurations of all ranks, which come in rank order. Equal ones are listed once, so that even
/// a record of 44,000 ranks stays small.
pub fn group_equal(each: impl Iterator<Item = Effective>) -> Vec<Effective> {
    let groups = by_answer((0u32..).zip(each));
    let named = groups.into_iter().map(|(effective, ranks)| Effective {
        ranks: number_list::format(&ranks),
        ..effective
    });
    named.collect()
}

/// Collects the effective configurations of all ranks on rank 0. `own` is this rank's configuration.
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
