//! Collectives: operations that all ranks call together, over any backend.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`backend`] | the contract of backends |
//! | [`native`] | this program's own backend, over any engine |
//! | [`in_process`] | backends that call a library in this process |
//! | [`watchdog`] | ends the run if a library call does not return |
//! | [`data`] | inputs and results in a backend's memory, and descriptions of wrong data |
//! | [`contest`] | the steps of a point: trials of its backends in turn |
//! | [`contestant`] | one backend during a point: its trials and their combined figures |
//! | [`torch`] | the backend for torch.distributed, in Python processes |
//! | [`trial_times`] | times of iterations, combined over the ranks |
//!
//! Algorithms, shapes and data are those of `tonnage_collective`; the loop that times calls is in
//! [`tonnage_loops::calls`].

pub mod backend;
pub mod contest;
pub mod contestant;
pub mod data;
pub mod in_process;
pub mod native;
pub mod torch;
pub mod trial_times;
pub mod watchdog;

use crate::failure::{StepFailure, outcome};
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use backend::Backend;
use contest::BackendContest;
use in_process::InProcess;
use native::NativeBackend;
use native::candidates::KnownAlgorithms;
use native::open::OpenNative;
use tonnage_engine::backend::BackendVariant;
use tonnage_plan::collective::CollectivePoint;
use tonnage_record::{Body, CollectiveBody, Outcome, Record};
use tonnage_units::{Error, Result};
use torch::{TorchBackend, TorchWorkers};

/// One backend of a stretch.
pub struct OpenBackend {
    /// The backend's name, as in `--backend`.
    pub name: String,
    /// The backend, or the outcome of all its points if it could not be opened.
    pub backend: Result<Box<dyn Backend>, Outcome>,
}

/// The `collective` kind. Points share open backends, and have a warm-up but no canary.
#[derive(Default)]
pub struct CollectiveCalls {
    /// Algorithms that native backends have chosen so far.
    known: KnownAlgorithms,
}

impl Kind for CollectiveCalls {
    type Point = CollectivePoint;
    type Open = Vec<OpenBackend>;

    fn shares_resources(first: &CollectivePoint, next: &CollectivePoint) -> bool {
        let key = |point: &CollectivePoint| {
            let options = point.engine_options.clone();
            let (backends, memory) = (point.backends.clone(), point.memory.clone());
            let worker = (point.python.clone(), point.timeout_ns);
            let ranks = (point.ranks, point.groups);
            (backends, options, memory, point.place, ranks, worker)
        };
        key(first) == key(next)
    }

    fn requested_bytes(point: &CollectivePoint) -> u64 {
        point.size_bytes
    }

    fn empty_body(asked: AnnotatedPoint<'_, CollectivePoint>) -> Body {
        CollectiveBody::new(asked.point.clone()).into()
    }

    fn open(
        &mut self,
        points: &[&CollectivePoint],
        stage: &mut Stage<'_>,
    ) -> Result<Vec<OpenBackend>, StepFailure> {
        let names = points.first().map_or(&[][..], |first| &first.backends);
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            let backend = match open_one(name, points, &self.known, stage) {
                Ok(backend) => Ok(backend),
                Err(error) => match StepFailure::from_agreed(stage.rank, error) {
                    StepFailure::Point(error) => Err(outcome(&error)),
                    over => return Err(over),
                },
            };
            let name = name.clone();
            all.push(OpenBackend { name, backend });
        }
        Ok(all)
    }

    /// If a backend lacks a call, all ranks agree on this before any of them makes the call. So the backends stay
    /// usable.
    fn stays_open_after(ended: &Error) -> bool {
        matches!(ended, Error::Unavailable { .. })
    }

    fn measure(
        &mut self,
        open: &mut Vec<OpenBackend>,
        asked: AnnotatedPoint<'_, CollectivePoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        let backends = open.iter().filter_map(|it| it.backend.as_ref().ok());
        record.effective = backends.flat_map(|backend| backend.effective()).collect();
        let mut contest = BackendContest::new(asked.point, open, stage);
        let ended = run_steps(&mut contest);
        let (body, failed) = contest.into_parts();
        // If the run is over, no backend has completed, and the record's outcome has the reason.
        if !matches!(ended, Err(StepFailure::Run(_))) {
            record.body = body.into();
        }
        ended?;
        failed.map_or(Ok(()), |error| Err(StepFailure::Point(error)))
    }
}

/// Opens one backend for these points on all ranks.
fn open_one(
    name: &str,
    points: &[&CollectivePoint],
    known: &KnownAlgorithms,
    stage: &mut Stage<'_>,
) -> Result<Box<dyn Backend>> {
    let (entry, variant) = tonnage_engine::backend::find(stage.settings.lists.backends, name)?;
    stage.rank.set_phase(&format!("opening {name}"));
    if let Some(open) = entry.open {
        return Ok(Box::new(InProcess::open((entry, open), points, stage)?));
    }
    match entry.variant {
        BackendVariant::Engine => {
            let open = OpenNative::open(variant, points, stage)?;
            Ok(Box::new(NativeBackend::new(open, known, stage)))
        }
        BackendVariant::OneOf(variants) => {
            let torch = TorchBackend::from_variant(variants, variant)?;
            let first = points.first().copied();
            let first = first.ok_or_else(|| Error::Failed("no points to open it for".into()))?;
            Ok(Box::new(TorchWorkers::open(torch, first, stage)?))
        }
        BackendVariant::Nothing => Err(Error::Failed(format!(
            "backend {name} is in the list but has no code that opens it"
        ))),
    }
}
