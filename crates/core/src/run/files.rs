//! File experiments: what all ranks do together for one.

use std::time::Duration;

use super::Settings;
use crate::engine::calls::FileEntry;
use crate::plan::file_point::{FilePoint, Phase};
use crate::rank::Rank;
use crate::record::files::FileRecord;
use crate::{Error, Result};

/// Who is told how file experiments go. Called on rank 0 only.
pub trait FileObserver {
    /// An experiment begins: its index, how many there are, and what it is.
    fn begin(&mut self, index: usize, of: usize, point: &FilePoint);
    /// How far a phase is; several times a second.
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
    _rank: &mut Rank,
    _engines: &[FileEntry],
    _settings: &Settings,
    _observer: &mut dyn FileObserver,
) -> Result<()> {
    match points {
        [] => Ok(()),
        _ => Err(Error::Failed("file experiments are being built".into())),
    }
}
