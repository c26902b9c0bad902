//! One phase on all ranks: made ready, timed, added up, and checked where that is asked for.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tonnage_sys::clock::Clock;

use super::before;
use super::experiment::{Experiment, State, quota, split};
use super::ledger::Inode;
use super::old::remove_old;
use super::storage::directory_of;
use super::team::{self, PhasePlan, PhaseState};
use super::totals::{PhaseTotals, ThreadFigures};
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::kinds::files::data::Pool;
use crate::kinds::files::drive::{Blind, Inspect};
use crate::kinds::files::names::{number_of, path_of, source_of};
use crate::kinds::files::sequence::Sequence;
use crate::kinds::files::stamp::FileKey;
use crate::latencies::merge_all;
use crate::observer::{Observer, PhaseProgress, Progress};
use crate::threads;
use tonnage_engine::calls::View;
use tonnage_plan::files::{FileLayout, FileOrder, FilePoint, Fsync, Phase};
use tonnage_ranks::{pack, unpack};
use tonnage_record::histogram::LatencyHistogram;
use tonnage_units::Bytes;
use tonnage_units::{Error, Result};

/// Time between two reports of a phase's progress to rank 0.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// Time within which every rank sees a file that rank 0 has made. Clients of NFS believe for up to a minute what they
/// have known of a directory.
const SEEN_WITHIN: Duration = Duration::from_secs(70);

/// Job of one phase, as this rank sees it.
pub(super) struct PhaseJob<'a> {
    /// Write, read or mixed.
    pub phase: Phase,
    /// Repetition.
    pub trial: u32,
    /// The rank whose data is moved.
    pub part: u32,
    /// Path of the file.
    pub path: PathBuf,
    /// Transfers of this rank.
    pub quota: u64,
    /// Sequential or shuffled.
    pub order: FileOrder,
    /// Fills and checks are not what is measured.
    pub measured: bool,
    /// Data that is written.
    pub data: Option<(FileKey, &'a Pool)>,
    /// True when this rank makes the file as it opens it.
    pub makes: bool,
    /// The file that was looked at or made before the clock starts: no other may be opened in its place.
    pub looked_at: Option<Inode>,
}

impl Experiment<'_> {
    /// One repetition of a phase.
    pub(super) fn phase(
        &mut self,
        state: &mut State,
        trial: u32,
        index: usize,
    ) -> Result<(), StepFailure> {
        let (point, phase) = (self.point, self.point.phases[index]);
        if trial > 0 || index > 0 {
            self.pause(Duration::from_nanos(point.delay_ns))?;
        }
        let mut job = self.job(state, phase, trial);
        self.ready(state, &mut job)?;
        // Finding the seed reads, so it comes before what is cached is dropped and told.
        let seed = self.seed(phase, &job)?;
        let cache = if phase.reads() {
            Some(self.cache(&job, state.written.as_ref())?)
        } else {
            None
        };
        let pool = seed
            .filter(|_| phase.writes())
            .map(|seed| Pool::new(seed, point.data));
        job.data = seed
            .zip(pool.as_ref())
            .map(|(seed, pool)| (FileKey::new(seed, number_of(point, job.part)), pool));
        let figures = self.run(state, &job, &mut vec![Blind; state.team.len()])?;
        let totals = self.add_up(state, index, &figures)?;
        if phase.writes() {
            // All ranks have closed their files: what is there now is as this run left it.
            self.made.note(&job.path);
            self.bequeath();
        }
        if phase == Phase::Write {
            self.note_written(state, &job)?;
        }
        // All ranks know the same sums.
        if let Some(why) = totals.why_empty(point, phase, trial) {
            return Err(StepFailure::Point(Error::Failed(why)));
        }
        let mut entry = totals.trial(point, self.reading.outlier_ns, trial, self.rank.infos());
        entry.cache = cache;
        entry.data_seed = seed;
        state.sums[index].trials.push(entry);
        if point.verify_after.contains(&phase) {
            let checked_bytes = self.verify(state, phase, trial, seed)?;
            if let Some(entry) = state.sums[index].trials.last_mut() {
                entry.verified_bytes = Some(checked_bytes);
            }
        }
        Ok(())
    }

    /// Writes all of the files, untimed, before the first phase.
    pub(super) fn prefill(&mut self, state: &mut State) -> Result<(), StepFailure> {
        let point = self.point;
        let trials = if point.file_per_trial {
            point.trials
        } else {
            1
        };
        for trial in 0..trials {
            let mut job = self.job(state, Phase::Write, trial);
            (job.order, job.measured) = (FileOrder::Sequential, false);
            self.ready(state, &mut job)?;
            let seed = self.seed(Phase::Write, &job)?.unwrap_or(0);
            let pool = Pool::new(seed, point.data);
            job.data = Some((FileKey::new(seed, number_of(point, job.part)), &pool));
            self.run(state, &job, &mut vec![Blind; state.team.len()])?;
            // Nobody looks at a file before all have written their part of it.
            self.rank.barrier("the files are filled", DEADLINES.phase)?;
            self.made.note(&job.path);
            self.bequeath();
        }
        state.prefilled = true;
        Ok(())
    }

    pub(super) fn job(&self, state: &State, phase: Phase, trial: u32) -> PhaseJob<'static> {
        let (point, id) = (self.point, self.rank.id());
        let part = if phase == Phase::Read {
            source_of(point, id)
        } else {
            id
        };
        let written = state.written.as_ref().filter(|_| phase != Phase::Write);
        let quota = match point.collective {
            false => quota(point, written, part),
            // Calls that all ranks make together must be equally many.
            true => (0..point.ranks)
                .map(|part| quota(point, written, part))
                .min()
                .unwrap_or(0),
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
            looked_at: None,
        }
    }

    /// Waits between phases, unless the run ends meanwhile.
    fn pause(&mut self, delay: Duration) -> Result<()> {
        let until = Instant::now() + delay;
        self.rank.phase("pausing before a phase");
        while let left @ 1.. = until.saturating_duration_since(Instant::now()).as_nanos() {
            if let Some(error) = self.rank.why_stopped() {
                return Err(error);
            }
            let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
        Ok(())
    }

    /// Old files go, directories are there, and what is to be read is there.
    fn ready(&mut self, state: &mut State, job: &mut PhaseJob<'_>) -> Result<(), StepFailure> {
        let (point, id) = (self.point, self.rank.id());
        let makes = point.layout == FileLayout::PerProcess || id == 0;
        if job.phase == Phase::Write {
            let fresh = !point.existing && !state.prefilled;
            // What the repetition before has left is no news.
            let is_new = !self.made.knows(&job.path);
            let mine = match fresh && makes {
                true => remove_old(point, &job.path, id).map(|was_there| {
                    if was_there && is_new {
                        state.removed.add(&job.path, point.directory_per_rank);
                    }
                }),
                false => Ok(()),
            };
            self.agree("remove what an earlier run has written", mine)?;
            self.made.remember(point, id, job.trial);
            self.bequeath();
            let (made, mine) = split(self.make(state, job, fresh && makes));
            self.agree("make the files", mine)?;
            if let Some(said) = made.flatten() {
                state.striping = Some(said);
            }
            if point.layout == FileLayout::Shared {
                self.find_shared(job)?;
            }
            return Ok(());
        }
        let mine = self.check_sources(job.phase, state.written.as_ref(), job.trial);
        self.agree("look at what is to be read", mine)?;
        // A mixed phase writes into what is there, which must not be somebody's letters.
        let is_judged = job.phase == Phase::Mixed && !point.existing;
        let (judged, mine) = match is_judged {
            true => split(before::seed_of(point, &job.path, job.part, job.quota)),
            false => (None, Ok(())),
        };
        if job.phase != Phase::Mixed {
            return Ok(());
        }
        job.looked_at = match judged {
            Some((_, inode)) => Some(inode),
            None => Inode::at(&job.path),
        };
        self.agree("look at what is written into", mine)
    }

    /// Makes the file that a phase writes, or notes which one is there. A rank's own file is left to be made within
    /// the clock, unless it has stripes. Returns what the file system says of the stripes.
    fn make(
        &mut self,
        state: &State,
        job: &mut PhaseJob<'_>,
        is_fresh: bool,
    ) -> Result<Option<String>> {
        let (point, id) = (self.point, self.rank.id());
        let is_shared = point.layout == FileLayout::Shared;
        if is_shared && id != 0 {
            return Ok(None);
        }
        // What this run has made must be that still. Nothing may be there that is not known.
        job.looked_at = match is_fresh {
            true => None,
            false => self
                .made
                .identity(&job.path)
                .or_else(|| Inode::at(&job.path)),
        };
        if job.looked_at.is_some() {
            return Ok(None);
        }
        let place = state.places.get(id as usize);
        let (said, striped) = match (point.striping.filter(|_| is_fresh), place) {
            (Some(striping), Some(place)) => {
                let (said, made) = before::make_striped(&job.path, place, striping)?;
                (Some(said), made)
            }
            _ => (None, None),
        };
        job.looked_at = match striped {
            None if is_shared => Some(before::make(&job.path)?),
            striped => striped,
        };
        match (job.looked_at, self.made.birth(&job.path)) {
            (Some(made), Some(birth)) => birth.note(Some(made)),
            (Some(_), None) => {}
            (None, _) => job.makes = true,
        }
        Ok(said)
    }

    /// Waits until this rank sees the shared file, which rank 0 has made or found. On rank 0's machine it must be the
    /// same.
    fn find_shared(&mut self, job: &mut PhaseJob<'_>) -> Result<(), StepFailure> {
        let id = self.rank.id();
        let mine = match id {
            0 => Some(pack(&job.looked_at)?),
            _ => None,
        };
        let what = "which file is shared";
        let said = self.rank.broadcast(what, mine, DEADLINES.phase)?;
        let of_root: Option<Inode> = unpack(&said)?;
        let hosts = self.rank.hosts();
        let is_near = hosts.machine(id) == hosts.machine(0);
        let mine = match id {
            0 => Ok(()),
            _ => self.see(&job.path).and_then(|seen| match is_near {
                true if of_root != Some(seen) => Err(team::replaced(&job.path)),
                true => {
                    job.looked_at = of_root;
                    Ok(())
                }
                // Another host may number files otherwise, or know an older one for a while.
                false => Ok(()),
            }),
        };
        self.agree("find the shared file", mine)
    }

    /// A file that another rank has made. The client of a network file system may go on for a while believing that
    /// there is none, unless its directory is opened.
    fn see(&mut self, path: &Path) -> Result<Inode> {
        let until = Instant::now() + SEEN_WITHIN;
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

    /// Runs the threads of this rank from the common start on.
    pub(super) fn run<I: Inspect + Send>(
        &mut self,
        state: &mut State,
        job: &PhaseJob<'_>,
        inspectors: &mut [I],
    ) -> Result<Vec<ThreadFigures>, StepFailure> {
        let point = self.point;
        if let Some((_, pool)) = job.data {
            for worker in state.team.iter().filter(|worker| worker.buffers.slots > 0) {
                pool.place(
                    &worker.memory,
                    worker.buffers.source,
                    0,
                    worker.buffers.slots,
                )?;
            }
        }
        self.rank.phase(&format!(
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
        // A phase may begin long after its trial did.
        clock.follow();
        let birth = self
            .made
            .birth(&job.path)
            .filter(|_| job.phase == Phase::Write);
        let plan = plan(point, job, start_ns, clock);
        let shared = PhaseState::new(state.team.len(), self.rank.stopped(), birth);
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
                let (watched, wall) = (&shared.watched, plan.stonewall);
                threads::start(scope, "progress", move || {
                    let wall = wall.map(|wall| Duration::from_nanos(wall.after_ns));
                    watch(observer, progress, wall, watched, &until_over);
                })?;
            }
            let figures = team::run(&plan, &shared, &mut state.team, inspectors, rank);
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
                    .push(so_far(point, job, &state.team, elapsed_ns));
            }
            StepFailure::Run(error)
        })
    }

    /// Merges what all ranks measured.
    fn add_up(
        &mut self,
        state: &mut State,
        index: usize,
        figures: &[ThreadFigures],
    ) -> Result<PhaseTotals> {
        let samples = state.team.iter().map(|worker| &worker.samples);
        let mine = PhaseTotals::of_rank(self.rank.id(), figures.iter().zip(samples));
        let mine = mine.ok_or_else(|| Error::Failed("a rank needs at least one thread".into()))?;
        let totals = self.rank.reduce("add up a phase", mine, DEADLINES.phase)?;
        for write in [false, true] {
            let mut mine = LatencyHistogram::new();
            for worker in &state.team {
                let samples = &worker.samples;
                mine.merge(if write {
                    &samples.write_latencies
                } else {
                    &samples.read_latencies
                });
            }
            let what = "merge latencies";
            let all = merge_all(self.rank, what, &mine, DEADLINES.phase)?;
            let sums = &mut state.sums[index];
            let into = if write {
                &mut sums.writes
            } else {
                &mut sums.reads
            };
            into.merge(&all);
        }
        Ok(totals)
    }
}

/// One phase for the threads of this rank.
fn plan<'a>(
    point: &'a FilePoint,
    job: &'a PhaseJob<'_>,
    start_ns: u64,
    clock: Clock,
) -> PhasePlan<'a> {
    let ordered = FilePoint {
        order: job.order,
        ..point.clone()
    };
    PhasePlan {
        point,
        path: &job.path,
        name: job.path.display().to_string(),
        access: (job.phase.reads(), job.phase.writes(), job.makes),
        looked_at: job.looked_at,
        view: view(point, job.part),
        places: Sequence::new(&ordered, job.part, job.phase),
        quota: job.quota,
        data: job.data,
        fsync: if job.measured {
            point.fsync
        } else {
            Fsync::End
        },
        barriers: point.barriers && job.measured,
        stonewall: point.stonewall.filter(|_| job.measured),
        start_ns,
        clock,
    }
}

/// Describes the progress of a phase that failed, as far as this rank knows.
fn so_far(
    point: &FilePoint,
    job: &PhaseJob<'_>,
    team: &[team::FileWorker],
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

/// The part of a shared file that a rank sees through its view.
fn view(point: &FilePoint, part: u32) -> Option<View> {
    point.file_view.then(|| View {
        begin: u64::from(part) * point.block_bytes,
        block_bytes: point.block_bytes,
        stride_bytes: u64::from(point.ranks) * point.block_bytes,
    })
}

/// Tells the observer how far the phase is, until the channel closes.
fn watch(
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
