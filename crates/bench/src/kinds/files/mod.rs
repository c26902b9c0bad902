//! File experiments: what all ranks do together for each.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`experiment`] | one experiment from its directory to its figures |
//! | `remarks` | what a reader of the figures has to know |
//! | `opened` | what the engines say of themselves |
//! | `phase`, `figures` | one phase of it, and what its repetitions add up to |
//! | `reading`, `after` | what is known of files that are there, and what follows a phase |
//! | [`before`] | what is made ready, and refused, before a phase's clock starts |
//! | [`team`] | the threads of a rank in one phase |
//! | [`totals`] | what threads and ranks add up to |
//! | [`verify`] | reading back and comparing |
//! | [`cache`] | what lies in the page cache |
//! | [`storage`], [`limit`], [`scratch`] | what the files are on, and what it gives to a single stream |
//! | [`clean`] | removing files |
//! | [`names`], [`order`], [`places`] | which file, a permutation without a table, and the sequence of a thread's transfers |
//! | [`data`], [`wrong`] | what the bytes are, and what is wrong with those that were read |
//! | [`timeline`] | bytes over time, in bounded memory |
//! | [`drive`] | the timed loops |
//!
//! The loops are in [`crate::kinds::files::drive`], what is where in [`crate::kinds::files`].

mod after;
pub mod before;
pub mod cache;

pub mod clean;
pub mod data;
pub mod drive;
pub mod experiment;
mod figures;
pub mod limit;
pub mod names;
mod opened;
pub mod order;
mod phase;
pub mod places;
mod reading;
mod remarks;
pub mod scratch;
pub mod storage;
pub mod team;
pub mod timeline;
pub mod totals;
pub mod verify;
pub mod wrong;

use crate::failure::{Failure, await_first_cause, outcome};
use crate::observer::Observer;
use crate::run::{Run, unix_ns};
use crate::settings::Settings;
use clean::Made;
use experiment::Experiment;
use tonnage_plan::files::FilePoint;
use tonnage_plan::point::Reading;
use tonnage_ranks::Rank;
use tonnage_record::{FileBody, Outcome, Record};
use tonnage_units::Result;

/// Measures one experiment. What fails only the experiment is in its record; what ends the run is beside it.
pub fn measure(
    (point, reading): (&FilePoint, &Reading),
    rank: &mut Rank,
    (settings, run): (&Settings, &Run),
    made: &mut Made,
    observer: &mut dyn Observer,
) -> (Record, Result<()>) {
    let mut body = FileBody::new(point.clone(), reading.clone());
    let not_begun = Outcome::Failed {
        why: "it was not begun".into(),
    };
    let mut record = run.record(settings, body.clone().into(), not_begun);
    let mut experiment = Experiment {
        point,
        reading,
        rank,
        settings,
        host: &run.host,
        made,
        observer,
    };
    let ended = experiment.measure(&mut record, &mut body);
    record.body = body.into();
    record.time_unix_ns = unix_ns();
    match ended {
        Ok(()) => record.outcome = Outcome::Measured,
        Err(Failure::Point(error)) => {
            // What it began to make and did not come to remove.
            made.remove_all();
            record.outcome = outcome(&error);
        }
        Err(Failure::Run(error)) => {
            await_first_cause(rank);
            rank.fail(&error);
            made.remove_all();
            // It comes back with the rank's name.
            await_first_cause(rank);
            let error = rank.why_stopped().unwrap_or(error);
            record.outcome = outcome(&error);
            return (record, Err(error));
        }
    }
    (record, Ok(()))
}
