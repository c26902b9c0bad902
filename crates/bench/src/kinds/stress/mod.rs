//! Transfers drawn from a seed until a time is over, the last visit of each slot verified, which is mostly the only one.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`turns`] | the engines, open at once, and their transfers in turn |
//! | [`tally`] | sums of what was tried, which do not grow with it |
//!
//! Which transfers are drawn is decided in `tonnage_plan::stress`; each is a point of [`super::transfer`] and takes the
//! steps of one. All ranks draw the same, and rank 0's clock ends it.

pub mod tally;
pub mod turns;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Course, Kind, Stage};
use tally::Tally;
use tonnage_plan::stress::StressPoint;
use tonnage_record::{Body, Effective, Record, StressBody};
use turns::{Turns, first_looks};

/// The kind: a point opens engines again and again by itself, and has neither canary nor limit.
#[derive(Default)]
pub struct Stresses;

impl Kind for Stresses {
    type Point = StressPoint;
    /// Choices of the engines when they were opened first.
    type Open = Vec<Effective>;

    fn body(asked: AnnotatedPoint<'_, StressPoint>) -> Body {
        StressBody::new(asked.point.clone()).into()
    }

    /// Opens each engine once, so that one that cannot be had is refused as for a transfer.
    fn open(
        &mut self,
        points: &[&StressPoint],
        stage: &mut Stage<'_>,
    ) -> Result<Vec<Effective>, StepFailure> {
        first_looks(points[0], stage)
    }

    fn measure(
        &mut self,
        open: &mut Vec<Effective>,
        asked: AnnotatedPoint<'_, StressPoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        course: Course<'_>,
    ) -> Result<(), StepFailure> {
        record.effective.clone_from(open);
        let mut tally = Tally::new(asked.point, &stage.settings.lists)?;
        let ended = Turns::new(asked.point, stage, &mut tally).take(course);
        let failed = tally.failed().or_else(|| tally.nothing_tried());
        record.body = tally.into_body(asked.point).into();
        ended?;
        failed.map_or(Ok(()), |error| Err(StepFailure::Point(error)))
    }
}
