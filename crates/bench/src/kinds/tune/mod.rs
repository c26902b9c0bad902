//! A search for the options of a transfer that reach a goal best.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`race`] | eliminations and the winner, computed from figures alone |
//! | [`candidates`] | candidates of a race, with their open engines |
//! | [`search`] | the races of a point, one option after the other, and the winner's final run |
//!
//! `tonnage_plan::tune` determines the competing values. Each candidate is a point of [`super::transfer`] and takes the
//! same steps. All ranks make the same decisions, because a point's figures are equal on all ranks.

pub mod candidates;
pub mod race;
pub mod search;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use candidates::SearchStart;
use search::OptionSearch;
use tonnage_plan::tune::TunePoint;
use tonnage_record::{Body, Record, TuneBody};

/// The `tune` kind. A point opens its engines itself. It has a canary, like a transfer. The bound and the proof of path
/// belong to the winner's final run.
#[derive(Default)]
pub struct Tunes;

impl Kind for Tunes {
    type Point = TunePoint;
    type Open = SearchStart;

    fn empty_body(asked: AnnotatedPoint<'_, TunePoint>) -> Body {
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
