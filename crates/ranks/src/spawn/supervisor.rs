//! The supervisor of ranks, for every way of starting them.
//!
//! It passes signals on, makes sure that no rank is left behind, and returns the run's exit code. Problems between
//! ranks are reported by the ranks themselves.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGBUS, SIGCHLD, SIGINT, SIGKILL, SIGSTOP, SIGTERM};

use super::{RankExit, RankProcesses};
use crate::channel::{Interest, wait_for};
use crate::signals::Signals;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

/// Time for ranks to end after one was killed or has failed, or after the run was interrupted. It is longer if
/// many ranks share a CPU. It covers their grace of at most 2 s and slack for killed processes, and keeps the total
/// below 5 s.
const END_TIMEOUT: Duration = Duration::from_secs(4);

/// Time for a stopped rank to end. It cannot end while it is stopped, so this only allows for a SIGCONT that
/// arrives after the signal to end.
const STOPPED_END_TIMEOUT: Duration = Duration::from_millis(300);

/// After a rank has been stopped for the heartbeat timeout, the other ranks have this long to detect it and end. Before
/// they have joined they cannot detect it, so the supervisor reports it. With a heartbeat timeout of 3 s the total is
/// below 5 s. If many ranks share a CPU, both times are longer.
const STOPPED_FOUND_TIMEOUT: Duration = Duration::from_millis(1800);

/// Longest time between two checks, in case a SIGCHLD is missed.
const LOOK: Duration = Duration::from_secs(1);

/// Supervised ranks.
#[derive(Debug)]
pub struct Supervisor<S: RankProcesses> {
    spawn: S,
    ranks: Vec<WatchedRank>,
    signals: Signals,
    heartbeat_timeout: Duration,
    end_timeout: Duration,
    interrupted: Option<i32>,
    ending_since: Option<Instant>,
    killed_rest: bool,
    looked: Instant,
}

#[derive(Debug, Default)]
struct WatchedRank {
    ended: Option<RankExit>,
    /// When the supervisor itself killed the rank; `None` if it did not. The exit status of a killed rank means
    /// nothing.
    put_down: Option<Instant>,
    /// Set while the rank is stopped.
    stopped: Option<StoppedRank>,
}

/// Since when a rank has been stopped, and by which signal.
#[derive(Debug, Clone, Copy)]
struct StoppedRank {
    signal: i32,
    since: Instant,
}

impl WatchedRank {
    /// Returns the signal that killed the rank; `None` if the supervisor sent it.
    fn killed_by(&self) -> Option<i32> {
        match self.ended {
            Some(RankExit::Signal(signal)) if self.put_down.is_none() => Some(signal),
            _ => None,
        }
    }

    fn code(&self) -> Option<i32> {
        match self.ended {
            Some(RankExit::Code(code)) => Some(code),
            _ => None,
        }
    }
}

impl<S: RankProcesses> Supervisor<S> {
    /// Starts `ranks` ranks in order, by calling `start`. `heartbeat_timeout` is the time for which a rank may be
    /// stopped.
    pub(super) fn start(
        spawn: S,
        ranks: u32,
        heartbeat_timeout: Duration,
        mut start: impl FnMut(&mut S, u32) -> Result<()>,
    ) -> Result<Self> {
        if ranks == 0 {
            return Err(Error::Usage("a run needs at least one rank".into()));
        }
        // The signal handlers are installed before any child exists, so that no exit is missed.
        let mut supervisor = Self::new(spawn, 0, heartbeat_timeout)?;
        for rank in 0..ranks {
            start(&mut supervisor.spawn, rank)?;
            supervisor.ranks.push(WatchedRank::default());
        }
        Ok(supervisor)
    }

    /// Supervises `ranks` ranks that were already started.
    pub fn new(spawn: S, ranks: u32, heartbeat_timeout: Duration) -> Result<Self> {
        Ok(Self {
            spawn,
            ranks: (0..ranks).map(|_| WatchedRank::default()).collect(),
            signals: Signals::for_signals(&[SIGINT, SIGTERM, SIGCHLD])?,
            heartbeat_timeout,
            end_timeout: END_TIMEOUT,
            interrupted: None,
            ending_since: None,
            killed_rest: false,
            looked: Instant::now(),
        })
    }

    /// Gives ranks more time to end. Used if many ranks share a CPU.
    #[must_use]
    pub fn with_extra_time(mut self, beyond: Duration) -> Self {
        self.end_timeout = END_TIMEOUT.saturating_add(beyond);
        self
    }

    /// Returns the known PIDs of the ranks, in rank order.
    pub fn pids(&self) -> Vec<u32> {
        let ranks = (0u32..).zip(&self.ranks);
        ranks
            .filter_map(|(rank, _)| self.spawn.process(rank))
            .collect()
    }

    /// Waits until all ranks have ended, and returns the run's exit code. It is 0 if all ranks' codes are 0, 128 +
    /// signal if the user ended the run, 2 if a rank reports a wrong request, and otherwise 1.
    pub fn wait(mut self) -> Result<u8> {
        loop {
            self.reap()?;
            if self.ranks.iter().all(|rank| rank.ended.is_some()) {
                break;
            }
            self.check_stopped();
            self.kill_overdue();
            let news = self.spawn.wake_socket().map(Interest::read);
            let interests: Vec<_> = self.signals.interests().chain(news).collect();
            wait_for(&interests, self.time_to_next_check())?;
            drop(interests);
            if let Some(signal) = self.take_interruption() {
                self.ending_since.get_or_insert_with(Instant::now);
                self.signal_all(signal);
            }
        }
        // A signal to the whole process group may have ended the ranks before this process handled it.
        self.take_interruption();
        self.report();
        Ok(self.exit_code())
    }

    /// Returns the signal by which the user ends the run, if one arrived since the last call. The first signal
    /// determines the exit code.
    fn take_interruption(&mut self) -> Option<i32> {
        let signal = self
            .signals
            .take_received()
            .into_iter()
            .find(|&signal| signal != SIGCHLD)?;
        self.interrupted.get_or_insert(signal);
        Some(signal)
    }

    fn reap(&mut self) -> Result<()> {
        self.spawn.handle_events();
        for (number, rank) in (0u32..).zip(&mut self.ranks) {
            if rank.ended.is_some() {
                continue;
            }
            rank.ended = self.spawn.ended(number)?;
            // A rank that fails ends the run for all ranks. From now on, ranks that are stopped or stuck must end in
            // time or are killed.
            if rank.ended.is_some_and(|ending| ending != RankExit::Code(0)) {
                self.ending_since.get_or_insert_with(Instant::now);
            }
        }
        Ok(())
    }

    fn check_stopped(&mut self) {
        let now = Instant::now();
        // If this process itself was stopped, all ranks may have been stopped too, and some may resume a little later.
        let excused = now.duration_since(self.looked) > 2 * LOOK;
        self.looked = now;
        for (number, rank) in (0u32..).zip(&mut self.ranks) {
            // If a rank was stopped when it was killed, its stopped state is kept for the report.
            if rank.ended.is_some() || rank.put_down.is_some() {
                continue;
            }
            let before = rank.stopped.filter(|_| !excused);
            let since = before.map_or(now, |stopped| stopped.since);
            let by = self.spawn.stopped_by(number);
            rank.stopped = by.map(|signal| StoppedRank { signal, since });
        }
    }

    /// Returns the time at which all remaining ranks must be killed; `None` if there is no reason to kill them.
    fn all_end_deadline(&self) -> Option<Instant> {
        let ending = self.ending_since.map(|since| since + self.end_timeout);
        let patience = self.heartbeat_timeout + STOPPED_FOUND_TIMEOUT;
        let stopped = self.stopped().map(|(_, stopped)| stopped.since + patience);
        stopped.chain(ending).min()
    }

    /// Returns the time at which a stopped rank must be killed, because the run is ending. It is earlier than the time
    /// for the other ranks.
    fn stopped_deadline(&self, stopped: StoppedRank) -> Option<Instant> {
        let ending = self.ending_since?;
        Some(ending.max(stopped.since) + STOPPED_END_TIMEOUT)
    }

    /// Iterates over the stopped ranks that have not ended.
    fn stopped(&self) -> impl Iterator<Item = (u32, StoppedRank)> {
        let ranks = (0u32..).zip(&self.ranks);
        let there = ranks.filter(|(_, rank)| rank.ended.is_none() && rank.put_down.is_none());
        there.filter_map(|(number, rank)| Some((number, rank.stopped?)))
    }

    /// Returns the time until the next check. Events may end the wait earlier.
    fn time_to_next_check(&self) -> Duration {
        if self.killed_rest {
            return LOOK;
        }
        let stopped = self.stopped();
        let one = stopped.filter_map(|(_, stopped)| self.stopped_deadline(stopped));
        let due = one.chain(self.all_end_deadline()).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        left.map_or(LOOK, |left| left.min(LOOK))
    }

    /// Kills ranks that have not ended in time, and ranks that cannot end because they are stopped.
    fn kill_overdue(&mut self) {
        if self.killed_rest {
            return;
        }
        let now = Instant::now();
        self.killed_rest = self.all_end_deadline().is_some_and(|due| now >= due);
        let due = |(number, stopped)| {
            let due = self.stopped_deadline(stopped)?;
            (now >= due).then_some(number)
        };
        let stopped: Vec<u32> = self.stopped().filter_map(due).collect();
        let mut due = Vec::new();
        for (number, rank) in (0u32..).zip(&mut self.ranks) {
            let is_due = self.killed_rest || stopped.contains(&number);
            if rank.ended.is_none() && rank.put_down.is_none() && is_due {
                rank.put_down = Some(now);
                due.push(number);
            }
        }
        // All ranks are stopped before the first one is killed, so that no rank can report the killed one as lost.
        for signal in [SIGSTOP, SIGKILL] {
            due.iter()
                .for_each(|&number| self.spawn.signal(number, signal));
        }
    }

    fn signal_all(&mut self, signal: i32) {
        for (number, rank) in (0u32..).zip(&self.ranks) {
            if rank.ended.is_none() {
                self.spawn.signal(number, signal);
            }
        }
    }

    /// Reports the ranks that were killed by other processes, or else the ranks that the supervisor had to kill. It
    /// reports nothing if rank 0 has reported these ranks. Rank 0 may have been killed or stuck, or may have noticed
    /// nothing.
    fn report(&self) {
        let root = self.ranks.first();
        let root_told = root.is_some_and(|root| root.code().is_some_and(|code| code != 0));
        if root_told || self.interrupted.is_some() || self.ended_by_interruption().is_some() {
            return;
        }
        let killed = self.ranks.iter().any(|rank| rank.killed_by().is_some());
        let stopped = |rank: &WatchedRank| Some((rank.put_down?, rank.stopped?));
        let any_stopped = self.ranks.iter().any(|rank| stopped(rank).is_some());
        for (number, rank) in (0u32..).zip(&self.ranks) {
            let what = match (rank.killed_by(), stopped(rank)) {
                (Some(signal), _) => {
                    format!("was killed by signal {signal}{}", usual_sender(signal))
                }
                _ if killed || rank.put_down.is_none() => continue,
                (None, Some((put_down, by))) => stopped_text(by, put_down),
                // This rank only waited for the stopped rank, so it is not reported.
                (None, None) if any_stopped => continue,
                (None, None) => {
                    "did not end with the others, as if it was stopped or stuck, and was killed"
                        .to_owned()
                }
            };
            let process = match self.spawn.process(number) {
                Some(process) => format!("its process {process}"),
                None => "it".to_owned(),
            };
            print_message(&format!(
                "error: rank {number} on {}: {process} {what}",
                self.spawn.host(number)
            ));
        }
    }

    fn exit_code(&self) -> u8 {
        if let Some(signal) = self.interrupted {
            return Error::Interrupted { signal, rank: None }.exit_code();
        }
        // Ranks on a lost host are killed by their agent's signal. This signal does not mean that the user interrupted
        // the run.
        if self
            .ranks
            .iter()
            .any(|rank| rank.ended == Some(RankExit::Lost))
        {
            return 1;
        }
        let codes: Vec<Option<i32>> = self.ranks.iter().map(WatchedRank::code).collect();
        if codes.iter().all(|code| *code == Some(0)) {
            return 0;
        }
        // A signal that reaches one rank ends all ranks with the same code. The exception is a signal that arrives
        // before that rank catches signals.
        let mut killed_by = self.ranks.iter().filter_map(WatchedRank::killed_by);
        if let Some(signal) = killed_by.find(|signal| [SIGINT, SIGTERM].contains(signal)) {
            return Error::Interrupted { signal, rank: None }.exit_code();
        }
        match self.ended_by_interruption() {
            Some(code) => code,
            None if codes.contains(&Some(2)) => 2,
            None => 1,
        }
    }

    /// Returns the code of an interrupted run; `None` if the run was not interrupted.
    ///
    /// It is the code of all ranks that ended by themselves, or else rank 0's, because ranks that only lost rank 0 end
    /// with another code. Ranks that the supervisor killed do not count: they had not joined when the signal reached
    /// another rank, or could not learn of it.
    fn ended_by_interruption(&self) -> Option<u8> {
        let closed = i32::from(Error::output_closed().exit_code());
        let is_interruption = |code: &i32| [130, 143, closed].contains(code);
        let own = || self.ranks.iter().filter(|rank| rank.put_down.is_none());
        let root = self.ranks.first()?.code().filter(is_interruption);
        let root = root.filter(|_| own().all(|rank| rank.code() != Some(0)));
        let first = own().next()?.code().filter(is_interruption);
        let of_all = first.filter(|_| own().all(|rank| rank.code() == first));
        u8::try_from(root.or(of_all)?).ok()
    }
}

/// Returns the usual reason for a signal that this program itself does not send.
fn usual_sender(signal: i32) -> &'static str {
    match signal {
        SIGKILL => {
            " (SIGKILL): unless a user sent it, the out-of-memory killer did. `dmesg` shows it; raise the memory \
             limit of the \
             container, or use smaller --sizes, --depth or --footprint"
        }
        SIGBUS => {
            " (SIGBUS): there was no room for a page of memory that it had mapped. Look at `df /dev/shm` (docker run \
             --shm-size=1g)"
        }
        _ => "",
    }
}

fn stopped_text(stopped: StoppedRank, put_down: Instant) -> String {
    let name = signal_hook::low_level::signal_name(stopped.signal).unwrap_or("another one");
    format!(
        "was stopped by signal {} ({name}), did not go on for {:.1?}, and was killed: find what stops processes there, \
         such as a batch system, a debugger or kill",
        stopped.signal,
        put_down.duration_since(stopped.since)
    )
}

impl<S: RankProcesses> Drop for Supervisor<S> {
    /// If starting a rank failed, the ranks that already run are killed.
    fn drop(&mut self) {
        for (number, rank) in (0u32..).zip(&self.ranks) {
            if rank.ended.is_none() {
                self.spawn.end(number);
            }
        }
    }
}

#[cfg(test)]
mod tests;
