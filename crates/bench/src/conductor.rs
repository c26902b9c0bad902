//! The conductor takes the points of a plan through their steps, and makes a record of each. Points can be of any kind.
//!
//! A run first collects the facts that all points share. Consecutive points that can share open resources form a
//! stretch, and the resources are opened once per stretch. Each point then gets a canary, its steps (`run_steps`), a
//! second canary and a record. The kind of a point defines its steps; see [`crate::kinds`].

use std::time::Instant;

use crate::canary;
use crate::cpu_loss::CpuLossMeter;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree, await_first_cause, outcome};
use crate::in_process;
use crate::kinds::Kinds;
use crate::kinds::kind::{
    AnnotatedPoint, Kind, KindRunner, LimitMoment, PointOfKind, Stage, Steps,
};
use crate::network_paths::PathWatch;
use crate::observer::Observer;
use crate::run::{RunContext, unix_ns};
use crate::settings::Settings;
use crate::time_limit::TimeLimit;
use tonnage_machine::AffinityGuard;
use tonnage_machine::kernel_files::Tree;
use tonnage_machine::tcp_paths::open_sockets;
use tonnage_plan::Planned;
use tonnage_ranks::Rank;
use tonnage_record::{Canary, Outcome, Record, published};
use tonnage_sys::clock::Clock;
use tonnage_units::message::truncate_message;
use tonnage_units::{Error, Nanos, Result};

/// How a run ended: with or without all its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// Every point has a record.
    Complete,
    /// The time limit was too short for the remaining points. The first of them has a record with this reason.
    OutOfTime,
}

/// Runs all points in order as one run. Every rank calls this with the same points. Rank 0's observer gets the records.
///
/// # Errors
/// If an error ends the whole run. The failure of a single point is only in the point's record.
/// [`Error::TimeLimit`] if the time limit had to stop a point.
pub fn run(
    points: &[Planned],
    rank: &mut Rank,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<RunEnd> {
    if points.is_empty() {
        return Ok(RunEnd::Complete);
    }
    let run = RunContext::begin(rank, settings)?;
    let place = (0, points.len());
    measure(&run, points, place, rank, settings, observer, true)
}

/// Measures points of a run that has begun. Some points need all their ranks as threads of one process. With `divides`,
/// rank 0 starts these threads, and the other ranks wait. Without `divides`, this rank is such a thread itself.
fn measure(
    run: &RunContext,
    points: &[Planned],
    place: (usize, usize),
    rank: &mut Rank,
    settings: &Settings,
    observer: &mut dyn Observer,
    divides: bool,
) -> Result<RunEnd> {
    let (mut cpu, mut paths) = (
        CpuLossMeter::new(Tree::host()),
        PathWatch::new(open_sockets()),
    );
    let mut conductor = Conductor {
        stage: Stage {
            rank,
            settings,
            host: &run.host,
            cpu: &mut cpu,
            paths: &mut paths,
            observer,
        },
        run,
        points,
        place,
        next: 0,
        end: RunEnd::Complete,
    };
    let mut kinds = Kinds::default();
    while let Some(next) = points.get(conductor.next) {
        match next.point.any().thread_ranks(&settings.lists) {
            Some(threads) if divides => conductor.measure_within_process(threads)?,
            _ => kinds.run_points(&next.point, &mut conductor)?,
        }
    }
    Ok(conductor.end)
}

/// Points of a stretch that cannot be opened. Each error applies to all points that request at least this number of
/// bytes.
type OversizedPoints = Vec<(u64, Error)>;

/// A run in progress.
struct Conductor<'a> {
    stage: Stage<'a>,
    run: &'a RunContext,
    points: &'a [Planned],
    /// Index of the first of `points` in the whole run, and the total number of points in the run.
    place: (usize, usize),
    /// Index of the first point that has no record yet.
    next: usize,
    end: RunEnd,
}

impl KindRunner for Conductor<'_> {
    /// Measures one stretch. After a failed point, the open resources are used further only if their state is still
    /// known.
    fn run_points<K: Kind>(&mut self, kind: &mut K) -> Result<()> {
        // Afterwards, restores the set of CPUs that this thread may use. Otherwise threads that libraries start for the
        // next stretch would inherit the pinned CPU.
        let _cpus = AffinityGuard::save();
        let stretch = points_sharing_resources::<K>(&self.points[self.next..]);
        if let Some(&first) = stretch.first()
            && self.stop_if_out_of_time::<K>(first)?
        {
            return Ok(());
        }
        let (opened, oversized) = self.open_what_fits(kind, &stretch);
        let mut open = match opened {
            Ok(Some(open)) => open,
            Ok(None) => return self.emit_all::<K>(&stretch, &oversized),
            Err(failure) => return self.record_not_opened(kind, &stretch, failure),
        };
        for asked in stretch {
            if self.emit_unmeasured::<K>(asked, &oversized)? {
                continue;
            }
            if self.stop_if_out_of_time::<K>(asked)? {
                return Ok(());
            }
            let mut record = self.blank_record::<K>(asked);
            if self.stage.rank.id() == 0 {
                let (first, of) = self.place;
                let point = &self.points[self.next].point;
                self.stage.observer.begin(first + self.next, of, point);
            }
            match self.measure_point(kind, &mut open, asked, &mut record) {
                Ok(()) => self.emit(record, Outcome::Measured)?,
                Err(StepFailure::Point(error)) if K::stays_open_after(&error) => {
                    self.emit(record, outcome(&error))?;
                }
                Err(failure) => return self.record_failure(kind, record, failure),
            }
        }
        Ok(())
    }
}

impl Conductor<'_> {
    /// Opens the resources that the points of a stretch share. If the machine lacks a resource for all points together,
    /// drops the points that request the most bytes and tries again. Stops if the same resource is missing again.
    /// Returns the dropped sizes with the errors, and `None` if no point is left.
    fn open_what_fits<K: Kind>(
        &mut self,
        kind: &mut K,
        stretch: &[AnnotatedPoint<'_, K::Point>],
    ) -> (Result<Option<K::Open>, StepFailure>, OversizedPoints) {
        let possible = stretch.iter().filter(|asked| asked.impossible.is_none());
        let mut left: Vec<&K::Point> = possible.map(|asked| asked.point).collect();
        let mut oversized: OversizedPoints = Vec::new();
        while !left.is_empty() {
            let error = match kind.open(&left, &mut self.stage) {
                Ok(open) => return (Ok(Some(open)), oversized),
                Err(StepFailure::Point(error @ Error::Unavailable { .. })) => error,
                Err(failure) => return (Err(failure), oversized),
            };
            let most = left
                .iter()
                .map(|point| K::requested_bytes(point))
                .max()
                .unwrap_or(0);
            let lacks_the_same =
                |(_, before): &(u64, Error)| before.to_string() == error.to_string();
            if oversized.last().is_some_and(lacks_the_same) {
                left.clear();
            } else {
                left.retain(|point| K::requested_bytes(point) < most);
            }
            let from = if left.is_empty() { 0 } else { most };
            oversized.push((from, error));
        }
        (Ok(None), oversized)
    }

    /// Records a point that cannot be measured, and returns true. Returns false without a record if the point can be
    /// measured.
    fn emit_unmeasured<K: Kind>(
        &mut self,
        asked: AnnotatedPoint<'_, K::Point>,
        oversized: &OversizedPoints,
    ) -> Result<bool> {
        let bytes = K::requested_bytes(asked.point);
        let lacking = oversized.iter().find(|(from, _)| bytes >= *from);
        let unmeasured = match (asked.impossible, lacking) {
            (Some(why), _) => Outcome::Skipped {
                why: truncate_message(why).into_owned(),
            },
            (None, Some((_, error))) => outcome(error),
            (None, None) => return Ok(false),
        };
        let record = self.blank_record::<K>(asked);
        self.emit(record, unmeasured).map(|()| true)
    }

    /// Ends the run if the time limit leaves too little time for the next point. That point's record gives the reason.
    fn stop_if_out_of_time<K: Kind>(&mut self, next: AnnotatedPoint<'_, K::Point>) -> Result<bool> {
        let Some(limit) = self.stage.settings.time_limit else {
            return Ok(false);
        };
        let needed = self.points[self.next].point.any().least_time();
        if !limit.is_too_short(self.stage.rank, needed)? {
            return Ok(false);
        }
        let record = self.blank_record::<K>(next);
        self.emit_out_of_time(record, limit.limit())?;
        self.end = RunEnd::OutOfTime;
        self.next = self.points.len();
        Ok(true)
    }

    /// Records the point at which the time limit ends the run. The points after it have no records.
    fn emit_out_of_time(&mut self, mut record: Record, limit: Nanos) -> Result<()> {
        let (first, of) = self.place;
        let others = match of - (first + self.next) - 1 {
            0 => String::new(),
            1 => " and 1 other point".to_owned(),
            others => format!(" and {others} other points"),
        };
        let why = format!("the time limit of {limit} left no time for this point{others}");
        record.out_of_time = true;
        self.emit(record, Outcome::Skipped { why })
    }

    /// Records every point of a stretch as unmeasured.
    fn emit_all<K: Kind>(
        &mut self,
        stretch: &[AnnotatedPoint<'_, K::Point>],
        oversized: &OversizedPoints,
    ) -> Result<()> {
        let mut all = stretch.iter();
        all.try_for_each(|asked| self.emit_unmeasured::<K>(*asked, oversized).map(drop))
    }

    /// Makes rank 0 measure the next point inside its own process. Directly following points with the same number of
    /// threads are measured in the same call.
    fn measure_within_process(&mut self, size: u32) -> Result<()> {
        let Stage {
            rank,
            settings,
            host,
            observer,
            ..
        } = &mut self.stage;
        let ahead = &self.points[self.next..];
        let fits =
            |planned: &&Planned| planned.point.any().thread_ranks(&settings.lists) == Some(size);
        let points = &ahead[..ahead.iter().take_while(fits).count()];
        rank.set_phase("points within rank 0's process");
        if rank.id() == 0 {
            let (run_id, place) = (&self.run.run_id, (self.place.0 + self.next, self.place.1));
            let part = |rank: &mut Rank, observer: &mut dyn Observer| {
                let run = RunContext::join(rank, settings, run_id)?;
                measure(&run, points, place, rank, settings, observer, false).map(drop)
            };
            in_process::run(size, &part, (rank, &host.topology.allowed), *observer)?;
        }
        self.next += points.len();
        // The duration of rank 0's points is not known in advance. Rank 0's heartbeat shows that it is alive.
        rank.barrier("points within rank 0's process", DEADLINES.phase)
    }

    /// Records all points of a stretch that could not be opened. If the run is over, records only the first of them.
    fn record_not_opened<K: Kind>(
        &mut self,
        kind: &mut K,
        stretch: &[AnnotatedPoint<'_, K::Point>],
        failure: StepFailure,
    ) -> Result<()> {
        match (failure, stretch) {
            (StepFailure::Point(error), all) => self.emit_all::<K>(all, &vec![(0, error)]),
            (failure, [first, ..]) => {
                self.record_failure(kind, self.blank_record::<K>(*first), failure)
            }
            (StepFailure::Run(error), []) => Err(error),
        }
    }

    /// Measures one point, with a canary before and after it.
    fn measure_point<K: Kind>(
        &mut self,
        kind: &mut K,
        open: &mut K::Open,
        asked: AnnotatedPoint<'_, K::Point>,
        record: &mut Record,
    ) -> Result<(), StepFailure> {
        self.run.renew_clocks(self.stage.rank, record)?;
        let clock = self.stage.settings.clock;
        let cpus = kind.canary_cpus(open, asked.point, &self.stage);
        let before = self.run_canary(cpus.as_ref())?;
        self.stage.cpu.reset();
        self.stage.paths.reset();
        let limit = self.stage.settings.time_limit;
        let mut is_cut = false;
        let mut run_steps = |steps: &mut dyn Steps| {
            is_cut |= run_steps(&clock, limit, steps)? == TrialsEnd::OutOfTime;
            Ok(())
        };
        kind.measure(open, asked, &mut self.stage, record, &mut run_steps)?;
        if let Some(limit) = limit.filter(|_| is_cut) {
            record.remarks.push(limit.remark());
        }
        self.gather_surroundings(record)?;
        let believed = clock.check();
        let believed = believed.map_err(|fault| Error::Failed(fault.to_string()));
        agree(
            self.stage.rank,
            "clocks of the ranks",
            believed,
            DEADLINES.step,
        )?;
        let after = self.run_canary(cpus.as_ref())?;
        record.canary = cpus.map(|cpus| match cpus {
            Ok(cpus) => canary::compare(cpus, before, after),
            Err(why) => Canary::Skipped { why },
        });
        Ok(())
    }

    /// Adds the conditions during the trials to rank 0's record: CPU time that ranks lost, and the paths of their
    /// sockets.
    fn gather_surroundings(&mut self, record: &mut Record) -> Result<(), StepFailure> {
        let Stage {
            rank,
            host,
            cpu,
            paths,
            ..
        } = &mut self.stage;
        // Some sockets stay open between points, and are read here. Other sockets were read before they were closed.
        paths.read_sockets();
        let lost = cpu.own_losses(rank, host);
        let lost = rank.reduce("CPU time that was lost", lost, DEADLINES.step)?;
        let paths = paths.paths(rank);
        let paths = rank.reduce("paths of sockets", paths, DEADLINES.step)?;
        if rank.id() == 0 {
            record.cpu_losses = lost.for_record(&record.effective, rank.hosts());
            record.network_paths = paths.into_inner();
        }
        Ok(())
    }

    /// Rank 0 measures the canary. All other ranks wait meanwhile, without using a CPU.
    fn run_canary(
        &mut self,
        cpus: Option<&Result<[u32; 2], String>>,
    ) -> Result<Result<f64, String>, StepFailure> {
        let none = || Err("measured by rank 0".to_owned());
        let Some(cpus) = cpus else {
            return Ok(none());
        };
        let Stage { rank, settings, .. } = &mut self.stage;
        rank.set_phase("canary");
        rank.barrier("before the canary", DEADLINES.step)?;
        let result = match (rank.id(), cpus) {
            (0, Ok(cpus)) => canary::one_way_ns(*cpus, &settings.clock),
            _ => none(),
        };
        rank.barrier("after the canary", DEADLINES.step)?;
        Ok(result)
    }

    /// Records a point that failed. If the run is over, returns the first cause that is known.
    fn record_failure<K: Kind>(
        &mut self,
        kind: &mut K,
        record: Record,
        failure: StepFailure,
    ) -> Result<()> {
        let error = match failure {
            StepFailure::Point(error) => {
                kind.abandon();
                return self.emit(record, outcome(&error));
            }
            StepFailure::Run(error) => error,
        };
        let rank = &*self.stage.rank;
        await_first_cause(rank);
        if rank.why_stopped().is_none() {
            rank.fail(&error);
        }
        // `fail` reports the error to all ranks, including this one. The reported error names this rank.
        await_first_cause(rank);
        let error = rank.why_stopped().unwrap_or(error);
        // Record first and clean up afterwards: this process is ended soon, even if the cleanup takes longer.
        let emitted = match error {
            Error::TimeLimit(limit) => self.emit_out_of_time(record, limit),
            _ => self.emit(record, outcome(&error)),
        };
        kind.abandon();
        emitted.and(Err(error))
    }

    fn blank_record<K: Kind>(&self, asked: AnnotatedPoint<'_, K::Point>) -> Record {
        let not_begun = outcome(&Error::Failed("not started".into()));
        let record = self
            .run
            .record(self.stage.settings, K::empty_body(asked), not_begun);
        Record {
            // No hardware or software is missing for a contradictory cell of a sweep, so the cell is not optional.
            optional: asked.reading.optional && asked.impossible.is_none(),
            published_rows: published::rows_of(&record, &asked.reading.tables),
            ..record
        }
    }

    /// Passes the next point's record to rank 0's observer.
    fn emit(&mut self, mut record: Record, outcome: Outcome) -> Result<()> {
        self.next += 1;
        if self.stage.rank.id() != 0 {
            return Ok(());
        }
        record.outcome = outcome;
        record.time_unix_ns = unix_ns();
        self.stage.observer.record(record)
    }
}

/// Returns the next points that can share open resources with the first one. Impossible points in between are included.
fn points_sharing_resources<'a, K: Kind>(
    ahead: &'a [Planned],
) -> Vec<AnnotatedPoint<'a, K::Point>> {
    let mut stretch: Vec<AnnotatedPoint<'_, K::Point>> = Vec::new();
    let mut first = None;
    for planned in ahead {
        let Some(point) = K::Point::from_planned(planned) else {
            break;
        };
        let (reading, impossible) = (&planned.reading, planned.impossible.as_deref());
        match first {
            _ if impossible.is_some() => {}
            None => first = Some(point),
            Some(first) if K::shares_resources(first, point) => {}
            Some(_) => break,
        }
        stretch.push(AnnotatedPoint {
            point,
            reading,
            impossible,
        });
    }
    stretch
}

/// Why the trials of a point ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrialsEnd {
    /// There are enough trials.
    Enough,
    /// The time limit was too short for more trials.
    OutOfTime,
}

/// Takes one point through all its steps. The clock is synchronized with the kernel's before each timed step, so that
/// kinds need not do it.
fn run_steps(
    clock: &Clock,
    limit: Option<TimeLimit>,
    steps: &mut dyn Steps,
) -> Result<TrialsEnd, StepFailure> {
    let tried = run_trials(clock, limit, steps);
    if let Err(StepFailure::Run(_)) = tried {
        return tried;
    }
    // A point that failed on all ranks is closed too. If closing fails as well, the first failure counts.
    let closed = steps.close();
    match (tried, closed) {
        // If a rank could not close, it is no longer in step with the others, and the run cannot continue.
        (Err(StepFailure::Point(first)), Err(StepFailure::Run(_))) => Err(StepFailure::Run(first)),
        (tried, closed) => {
            let end = tried?;
            closed?;
            clock.follow();
            steps.bound(LimitMoment::After)?;
            steps.gather()?;
            Ok(end)
        }
    }
}

fn run_trials(
    clock: &Clock,
    limit: Option<TimeLimit>,
    steps: &mut dyn Steps,
) -> Result<TrialsEnd, StepFailure> {
    clock.follow();
    let begun = Instant::now();
    steps.bound(LimitMoment::Before)?;
    // The bound is measured again at the end.
    let bound_time = begun.elapsed();
    steps.prepare()?;
    clock.follow();
    steps.warm_up()?;
    loop {
        clock.follow();
        let begun = Instant::now();
        steps.trial()?;
        if steps.enough()? {
            return Ok(TrialsEnd::Enough);
        }
        if let Some(limit) = limit {
            let needed = begun.elapsed() + bound_time + steps.closing_time();
            if !limit.is_too_short(steps.rank(), needed)? {
                continue;
            }
            return Ok(TrialsEnd::OutOfTime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tonnage_sys::clock::monotonic_ns;

    /// Name of a step that fails, and the kind of failure: the point's or the run's.
    type Fails = (&'static str, fn(Error) -> StepFailure);

    /// Records the name of each step that is taken, calls `look` with this name, and fails at the given steps.
    struct RecordedSteps<F> {
        taken: Vec<&'static str>,
        fails: &'static [Fails],
        look: F,
        /// The rank that `Steps::rank` returns; only needed with a time limit.
        rank: Option<Rank>,
    }

    impl<F: Fn(&str)> RecordedSteps<F> {
        fn new(fails: &'static [Fails], look: F) -> Self {
            let taken = Vec::new();
            Self {
                taken,
                fails,
                look,
                rank: None,
            }
        }

        fn note(&mut self, step: &'static str) -> Result<(), StepFailure> {
            self.taken.push(step);
            (self.look)(step);
            match self.fails.iter().find(|(at, _)| *at == step) {
                Some((_, with)) => Err(with(Error::Failed(step.into()))),
                None => Ok(()),
            }
        }
    }

    impl<F: Fn(&str)> Steps for RecordedSteps<F> {
        fn rank(&mut self) -> &mut Rank {
            self.rank.as_mut().unwrap()
        }

        fn bound(&mut self, when: LimitMoment) -> Result<(), StepFailure> {
            self.note(match when {
                LimitMoment::Before => "bound before",
                LimitMoment::After => "bound after",
            })
        }

        fn prepare(&mut self) -> Result<(), StepFailure> {
            self.note("prepare")
        }

        fn warm_up(&mut self) -> Result<(), StepFailure> {
            self.note("warm-up")
        }

        fn trial(&mut self) -> Result<(), StepFailure> {
            self.note("trial")
        }

        fn enough(&mut self) -> Result<bool, StepFailure> {
            Ok(self.taken.iter().filter(|step| **step == "trial").count() == 2)
        }

        fn close(&mut self) -> Result<(), StepFailure> {
            self.note("close")
        }

        fn gather(&mut self) -> Result<(), StepFailure> {
            self.note("gather")
        }
    }

    fn taken(fails: &'static [Fails]) -> (Vec<&'static str>, Result<(), StepFailure>) {
        let mut recorded = RecordedSteps::new(fails, |_| ());
        let ended = run_steps(&Clock::new(), None, &mut recorded);
        (recorded.taken, ended.map(drop))
    }

    #[test]
    fn the_clock_is_synchronized_before_each_timed_step() {
        // This clock loses 5 ms per second unless it is synchronized.
        let clock = Clock::misjudged(-5000);
        if clock.source_name() == "clock_gettime" {
            println!("skip: the kernel does not trust this CPU's counter");
            return;
        }
        // If the thread is descheduled between the two readings, the difference grows. Therefore the smallest of many
        // counts.
        let off_ns = || {
            let each = (0..100).map(|_| clock.now_ns().abs_diff(monotonic_ns()));
            each.min().unwrap()
        };
        std::thread::sleep(Duration::from_millis(100));
        assert!(off_ns() > 400_000, "{}", off_ns());
        let mut timed = RecordedSteps::new(&[], |step| {
            // These steps don't read the clock.
            if !["prepare", "close", "gather"].contains(&step) {
                let off_ns = off_ns();
                assert!(off_ns < 20_000, "{step}: {off_ns}");
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        run_steps(&clock, None, &mut timed).unwrap();
        assert_eq!(timed.taken.len(), 8);
        clock.check().unwrap();
    }

    #[test]
    fn steps_are_taken_in_order() {
        let all = [
            "bound before",
            "prepare",
            "warm-up",
            "trial",
            "trial",
            "close",
            "bound after",
            "gather",
        ];
        let (steps, ended) = taken(&[]);
        assert!(ended.is_ok());
        assert_eq!(steps, all);
    }

    #[test]
    fn trials_end_when_the_time_limit_leaves_no_time_for_another() {
        let ends = tonnage_ranks::testing::run(1, |rank| {
            let mut recorded = RecordedSteps::new(&[], |_| ());
            recorded.rank = Some(rank);
            let limit =
                |seconds: u64| TimeLimit::new(Nanos(seconds * 1_000_000_000), Instant::now());
            let ends = [1000, 0].map(|seconds| {
                recorded.taken.clear();
                let end = run_steps(&Clock::new(), Some(limit(seconds)), &mut recorded).unwrap();
                let trials = recorded.taken.iter().filter(|step| **step == "trial");
                (end, trials.count())
            });
            recorded.rank.take().unwrap().close().unwrap();
            ends
        });
        assert_eq!(ends, [[(TrialsEnd::Enough, 2), (TrialsEnd::OutOfTime, 1)]]);
    }

    #[test]
    fn a_failed_point_is_closed_unless_the_run_is_over() {
        let closed = ["bound before", "prepare", "close"];
        let (steps, ended) = taken(&[("prepare", StepFailure::Point)]);
        assert!(matches!(ended, Err(StepFailure::Point(_))));
        assert_eq!(steps, closed);
        let (steps, ended) = taken(&[("prepare", StepFailure::Run)]);
        assert!(matches!(ended, Err(StepFailure::Run(_))));
        assert_eq!(steps, ["bound before", "prepare"]);
    }

    /// If a rank could not close a failed point, other ranks would wait for it in the next point. The reported error is
    /// the earlier one, which caused the failure.
    #[test]
    fn a_failed_point_that_cannot_be_closed_ends_the_run() {
        let (_, ended) = taken(&[("trial", StepFailure::Point), ("close", StepFailure::Run)]);
        let Err(StepFailure::Run(error)) = ended else {
            panic!("{ended:?}");
        };
        assert!(error.to_string().contains("trial"), "{error}");
    }
}
