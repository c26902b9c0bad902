//! One phase on all ranks: prepared, timed, added up over the ranks, and verified if requested.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::cache::{CachedBytes, drop_file};
use super::checks::{self, WrittenTransfers};
use super::earlier_runs::remove_if_ours;
use super::experiment::{Experiment, PhasesState, transfers_to_read};
use super::ledger::Inode;
use super::phase_threads::{self, PhasePlan, PhaseState, contiguous_prefix};
use super::space::files_of_rank;
use super::storage::directory_of;
use super::totals::{PhaseTotals, ThreadFigures};
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::kinds::files::names::{bytes_of_file, number_of, path_of, source_of};
use crate::kinds::files::verify::{Checker, VerifyFindings};
use crate::latencies::merge_all;
use crate::loop_parameters::{file_pattern, zeros_percent};
use crate::observer::{Observer, PhaseProgress, Progress};
use crate::threads;
use tonnage_loops::files::data::ContentPool;
use tonnage_loops::files::differences::{CandidateFiles, DataDifferences};
use tonnage_loops::files::drive::BufferLayout;
use tonnage_loops::files::sequence::{FilePattern, FilePieces, Sequence};
use tonnage_loops::files::stamp::FileKey;
use tonnage_plan::files::{FileLayout, FileOrder, FilePoint, Phase};
use tonnage_ranks::{pack, unpack};
use tonnage_record::files::CacheState;
use tonnage_units::Bytes;
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Result};

/// Time between two progress reports of a phase on rank 0.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// Time limit for a rank to see a file that rank 0 has created. NFS clients may cache the content of a directory for up
/// to a minute.
const VISIBLE_WITHIN: Duration = Duration::from_secs(70);

/// Work of this rank in one phase.
pub struct PhaseJob<'a> {
    /// Write, read or mixed.
    pub phase: Phase,
    /// Index of the repetition.
    pub trial: u32,
    /// The rank that wrote or writes the data of this job.
    pub part: u32,
    /// Path of the file.
    pub path: PathBuf,
    /// Number of transfers that this rank makes.
    pub quota: u64,
    /// Order of the transfers: sequential or shuffled.
    pub order: FileOrder,
    /// Whether the phase is measured; false for prefilling and verification.
    pub measured: bool,
    /// Key and content of the data to write; `None` if the phase writes nothing.
    pub data: Option<(FileKey, &'a ContentPool)>,
    /// Whether this rank creates the file when it opens it.
    pub makes: bool,
    /// Identity of a file that was inspected or created before the clock starts. The phase must open exactly this file.
    pub expected_file: Option<Inode>,
}

impl Experiment<'_> {
    /// Runs one repetition of a phase.
    pub(super) fn run_phase(
        &mut self,
        state: &mut PhasesState,
        trial: u32,
        index: usize,
    ) -> Result<(), StepFailure> {
        let (point, phase) = (self.point, self.point.phases[index]);
        if trial > 0 || index > 0 {
            self.pause(Duration::from_nanos(point.delay_ns))?;
        }
        let mut job = self.phase_job(state, phase, trial);
        self.prepare_files(state, &mut job)?;
        // Finding the seed reads from the file, so this comes before the cache is dropped and measured.
        let seed = self.agree_on_seed(phase, &job)?;
        let written = state.written.as_ref();
        let reads = phase
            .reads()
            .then(|| self.drop_and_measure_cache(&job, written));
        let cache = reads.transpose()?;
        let written = seed.filter(|_| phase.writes());
        let data = written.map(|seed| {
            (
                self.file_key(seed, job.part),
                ContentPool::new(seed, zeros_percent(point.data)),
            )
        });
        job.data = data.as_ref().map(|(key, pool)| (*key, pool));
        let figures = self.run_threads(state, &job, &mut [])?;
        let totals = self.add_up(state, index, &figures)?;
        if phase.writes() {
            // All ranks have closed their files, so this state is final.
            self.made.record_written(&job.path);
            self.register_cleanup();
        }
        if phase == Phase::Write {
            self.record_written_transfers(state, &job)?;
        }
        // All ranks have the same totals, and therefore decide the same.
        if let Some(why) = totals.why_empty(point, phase, trial) {
            return Err(StepFailure::Point(Error::Failed(why)));
        }
        let mut entry = totals.trial(
            point,
            self.reading.outlier_ns,
            trial,
            self.rank.rank_infos(),
        );
        entry.cache = cache;
        entry.data_seed = seed;
        state.sums[index].trials.push(entry);
        if point.verify_after.contains(&phase) {
            let checked_bytes = self.verify_written(state, phase, trial, seed)?;
            if let Some(entry) = state.sums[index].trials.last_mut() {
                entry.verified_bytes = Some(checked_bytes);
            }
        }
        Ok(())
    }

    /// Before the first phase, writes all files completely. This is not timed.
    pub(super) fn prefill(&mut self, state: &mut PhasesState) -> Result<(), StepFailure> {
        let point = self.point;
        for trial in 0..files_of_rank(point) {
            let mut job = self.phase_job(state, Phase::Write, trial);
            (job.order, job.measured) = (FileOrder::Sequential, false);
            self.prepare_files(state, &mut job)?;
            let seed = self.agree_on_seed(Phase::Write, &job)?.unwrap_or(0);
            let pool = ContentPool::new(seed, zeros_percent(point.data));
            job.data = Some((self.file_key(seed, job.part), &pool));
            self.run_threads(state, &job, &mut [])?;
            // All ranks must have written their parts before the state of a file is recorded.
            self.rank.barrier("the files are filled", DEADLINES.phase)?;
            self.made.record_written(&job.path);
            self.register_cleanup();
        }
        state.prefilled = true;
        Ok(())
    }

    fn phase_job(&self, state: &PhasesState, phase: Phase, trial: u32) -> PhaseJob<'static> {
        let (point, id) = (self.point, self.rank.id());
        let part = if phase == Phase::Read {
            source_of(point, id)
        } else {
            id
        };
        let written = state.written.as_ref().filter(|_| phase != Phase::Write);
        let quota_of = |part| transfers_to_read(point, written, part);
        let quota = if point.collective {
            // All ranks must make the same number of collective calls, so the smallest number counts.
            (0..point.ranks).map(quota_of).min().unwrap_or(0)
        } else {
            quota_of(part)
        };
        PhaseJob {
            phase,
            trial,
            part,
            path: path_of(point, part, trial),
            quota,
            order: point.order,
            measured: true,
            data: None,
            makes: false,
            expected_file: None,
        }
    }

    /// Returns the key of a rank's data.
    fn file_key(&self, seed: u64, part: u32) -> FileKey {
        FileKey::new(seed, number_of(self.point, part))
    }

    /// Waits between phases. Ends early with an error if the run is stopped.
    fn pause(&mut self, delay: Duration) -> Result<()> {
        let until = Instant::now() + delay;
        self.rank.set_phase("pausing before a phase");
        while let left @ 1.. = until.saturating_duration_since(Instant::now()).as_nanos() {
            if let Some(error) = self.rank.why_stopped() {
                return Err(error);
            }
            let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
        Ok(())
    }

    /// Prepares the files of a phase. Removes old files, creates directories and new files, and checks files that will
    /// be read.
    fn prepare_files(
        &mut self,
        state: &mut PhasesState,
        job: &mut PhaseJob<'_>,
    ) -> Result<(), StepFailure> {
        let (point, id) = (self.point, self.rank.id());
        let makes = point.layout == FileLayout::PerProcess || id == 0;
        if job.phase == Phase::Write {
            let fresh = !point.existing && !state.prefilled;
            // A file of this run's previous repetition is not reported as an earlier run's.
            let is_new = !self.made.contains(&job.path);
            let removed = if fresh && makes {
                remove_if_ours(point, &job.path, id)
            } else {
                Ok(false)
            };
            if self.agree("remove files of an earlier run", removed)? && is_new {
                state.removed.add(&job.path, point.directory_per_rank);
            }
            self.made.record_planned(point, id, job.trial);
            self.register_cleanup();
            let made = self.create_phase_file(state, job, fresh && makes);
            if let Some(striping) = self.agree("make the files", made)? {
                state.striping = Some(striping);
            }
            if point.layout == FileLayout::Shared {
                self.find_shared(job)?;
            }
            return Ok(());
        }
        let mine = self.check_sources(job.phase, state.written.as_ref(), job.trial);
        self.agree("inspect the files to read", mine)?;
        if job.phase != Phase::Mixed {
            return Ok(());
        }
        // A mixed phase overwrites data, so the file must be one that tonnage wrote or that the user named as existing.
        let judged = if point.existing {
            Ok(Inode::at(&job.path))
        } else {
            let seed = checks::find_seed(point, &job.path, job.part, job.quota);
            seed.map(|(_, inode)| Some(inode))
        };
        job.expected_file = self.agree("inspect the files to overwrite", judged)?;
        Ok(())
    }

    /// Creates the file that a phase writes, or determines the identity of an existing file. A rank creates its own
    /// file only within the timed interval, unless the file has stripes. Returns a description of the striping.
    fn create_phase_file(
        &mut self,
        state: &PhasesState,
        job: &mut PhaseJob<'_>,
        is_fresh: bool,
    ) -> Result<Option<String>> {
        let (point, id) = (self.point, self.rank.id());
        let is_shared = point.layout == FileLayout::Shared;
        if is_shared && id != 0 {
            return Ok(None);
        }
        // A file from an earlier phase must not have been replaced since.
        if !is_fresh {
            let made = self.made.identity(&job.path);
            job.expected_file = made.or_else(|| Inode::at(&job.path));
        }
        if job.expected_file.is_some() {
            return Ok(None);
        }
        let place = state.places.get(id as usize);
        let (description, striped) = match (point.striping.filter(|_| is_fresh), place) {
            (Some(striping), Some(place)) => {
                let (description, made) = checks::create_striped_file(&job.path, place, striping)?;
                (Some(description), made)
            }
            _ => (None, None),
        };
        job.expected_file = match striped {
            None if is_shared => Some(checks::create_file(&job.path)?),
            striped => striped,
        };
        match (job.expected_file, self.made.pending_id(&job.path)) {
            (Some(made), Some(pending)) => pending.set(Some(made)),
            (Some(_), None) => {}
            (None, _) => job.makes = true,
        }
        Ok(description)
    }

    /// Waits until this rank sees the shared file, which rank 0 has created or found. If this rank is on rank 0's
    /// machine, both ranks must see the same identity.
    fn find_shared(&mut self, job: &mut PhaseJob<'_>) -> Result<(), StepFailure> {
        let id = self.rank.id();
        let mine = (id == 0).then(|| pack(&job.expected_file)).transpose()?;
        let what = "which file is shared";
        let message = self.rank.broadcast(what, mine, DEADLINES.phase)?;
        let of_root: Option<Inode> = unpack(&message)?;
        let hosts = self.rank.hosts();
        let on_same_machine = hosts.machine(id) == hosts.machine(0);
        let mine = if id == 0 {
            Ok(None)
        } else {
            self.wait_for_file(&job.path).map(Some)
        };
        // Other hosts may number inodes differently, or may see an older file for some time, so they are not compared.
        let mine = mine.and_then(|seen| match seen.filter(|_| on_same_machine) {
            Some(_) if seen != of_root => Err(phase_threads::replaced_error(&job.path)),
            local => Ok(local),
        });
        let local = self.agree("find the shared file", mine)?;
        job.expected_file = local.or(job.expected_file);
        Ok(())
    }

    /// Waits for a file that another rank has created. The client of a network file system may have cached that the
    /// file does not exist. Opening the directory refreshes this cache.
    fn wait_for_file(&mut self, path: &Path) -> Result<Inode> {
        let until = Instant::now() + VISIBLE_WITHIN;
        loop {
            if let Some(inode) = Inode::at(path) {
                return Ok(inode);
            }
            if let Some(error) = self.rank.why_stopped() {
                return Err(error);
            }
            if Instant::now() >= until {
                return Err(Error::Failed(format!(
                    "{} was made by rank 0 and is not here: a shared file needs a directory that all hosts share; name \
                     one, or use --layout per-process",
                    path.display()
                )));
            }
            drop(std::fs::File::open(directory_of(path)));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs the threads of this rank, beginning at the common start.
    fn run_threads(
        &mut self,
        state: &mut PhasesState,
        job: &PhaseJob<'_>,
        checkers: &mut [Checker<'_>],
    ) -> Result<Vec<ThreadFigures>, StepFailure> {
        let point = self.point;
        if let Some((_, pool)) = job.data {
            for worker in state.team.iter().filter(|worker| worker.buffers.slots > 0) {
                let BufferLayout { source, slots, .. } = worker.buffers;
                pool.copy_into(&worker.memory.arena, source, 0, slots)?;
            }
        }
        self.rank.set_phase(&format!(
            "{} phase of repetition {}",
            job.phase.name(),
            job.trial
        ));
        if job.measured {
            self.cpu.begin_groups();
        }
        let start_ns = self
            .rank
            .aligned_start("start of a phase", DEADLINES.phase)?;
        let clock = self.settings.clock;
        // The phase may begin long after its trial began, so the clock is synchronized again.
        clock.follow();
        let pending_id = self
            .made
            .pending_id(&job.path)
            .filter(|_| job.phase == Phase::Write);
        let ordered = FilePattern {
            order: job.order,
            ..file_pattern(point, job.phase)
        };
        let plan = PhasePlan {
            point,
            job,
            name: job.path.display().to_string(),
            places: Sequence::new(&ordered, job.part),
            start_ns,
            clock,
        };
        let shared = PhaseState::new(state.team.len(), self.rank.stop_flag(), pending_id);
        let progress = PhaseProgress {
            phase: job.phase,
            trial: job.trial,
            done_bytes: 0,
            all_bytes: job.quota * point.transfer_bytes,
            ranks: point.ranks,
            elapsed: Duration::ZERO,
            left: None,
        };
        let watches = self.rank.id() == 0 && job.measured;
        let (rank, observer) = (&mut *self.rank, &mut *self.observer);
        let figures = std::thread::scope(|scope| {
            let (over, until_over) = channel::<()>();
            if watches {
                let (watched, wall) = (&shared.watched, plan.stonewall());
                threads::start(scope, "progress", move || {
                    let wall = wall.map(|wall| Duration::from_nanos(wall.after_ns));
                    report_progress(observer, progress, wall, watched, &until_over);
                })?;
            }
            let figures = phase_threads::run(&plan, &shared, &mut state.team, checkers, rank);
            drop(over);
            figures
        });
        if let Some(figures) = figures.as_ref().ok().filter(|_| job.measured) {
            for thread in figures {
                self.cpu.count(thread.sched, thread.close.end_ns);
            }
            self.cpu.end_groups(figures.len());
        }
        figures.map_err(|error| {
            if job.measured {
                let elapsed_ns = clock.now_ns().saturating_sub(start_ns);
                state
                    .remarks
                    .push(describe_progress(point, job, &state.team, elapsed_ns));
            }
            StepFailure::Run(error)
        })
    }

    /// Drops cached data if requested, and measures how much is still cached.
    fn drop_and_measure_cache(
        &mut self,
        job: &PhaseJob<'_>,
        written: Option<&WrittenTransfers>,
    ) -> Result<CacheState, StepFailure> {
        let point = self.point;
        let id = self.rank.id();
        if point.drop_caches {
            // Ranks on one machine share its page cache, so one of them suffices to drop a shared file.
            let drops =
                point.layout == FileLayout::PerProcess || self.rank.hosts().machine(id) == Some(id);
            let own = path_of(point, id, job.trial);
            let both = [&own, &job.path];
            let mut cached = both.into_iter().filter(|path| drops && path.exists());
            let mine = cached.try_for_each(|path| drop_file(path));
            self.agree("drop cached data", mine)?;
        }
        let mine = self.own_part_to_read(job, written);
        let mine = mine.map_or_else(CachedBytes::default, |reads| {
            CachedBytes::measure(&job.path, &reads)
        });
        let all = self.rank.reduce("cached data", mine, DEADLINES.phase)?;
        Ok(all.record(point.drop_caches, point.direct))
    }

    /// Returns the part of the file in which this rank looks for cached data. It is the part that this rank will read,
    /// because each host knows only its own cache. No two ranks read the same bytes, so each byte counts once.
    fn own_part_to_read(
        &self,
        job: &PhaseJob<'_>,
        written: Option<&WrittenTransfers>,
    ) -> Option<FilePieces> {
        let point = self.point;
        let everything = point.layout == FileLayout::Shared
            && self.rank.hosts().is_one_machine()
            && (0..point.ranks)
                .all(|part| transfers_to_read(point, written, part) == point.transfers_of_rank());
        if everything {
            // A single query for the whole file replaces one query per piece of a shuffled order.
            return (self.rank.id() == 0).then(|| FilePieces::whole(bytes_of_file(point)));
        }
        Some(Sequence::new(&file_pattern(point, job.phase), job.part).pieces(job.quota))
    }

    /// Rank 0 determines the seed of the data to write or check, and sends it to all ranks.
    fn agree_on_seed(
        &mut self,
        phase: Phase,
        job: &PhaseJob<'_>,
    ) -> Result<Option<u64>, StepFailure> {
        let point = self.point;
        if !phase.writes() && !point.verify_after.contains(&phase) {
            return Ok(None);
        }
        let fresh = || point.data_seed.map_or_else(random_seed, Ok);
        let found = match (self.rank.id(), phase) {
            (0, Phase::Write) => fresh(),
            // New data must have the same seed as the existing data of the file.
            (0, _) => match checks::find_seed(point, &job.path, job.part, job.quota) {
                Ok((seed, _)) => seed_of_file(point, &job.path, seed),
                Err(_) if point.existing && point.verify_after.is_empty() => fresh(),
                Err(error) => Err(error),
            },
            _ => Ok(0),
        };
        let seed = self.agree("find out the seed of the data", found)?;
        let mine = (self.rank.id() == 0).then(|| pack(&seed)).transpose()?;
        let what = "the seed of the data";
        let message = self.rank.broadcast(what, mine, DEADLINES.phase)?;
        Ok(Some(unpack(&message)?))
    }

    /// Records how many transfers each rank has written. Data after a stonewall don't exist and cannot be read.
    fn record_written_transfers(
        &mut self,
        state: &mut PhasesState,
        job: &PhaseJob<'_>,
    ) -> Result<(), StepFailure> {
        let point = self.point;
        if point.stonewall.is_none() {
            state.written = None;
            return Ok(());
        }
        let made = state.team.iter().map(|worker| worker.samples.transfers);
        let mine = contiguous_prefix(made, state.team.len() as u64).min(job.quota);
        let what = "how far ranks have written";
        let transfers = self.rank.gather(what, &mine, DEADLINES.phase)?;
        let written = WrittenTransfers { transfers };
        let mine = match &point.status_file {
            Some(path) if self.rank.id() == 0 => written.save(path.as_ref()),
            _ => Ok(()),
        };
        state.written = Some(written);
        self.agree("write the status file", mine)
    }

    /// Reads all data back and compares them. Returns the number of bytes that were compared.
    fn verify_written(
        &mut self,
        state: &mut PhasesState,
        phase: Phase,
        trial: u32,
        seed: Option<u64>,
    ) -> Result<u64, StepFailure> {
        let point = self.point;
        let mut job = self.phase_job(state, Phase::Read, trial);
        if phase == Phase::Mixed {
            job.part = self.rank.id();
            job.path = path_of(point, job.part, trial);
        }
        if phase == Phase::Mixed && !point.collective {
            job.quota = transfers_to_read(point, state.written.as_ref(), job.part);
        }
        job.measured = false;
        let seed = seed.unwrap_or(0);
        let pool = ContentPool::new(seed, zeros_percent(point.data));
        let checker = |worker: &phase_threads::FileWorker| Checker {
            key: self.file_key(seed, job.part),
            pool: &pool,
            files: CandidateFiles {
                path: &job.path,
                count: match point.layout {
                    FileLayout::Shared => 1,
                    FileLayout::PerProcess => point.ranks,
                },
                bytes: bytes_of_file(point),
            },
            memory: worker.memory.arena.clone(),
            transfer_bytes: point.transfer_bytes,
            found: DataDifferences::default(),
        };
        let mut checkers: Vec<Checker<'_>> = state.team.iter().map(checker).collect();
        self.run_threads(state, &job, &mut checkers)?;
        let mut found = DataDifferences::default();
        checkers
            .iter()
            .for_each(|checker| found.merge(&checker.found));
        let mine = VerifyFindings::from_rank(self.rank.id(), &found);
        let findings = self
            .rank
            .reduce("compare the data read", mine, DEADLINES.phase)?;
        match findings.describe_fault() {
            Some(complaint) => Err(StepFailure::Point(Error::Failed(complaint))),
            None => Ok(findings.checked_bytes),
        }
    }

    /// Adds up the results of all ranks.
    fn add_up(
        &mut self,
        state: &mut PhasesState,
        index: usize,
        figures: &[ThreadFigures],
    ) -> Result<PhaseTotals> {
        let samples = state.team.iter().map(|worker| &worker.samples);
        let mine = PhaseTotals::from_threads(self.rank.id(), figures.iter().zip(samples));
        let mine = mine.ok_or_else(|| Error::Failed("a rank needs at least one thread".into()))?;
        let totals = self.rank.reduce("add up a phase", mine, DEADLINES.phase)?;
        let [mut reads, mut writes] = [LatencyHistogram::new(), LatencyHistogram::new()];
        for worker in &state.team {
            reads.merge(&worker.samples.read_latencies);
            writes.merge(&worker.samples.write_latencies);
        }
        let sums = &mut state.sums[index];
        for (mine, into) in [(reads, &mut sums.reads), (writes, &mut sums.writes)] {
            into.merge(&merge_all(
                self.rank,
                "merge latencies",
                &mine,
                DEADLINES.phase,
            )?);
        }
        Ok(totals)
    }
}

/// Describes how far a failed phase got, as far as this rank knows.
fn describe_progress(
    point: &FilePoint,
    job: &PhaseJob<'_>,
    team: &[phase_threads::FileWorker],
    elapsed_ns: u64,
) -> String {
    let transfers: u64 = team.iter().map(|worker| worker.samples.transfers).sum();
    format!(
        "the {} phase of repetition {} was not finished: when it ended, {:.2} s after its start, rank 0 had moved {} in \
         {transfers} transfers",
        job.phase.name(),
        job.trial + 1,
        elapsed_ns as f64 / 1e9,
        Bytes(transfers * point.transfer_bytes)
    )
}

/// Reports the progress of the phase to the observer until the channel closes.
fn report_progress(
    observer: &mut dyn Observer,
    mut progress: PhaseProgress,
    wall: Option<Duration>,
    watched: &[AtomicU64],
    until_over: &std::sync::mpsc::Receiver<()>,
) {
    let since = Instant::now();
    while let Err(RecvTimeoutError::Timeout) = until_over.recv_timeout(PROGRESS_EVERY) {
        progress.done_bytes = watched
            .iter()
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .sum();
        progress.elapsed = since.elapsed();
        progress.left = wall.map(|wall| wall.saturating_sub(progress.elapsed));
        observer.progress(&Progress::Phase(progress));
    }
}

/// Returns the seed of a file's data. Returns an error if the user requested another one.
fn seed_of_file(point: &FilePoint, path: &Path, seed: u64) -> Result<u64> {
    match point.data_seed {
        Some(asked) if asked != seed => Err(Error::Failed(format!(
            "{} holds data of seed {seed}, not of --data-seed {asked}: leave --data-seed out, or write the file again",
            path.display()
        ))),
        _ => Ok(seed),
    }
}

fn random_seed() -> Result<u64> {
    getrandom::u64().map_err(|error| {
        Error::Failed(format!(
            "no random seed: {error}; give one with --data-seed"
        ))
    })
}
