//! One file experiment on all ranks. It inspects the storage, opens the engine, and then runs all phases (module
//! `phase`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bound::{self, DeviceStreams, STREAMS_TIME, WrittenStream};
use super::checks::{self, WrittenTransfers};
use super::clean::{CreatedFiles, files_to_clean};
use super::earlier_runs::RemovedFiles;
use super::figures::PhaseRepetitions;
use super::memory::{self, ThreadSource};
use super::phase_threads::FileWorker;
use super::space::{self, space_remark};
use super::storage::{self, LocalStorage};
use crate::cpu_loss::CpuLossMeter;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::host::RankHost;
use crate::kinds::files::names::{path_of, source_of};
use crate::kinds::kind::{LimitMoment, StepRunner, Steps, effective_of_all};
use crate::observer::Observer;
use crate::settings::Settings;
use tonnage_engine::calls::{FileDomain, FileEntry, OpenFiles};
use tonnage_loops::files::drive::{BufferLayout, Samples, TransfersInFlight};
use tonnage_machine::{CpuChoice, place_workers};
use tonnage_plan::files::{FileLayout, FilePoint, Phase, ReadFrom};
use tonnage_plan::point::{BoundChoice, PointNotes};
use tonnage_ranks::Rank;
use tonnage_record::environment::Memories;
use tonnage_record::files::PhaseRecord;
use tonnage_record::{Bound, Effective, FileBody, Record};
use tonnage_units::Result;
use tonnage_units::reduce::ReduceAny;

/// Maximum number of files that a remark lists because they were not removed.
const LEFT_LISTED_MAX: usize = 8;

/// One experiment, as one rank sees it.
pub struct Experiment<'a> {
    /// The point to measure.
    pub point: &'a FilePoint,
    /// Notes that are recorded with the results.
    pub reading: &'a PointNotes,
    /// Access to the other ranks.
    pub rank: &'a mut Rank,
    /// Settings of the run.
    pub settings: &'a Settings,
    /// This host's CPUs.
    pub host: &'a RankHost,
    /// Measures the CPU time that this rank's threads lose.
    pub cpu: &'a mut CpuLossMeter,
    /// Files that this run creates.
    pub made: &'a mut CreatedFiles,
    /// Receives progress and results on rank 0.
    pub observer: &'a mut dyn Observer,
}

/// State that is kept between phases.
#[derive(Default)]
pub struct PhasesState {
    /// This rank's threads, with their engines and memories.
    pub team: Vec<FileWorker>,
    /// Storage of each rank's files, in rank order.
    pub places: Vec<LocalStorage>,
    /// Number of transfers per rank that a stonewalled phase wrote; `None` if all transfers were written.
    pub written: Option<WrittenTransfers>,
    /// Whether the files were filled before the first phase.
    pub prefilled: bool,
    /// Repetitions of each phase, in the order of the phases.
    pub sums: Vec<PhaseRepetitions>,
    /// Bandwidths of the streams on all devices; `None` until they are measured.
    pub streams: Option<DeviceStreams>,
    /// Remarks for the record.
    pub remarks: Vec<String>,
    /// Striping of the files, as the file system reports it; `None` if it does not support striping.
    pub striping: Option<String>,
    /// Files of earlier runs that this rank has removed.
    pub removed: RemovedFiles,
}

/// An experiment with its engine open on all ranks.
struct OpenExperiment<'o, 'a> {
    experiment: &'o mut Experiment<'a>,
    // Declared before `domain`, so that the threads' engines close first.
    state: PhasesState,
    domain: Arc<dyn FileDomain>,
    record: &'o mut Record,
    body: &'o mut FileBody,
    /// Index of the next repetition.
    trial: u32,
    /// Start of the first repetition.
    since: Instant,
}

impl Steps for OpenExperiment<'_, '_> {
    fn rank(&mut self) -> &mut Rank {
        self.experiment.rank
    }

    fn bound(&mut self, when: LimitMoment) -> Result<(), StepFailure> {
        // Streams that run before the phases would change the conditions of the phases: free memory, the device's own
        // cache, and free space.
        if when == LimitMoment::After && self.experiment.writes() {
            self.measure_streams()?;
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

    /// Runs each phase once.
    fn trial(&mut self) -> Result<(), StepFailure> {
        let (state, trial) = (&mut self.state, self.trial);
        for index in 0..self.experiment.point.phases.len() {
            self.experiment.run_phase(state, trial, index)?;
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
            .reduce(what, ReduceAny(over), DEADLINES.step)?;
        Ok(over.0 || self.trial >= point.trials)
    }

    fn closing_time(&self) -> Duration {
        match self.experiment.point.bound {
            BoundChoice::Auto => STREAMS_TIME,
            _ => Duration::ZERO,
        }
    }

    fn close(&mut self) -> Result<(), StepFailure> {
        // An experiment that only reads measures its stream on one of its files. It does so here, because the file may
        // be removed later.
        if !self.experiment.writes() {
            self.measure_streams()?;
        }
        let (domain, state) = (&*self.domain, &mut self.state);
        self.experiment
            .complete_record(domain, state, self.record, self.body)
    }
}

impl OpenExperiment<'_, '_> {
    fn measure_streams(&mut self) -> Result<(), StepFailure> {
        if self.experiment.point.bound == BoundChoice::Auto {
            self.experiment.measure_streams(&mut self.state)?;
        }
        Ok(())
    }
}

impl Experiment<'_> {
    /// Measures the experiment and fills the record meanwhile. If it fails, earlier results stay in the record.
    ///
    /// # Errors
    /// [`StepFailure::Point`] if all ranks know of the failure and can continue, [`StepFailure::Run`] otherwise.
    pub fn measure(
        &mut self,
        record: &mut Record,
        body: &mut FileBody,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        let entry = self.settings.lists.file_engine(&self.point.engine)?;
        let (places, written) = self.inspect_storage()?;
        body.storage = storage::group(&places, None);
        let open = (entry.open)(&OpenFiles {
            usage: &self.point.usage(),
            rank: self.rank.id(),
            libraries: &self.settings.libraries,
        });
        let domain = self.agree("open the engine", open)?;
        let team = self.open_threads(entry, &*domain);
        let mut state = PhasesState {
            team: self.agree("open the engine's threads", team)?,
            places,
            written,
            sums: self
                .point
                .phases
                .iter()
                .copied()
                .map(PhaseRepetitions::new)
                .collect(),
            ..PhasesState::default()
        };
        record.effective = self.effective(&*domain, &state)?;
        self.add_remarks(&mut state);
        let mut open = OpenExperiment {
            experiment: self,
            domain,
            state,
            record,
            body,
            trial: 0,
            since: Instant::now(),
        };
        let ended = run_steps(&mut open);
        open.record.remarks.append(&mut open.state.remarks);
        open.body.phases = open.experiment.phase_records(&open.state);
        ended
    }

    /// Collects the engines' reports on rank 0. Ranks with the same report are listed together.
    fn effective(
        &mut self,
        domain: &dyn FileDomain,
        state: &PhasesState,
    ) -> Result<Vec<Effective>> {
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
        effective_of_all("describe the file engines", self.rank, mine)
    }

    /// Adds the remarks that can be made before the first phase.
    fn add_remarks(&self, state: &mut PhasesState) {
        let remarks = [
            self.sources_remark(),
            self.servers_remark(&state.places),
            self.space_remark(&state.places),
            self.votes_remark(),
        ];
        state.remarks.extend(remarks.into_iter().flatten());
    }

    fn sources_remark(&self) -> Option<String> {
        let point = self.point;
        if point.read_from == ReadFrom::Own || !point.phases.contains(&Phase::Read) {
            return None;
        }
        let hosts = self.rank.hosts();
        if hosts.is_one_machine() {
            return Some(
                "reads were of data written by another rank, which proves that the file system hands data from rank to rank; \
                 all ranks are on one host and share its page cache, so it proves nothing about reading what another host \
                 wrote, nor about the disk"
                    .into(),
            );
        }
        let from_other_hosts =
            (0..point.ranks).filter(|&rank| !hosts.share_machine(source_of(point, rank), rank));
        Some(format!(
            "{} of {} ranks read data written on another host",
            from_other_hosts.count(),
            point.ranks
        ))
    }

    fn servers_remark(&self, places: &[LocalStorage]) -> Option<String> {
        let reads = self.point.phases.iter().any(|phase| phase.reads());
        (reads && places.iter().any(|place| place.network)).then(|| {
            "the page caches of the ranks' hosts were inspected; the memory of the file system's servers cannot be \
             seen from here"
                .into()
        })
    }

    fn space_remark(&self, places: &[LocalStorage]) -> Option<String> {
        let machines = self.rank.hosts().machines();
        let text = self
            .writes()
            .then(|| space_remark(self.point, machines, places))??;
        if self.rank.id() == 0 {
            log::warn!("{text}");
        }
        Some(text)
    }

    fn votes_remark(&self) -> Option<String> {
        (self.point.collective && self.point.stonewall.is_some()).then(|| {
            "before each collective call all ranks agreed whether to go on, because of the stonewall: that took time which \
             is in the bandwidth and not in the latencies"
                .into()
        })
    }

    /// Completes the record after the last phase, and removes the files.
    fn complete_record(
        &mut self,
        domain: &dyn FileDomain,
        state: &mut PhasesState,
        record: &mut Record,
        body: &mut FileBody,
    ) -> Result<(), StepFailure> {
        record.effective = self.effective(domain, state)?;
        body.storage = storage::group(&state.places, state.striping.as_deref());
        self.rank
            .barrier("the files are no longer needed", DEADLINES.phase)?;
        let left = self.remove_files();
        let left = self.agree("remove the files", left)?;
        let what = "which files were left";
        let left = self.rank.collect(what, &left, DEADLINES.step)?;
        let listed = left.iter().flatten().take(LEFT_LISTED_MAX);
        state.remarks.extend(listed.cloned());
        let (what, mine) = ("which old files were removed", state.removed.clone());
        let removed = self.rank.reduce(what, mine, DEADLINES.step)?;
        state.remarks.extend(removed.remark());
        Ok(())
    }

    /// Registers the removal of this rank's files as an exit hook, because the process may end while its main thread is
    /// stuck.
    pub(super) fn register_cleanup(&self) {
        let mut made = self.made.clone();
        self.rank.set_exit_hook(move || made.remove_all());
    }

    /// Removes this rank's files unless they are kept. Rank 0 removes the shared file. Returns a line for each file
    /// that stays because it is no longer this run's.
    fn remove_files(&mut self) -> Result<Vec<String>> {
        let (point, id) = (self.point, self.rank.id());
        let trials = space::files_of_rank(point);
        let to_clean = (0..trials).flat_map(|trial| files_to_clean(point, id, trial));
        if point.keep {
            // `record_planned` has not listed these files for removal.
            return Ok(Vec::new());
        }
        let mine = point.layout == FileLayout::PerProcess || id == 0;
        let own = (0..trials)
            .filter(|_| mine)
            .map(|trial| path_of(point, id, trial));
        let removed = self.made.remove(own);
        self.made.forget(to_clean);
        self.register_cleanup();
        removed
    }

    /// Combines the outcomes of all ranks. If ranks fail, every rank gets the failure of the first one.
    pub fn agree<T>(&mut self, what: &str, mine: Result<T>) -> Result<T, StepFailure> {
        self.rank.set_phase(what);
        agree(self.rank, what, mine, DEADLINES.phase)
    }

    pub(super) fn writes(&self) -> bool {
        self.point.prefill || self.point.phases.iter().any(|phase| phase.writes())
    }

    /// Checks the paths of the files, and collects the storage of every rank.
    fn inspect_storage(
        &mut self,
    ) -> Result<(Vec<LocalStorage>, Option<WrittenTransfers>), StepFailure> {
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
            // All ranks must record the missing directories before any rank creates one.
            self.rank
                .barrier("before directories are made", DEADLINES.step)?;
            let mine = self
                .made
                .create_directory(&storage::directory_of(&path_of(point, id, 0)));
            self.agree("make the ranks' directories", mine)?;
        }
        let mine = paths
            .iter()
            .try_for_each(|path| checks::check_target(path, writes));
        self.agree("look at the path", mine)?;
        // Files to read are checked before the storage. If a file is missing, this error is clearer than that of the
        // storage.
        let reads_first = point.phases.first().is_some_and(|phase| phase.reads()) && !point.prefill;
        let status = point.status_file.as_ref().filter(|_| reads_first);
        let status = status.map(|status| WrittenTransfers::load(status.as_ref(), point.ranks));
        let written = self.agree("read the status file", status.transpose())?;
        let mine = match point.phases.first() {
            Some(&phase) if reads_first => self.check_sources(phase, written.as_ref(), 0),
            _ => Ok(()),
        };
        self.agree("inspect the files to read", mine)?;
        let path = paths.first().cloned().unwrap_or_default();
        let place = LocalStorage::inspect(&path, writes, point.direct);
        let mut place = self.agree("look at the file system", place)?;
        place.taken_bytes = space::occupied_bytes(point, id);
        let mine = checks::check_direct(point, &place);
        self.agree("look at direct I/O", mine)?;
        let what = "storage of the files";
        let places = self.rank.gather_distinct(what, &place, DEADLINES.step)?;
        let places: Vec<LocalStorage> = places.iter().cloned().collect();
        if writes {
            space::check_space(point, self.rank.hosts().machines(), &places)
                .map_err(StepFailure::Point)?;
        }
        Ok((places, written))
    }

    /// Checks that the data that this rank reads exist. `written` limits the amount of data.
    pub fn check_sources(
        &self,
        phase: Phase,
        written: Option<&WrittenTransfers>,
        trial: u32,
    ) -> Result<()> {
        let (point, id) = (self.point, self.rank.id());
        let part = if phase == Phase::Mixed {
            id
        } else {
            source_of(point, id)
        };
        let transfers = transfers_to_read(point, written, part);
        checks::check_source(
            &path_of(point, part, trial),
            checks::needed_bytes(point, part, transfers),
        )
    }

    fn open_threads(&self, entry: &FileEntry, domain: &dyn FileDomain) -> Result<Vec<FileWorker>> {
        let point = self.point;
        let (place, neighbours) = self.host.neighbours;
        let cpus = match &self.settings.cpus {
            // Threads are not pinned, because the kernel's threads for a queue would have to share the CPU.
            CpuChoice::Auto if entry.queues => vec![None; point.threads as usize],
            CpuChoice::None => vec![None; point.threads as usize],
            choice => {
                let topology = &self.host.topology;
                place_workers(topology, place, neighbours, point.threads, choice)?.cpus
            }
        };
        let slots = if entry.queues { point.depth } else { 1 };
        let buffers =
            BufferLayout::new(point.transfer_bytes, slots, !entry.queues && self.writes());
        let worker = |(thread, cpu): (u32, Option<u32>)| {
            let source = ThreadSource::for_cpu(self.settings.numa, &self.host.topology, cpu)?;
            let memory = source.allocate(buffers.bytes(), thread)?;
            Ok(FileWorker {
                calls: domain.thread(thread, memory.arena.clone())?,
                memory,
                buffers,
                samples: Samples::default(),
                slots: TransfersInFlight::new(buffers.count),
                cpu,
            })
        };
        let first = cpus.first().copied().flatten();
        let team = (0u32..).zip(cpus).map(worker).collect();
        // Pins this thread to the first CPU again, because allocating the memory of other threads has moved it.
        first.map_or(Ok(()), tonnage_machine::pin_thread)?;
        team
    }

    /// Measures one stream per device, all at the same time, if the storage can have a bound.
    fn measure_streams(&mut self, state: &mut PhasesState) -> Result<(), StepFailure> {
        if let Some(why) = bound::why_no_bound(&state.places) {
            state.remarks.push(why);
            return Ok(());
        }
        let id = self.rank.id();
        let first = storage::is_first_on_device(self.rank.hosts(), &state.places, id);
        let place = state.places.get(id as usize).filter(|_| first);
        if let Some(place) = place.filter(|_| self.point.keep && self.writes()) {
            bound::flush_page_cache(place);
        }
        self.rank
            .barrier("before the storage's streams", DEADLINES.phase)?;
        let measured = if self.writes() {
            let written = place.map(WrittenStream::write).transpose();
            // All streams are written before any stream is read. Ranks with failed streams wait here too.
            self.rank
                .barrier("between the storage's streams", DEADLINES.phase)?;
            written.and_then(|written| {
                written.map_or_else(|| Ok(DeviceStreams::default()), WrittenStream::read)
            })
        } else {
            place.map_or_else(
                || Ok(DeviceStreams::default()),
                |place| {
                    let source = path_of(self.point, source_of(self.point, id), 0);
                    DeviceStreams::measure_reading(place, &source)
                },
            )
        };
        // A stream fails if its file may only be read, or if the storage is full. Then there is no bound.
        let streams =
            measured.unwrap_or_else(|error| DeviceStreams::unknown(format!("rank {id}: {error}")));
        let streams = self
            .rank
            .reduce("the storage's streams", streams, DEADLINES.phase)?;
        if let Some(why) = &streams.failed {
            state
                .remarks
                .push(format!("the storage's bound is not known: {why}"));
        }
        state.streams = Some(streams);
        Ok(())
    }

    /// Returns the records of all phases with at least one repetition.
    fn phase_records(&self, state: &PhasesState) -> Vec<PhaseRecord> {
        let in_memory = state.places.iter().all(|place| place.memory);
        let record = |sums: &PhaseRepetitions| {
            sums.record(self.point, self.bound(state, sums.phase), in_memory)
        };
        state.sums.iter().filter_map(record).collect()
    }

    /// Returns the upper bound of a phase's bandwidth.
    pub fn bound(&self, state: &PhasesState, phase: Phase) -> Option<Bound> {
        match self.point.bound {
            BoundChoice::None => None,
            BoundChoice::Stated { bytes_per_s } => Some(Bound::new("stated", bytes_per_s)),
            BoundChoice::Auto => state.streams.as_ref()?.bound(self.point, phase),
        }
    }
}

/// Returns how many transfers a phase makes when it reads the data of rank `part`.
pub fn transfers_to_read(point: &FilePoint, written: Option<&WrittenTransfers>, part: u32) -> u64 {
    let all = point.transfers_of_rank();
    let written = written.and_then(|written| written.transfers.get(part as usize));
    written.map_or(all, |&written| written.min(all))
}
