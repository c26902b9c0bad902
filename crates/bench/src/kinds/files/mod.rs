//! File experiments: the steps that all ranks take together.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`experiment`] | one experiment, from checking its paths to its figures |
//! | `phase`, `figures` | one phase, and the sums of its repetitions |
//! | [`checks`] | preparations and checks before a phase's clock starts |
//! | [`phase_threads`] | the threads of a rank in one phase |
//! | [`memory`] | memory of the threads, and its NUMA nodes |
//! | [`totals`] | sums of threads and ranks |
//! | [`verify`] | reads data back and compares it |
//! | [`cache`] | the state of the page cache |
//! | [`storage`], [`bound`], [`scratch`] | the storage of the files, and the bandwidth of a single stream |
//! | `space` | space that the files need, compared with the free space |
//! | [`clean`], `earlier_runs`, `stamp_scan` | removes files of this run and of earlier ones; checks whether tonnage
//! wrote a file |
//! | [`ledger`] | a list of the files that a rank created, which outlives the rank |
//! | [`names`] | path and number of a rank's file |
//!
//! The timed loops and the contents of files are in [`tonnage_loops::files`]; the engines that make the calls are in
//! `tonnage_engines`. Next: [`crate::kinds::kind`] defines the steps, [`experiment`] implements them.

pub mod bound;
pub mod cache;
pub mod checks;
pub mod clean;
mod earlier_runs;
pub mod experiment;
mod figures;
pub mod ledger;
pub mod memory;
pub mod names;
mod phase;
pub mod phase_threads;
pub mod scratch;
mod space;
mod stamp_scan;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod totals;
pub mod verify;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use clean::CreatedFiles;
use experiment::Experiment;
use tonnage_plan::files::FilePoint;
use tonnage_record::{Body, FileBody, Record};

/// The `file` kind. Points share nothing, and have no warm-up and no canary. Their bound is measured after the phases.
#[derive(Default)]
pub struct Files {
    /// Files that this run creates.
    made: CreatedFiles,
}

impl Kind for Files {
    type Point = FilePoint;
    type Open = ();

    fn empty_body(asked: AnnotatedPoint<'_, FilePoint>) -> Body {
        FileBody::new(asked.point.clone(), asked.reading.clone()).into()
    }

    fn open(&mut self, _points: &[&FilePoint], _stage: &mut Stage<'_>) -> Result<(), StepFailure> {
        Ok(())
    }

    fn measure(
        &mut self,
        _open: &mut (),
        AnnotatedPoint { point, reading, .. }: AnnotatedPoint<'_, FilePoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        let mut body = FileBody::new(point.clone(), reading.clone());
        self.made.keep_ledger(stage.settings.ledger.as_ref());
        let mut experiment = Experiment {
            point,
            reading,
            rank: stage.rank,
            settings: stage.settings,
            host: stage.host,
            cpu: stage.cpu,
            made: &mut self.made,
            observer: stage.observer,
        };
        let ended = experiment.measure(record, &mut body, run_steps);
        record.body = body.into();
        ended
    }

    /// Removes the files of a failed point that still exist.
    fn abandon(&mut self) {
        self.made.remove_all();
    }
}
