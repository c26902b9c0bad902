//! Options of a transfer that compete for a goal.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`race`] | eliminations and the winner, from figures alone |
//! | [`candidates`] | candidates of a race on open engines |
//! | [`search`] | the races of a point, one option after the other, and the winner's final run |
//!
//! `tonnage_plan::tune` decides which values compete. Each candidate is a point of [`super::transfer`] and runs the
//! same steps. All ranks decide the same, because a point's figures are equal on all of them.

pub mod candidates;
pub mod race;
pub mod search;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use candidates::SearchStart;
use search::OptionSearch;
use tonnage_plan::tune::TunePoint;
use tonnage_record::{Body, Record, TuneBody};

/// The `tune` kind: a point opens its engines itself. Like a transfer, it has a canary; the winner's final run has all
/// other parts of a transfer.
#[derive(Default)]
pub struct Tunes;

impl Kind for Tunes {
    type Point = TunePoint;
    type Open = SearchStart;

    fn body(asked: AnnotatedPoint<'_, TunePoint>) -> Body {
        TuneBody::new(asked.point.clone()).into()
    }

    fn open(
        &mut self,
        points: &[&TunePoint],
        stage: &mut Stage<'_>,
    ) -> Result<SearchStart, StepFailure> {
        SearchStart::find(points[0], stage)
    }

    fn canary_cpus(
        &self,
        open: &SearchStart,
        _: &TunePoint,
        _: &Stage<'_>,
    ) -> Option<Result<[u32; 2], String>> {
        Some(open.cpus.clone())
    }

    fn measure(
        &mut self,
        open: &mut SearchStart,
        asked: AnnotatedPoint<'_, TunePoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        record.effective.clone_from(&open.effective);
        let mut search = OptionSearch::new(asked.point, open, stage);
        let ended = search.run(record, run_steps);
        record.body = search.into_body().into();
        ended
    }
}
