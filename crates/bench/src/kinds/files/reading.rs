//! Facts about the files that a phase reads: how much of them is cached, and the seed of their data.

use super::before::{self, Written};
use super::cache::{Cached, drop_file};
use super::experiment::{Experiment, quota, split};
use super::phase::PhaseJob;
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::kinds::files::names::{bytes_of_file, path_of};
use crate::kinds::files::sequence::{Pieces, Sequence};
use tonnage_plan::files::{FileLayout, FilePoint, Phase};
use tonnage_ranks::{pack, unpack};
use tonnage_record::files::CacheState;
use tonnage_units::{Error, Result};

impl Experiment<'_> {
    /// Drops what is cached where that is asked for, and tells how much is cached still.
    pub(super) fn cache(
        &mut self,
        job: &PhaseJob<'_>,
        written: Option<&Written>,
    ) -> Result<CacheState, StepFailure> {
        let point = self.point;
        let id = self.rank.id();
        if point.drop_caches {
            // Ranks of one machine share its page cache, so that one of them drops a shared file.
            let drops =
                point.layout == FileLayout::PerProcess || self.rank.hosts().machine(id) == Some(id);
            let own = path_of(point, id, job.trial);
            let both = [&own, &job.path];
            let mine = if drops {
                both.into_iter()
                    .filter(|path| path.exists())
                    .try_for_each(|path| drop_file(path))
            } else {
                Ok(())
            };
            self.agree("drop what is cached", mine)?;
        }
        let mine = self.to_read(job, written);
        let mine = mine.map_or_else(Cached::default, |reads| Cached::look(&job.path, &reads));
        let all = self.rank.reduce("what is cached", mine, DEADLINES.phase)?;
        Ok(all.record(point.drop_caches, point.direct))
    }

    /// The part of its file that this rank looks at for the others: what it will read itself, so that no host is asked
    /// about what another one reads. No two ranks read the same bytes, so that each is counted once.
    fn to_read(&self, job: &PhaseJob<'_>, written: Option<&Written>) -> Option<Pieces> {
        let point = self.point;
        let everything = point.layout == FileLayout::Shared
            && self.rank.hosts().is_one_machine()
            && (0..point.ranks)
                .all(|part| quota(point, written, part) == point.transfers_of_rank());
        if everything {
            // One question instead of one for each place of a shuffled order.
            return (self.rank.id() == 0).then(|| Pieces::whole(bytes_of_file(point)));
        }
        Some(Sequence::new(point, job.part, job.phase).pieces(job.quota))
    }

    /// The seed of what is written or checked: rank 0 says it.
    pub(super) fn seed(
        &mut self,
        phase: Phase,
        job: &PhaseJob<'_>,
    ) -> Result<Option<u64>, StepFailure> {
        let point = self.point;
        if !phase.writes() && !point.verify_after.contains(&phase) {
            return Ok(None);
        }
        let fresh = || point.data_seed.map_or_else(random, Ok);
        let found = match (self.rank.id(), phase) {
            (0, Phase::Write) => fresh(),
            // Data of one file must be of one seed.
            (0, _) => match before::seed_of(point, &job.path, job.part, job.quota) {
                Ok((seed, _)) => asked_seed(point, &job.path, seed),
                Err(_) if point.existing && point.verify_after.is_empty() => fresh(),
                Err(error) => Err(error),
            },
            _ => Ok(0),
        };
        let (seed, mine) = split(found);
        self.agree("find out the seed of the data", mine)?;
        let mine = match (self.rank.id(), seed) {
            (0, Some(seed)) => Some(pack(&seed)?),
            _ => None,
        };
        let said = self
            .rank
            .broadcast("the seed of the data", mine, DEADLINES.phase)?;
        Ok(Some(unpack(&said)?))
    }
}

/// The seed that a file has, unless another was asked for.
fn asked_seed(point: &FilePoint, path: &std::path::Path, seed: u64) -> Result<u64> {
    match point.data_seed {
        Some(asked) if asked != seed => Err(Error::Failed(format!(
            "{} holds data of seed {seed}, and --data-seed says {asked}: leave it out, or write the file anew",
            path.display()
        ))),
        _ => Ok(seed),
    }
}

fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| {
        Error::Failed(format!(
            "no random seed: {error}; give one with --data-seed"
        ))
    })
}
