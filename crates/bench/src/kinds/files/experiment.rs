//! One experiment on all ranks: look at the storage, open the engine, then phase after phase. A phase is in `phase`.

use std::sync::Arc;
use std::time::Instant;

use super::before::{self, Written};
use super::clean::{Made, files_to_clean};
use super::figures::Sums;
use super::limit::{self, Streams, WrittenStream};
use super::memory::{self, ThreadSource};
use super::old::RemovedFiles;
use super::space::{self, about_space};
use super::storage::{self, LocalStorage};
use super::team::FileWorker;
use crate::cpu_time::CpuTime;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::host::RankHost;
use crate::kinds::files::names::{path_of, source_of};
use crate::kinds::kind::{Course, Steps, When, effective_of_all};
use crate::observer::Observer;
use crate::settings::Settings;
use tonnage_engine::calls::{FileDomain, FileEntry, OpenFiles};
use tonnage_loops::files::drive::{BufferLayout, InFlight, Samples};
use tonnage_machine::{CpuChoice, place_workers};
use tonnage_plan::files::{FileLayout, FilePoint, Phase, ReadFrom};
use tonnage_plan::point::{LimitChoice, Reading};
use tonnage_ranks::Rank;
use tonnage_record::environment::Memories;
use tonnage_record::files::PhaseRecord;
use tonnage_record::{Effective, FileBody, Limit, Record};
use tonnage_units::Result;
use tonnage_units::reduce::Any;

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
#[derive(Default)]
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
        let what = "whether the time is up";
        let over = self
            .experiment
            .rank
            .reduce(what, Any(over), DEADLINES.step)?;
        Ok(over.0 || self.trial >= point.trials)
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
        if self.experiment.point.limit == LimitChoice::Auto {
            self.experiment.streams(&mut self.state)?;
        }
        Ok(())
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
        let domain = self.agree("open the engine", open)?;
        let team = self.team(entry, &*domain);
        let mut state = State {
            team: self.agree("open the engine's threads", team)?,
            places,
            written,
            sums: self.point.phases.iter().copied().map(Sums::new).collect(),
            ..State::default()
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

    /// Engines' own accounts for rank 0, ranks with the same answer together.
    fn effective(&mut self, domain: &dyn FileDomain, state: &State) -> Result<Vec<Effective>> {
        let mut engine = domain.report();
        for worker in &state.team {
            engine.facts.extend(worker.calls.chosen());
        }
        let allocated = state.team.iter().map(|worker| &worker.memory);
        let mine = Effective {
            engine,
            memory: Memories::Alike(Box::new(memory::report(allocated))),
            cpus: state.team.iter().map(|worker| worker.cpu).collect(),
            ..Effective::default()
        };
        effective_of_all("what the engines are", self.rank, mine)
    }

    /// Says what can be said before the first phase.
    fn remark(&self, state: &mut State) {
        let remarks = [
            self.about_sources(),
            self.about_servers(&state.places),
            self.about_space(&state.places),
            self.about_votes(),
        ];
        state.remarks.extend(remarks.into_iter().flatten());
    }

    fn about_sources(&self) -> Option<String> {
        let point = self.point;
        if point.read_from == ReadFrom::Own || !point.phases.contains(&Phase::Read) {
            return None;
        }
        let hosts = self.rank.hosts();
        if hosts.is_one_machine() {
            return Some(
                "reads were of what another rank wrote, which proves that the file system hands data from rank to rank; \
                 all ranks are on one host and share its page cache, so it proves nothing about reading what another host \
                 wrote, nor about the disk"
                    .into(),
            );
        }
        let from_other_hosts =
            (0..point.ranks).filter(|&rank| !hosts.share_machine(source_of(point, rank), rank));
        Some(format!(
            "{} of {} ranks read what a rank on another host wrote",
            from_other_hosts.count(),
            point.ranks
        ))
    }

    fn about_servers(&self, places: &[LocalStorage]) -> Option<String> {
        let reads = self.point.phases.iter().any(|phase| phase.reads());
        (reads && places.iter().any(|place| place.network)).then(|| {
            "the page caches of the ranks' hosts were looked at; what the file system's servers hold in memory cannot be \
             seen from here"
                .into()
        })
    }

    fn about_space(&self, places: &[LocalStorage]) -> Option<String> {
        let machines = self.rank.hosts().machines();
        let text = self
            .writes()
            .then(|| about_space(self.point, machines, places))??;
        if self.rank.id() == 0 {
            log::warn!("{text}");
        }
        Some(text)
    }

    fn about_votes(&self) -> Option<String> {
        (self.point.collective && self.point.stonewall.is_some()).then(|| {
            "before each collective call all ranks agreed whether to go on, because of the stonewall: that took time which \
             is in the bandwidth and not in the latencies"
                .into()
        })
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
        let left = self.tidy();
        let left = self.agree("remove the files", left)?;
        let what = "which files were left";
        let left = self.rank.collect(what, &left, DEADLINES.step)?;
        let told = left.iter().flatten().take(LEFT_TOLD);
        state.remarks.extend(told.cloned());
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
        let trials = space::files_of_rank(point);
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
    pub fn agree<T>(&mut self, what: &str, mine: Result<T>) -> Result<T, StepFailure> {
        self.rank.phase(what);
        agree(self.rank, what, mine, DEADLINES.phase)
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
        let written = self.agree("read the status file", status.transpose())?;
        let mine = match point.phases.first() {
            Some(&phase) if reads_first => self.check_sources(phase, written.as_ref(), 0),
            _ => Ok(()),
        };
        self.agree("look at what is to be read", mine)?;
        let path = paths.first().cloned().unwrap_or_default();
        let place = LocalStorage::look(&path, writes, point.direct);
        let mut place = self.agree("look at the file system", place)?;
        place.taken_bytes = space::taken_bytes(point, id);
        let mine = before::check_direct(point, &place);
        self.agree("look at direct I/O", mine)?;
        let what = "what the files are on";
        let places = self.rank.gather_alike(what, &place, DEADLINES.step)?;
        let places: Vec<LocalStorage> = places.iter().cloned().collect();
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
                memory,
                buffers,
                samples: Samples::default(),
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
            LimitChoice::Stated { bytes_per_s } => Some(Limit::new("stated", bytes_per_s)),
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
