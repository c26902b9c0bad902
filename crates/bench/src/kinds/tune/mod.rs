//! Options of a transfer that compete for a goal.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`race`] | who is dropped and who wins, from figures alone |
//! | [`search`] | the races of a point, one option after the other |
//!
//! Which values compete is decided in `tonnage_plan::tune`; each candidate is a point of [`super::transfer`] and takes
//! the steps of one. All ranks decide alike, for a point's figures are the same on all of them.

pub mod race;
pub mod search;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Course, Kind, Stage};
use search::Search;
use tonnage_plan::tune::TunePoint;
use tonnage_plan::{Planned, Point};
use tonnage_record::{Body, Record, TuneBody};

/// The kind: a point opens engines by itself, and has neither canary nor limit.
#[derive(Default)]
pub struct Tunes;

impl Kind for Tunes {
    type Point = TunePoint;
    type Open = ();

    fn point(planned: &Planned) -> Option<&TunePoint> {
        match &planned.point {
            Point::Tune(point) => Some(point),
            _ => None,
        }
    }

    fn shares(_first: &TunePoint, _next: &TunePoint) -> bool {
        false
    }

    fn body(asked: AnnotatedPoint<'_, TunePoint>) -> Body {
        TuneBody::new(asked.point.clone()).into()
    }

    fn open(&mut self, _: &[&TunePoint], _: &mut Stage<'_>) -> Result<(), StepFailure> {
        Ok(())
    }

    fn measure(
        &mut self,
        _open: &mut (),
        asked: AnnotatedPoint<'_, TunePoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        course: Course<'_>,
    ) -> Result<(), StepFailure> {
        let mut search = Search::new(asked.point, stage);
        let ended = search.run(course);
        (record.effective, record.body) = search.into_parts();
        ended
    }
}
