//! Points that run their ranks as threads of rank 0's process, because their engine only works within one process.
//! These threads form an inner run, while the other ranks of the outer run wait.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::observer::{Observer, Progress};
use crate::threads;
use tonnage_machine::spread_thread;
use tonnage_plan::Point;
use tonnage_ranks::{Alarm, Rank, ThreadRank, thread_ranks};
use tonnage_record::Record;
use tonnage_units::{Error, Result};

/// Time between two checks for the end of the outer run.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Measures the points on a rank of the inner run that has joined.
pub(crate) type Measure<'a> = &'a (dyn Fn(&mut Rank, &mut dyn Observer) -> Result<()> + Sync);

/// An event that a rank's thread reports.
enum ThreadEvent {
    /// The rank has joined. The alarm can end this rank.
    Joined(Alarm),
    /// The rank has ended.
    Ended,
}

/// Measures points with `size` threads as ranks. The threads may use the CPUs `cpus`.
///
/// # Errors
/// If an error ends the inner run.
pub(crate) fn run(
    size: u32,
    measure: Measure<'_>,
    (around, cpus): (&Rank, &[u32]),
    observer: &mut dyn Observer,
) -> Result<()> {
    let members = thread_ranks(size)?;
    std::thread::scope(|scope| {
        let (event_sender, events) = channel();
        let mut observer = Some(observer);
        let mut started: Vec<ScopedJoinHandle<'_, Result<()>>> = Vec::new();
        let mut refused = Ok(());
        for member in members {
            let (observer, event_sender, name) = (
                observer.take(),
                event_sender.clone(),
                format!("rank {}", member.id()),
            );
            let body = move || {
                let ended = run_rank_thread(member, measure, cpus, observer, &event_sender);
                // Sending fails only if the outer run has given up and no longer receives.
                let _ = event_sender.send(ThreadEvent::Ended);
                ended
            };
            match threads::start(scope, &name, body) {
                Ok(handle) => started.push(handle),
                // The threads that have started notice that a rank is missing, and end.
                Err(error) => refused = Err(error),
            }
        }
        drop(event_sender);
        watch_outer_run(around, &events, started.len());
        let ends = started.into_iter().map(|handle| {
            let broken = || Error::Failed("a thread of a rank has panicked".to_owned());
            handle.join().unwrap_or_else(|_| Err(broken()))
        });
        // The first result is that of rank 0, which knows the first cause.
        let all: Vec<Result<()>> = ends.collect();
        refused.and(all.into_iter().collect())
    })
}

/// Runs one rank of the inner run, from joining to its end.
fn run_rank_thread(
    member: ThreadRank,
    measure: Measure<'_>,
    cpus: &[u32],
    observer: Option<&mut dyn Observer>,
    event_sender: &Sender<ThreadEvent>,
) -> Result<()> {
    // A new thread inherits the CPUs of its starter, which may be pinned as a worker.
    spread_thread(cpus)?;
    let mut rank = member.join()?;
    let _ = event_sender.send(ThreadEvent::Joined(rank.alarm()));
    let mut ignored = NoObserver;
    let observer = observer.unwrap_or(&mut ignored);
    match measure(&mut rank, observer) {
        Ok(()) => Ok(rank.close()?),
        Err(error) => {
            if rank.why_stopped().is_none() {
                rank.fail(&error);
            }
            Err(error)
        }
    }
}

/// Waits until this number of threads have ended. If the outer run ends first, ends the threads.
fn watch_outer_run(around: &Rank, events: &Receiver<ThreadEvent>, mut threads: usize) {
    let mut alarms = Vec::new();
    while threads > 0 {
        match events.recv_timeout(CHECK_INTERVAL) {
            Ok(ThreadEvent::Joined(alarm)) => alarms.push(alarm),
            Ok(ThreadEvent::Ended) => threads -= 1,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let (Some(cause), false) = (around.why_stopped(), alarms.is_empty()) {
            alarms.drain(..).for_each(|alarm| alarm.raise(&cause));
        }
    }
}

/// Ignores all records and events. Used on all ranks except 0.
struct NoObserver;

impl Observer for NoObserver {
    fn begin(&mut self, _: usize, _: usize, _: &Point) {}
    fn progress(&mut self, _: &Progress) {}
    fn record(&mut self, _: Record) -> Result<()> {
        Ok(())
    }
}
