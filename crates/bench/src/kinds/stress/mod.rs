//! Random transfers from a seed, for a given time. The last operation on each slot is verified. Usually a slot has only
//! one operation.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`stress_run`] | the engines, which are open at the same time, and their transfers in turn |
//! | [`tally`] | totals of the transfers |
//!
//! `tonnage_plan::stress` draws the transfers. Each of them is a point of [`super::transfer`] and takes the same steps.
//! All ranks draw the same transfers, and rank 0's clock decides when to stop.

pub mod stress_run;
pub mod tally;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use stress_run::{StressRun, open_each_once};
use tally::Tally;
use tonnage_plan::stress::StressPoint;
use tonnage_record::{Body, Effective, Record, StressBody};

/// The `stress` kind. A point opens its engines itself and more than once. It has neither a canary nor a bound.
#[derive(Default)]
pub struct Stresses;

impl Kind for Stresses {
    type Point = StressPoint;
    /// Configurations that the engines chose when they were first opened.
    type Open = Vec<Effective>;

    fn empty_body(asked: AnnotatedPoint<'_, StressPoint>) -> Body {
        StressBody::new(asked.point.clone()).into()
    }

    /// Opens each engine once, so that an engine that is not available is refused, as for a transfer.
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
        let body = tally.into_body(asked.point);
        let limit = stage.settings.time_limit;
        record.remarks.extend(
            limit
                .filter(|_| body.elapsed_ns < asked.point.duration_ns)
                .map(|limit| limit.remark()),
        );
        record.body = body.into();
        ended?;
        failed.map_or(Ok(()), |error| Err(StepFailure::Point(error)))
    }
}
