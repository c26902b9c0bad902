//! Options of a transfer that compete for a goal.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`race`] | who is left out and who wins, from figures alone |
//! | [`candidates`] | candidates of a race on open engines |
//! | [`search`] | the races of a point, one option after the other, and the winner's last run |
//!
//! Which values compete is decided in `tonnage_plan::tune`; each candidate is a point of [`super::transfer`] and takes
//! the steps of one. All ranks decide alike, for a point's figures are the same on all of them.

pub mod candidates;
pub mod race;
pub mod search;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Course, Kind, Stage};
use candidates::Foothold;
use search::Search;
use tonnage_plan::tune::TunePoint;
use tonnage_record::{Body, Record, TuneBody};

/// The kind: a point opens engines by itself. It has a canary, as a transfer has; what else a transfer has is in the
/// winner's last run.
#[derive(Default)]
pub struct Tunes;

impl Kind for Tunes {
    type Point = TunePoint;
    type Open = Foothold;

    fn body(asked: AnnotatedPoint<'_, TunePoint>) -> Body {
        TuneBody::new(asked.point.clone()).into()
    }

    fn open(
        &mut self,
        points: &[&TunePoint],
        stage: &mut Stage<'_>,
    ) -> Result<Foothold, StepFailure> {
        Foothold::find(points[0], stage)
    }

    fn canary_cpus(
        &self,
        open: &Foothold,
        _: &TunePoint,
        _: &Stage<'_>,
    ) -> Option<Result<[u32; 2], String>> {
        Some(open.cpus.clone())
    }

    fn measure(
        &mut self,
        open: &mut Foothold,
        asked: AnnotatedPoint<'_, TunePoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        course: Course<'_>,
    ) -> Result<(), StepFailure> {
        record.effective.clone_from(&open.effective);
        let mut search = Search::new(asked.point, open, stage);
        let ended = search.run(record, course);
        record.body = search.into_body().into();
        ended
    }
}
