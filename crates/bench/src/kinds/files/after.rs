//! Steps that follow a phase, outside its clock: noting how far it came, and reading everything back to compare it.

use super::before::Written;
use super::experiment::{Experiment, State, quota};
use super::phase::PhaseJob;
use super::team::{self, without_gap};
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::kinds::files::data::Pool;
use crate::kinds::files::names::{bytes_of_file, number_of, path_of};
use crate::kinds::files::stamp::FileKey;
use crate::kinds::files::verify::{Checker, VerifyFindings};
use crate::kinds::files::wrong::Wrong;
use tonnage_plan::files::{FileLayout, Phase};
use tonnage_units::{Error, Result};

impl Experiment<'_> {
    /// Notes how far each rank wrote: what a stonewall left unwritten cannot be read.
    pub(super) fn note_written(
        &mut self,
        state: &mut State,
        job: &PhaseJob<'_>,
    ) -> Result<(), StepFailure> {
        let point = self.point;
        if point.stonewall.is_none() {
            state.written = None;
            return Ok(());
        }
        let made = state.team.iter().map(|worker| worker.samples.transfers);
        let mine = without_gap(made, state.team.len() as u64).min(job.quota);
        let what = "how far ranks have written";
        let transfers = self.rank.gather(what, &mine, DEADLINES.phase)?;
        let written = Written { transfers };
        let mine = match &point.status_file {
            Some(path) if self.rank.id() == 0 => written.save(path.as_ref()),
            _ => Ok(()),
        };
        state.written = Some(written);
        self.agree("write the status file", mine)
    }

    /// Reads everything back and compares it; returns the bytes that were checked.
    pub(super) fn verify(
        &mut self,
        state: &mut State,
        phase: Phase,
        trial: u32,
        seed: Option<u64>,
    ) -> Result<u64, StepFailure> {
        let point = self.point;
        let mut job = self.job(state, Phase::Read, trial);
        if phase == Phase::Mixed {
            job.part = self.rank.id();
            job.path = path_of(point, job.part, trial);
        }
        if phase == Phase::Mixed && !point.collective {
            job.quota = quota(point, state.written.as_ref(), job.part);
        }
        job.measured = false;
        let seed = seed.unwrap_or(0);
        let pool = Pool::new(seed, point.data);
        let checker = |worker: &team::FileWorker| Checker {
            key: FileKey::new(seed, number_of(point, job.part)),
            pool: &pool,
            path: &job.path,
            files: if point.layout == FileLayout::Shared {
                1
            } else {
                point.ranks
            },
            file_bytes: bytes_of_file(point),
            memory: worker.memory.clone(),
            transfer_bytes: point.transfer_bytes,
            found: Wrong::default(),
        };
        let mut checkers: Vec<Checker<'_>> = state.team.iter().map(checker).collect();
        self.run(state, &job, &mut checkers)?;
        let mut found = Wrong::default();
        checkers
            .iter()
            .for_each(|checker| found.merge(&checker.found));
        let mine = VerifyFindings::of_rank(self.rank.id(), &found);
        let findings = self
            .rank
            .reduce("compare what was read", mine, DEADLINES.phase)?;
        match findings.complaint() {
            Some(complaint) => Err(StepFailure::Point(Error::Failed(complaint))),
            None => Ok(findings.checked_bytes),
        }
    }
}
