//! Backends that are open for a stretch of points: those that could be had, and why others could not.

use super::backend::Backend;
use super::in_process::InProcess;
use super::native::Native;
use super::native::candidates::KnownWays;
use super::native::open::OpenNative;
use super::torch::{Torch, TorchBackend};
use crate::failure::{StepFailure, outcome};
use crate::kinds::kind::Stage;
use tonnage_engine::backend::{self, BackendVariant};
use tonnage_plan::collective::CollectivePoint;
use tonnage_record::Outcome;
use tonnage_units::{Error, Result};

/// One backend of a stretch.
pub struct OpenBackend {
    /// Its name, as in `--backend`.
    pub name: String,
    /// The backend, or the end of all points on it.
    pub backend: Result<Box<dyn Backend>, Outcome>,
}

/// Opens the backends of these points, which have the same, on all ranks; native ones know the `ways` that were chosen
/// before.
pub fn open(
    points: &[&CollectivePoint],
    ways: &KnownWays,
    stage: &mut Stage<'_>,
) -> Result<Vec<OpenBackend>, StepFailure> {
    let names = points.first().map_or(&[][..], |first| &first.backends);
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        let backend = match open_one(name, points, ways, stage) {
            Ok(backend) => Ok(backend),
            Err(error) => match StepFailure::known_to_all(stage.rank, error) {
                StepFailure::Point(error) => Err(outcome(&error)),
                over => return Err(over),
            },
        };
        let name = name.clone();
        all.push(OpenBackend { name, backend });
    }
    Ok(all)
}

fn open_one(
    name: &str,
    points: &[&CollectivePoint],
    ways: &KnownWays,
    stage: &mut Stage<'_>,
) -> Result<Box<dyn Backend>> {
    let (entry, variant) = backend::find(stage.settings.lists.backends, name)?;
    stage.rank.phase(&format!("opening {name}"));
    if let Some(open) = entry.open {
        return Ok(Box::new(InProcess::open((entry, open), points, stage)?));
    }
    match entry.variant {
        BackendVariant::Engine => {
            let open = OpenNative::open(variant, points, stage)?;
            Ok(Box::new(Native::new(open, ways, stage)))
        }
        BackendVariant::OneOf(variants) => {
            let torch = TorchBackend::of(variants, variant)?;
            let first = points.first().copied();
            let first = first.ok_or_else(|| Error::Failed("no points to open it for".into()))?;
            Ok(Box::new(Torch::open(torch, first, stage)?))
        }
        BackendVariant::Nothing => Err(Error::Failed(format!(
            "backend {name} is in the list, and nobody opens it"
        ))),
    }
}
