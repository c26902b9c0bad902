//! Operations that all ranks call together, by whoever carries them out.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`backend`] | the contract of those who carry them out |
//! | [`opened`] | backends that are open for a stretch of points |
//! | [`native`] | this program's own, over any engine |
//! | [`in_process`] | those of a library in this process |
//! | [`watchdog`] | the end of a call of theirs that does not come back |
//! | [`data`] | inputs, results and what is wrong with them, in a backend's memory |
//! | [`contest`] | the steps of a point: trials of its backends in turn |
//! | [`contestant`] | one backend during a point: its trials, and what they add up to |
//! | [`torch`] | those of torch.distributed, in processes of Python |
//! | [`trial_times`] | times of iterations, combined over the ranks |
//! | `warm_up` | the time of an iteration, as a warm-up finds it out |
//!
//! Algorithms, shapes and data are those of `tonnage_collective`; the loop that times calls is in
//! [`crate::drive::calls`].

pub mod backend;
pub mod contest;
pub mod contestant;
pub mod data;
pub mod in_process;
pub mod native;
pub mod opened;
pub mod torch;
pub mod trial_times;
mod warm_up;
pub mod watchdog;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Course, Kind, Stage};
use contest::Contest;
use native::candidates::KnownWays;
use opened::OpenBackend;
use tonnage_plan::collective::CollectivePoint;
use tonnage_plan::{Planned, Point};
use tonnage_record::{Body, CollectiveBody, Record};
use tonnage_units::Error;

/// The kind: points share backends that are open; they have a warm-up and no canary.
#[derive(Default)]
pub struct CollectiveCalls {
    /// Choices of native backends so far.
    ways: KnownWays,
}

impl Kind for CollectiveCalls {
    type Point = CollectivePoint;
    type Open = Vec<OpenBackend>;

    fn point(planned: &Planned) -> Option<&CollectivePoint> {
        match &planned.point {
            Point::Collective(point) => Some(point),
            _ => None,
        }
    }

    fn shares(first: &CollectivePoint, next: &CollectivePoint) -> bool {
        let key = |point: &CollectivePoint| {
            let options = point.engine_options.clone();
            let (backends, memory) = (point.backends.clone(), point.memory.clone());
            let worker = (point.python.clone(), point.timeout_ns);
            let ranks = (point.ranks, point.groups);
            (backends, options, memory, point.place, ranks, worker)
        };
        key(first) == key(next)
    }

    fn asks_bytes(point: &CollectivePoint) -> u64 {
        point.size_bytes
    }

    fn body(asked: AnnotatedPoint<'_, CollectivePoint>) -> Body {
        CollectiveBody::new(asked.point.clone()).into()
    }

    fn open(
        &mut self,
        points: &[&CollectivePoint],
        stage: &mut Stage<'_>,
    ) -> Result<Vec<OpenBackend>, StepFailure> {
        opened::open(points, &self.ways, stage)
    }

    /// Backends say together that they lack a call, before they make it.
    fn stays_open_after(ended: &Error) -> bool {
        matches!(ended, Error::Unavailable { .. })
    }

    fn measure(
        &mut self,
        open: &mut Vec<OpenBackend>,
        asked: AnnotatedPoint<'_, CollectivePoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        course: Course<'_>,
    ) -> Result<(), StepFailure> {
        let backends = open.iter().filter_map(|it| it.backend.as_ref().ok());
        record.effective = backends.flat_map(|backend| backend.effective()).collect();
        let mut contest = Contest::new(asked.point, open, stage);
        let ended = course(&mut contest);
        let (body, failed) = contest.into_parts();
        // Where the run is over no backend got through, and why is the record's to say.
        if !matches!(ended, Err(StepFailure::Run(_))) {
            record.body = body.into();
        }
        ended?;
        failed.map_or(Ok(()), |error| Err(StepFailure::Point(error)))
    }
}
