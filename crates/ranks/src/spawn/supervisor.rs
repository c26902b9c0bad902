//! The supervisor of ranks that were started in whatever way.
//!
//! It passes signals on, sees to it that nobody stays behind, and returns the exit code of the run. What goes wrong
//! between ranks is reported by the ranks themselves.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCHLD, SIGINT, SIGKILL, SIGTERM};

use super::{RankExit, Spawn, Start};
use crate::channel::wait_for;
use crate::signals::Signals;
use tonnage_units::message::say;
use tonnage_units::{Error, Result};

/// Once a rank was killed or has failed, or the run was interrupted, the others have this long to end by themselves.
/// They need their grace of two seconds at most; with a little for the end of a killed process it is less than five.
const END_TIMEOUT: Duration = Duration::from_secs(4);

/// Ranks that were started here.
#[derive(Debug)]
pub struct Supervisor<S: Spawn> {
    spawn: S,
    ranks: Vec<Watched>,
    signals: Signals,
    interrupted: Option<i32>,
    ending_since: Option<Instant>,
    killed_rest: bool,
}

#[derive(Debug, Default)]
struct Watched {
    ended: Option<RankExit>,
    /// The supervisor itself ended it, so its end says nothing.
    put_down: bool,
}

impl Watched {
    /// The signal that ended it, unless the supervisor sent it.
    fn killed_by(&self) -> Option<i32> {
        match self.ended {
            Some(RankExit::Signal(signal)) if !self.put_down => Some(signal),
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

impl<S: Spawn> Supervisor<S> {
    /// Starts ranks in the order of their numbers.
    ///
    /// # Errors
    /// [`Error::Usage`] for no ranks; else when one cannot be started, and then those that were started are ended.
    pub fn start(spawn: S, starts: impl IntoIterator<Item = Start>) -> Result<Self> {
        let mut supervisor = Self {
            spawn,
            ranks: Vec::new(),
            // Before any child exists, so that no end of one is missed.
            signals: Signals::of(&[SIGINT, SIGTERM, SIGCHLD])?,
            interrupted: None,
            ending_since: None,
            killed_rest: false,
        };
        for (rank, start) in (0u32..).zip(starts) {
            supervisor.spawn.start(rank, start)?;
            supervisor.ranks.push(Watched::default());
        }
        if supervisor.ranks.is_empty() {
            return Err(Error::Usage("a run needs at least one rank".into()));
        }
        Ok(supervisor)
    }

    /// Process ids of the ranks, in the order of the ranks; of those only that are known.
    pub fn pids(&self) -> Vec<u32> {
        let ranks = (0u32..).zip(&self.ranks);
        ranks
            .filter_map(|(rank, _)| self.spawn.process(rank))
            .collect()
    }

    /// Waits until all ranks have ended, and returns the exit code of the run: 0 if all are 0, 128 + signal when the
    /// user ended it, 2 if a rank says that the request is wrong, 1 for everything else.
    ///
    /// # Errors
    /// When the system does not let this process wait for its children.
    pub fn wait(mut self) -> Result<u8> {
        loop {
            self.reap()?;
            if self.ranks.iter().all(|rank| rank.ended.is_some()) {
                break;
            }
            self.hurry();
            let interests: Vec<_> = self.signals.interests().collect();
            wait_for(&interests, self.next_look())?;
            drop(interests);
            if let Some(signal) = self.take_interruption() {
                self.ending_since.get_or_insert_with(Instant::now);
                self.tell_all(signal);
            }
        }
        // A signal to the whole process group may have ended the ranks before it was looked at here.
        self.take_interruption();
        self.report();
        Ok(self.exit_code())
    }

    /// The signal by which the user ends the run, if one came since the last call; the first is the one that counts.
    fn take_interruption(&mut self) -> Option<i32> {
        let signal = self
            .signals
            .take()
            .into_iter()
            .find(|&signal| signal != SIGCHLD)?;
        self.interrupted.get_or_insert(signal);
        Some(signal)
    }

    fn reap(&mut self) -> Result<()> {
        for (number, rank) in (0u32..).zip(&mut self.ranks) {
            if rank.ended.is_some() {
                continue;
            }
            rank.ended = self.spawn.ended(number)?;
            // A rank that fails ends the run for all, so whoever stays, stopped or stuck, would stay for ever.
            if rank.ended.is_some_and(|ending| ending != RankExit::Code(0)) {
                self.ending_since.get_or_insert_with(Instant::now);
            }
        }
        Ok(())
    }

    /// Returns the time of the next look even if nothing is heard: a SIGCHLD that came for another reason must not be
    /// the last.
    fn next_look(&self) -> Duration {
        let usual = Duration::from_secs(1);
        match self.ending_since {
            Some(since) if !self.killed_rest => {
                usual.min((since + END_TIMEOUT).saturating_duration_since(Instant::now()))
            }
            _ => usual,
        }
    }

    /// Ends the ranks that had their time to end by themselves.
    fn hurry(&mut self) {
        if self.killed_rest
            || self
                .ending_since
                .is_none_or(|since| since.elapsed() < END_TIMEOUT)
        {
            return;
        }
        self.killed_rest = true;
        for (number, rank) in (0u32..).zip(&mut self.ranks) {
            if rank.ended.is_none() {
                rank.put_down = true;
                self.spawn.signal(number, SIGKILL);
            }
        }
    }

    fn tell_all(&mut self, signal: i32) {
        for (number, rank) in (0u32..).zip(&self.ranks) {
            if rank.ended.is_none() {
                self.spawn.signal(number, signal);
            }
        }
    }

    /// Tells about killed ranks, and failing those about the ones that had to be ended here, but only when rank 0 could
    /// not: it was killed or stuck itself, or did not notice.
    fn report(&self) {
        let root = self.ranks.first();
        let root_told = root.is_some_and(|root| root.code().is_some_and(|code| code != 0));
        if root_told || self.interrupted.is_some() {
            return;
        }
        let killed = self.ranks.iter().any(|rank| rank.killed_by().is_some());
        for (number, rank) in (0u32..).zip(&self.ranks) {
            let what = match rank.killed_by() {
                Some(signal) => format!("was killed by signal {signal}"),
                None if rank.put_down && !killed => {
                    "did not end with the others, as if it was stopped or stuck, and was killed"
                        .to_owned()
                }
                None => continue,
            };
            let process = match self.spawn.process(number) {
                Some(process) => format!("its process {process}"),
                None => "it".to_owned(),
            };
            say(&format!(
                "tonnage: rank {number} on {}: {process} {what}",
                self.spawn.host(number)
            ));
        }
    }

    fn exit_code(&self) -> u8 {
        if let Some(signal) = self.interrupted {
            return Error::Interrupted { signal }.exit_code();
        }
        let codes: Vec<Option<i32>> = self.ranks.iter().map(Watched::code).collect();
        if codes.iter().all(|code| *code == Some(0)) {
            return 0;
        }
        // When a signal reached one rank alone, all ranks end with its code.
        let ended_by = |code| codes.iter().all(|other| *other == Some(code));
        match [130, 143].into_iter().find(|&code| ended_by(code)) {
            Some(code) => code as u8,
            None if codes.contains(&Some(2)) => 2,
            None => 1,
        }
    }
}

impl<S: Spawn> Drop for Supervisor<S> {
    /// Ranks that are still there, because starting another one failed, must not stay behind.
    fn drop(&mut self) {
        for (number, rank) in (0u32..).zip(&self.ranks) {
            if rank.ended.is_none() {
                self.spawn.end(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Behaviour of a rank without a process.
    #[derive(Debug, Clone, Copy)]
    enum Play {
        CannotStart,
        Ends(RankExit),
        /// Until it gets a signal that nobody can ignore.
        Stuck,
    }

    /// Ranks that are no processes; what is done to them is written down.
    #[derive(Debug)]
    struct Fake {
        plays: Vec<Play>,
        done: Arc<Mutex<Vec<String>>>,
    }

    impl Fake {
        fn note(&self, text: String) {
            self.done.lock().unwrap().push(text);
        }
    }

    impl Spawn for Fake {
        fn start(&mut self, rank: u32, start: Start) -> Result<()> {
            if matches!(self.plays[rank as usize], Play::CannotStart) {
                return Err(Error::Failed(format!("cannot start rank {rank}")));
            }
            self.note(format!("start {rank} {:?}", start.arguments));
            Ok(())
        }

        fn ended(&mut self, rank: u32) -> Result<Option<RankExit>> {
            Ok(match self.plays[rank as usize] {
                Play::Ends(ending) => Some(ending),
                _ => None,
            })
        }

        fn signal(&mut self, rank: u32, signal: i32) {
            self.note(format!("signal {rank} {signal}"));
            if signal == SIGKILL {
                self.plays[rank as usize] = Play::Ends(RankExit::Signal(signal));
            }
        }

        fn end(&mut self, rank: u32) {
            self.note(format!("end {rank}"));
        }

        fn host(&self, rank: u32) -> String {
            format!("h{rank}")
        }

        fn process(&self, _rank: u32) -> Option<u32> {
            None
        }
    }

    type Done = Arc<Mutex<Vec<String>>>;

    fn started(plays: &[Play]) -> (Result<Supervisor<Fake>>, Done) {
        let done = Done::default();
        let fake = Fake {
            plays: plays.to_vec(),
            done: done.clone(),
        };
        let start = |rank: usize| Start {
            program: "tonnage".into(),
            arguments: vec![rank.to_string().into()],
            environment: Vec::new(),
            input: None,
        };
        (Supervisor::start(fake, (0..plays.len()).map(start)), done)
    }

    fn code(endings: &[RankExit]) -> u8 {
        let plays: Vec<_> = endings.iter().map(|ending| Play::Ends(*ending)).collect();
        started(&plays).0.unwrap().wait().unwrap()
    }

    #[test]
    fn the_worst_end_wins() {
        use RankExit::{Code, Signal};
        assert_eq!(code(&[Code(0), Code(0)]), 0);
        assert_eq!(code(&[Code(0), Code(1), Code(2)]), 2);
        assert_eq!(code(&[Code(143), Code(143)]), 143);
        assert_eq!(code(&[Code(130), Code(0)]), 1);
        assert_eq!(code(&[Code(0), Signal(9)]), 1);
        assert_eq!(started(&[]).0.unwrap_err().exit_code(), 2);
    }

    #[test]
    fn whoever_stays_when_another_fails_is_killed() {
        let (supervisor, done) =
            started(&[Play::Stuck, Play::Ends(RankExit::Code(1)), Play::Stuck]);
        let begun = Instant::now();
        assert_eq!(supervisor.unwrap().wait().unwrap(), 1);
        assert!(begun.elapsed() >= END_TIMEOUT && begun.elapsed() < 3 * END_TIMEOUT);
        let done = done.lock().unwrap();
        assert_eq!(done[3..], ["signal 0 9", "signal 2 9"]);
    }

    #[test]
    fn when_one_cannot_be_started_the_others_are_ended() {
        let (supervisor, done) = started(&[Play::Stuck, Play::Stuck, Play::CannotStart]);
        let error = supervisor.err().unwrap();
        assert!(error.to_string().contains("cannot start rank 2"), "{error}");
        let done = done.lock().unwrap();
        assert_eq!(done[2..], ["end 0", "end 1"]);
    }

    #[test]
    fn signals_go_to_those_that_have_not_ended() {
        let (supervisor, done) =
            started(&[Play::Stuck, Play::Ends(RankExit::Code(0)), Play::Stuck]);
        let mut supervisor = supervisor.unwrap();
        supervisor.reap().unwrap();
        supervisor.tell_all(SIGINT);
        drop(supervisor);
        let done = done.lock().unwrap();
        assert_eq!(done[3..], ["signal 0 2", "signal 2 2", "end 0", "end 2"]);
    }
}
