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
//! | [`check`] | reading back and comparing |
//! | [`cache`] | what lies in the page cache |
//! | [`storage`], [`limit`], [`scratch`] | what the files are on, and what it gives to a single stream |
//! | [`clean`] | removing files |
//!
//! The loops are in [`crate::drive::files`], what is where in [`crate::files`].

mod after;
pub mod before;
pub mod cache;
pub mod check;
pub mod clean;
pub mod experiment;
mod figures;
pub mod limit;
mod opened;
mod phase;
mod reading;
mod remarks;
pub mod scratch;
pub mod storage;
pub mod team;
pub mod totals;

use std::time::Duration;

use super::point::Failure;
use super::{Conductor, Settings, outcome, unix_ns};
use crate::Result;
use crate::engine::calls::FileEntry;
use crate::plan::file_point::{FilePoint, Phase};
use crate::rank::Rank;
use crate::record::files::FileRecord;
use crate::record::{Outcome, SCHEMA_VERSION};
use clean::Made;
use experiment::Experiment;

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
                super::point::await_first_cause(rank);
                rank.fail(&error);
                made.remove_all();
                // It comes back with the rank's name.
                super::point::await_first_cause(rank);
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
