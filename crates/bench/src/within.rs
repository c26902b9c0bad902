//! Points whose ranks are threads of rank 0's process, because their engine moves bytes within one: a run within the
//! run. The other ranks of the run wait meanwhile.

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

/// Time between two looks at the run around: an end of it is heard no later.
const LOOK: Duration = Duration::from_millis(20);

/// Measures the points on a rank that has joined the others.
pub(crate) type Measure<'a> = &'a (dyn Fn(&mut Rank, &mut dyn Observer) -> Result<()> + Sync);

/// Words of a rank's thread.
enum Told {
    /// It has joined, and can be ended like this.
    Joined(Alarm),
    /// It has ended.
    Ended,
}

/// Measures points on so many threads, which may use these CPUs.
///
/// # Errors
/// An error that ends the whole run.
pub(crate) fn run(
    size: u32,
    measure: Measure<'_>,
    (around, cpus): (&Rank, &[u32]),
    observer: &mut dyn Observer,
) -> Result<()> {
    let members = thread_ranks(size)?;
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let mut observer = Some(observer);
        let mut started: Vec<ScopedJoinHandle<'_, Result<()>>> = Vec::new();
        let mut refused = Ok(());
        for member in members {
            let (observer, tell, name) = (
                observer.take(),
                tell.clone(),
                format!("rank {}", member.id()),
            );
            let body = move || {
                let ended = one_rank(member, measure, cpus, observer, &tell);
                // Nobody listens only where the run around has given up.
                let _ = tell.send(Told::Ended);
                ended
            };
            match threads::start(scope, &name, body) {
                Ok(handle) => started.push(handle),
                // The others miss it, and end.
                Err(error) => refused = Err(error),
            }
        }
        drop(tell);
        watch(around, &told, started.len());
        let ends = started.into_iter().map(|handle| {
            let broken = || Error::Failed("a thread of a rank has panicked".to_owned());
            handle.join().unwrap_or_else(|_| Err(broken()))
        });
        // Rank 0's is the first, and knows the first cause.
        let all: Vec<Result<()>> = ends.collect();
        refused.and(all.into_iter().collect())
    })
}

/// One rank from joining to its end.
fn one_rank(
    member: ThreadRank,
    measure: Measure<'_>,
    cpus: &[u32],
    observer: Option<&mut dyn Observer>,
    tell: &Sender<Told>,
) -> Result<()> {
    // The thread that started this one may be pinned as a worker.
    spread_thread(cpus)?;
    let mut rank = member.join()?;
    let _ = tell.send(Told::Joined(rank.alarm()));
    let mut nobody = Nobody;
    let observer = observer.unwrap_or(&mut nobody);
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

/// Waits until so many threads have ended, and ends them where the run around them ends.
fn watch(around: &Rank, told: &Receiver<Told>, mut threads: usize) {
    let mut alarms = Vec::new();
    while threads > 0 {
        match told.recv_timeout(LOOK) {
            Ok(Told::Joined(alarm)) => alarms.push(alarm),
            Ok(Told::Ended) => threads -= 1,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let (Some(cause), false) = (around.why_stopped(), alarms.is_empty()) {
            alarms.drain(..).for_each(|alarm| alarm.raise(&cause));
        }
    }
}

/// Told nothing, on all ranks but 0.
struct Nobody;

impl Observer for Nobody {
    fn begin(&mut self, _: usize, _: usize, _: &Point) {}
    fn progress(&mut self, _: &Progress) {}
    fn record(&mut self, _: Record) -> Result<()> {
        Ok(())
    }
}
