//! One experiment on all ranks: look at the storage, open the engine, then phase after phase.

use std::sync::Arc;
use std::time::Instant;

use super::before::{self, Written};
use super::clean::{Made, files_to_clean};
use super::figures::Sums;
use super::limit::{self, Streams, WrittenStream};
use super::memory::ThreadSource;
use super::old::RemovedFiles;
use super::space;
use super::storage::{self, LocalStorage};
use super::team::FileWorker;
use crate::cpu_time::CpuTime;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::host::RankHost;
use crate::kinds::files::drive::{BufferLayout, InFlight, Samples};
use crate::kinds::files::names::{path_of, source_of};
use crate::kinds::kind::{Course, Steps, When};
use crate::observer::Observer;
use crate::settings::Settings;
use tonnage_engine::calls::{FileDomain, FileEntry, OpenFiles};
use tonnage_machine::{CpuChoice, place_workers};
use tonnage_plan::files::{FileLayout, FilePoint, Phase};
use tonnage_plan::point::{LimitChoice, Reading};
use tonnage_ranks::Rank;
use tonnage_record::files::PhaseRecord;
use tonnage_record::{FileBody, Limit, Record};
use tonnage_units::reduce::Any;
use tonnage_units::{Error, Result};

/// Files that remarks name at most, when somebody else's are in the place of ours.
const LEFT_TOLD: usize = 8;

/// One experiment as one rank takes part in it.
pub struct Experiment<'a> {
    /// The point that is asked for.
    pub point: &'a FilePoint,
    /// Facts that stand beside its results.
    pub reading: &'a Reading,
    /// The other ranks.
    pub rank: &'a mut Rank,
    /// Settings of the run.
    pub settings: &'a Settings,
    /// This host's CPUs.
    pub host: &'a RankHost,
    /// CPU time that this rank's threads do not get.
    pub cpu: &'a mut CpuTime,
    /// Files of this run.
    pub made: &'a mut Made,
    /// Told how it goes, on rank 0.
    pub observer: &'a mut dyn Observer,
}

/// State that lasts from phase to phase.
pub struct State {
    /// This rank's threads.
    pub team: Vec<FileWorker>,
    /// Sequence of each rank's files.
    pub places: Vec<LocalStorage>,
    /// Transfers of each rank that a stonewalled phase wrote; `None` when all were.
    pub written: Option<Written>,
    /// True when the files were filled before the first phase.
    pub prefilled: bool,
    /// Sums of each phase, in order.
    pub sums: Vec<Sums>,
    /// Figures of one stream for each device.
    pub streams: Option<Streams>,
    /// Remarks that a reader has to know.
    pub remarks: Vec<String>,
    /// Striping of the files, as a file system that stripes tells it.
    pub striping: Option<String>,
    /// Files of earlier runs that this rank has removed.
    pub removed: RemovedFiles,
}

/// An experiment whose engine is open on all ranks.
struct Open<'o, 'a> {
    experiment: &'o mut Experiment<'a>,
    // Before the domain, so that threads close first.
    state: State,
    domain: Arc<dyn FileDomain>,
    record: &'o mut Record,
    body: &'o mut FileBody,
    /// The next repetition.
    trial: u32,
    /// Time at which the first began.
    since: Instant,
}

impl Steps for Open<'_, '_> {
    fn limit(&mut self, when: When) -> Result<(), StepFailure> {
        // Streams before the phases would change what these find: free memory, the device's own cache, its room.
        if when == When::After && self.experiment.writes() {
            self.streams()?;
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), StepFailure> {
        if self.experiment.point.prefill {
            self.experiment.prefill(&mut self.state)?;
        }
        self.since = Instant::now();
        Ok(())
    }

    /// All phases, once.
    fn trial(&mut self) -> Result<(), StepFailure> {
        let (state, trial) = (&mut self.state, self.trial);
        for index in 0..self.experiment.point.phases.len() {
            self.experiment.phase(state, trial, index)?;
        }
        self.trial += 1;
        Ok(())
    }

    fn enough(&mut self) -> Result<bool, StepFailure> {
        let point = self.experiment.point;
        let over = point
            .max_duration_ns
            .is_some_and(|most| self.since.elapsed().as_nanos() >= u128::from(most));
        let over = self.experiment.any("whether the time is up", over)?;
        Ok(over || self.trial >= point.trials)
    }

    fn close(&mut self) -> Result<(), StepFailure> {
        // Who only reads has its stream from the file that it read, which may be removed now.
        if !self.experiment.writes() {
            self.streams()?;
        }
        let (domain, state) = (&*self.domain, &mut self.state);
        self.experiment
            .conclude(domain, state, self.record, self.body)
    }
}

impl Open<'_, '_> {
    fn streams(&mut self) -> Result<(), StepFailure> {
        match self.experiment.point.limit {
            LimitChoice::Auto => self.experiment.streams(&mut self.state),
            _ => Ok(()),
        }
    }
}

impl Experiment<'_> {
    /// Measures it, and fills the record as it goes: what was measured before a failure stays there.
    ///
    /// # Errors
    /// [`StepFailure::Point`] when all ranks know and can go on, [`StepFailure::Run`] otherwise.
    pub fn measure(
        &mut self,
        record: &mut Record,
        body: &mut FileBody,
        course: Course<'_>,
    ) -> Result<(), StepFailure> {
        let entry = self.settings.lists.file_engine(&self.point.engine)?;
        let (places, written) = self.look()?;
        body.storage = storage::group(&places, None);
        let open = (entry.open)(&OpenFiles {
            usage: &self.point.usage(),
            rank: self.rank.id(),
            libraries: &self.settings.libraries,
        });
        let (domain, mine) = split(open);
        self.agree("open the engine", mine)?;
        let Some(domain) = domain else {
            return Err(Error::Failed("the engine did not open".into()).into());
        };
        let (team, mine) = split(self.team(entry, &*domain));
        self.agree("open the engine's threads", mine)?;
        let mut state = State {
            team: team.unwrap_or_default(),
            places,
            written,
            prefilled: false,
            sums: self
                .point
                .phases
                .iter()
                .map(|&phase| Sums::new(phase))
                .collect(),
            streams: None,
            remarks: Vec::new(),
            striping: None,
            removed: RemovedFiles::default(),
        };
        record.effective = self.effective(&*domain, &state)?;
        self.remark(&mut state);
        let mut open = Open {
            experiment: self,
            domain,
            state,
            record,
            body,
            trial: 0,
            since: Instant::now(),
        };
        let ended = course(&mut open);
        open.record.remarks.append(&mut open.state.remarks);
        open.body.phases = open.experiment.records(&open.state);
        ended
    }

    /// Adds what only the end can tell, and ends the files.
    fn conclude(
        &mut self,
        domain: &dyn FileDomain,
        state: &mut State,
        record: &mut Record,
        body: &mut FileBody,
    ) -> Result<(), StepFailure> {
        record.effective = self.effective(domain, state)?;
        body.storage = storage::group(&state.places, state.striping.as_deref());
        self.rank
            .barrier("the files are no longer needed", DEADLINES.phase)?;
        let (left, mine) = split(self.tidy());
        self.agree("remove the files", mine)?;
        let left = left.unwrap_or_default();
        let left = self
            .rank
            .collect("which files were left", &left, DEADLINES.step)?;
        state
            .remarks
            .extend(left.iter().flatten().take(LEFT_TOLD).cloned());
        let (what, mine) = ("which old files were removed", state.removed.clone());
        let removed = self.rank.reduce(what, mine, DEADLINES.step)?;
        state.remarks.extend(removed.remark());
        Ok(())
    }

    /// Has this rank's files removed also when its process ends while its main thread is stuck.
    pub(super) fn bequeath(&self) {
        let mut made = self.made.clone();
        self.rank.bequeath(move || made.remove_all());
    }

    /// Removes this rank's files, unless they are to stay; the shared one is rank 0's. Returns a line for each that
    /// was left to somebody else.
    fn tidy(&mut self) -> Result<Vec<String>> {
        let (point, id) = (self.point, self.rank.id());
        let trials = if point.file_per_trial {
            point.trials
        } else {
            1
        };
        let to_clean = (0..trials).flat_map(|trial| files_to_clean(point, id, trial));
        if point.keep {
            // Those that this run made were put aside when they were made.
            return Ok(Vec::new());
        }
        let mine = point.layout == FileLayout::PerProcess || id == 0;
        let own = (0..trials)
            .filter(|_| mine)
            .map(|trial| path_of(point, id, trial));
        let removed = self.made.remove(own);
        self.made.forget(to_clean);
        self.bequeath();
        removed
    }

    /// Every rank takes the outcome of the first that failed.
    pub fn agree(&mut self, what: &str, mine: Result<()>) -> Result<(), StepFailure> {
        self.rank.phase(what);
        agree(self.rank, what, mine, DEADLINES.phase)
    }

    /// Returns whether it holds on any rank.
    fn any(&mut self, what: &str, mine: bool) -> Result<bool> {
        let any = self.rank.reduce(what, Any(mine), DEADLINES.step)?;
        Ok(any.0)
    }

    pub(super) fn writes(&self) -> bool {
        self.point.prefill || self.point.phases.iter().any(|phase| phase.writes())
    }

    /// Checks where the files are to be, and asks every rank what that is on.
    fn look(&mut self) -> Result<(Vec<LocalStorage>, Option<Written>), StepFailure> {
        let (point, writes) = (self.point, self.writes());
        let id = self.rank.id();
        let mut paths = Vec::new();
        if writes {
            paths.push(path_of(point, id, 0));
        }
        if point.phases.contains(&Phase::Read) {
            paths.push(path_of(point, source_of(point, id), 0));
        }
        paths.dedup();
        if writes && point.directory_per_rank {
            self.made.expect_directories(point, id);
            // Nobody makes one before all have looked.
            self.rank
                .barrier("before directories are made", DEADLINES.step)?;
            let mine = self
                .made
                .directory(&storage::directory_of(&path_of(point, id, 0)));
            self.agree("make the ranks' directories", mine)?;
        }
        let mine = paths
            .iter()
            .try_for_each(|path| before::check_target(path, writes));
        self.agree("look at the path", mine)?;
        // A phase that only reads has nothing to ask about while its file is missing.
        let reads_first = point.phases.first().is_some_and(|phase| phase.reads()) && !point.prefill;
        let status = point.status_file.as_ref().filter(|_| reads_first);
        let status = status.map(|status| Written::load(status.as_ref(), point.ranks));
        let (written, mine) = split(status.transpose());
        self.agree("read the status file", mine)?;
        let written = written.flatten();
        let mine = match point.phases.first() {
            Some(&phase) if reads_first => self.check_sources(phase, written.as_ref(), 0),
            _ => Ok(()),
        };
        self.agree("look at what is to be read", mine)?;
        let path = paths.first().cloned().unwrap_or_default();
        let (mut place, mine) = split(LocalStorage::look(&path, writes, point.direct));
        self.agree("look at the file system", mine)?;
        if let Some(place) = &mut place {
            place.taken_bytes = space::taken_bytes(point, id);
        }
        let mine = place
            .as_ref()
            .map_or(Ok(()), |place| before::check_direct(point, place));
        self.agree("look at direct I/O", mine)?;
        let what = "what the files are on";
        let places = self.rank.gather_alike(what, &place, DEADLINES.step)?;
        let places: Option<Vec<LocalStorage>> = places.iter().cloned().collect();
        let unknown = || Error::Failed("a rank does not know what its files are on".into());
        let places = places.ok_or_else(unknown)?;
        if writes {
            space::check_space(point, self.rank.hosts().machines(), &places)
                .map_err(StepFailure::Point)?;
        }
        Ok((places, written))
    }

    /// Checks that this rank's data to read is there. `written` limits how much of it.
    pub fn check_sources(&self, phase: Phase, written: Option<&Written>, trial: u32) -> Result<()> {
        let (point, id) = (self.point, self.rank.id());
        let part = if phase == Phase::Mixed {
            id
        } else {
            source_of(point, id)
        };
        let transfers = quota(point, written, part);
        before::check_source(
            &path_of(point, part, trial),
            before::needed_bytes(point, part, transfers),
        )
    }

    fn team(&self, entry: &FileEntry, domain: &dyn FileDomain) -> Result<Vec<FileWorker>> {
        let point = self.point;
        let (place, beside) = self.host.neighbours;
        let cpus = match &self.settings.cpus {
            // What the kernel does for a queue beside its thread would have to run on the thread's CPU.
            CpuChoice::Auto if entry.queues => vec![None; point.threads as usize],
            CpuChoice::None => vec![None; point.threads as usize],
            choice => {
                let topology = &self.host.topology;
                place_workers(topology, place, beside, point.threads, choice)?.cpus
            }
        };
        let slots = if entry.queues { point.window } else { 1 };
        let buffers =
            BufferLayout::new(point.transfer_bytes, slots, !entry.queues && self.writes());
        let worker = |(thread, cpu): (u32, Option<u32>)| {
            let source = ThreadSource::of(self.settings.numa, &self.host.topology, cpu)?;
            let memory = source.allocate(buffers.bytes(), thread)?;
            Ok(FileWorker {
                calls: domain.thread(thread, memory.arena.clone())?,
                memory: memory.arena.clone(),
                allocated: memory,
                buffers,
                samples: Samples::new(),
                slots: InFlight::new(buffers.count),
                cpu,
            })
        };
        let first = cpus.first().copied().flatten();
        let team = (0u32..).zip(cpus).map(worker).collect();
        // This thread is the first of them, whichever was pinned last.
        first.map_or(Ok(()), tonnage_machine::pin_thread)?;
        team
    }

    /// One stream for each device at once, where the storage has a limit.
    fn streams(&mut self, state: &mut State) -> Result<(), StepFailure> {
        if let Some(why) = limit::why_none(&state.places) {
            state.remarks.push(why);
            return Ok(());
        }
        let id = self.rank.id();
        let first = storage::is_first_on_device(self.rank.hosts(), &state.places, id);
        let place = state.places.get(id as usize).filter(|_| first);
        if let Some(place) = place.filter(|_| self.point.keep && self.writes()) {
            limit::store(place);
        }
        self.rank
            .barrier("before the storage's streams", DEADLINES.phase)?;
        let measured = if self.writes() {
            let written = place.map(WrittenStream::write).transpose();
            // All streams are written before the first is read, also where one has failed.
            self.rank
                .barrier("between the storage's streams", DEADLINES.phase)?;
            written.and_then(|written| {
                written.map_or_else(|| Ok(Streams::default()), WrittenStream::read)
            })
        } else {
            place.map_or_else(
                || Ok(Streams::default()),
                |place| {
                    let source = path_of(self.point, source_of(self.point, id), 0);
                    Streams::measure_reading(place, &source)
                },
            )
        };
        // Files may be read only, and a storage that is full has no room for a stream: then there is no limit.
        let streams =
            measured.unwrap_or_else(|error| Streams::unknown(format!("rank {id}: {error}")));
        let streams = self
            .rank
            .reduce("the storage's streams", streams, DEADLINES.phase)?;
        if let Some(why) = &streams.failed {
            state
                .remarks
                .push(format!("the storage's limit is not known: {why}"));
        }
        state.streams = Some(streams);
        Ok(())
    }

    /// The phases that have at least one repetition.
    fn records(&self, state: &State) -> Vec<PhaseRecord> {
        let in_memory = state.places.iter().all(|place| place.memory);
        let record =
            |sums: &Sums| sums.record(self.point, self.limit(state, sums.phase), in_memory);
        state.sums.iter().filter_map(record).collect()
    }

    /// Upper bound of a phase's bandwidth.
    pub fn limit(&self, state: &State, phase: Phase) -> Option<Limit> {
        match self.point.limit {
            LimitChoice::None => None,
            LimitChoice::Stated { bytes_per_s } => Some(Limit {
                what: "stated".into(),
                bytes_per_s,
                ci95_bytes_per_s: None,
                links: None,
            }),
            LimitChoice::Auto => state.streams.as_ref()?.limit(self.point, phase),
        }
    }
}

/// Transfers on the data of rank `part` that a phase which reads makes.
pub fn quota(point: &FilePoint, written: Option<&Written>, part: u32) -> u64 {
    let all = point.transfers_of_rank();
    let written = written.and_then(|written| written.transfers.get(part as usize));
    written.map_or(all, |&written| written.min(all))
}

/// A value for who goes on, and an outcome for the others.
pub fn split<T>(result: Result<T>) -> (Option<T>, Result<()>) {
    match result {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err(error)),
    }
}
