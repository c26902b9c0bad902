//! File experiments: the steps that all ranks take together for each.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`experiment`] | one experiment from its directory to its figures |
//! | `phase`, `figures` | one phase of it, and the sums of its repetitions |
//! | [`before`] | preparations and checks before a phase's clock starts |
//! | [`team`] | the threads of a rank in one phase |
//! | [`memory`] | memory of the threads, and the NUMA nodes that it is on |
//! | [`totals`] | sums of threads and ranks |
//! | [`verify`] | reading back and comparing |
//! | [`cache`] | the state of the page cache |
//! | [`storage`], [`limit`], [`scratch`] | the storage of the files, and the bandwidth that it gives to a single stream |
//! | `space` | space for the files, beside what their storages have |
//! | [`clean`], `old`, `ours` | removing files of this run and of earlier ones, and telling whether tonnage wrote them |
//! | [`ledger`] | what a rank has made, for whoever is left when it is killed |
//! | [`names`] | the file of a rank |
//!
//! The timed loops, and the content of files, are in [`tonnage_loops::files`]; the engines that make the calls are in
//! `tonnage_engines`. Next: [`crate::kinds::kind`] for the steps, [`experiment`]
//! for what they do here.

pub mod before;
pub mod cache;
pub mod clean;
pub mod experiment;
mod figures;
pub mod ledger;
pub mod limit;
pub mod memory;
pub mod names;
mod old;
mod ours;
mod phase;
pub mod scratch;
mod space;
pub mod storage;
pub mod team;
#[cfg(test)]
mod testing;
pub mod totals;
pub mod verify;

use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Course, Kind, Stage};
use clean::Made;
use experiment::Experiment;
use tonnage_plan::files::FilePoint;
use tonnage_record::{Body, FileBody, Record};

/// The kind: points share nothing that is open, have no warm-up and no canary, and their limit is measured before.
#[derive(Default)]
pub struct Files {
    /// Files of this run.
    made: Made,
}

impl Kind for Files {
    type Point = FilePoint;
    type Open = ();

    fn body(asked: AnnotatedPoint<'_, FilePoint>) -> Body {
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
        course: Course<'_>,
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
        let ended = experiment.measure(record, &mut body, course);
        record.body = body.into();
        ended
    }

    /// Removes what a point began to make and did not come to remove.
    fn abandon(&mut self) {
        self.made.remove_all();
    }
}
