//! Random transfers from a seed, for a given time. The last operation on each slot is verified, which is
//! usually its only one.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`stress_run`] | the engines, open at the same time, and their transfers in turn |
//! | [`tally`] | sums of the transfers, of constant size |
//!
//! `tonnage_plan::stress` draws the transfers. Each is a point of [`super::transfer`] and runs the same steps. All
//! ranks draw the same transfers, and rank 0's clock ends the stress.

pub mod stress_run;
pub mod tally;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use stress_run::{StressRun, open_each_once};
use tally::Tally;
use tonnage_plan::stress::StressPoint;
use tonnage_record::{Body, Effective, Record, StressBody};

/// The `stress` kind: a point opens engines on its own, repeatedly, and has neither a canary nor a bound.
#[derive(Default)]
pub struct Stresses;

impl Kind for Stresses {
    type Point = StressPoint;
    /// Choices of the engines when they were first opened.
    type Open = Vec<Effective>;

    fn body(asked: AnnotatedPoint<'_, StressPoint>) -> Body {
        StressBody::new(asked.point.clone()).into()
    }

    /// Opens each engine once, so that an unavailable one is refused as for a transfer.
    fn open(
        &mut self,
        points: &[&StressPoint],
        stage: &mut Stage<'_>,
    ) -> Result<Vec<Effective>, StepFailure> {
        open_each_once(points[0], stage)
    }

    fn measure(
        &mut self,
        open: &mut Vec<Effective>,
        asked: AnnotatedPoint<'_, StressPoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        record.effective.clone_from(open);
        let mut tally = Tally::new(asked.point, &stage.settings.lists)?;
        let ended = StressRun::new(asked.point, stage, &mut tally).run(run_steps);
        let failed = tally.failed().or_else(|| tally.nothing_tried());
        record.body = tally.into_body(asked.point).into();
        ended?;
        failed.map_or(Ok(()), |error| Err(StepFailure::Point(error)))
    }
}
