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

use std::time::Duration;

use crate::conductor::{Conductor, Settings, outcome, unix_ns};
use crate::kinds::transfer::point::Failure;
use clean::Made;
use experiment::Experiment;
use tonnage_engine::calls::FileEntry;
use tonnage_plan::file_point::{FilePoint, Phase};
use tonnage_ranks::Rank;
use tonnage_record::files::FileRecord;
use tonnage_record::{Outcome, SCHEMA_VERSION};
use tonnage_units::Result;

/// Who is told how file experiments go. Called on rank 0 only.
pub trait FileObserver: Send {
    /// An experiment begins: its index, how many there are, and what it is.
    fn begin(&mut self, index: usize, of: usize, point: &FilePoint);
    /// How far a phase is; several times a second, while the ranks are at work.
    fn progress(&mut self, progress: &Progress);
    /// An experiment ended, one way or another.
    ///
    /// # Errors
    /// What ends the run, such as a full disk.
    fn record(&mut self, record: FileRecord) -> Result<()>;
}

/// How far a phase is, as rank 0 sees it from its own part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Which phase.
    pub phase: Phase,
    /// Which repetition, from 0.
    pub trial: u32,
    /// Bytes that rank 0 has moved so far.
    pub done_bytes: u64,
    /// Bytes that it is to move; a stonewall may end the phase before.
    pub all_bytes: u64,
    /// How many ranks there are, each of which has about as much to do.
    pub ranks: u32,
    /// Since the phase began.
    pub elapsed: Duration,
    /// Until a stonewall; absent without one.
    pub left: Option<Duration>,
}

/// Runs file experiments in their order. Every rank calls it with the same ones; rank 0's observer gets the records.
///
/// # Errors
/// What ends the whole run; what fails only an experiment is in its record.
pub fn run_files(
    points: &[FilePoint],
    rank: &mut Rank,
    engines: &[FileEntry],
    settings: &Settings,
    observer: &mut dyn FileObserver,
) -> Result<()> {
    if points.is_empty() {
        return Ok(());
    }
    let conductor = Conductor::new(rank, settings)?;
    let mut made = Made::default();
    for (index, point) in points.iter().enumerate() {
        if rank.id() == 0 {
            observer.begin(index, points.len(), point);
        }
        let mut record = blank(&conductor, settings, point);
        let mut experiment = Experiment {
            point,
            rank,
            settings,
            host: &conductor.host,
            made: &mut made,
            observer,
        };
        let ended = experiment.measure(engines, &mut record);
        record.time_unix_ns = unix_ns();
        match ended {
            Ok(()) => record.outcome = Outcome::Measured,
            Err(Failure::Point(error)) => {
                // What it began to make and did not come to remove.
                made.remove_all();
                record.outcome = outcome(&error);
            }
            Err(Failure::Run(error)) => {
                crate::kinds::transfer::point::await_first_cause(rank);
                rank.fail(&error);
                made.remove_all();
                // It comes back with the rank's name.
                crate::kinds::transfer::point::await_first_cause(rank);
                let error = rank.why_stopped().unwrap_or(error);
                record.outcome = outcome(&error);
                if rank.id() == 0 {
                    observer.record(record)?;
                }
                return Err(error);
            }
        }
        if rank.id() == 0 {
            observer.record(record)?;
        }
    }
    Ok(())
}

fn blank(conductor: &Conductor, settings: &Settings, point: &FilePoint) -> FileRecord {
    FileRecord {
        schema_version: SCHEMA_VERSION,
        run_id: conductor.run_id.clone(),
        plan: settings.plan.clone(),
        time_unix_ns: unix_ns(),
        tonnage: settings.program.clone(),
        file: point.clone(),
        effective: Vec::new(),
        environment: conductor.environment.clone(),
        storage: Vec::new(),
        outcome: Outcome::Failed {
            why: "it was not begun".into(),
        },
        phases: Vec::new(),
        remarks: Vec::new(),
    }
}
