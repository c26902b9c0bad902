//! The threads of a rank in one phase: they open, transfer and close. Thread 0 is the main thread, and the only one
//! that talks to other ranks. The other threads wait for it at every barrier.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::Duration;

use tonnage_sys::clock::{Clock, process_cpu_ns, thread_cpu_ns};

use super::clean::PendingFileId;
use super::ledger::Inode;
use super::phase::PhaseJob;
use super::totals::{Span, ThreadFigures};
use crate::cpu_loss::own_sched_time;
use crate::deadlines::DEADLINES;
use crate::kinds::files::memory::ThreadMemory;
use crate::kinds::files::verify::Checker;
use crate::threads;
use tonnage_engine::calls::{FileCall, FileCalls, FileView, OpenFile};
use tonnage_loops::files::drive::{
    BufferLayout, Inspector, Samples, ThreadTask, TransfersInFlight, Vote, run_blocking, run_queued,
};
use tonnage_loops::files::sequence::Sequence;
use tonnage_plan::files::{FileLayout, FilePoint, Fsync, Stonewall};
use tonnage_ranks::Rank;
use tonnage_units::lock::lock;
use tonnage_units::reduce::{ReduceAny, ReduceMax};
use tonnage_units::{Error, Result};

/// Before the common start, a thread spins for this long, because a sleep may end too late.
const SPIN_NS: u64 = 200_000;

/// Number of a thread's open file. A thread has only one.
const FILE: u32 = 0;

/// The state of one thread, which persists over all phases.
pub struct FileWorker {
    /// The thread's engine.
    pub calls: Box<dyn FileCalls>,
    /// The thread's memory, with its NUMA node.
    pub memory: ThreadMemory,
    /// Layout of the buffers in this memory.
    pub buffers: BufferLayout,
    /// Results of the current phase.
    pub samples: Samples,
    /// The thread's transfers in flight.
    pub slots: TransfersInFlight,
    /// The CPU that the thread is pinned to.
    pub cpu: Option<u32>,
}

/// Parameters of one phase, which all threads of a rank share.
pub struct PhasePlan<'a> {
    /// The experiment.
    pub point: &'a FilePoint,
    /// Work of this rank in the phase.
    pub job: &'a PhaseJob<'a>,
    /// Name of the file, for messages.
    pub name: String,
    /// Sequence of the transfers in this rank's part of the file.
    pub places: Sequence,
    /// Common start of all ranks, on this host's clock.
    pub start_ns: u64,
    pub clock: Clock,
}

impl PhasePlan<'_> {
    /// Returns the sync mode of the phase. Prefilling always syncs at the end.
    fn fsync(&self) -> Fsync {
        if self.job.measured {
            self.point.fsync
        } else {
            Fsync::End
        }
    }

    /// Returns the stonewall, which counts from the common start. Only measured phases have one.
    pub fn stonewall(&self) -> Option<Stonewall> {
        self.point.stonewall.filter(|_| self.job.measured)
    }
}

/// State that the threads of a rank share while a phase runs.
pub struct PhaseState {
    stopped: Arc<AtomicBool>,
    failed: AtomicBool,
    first_error: Mutex<Option<Error>>,
    barrier: Barrier,
    most: AtomicU64,
    /// CPU time of the process at the common start.
    process_begin_ns: AtomicU64,
    /// Stores the identity of the file, if the phase creates the file.
    pending_id: Option<PendingFileId>,
    /// The file that the first thread created. Other threads must open the same file.
    made: OnceLock<Inode>,
    /// Number of bytes that each thread has moved so far, for progress reports.
    pub watched: Vec<AtomicU64>,
}

impl PhaseState {
    /// Creates the state of a rank with `threads` threads.
    pub fn new(
        threads: usize,
        stopped: Arc<AtomicBool>,
        pending_id: Option<PendingFileId>,
    ) -> Self {
        Self {
            stopped,
            failed: AtomicBool::new(false),
            first_error: Mutex::new(None),
            barrier: Barrier::new(threads),
            most: AtomicU64::new(0),
            process_begin_ns: AtomicU64::new(0),
            pending_id,
            made: OnceLock::new(),
            watched: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn fail(&self, error: Error) {
        let mut first = lock(&self.first_error);
        // Later errors are consequences of the first one.
        if !self.failed.swap(true, Ordering::SeqCst) && first.is_none() {
            *first = Some(error);
        }
    }

    /// Returns the error of the thread that failed first.
    fn outcome(&self) -> Result<()> {
        lock(&self.first_error).take().map_or(Ok(()), Err)
    }
}

/// Runs the phase on this rank's threads, and returns their figures. `checkers` has one entry per thread, or no
/// entries.
pub fn run(
    plan: &PhasePlan<'_>,
    shared: &PhaseState,
    team: &mut [FileWorker],
    checkers: &mut [Checker<'_>],
    rank: &mut Rank,
) -> Result<Vec<ThreadFigures>> {
    let mut cpu = ThreadsCpu::begin();
    let queues = team.iter_mut().any(|worker| worker.calls.queue().is_some());
    let mut checkers = checkers.iter_mut();
    let workers = team.iter_mut().map(|worker| (worker, checkers.next()));
    let mut workers = workers.enumerate();
    let lead = workers.next();
    let mut figures = std::thread::scope(|scope| {
        // Threads wait for each other inside the phase. If one could not be started, the others must not begin.
        let mut gates = Vec::new();
        let mut followers = Vec::new();
        for (index, (worker, checker)) in workers {
            let (gate, opened) = channel();
            gates.push(gate);
            let work = move || {
                opened.recv().ok()?;
                let steps = ThreadSteps {
                    plan,
                    shared,
                    index,
                    lead: None,
                };
                let figures = steps.run(worker, checker);
                // The thread was started for this phase, so its CPU time is that of the phase.
                Some((figures, thread_cpu_ns()))
            };
            followers.push(threads::start(scope, &format!("thread {index}"), work)?);
        }
        for gate in gates {
            // Sending cannot fail, because each thread is waiting for this message.
            let _ = gate.send(());
        }
        let mut figures = Vec::with_capacity(followers.len() + 1);
        if let Some((index, (worker, checker))) = lead {
            let steps = ThreadSteps {
                plan,
                shared,
                index,
                lead: Some(rank),
            };
            figures.push(steps.run(worker, checker));
        }
        for follower in followers {
            match follower.join() {
                Ok(result) => figures.extend(result.map(|(thread, used_ns)| {
                    cpu.followers_ns += used_ns;
                    thread
                })),
                Err(_) => shared.fail(Error::Failed("a thread of this rank panicked".into())),
            }
        }
        Ok::<_, Error>(figures)
    })?;
    shared.outcome()?;
    if queues {
        let at_start_ns = shared.process_begin_ns.load(Ordering::Relaxed);
        let kernel_ns = cpu.of_kernel_threads_ns(&figures, at_start_ns);
        // CPU time of the kernel's threads for a queue counts as CPU time of transfers.
        if let Some(lead) = figures.first_mut() {
            lead.cpu_ns += kernel_ns;
            lead.transfer_cpu_ns += kernel_ns;
        }
    }
    Ok(figures)
}

/// CPU times of the process and of its threads, to determine the kernel threads' share.
struct ThreadsCpu {
    lead_begin_ns: u64,
    process_begin_ns: u64,
    followers_ns: u64,
}

impl ThreadsCpu {
    fn begin() -> Self {
        Self {
            // The main thread's time is read first here and last at the end. Thus none of its own work counts as the
            // kernel's.
            lead_begin_ns: thread_cpu_ns(),
            process_begin_ns: process_cpu_ns(),
            followers_ns: 0,
        }
    }

    /// Returns the CPU time of the kernel threads that serve a queue. This time counts for the process, but not for any
    /// of its own threads. Call this on the main thread, after the other threads have ended.
    ///
    /// There are two estimates, and neither is too low, so the lower one is closer. The estimate from before the phase
    /// includes the start of the other threads. The estimate from the common start includes time of threads that waited
    /// on other CPUs before, because the kernel accounts for it late.
    fn of_kernel_threads_ns(&self, figures: &[ThreadFigures], at_start_ns: u64) -> u64 {
        let (process_ns, lead_ns) = (process_cpu_ns(), thread_cpu_ns());
        let whole = (process_ns - self.process_begin_ns)
            .saturating_sub(lead_ns - self.lead_begin_ns + self.followers_ns);
        let before: u64 = figures.iter().map(|thread| thread.cpu_begin_ns).sum();
        let own = (lead_ns + self.followers_ns).saturating_sub(before);
        let since_start = process_ns.saturating_sub(at_start_ns).saturating_sub(own);
        whole.min(since_start)
    }
}

/// The steps of one thread in a phase. After an error, steps are skipped, but every thread still reaches every barrier.
/// Otherwise other threads would wait forever.
struct ThreadSteps<'a, 'b> {
    plan: &'a PhasePlan<'a>,
    shared: &'a PhaseState,
    index: usize,
    lead: Option<&'b mut Rank>,
}

impl ThreadSteps<'_, '_> {
    fn run(mut self, worker: &mut FileWorker, checker: Option<&mut Checker<'_>>) -> ThreadFigures {
        let (plan, clock) = (self.plan, self.plan.clock);
        worker.samples = Samples::default();
        worker.slots.forget();
        let since = |ns: u64| ns.saturating_sub(plan.start_ns);
        if let Some(cpu) = worker.cpu {
            self.run_unless_failed(|_| tonnage_machine::pin_thread(cpu));
        }
        let sched_begin = own_sched_time();
        self.await_start();
        let cpu_begin_ns = thread_cpu_ns();
        if self.lead.is_some() {
            let begin_ns = process_cpu_ns();
            self.shared
                .process_begin_ns
                .store(begin_ns, Ordering::Relaxed);
        }
        let open = self.timed(|steps| steps.open(worker));
        self.check_opened(worker);
        self.barrier("files are open");
        let (cpu_transfer_ns, begin_ns) = (thread_cpu_ns(), clock.now_ns());
        self.transfers(worker, checker);
        let done_ns = clock.now_ns();
        let syncs_end = plan.fsync() == Fsync::End;
        if syncs_end && plan.job.phase.writes() {
            self.run_unless_failed(|_| {
                worker
                    .calls
                    .call(&FileCall::Sync { file: FILE })
                    .map(|_| ())
            });
        }
        let end_ns = clock.now_ns();
        let transfer_cpu_ns = thread_cpu_ns() - cpu_transfer_ns;
        self.barrier("transfers are made");
        let close = self.timed(|steps| {
            steps.run_unless_failed(|_| {
                worker
                    .calls
                    .call(&FileCall::Close { file: FILE })
                    .map(|_| ())
            });
        });
        let sync_end_ns = if syncs_end && plan.job.phase.writes() {
            end_ns - done_ns
        } else {
            0
        };
        ThreadFigures {
            open,
            transfer: Span {
                begin_ns: since(begin_ns),
                end_ns: since(end_ns),
            },
            done_ns: since(done_ns),
            sync_ns: worker.samples.sync_ns + sync_end_ns,
            close,
            cpu_begin_ns,
            cpu_ns: thread_cpu_ns() - cpu_begin_ns,
            transfer_cpu_ns,
            sched: own_sched_time()
                .zip(sched_begin)
                .map(|(end, begin)| end.since(begin)),
        }
    }

    fn run_unless_failed(&mut self, take: impl FnOnce(&mut Self) -> Result<()>) {
        if self.shared.failed.load(Ordering::SeqCst) {
            return;
        }
        if let Err(error) = take(self) {
            self.shared.fail(error);
        }
    }

    fn timed(&mut self, take: impl FnOnce(&mut Self)) -> Span {
        let (clock, start_ns) = (self.plan.clock, self.plan.start_ns);
        let begin_ns = clock.now_ns().saturating_sub(start_ns);
        take(self);
        let end_ns = clock.now_ns().saturating_sub(start_ns);
        Span { begin_ns, end_ns }
    }

    /// Opens the file. If the phase creates the file, the first thread creates it, and other threads open it
    /// afterwards.
    fn open(&mut self, worker: &mut FileWorker) {
        let plan = self.plan;
        let (point, job, makes) = (plan.point, plan.job, plan.job.makes);
        let is_first = self.index == 0;
        let waits = makes && point.threads > 1;
        if waits && !is_first {
            self.shared.barrier.wait();
        }
        let file = OpenFile {
            file: FILE,
            path: &job.path,
            read: job.phase.reads(),
            write: job.phase.writes(),
            create: makes && is_first,
            shared: point.layout == FileLayout::Shared,
            // In a shared file, the view contains only this rank's blocks.
            view: point.file_view.then(|| FileView {
                begin: u64::from(job.part) * point.block_bytes,
                block_bytes: point.block_bytes,
                stride_bytes: u64::from(point.ranks) * point.block_bytes,
            }),
        };
        self.run_unless_failed(|_| worker.calls.call(&FileCall::Open(file)).map(|_| ()));
        if waits && is_first {
            if let Some(made) = opened_file(worker) {
                // This is set only once: only the first thread creates a file, and only once per phase.
                let _ = self.shared.made.set(made);
            }
            self.shared.barrier.wait();
        }
    }

    /// Checks that the opened file is the one that was inspected before, or that the first thread created. Otherwise
    /// another file could take the name unnoticed. The first thread also records the file's identity in the ledger. The
    /// check costs a statx between two measured intervals, which takes 0.3 us on ext4 and tmpfs.
    fn check_opened(&mut self, worker: &FileWorker) {
        let pending_id = self.shared.pending_id.as_ref().filter(|_| self.index == 0);
        let expected = self
            .plan
            .job
            .expected_file
            .or(self.shared.made.get().copied());
        if pending_id.is_none() && expected.is_none() {
            return;
        }
        self.run_unless_failed(|steps| {
            let opened = opened_file(worker);
            if let (Some(opened), Some(expected)) = (opened, expected)
                && opened != expected
            {
                return Err(replaced_error(&steps.plan.job.path));
            }
            pending_id
                .into_iter()
                .for_each(|pending| pending.set(opened));
            Ok(())
        });
    }

    fn await_start(&self) {
        let left = self.plan.start_ns.saturating_sub(self.plan.clock.now_ns());
        if left > SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left - SPIN_NS));
        }
        while self.plan.clock.now_ns() < self.plan.start_ns {
            std::hint::spin_loop();
        }
    }

    /// Waits for all threads of all ranks, if the plan asks for barriers.
    fn barrier(&mut self, what: &str) {
        if !(self.plan.point.barriers && self.plan.job.measured) {
            return;
        }
        self.shared.barrier.wait();
        self.run_unless_failed(|steps| match &mut steps.lead {
            Some(rank) => rank.barrier(what, DEADLINES.phase),
            None => Ok(()),
        });
        self.shared.barrier.wait();
    }

    fn transfers(&mut self, worker: &mut FileWorker, mut checker: Option<&mut Checker<'_>>) {
        let plan = self.plan;
        let threads = u64::from(plan.point.threads);
        let share = share_of_thread(plan.job.quota, self.index as u64, threads);
        let inspect = checker.as_deref_mut();
        self.run_unless_failed(|steps| steps.drive(worker, false, share, inspect));
        // Threads that failed take part too, because the others wait for them here.
        if let Some(wall) = plan.stonewall().filter(|wall| wall.wear_out) {
            let least = wall.transfers_min.div_ceil(threads);
            let until = self
                .largest_count_of_all(worker.samples.transfers.max(least))
                .min(share);
            self.run_unless_failed(|steps| steps.drive(worker, true, until, checker));
        }
    }

    fn drive(
        &mut self,
        worker: &mut FileWorker,
        beyond_wall: bool,
        until: u64,
        checker: Option<&mut Checker<'_>>,
    ) -> Result<()> {
        let inspect: Inspector<'_> = checker.map(|checker| checker as _);
        let (plan, shared) = (self.plan, self.shared);
        let wall_ns = plan.stonewall().map(|wall| plan.start_ns + wall.after_ns);
        let task = ThreadTask {
            places: plan.places,
            first: self.index as u64,
            step: u64::from(plan.point.threads),
            file: FILE,
            name: &plan.name,
            transfer_bytes: plan.point.transfer_bytes,
            data: plan.job.data,
            sync_each: plan.fsync() == Fsync::Each,
            memory: &worker.memory.arena,
            buffers: worker.buffers,
            clock: plan.clock,
            start_ns: plan.start_ns,
            wall_ns,
            beyond_wall,
            stop: [&shared.stopped, &shared.failed],
            watched_bytes: &shared.watched[self.index],
        };
        if let Some(queue) = worker.calls.queue() {
            return run_queued(
                queue,
                &task,
                until,
                (&mut worker.samples, &mut worker.slots),
                inspect,
            );
        }
        // With collective calls, all ranks must stop after the same call. A rank that stopped earlier would leave the
        // others waiting.
        let mut vote = |over: bool| match &mut self.lead {
            Some(rank) => {
                let any = rank.reduce("whether to end", ReduceAny(over), DEADLINES.phase)?;
                Ok(any.0)
            }
            None => Ok(over),
        };
        let together = plan.point.collective && wall_ns.is_some() && !beyond_wall;
        let vote: Option<Vote<'_>> = if together { Some(&mut vote) } else { None };
        run_blocking(
            &mut *worker.calls,
            &task,
            until,
            &mut worker.samples,
            inspect,
            vote,
        )
    }

    /// Returns the largest number of transfers that any thread of any rank has made.
    fn largest_count_of_all(&mut self, made: u64) -> u64 {
        let shared = self.shared;
        shared.most.fetch_max(made, Ordering::SeqCst);
        shared.barrier.wait();
        self.run_unless_failed(|steps| {
            let Some(rank) = &mut steps.lead else {
                return Ok(());
            };
            let mine = ReduceMax(shared.most.load(Ordering::SeqCst));
            let most = rank.reduce("how far the fastest rank is", mine, DEADLINES.phase)?;
            shared.most.store(most.0, Ordering::SeqCst);
            Ok(())
        });
        shared.barrier.wait();
        shared.most.load(Ordering::SeqCst)
    }
}

/// Returns the file that a thread has open; `None` if the engine cannot identify it.
fn opened_file(worker: &FileWorker) -> Option<Inode> {
    let (device, number) = worker.calls.identity(FILE)?;
    Some(Inode { device, number })
}

/// Returns the error for a path at which another file has replaced the expected one.
pub(super) fn replaced_error(path: &Path) -> Error {
    Error::Failed(format!(
        "{} is not the file that tonnage looked at or made there: another process has put a file in its place. Use a \
         directory that only you can write",
        path.display()
    ))
}

/// Returns the number of transfers of thread `index`, if `threads` threads take turns with `quota` transfers.
pub fn share_of_thread(quota: u64, index: u64, threads: u64) -> u64 {
    quota.saturating_sub(index).div_ceil(threads.max(1))
}

/// Returns how many transfers are complete from the beginning without a gap. Threads take turns; `made` has the number
/// of transfers of each thread.
pub fn contiguous_prefix(made: impl Iterator<Item = u64>, threads: u64) -> u64 {
    let next = (0u64..)
        .zip(made)
        .map(|(index, made)| index + made * threads);
    next.min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_all_transfers() {
        for quota in 0..20 {
            for threads in 1..5 {
                let shares: Vec<u64> = (0..threads)
                    .map(|index| share_of_thread(quota, index, threads))
                    .collect();
                assert_eq!(shares.iter().sum::<u64>(), quota);
                assert_eq!(contiguous_prefix(shares.into_iter(), threads), quota);
            }
        }
        // Thread 1 makes transfers 1, 3, 5. It has made 1 and 3, so transfers 0 to 4 are complete, but 5 is not.
        assert_eq!(contiguous_prefix([4, 2].into_iter(), 2), 5);
    }
}
