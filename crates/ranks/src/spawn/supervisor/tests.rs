//! Tests the supervisor with fake ranks that are not processes.

use super::*;
use std::sync::{Arc, Mutex};

/// Behaviour of a fake rank.
#[derive(Debug, Clone, Copy)]
enum Play {
    CannotStart,
    Ends(RankExit),
    /// Runs until it gets a signal that cannot be ignored.
    Stuck,
    /// Like `Stuck`, but stopped by SIGSTOP.
    Stopped,
}

/// Fake ranks that record every call.
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

impl RankProcesses for Fake {
    fn ended(&mut self, rank: u32) -> Result<Option<RankExit>> {
        Ok(match self.plays[rank as usize] {
            Play::Ends(ending) => Some(ending),
            _ => None,
        })
    }

    fn stopped_by(&mut self, rank: u32) -> Option<i32> {
        matches!(self.plays[rank as usize], Play::Stopped).then_some(SIGSTOP)
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

const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(200);

fn started(plays: &[Play]) -> (Result<Supervisor<Fake>>, Done) {
    let done = Done::default();
    let fake = Fake {
        plays: plays.to_vec(),
        done: done.clone(),
    };
    let start = |fake: &mut Fake, rank: u32| match fake.plays[rank as usize] {
        Play::CannotStart => Err(Error::Failed(format!("cannot start rank {rank}"))),
        _ => {
            fake.note(format!("start {rank}"));
            Ok(())
        }
    };
    let ranks = plays.len() as u32;
    let supervisor = Supervisor::start(fake, ranks, HEARTBEAT_TIMEOUT, start);
    (supervisor, done)
}

fn code(endings: &[RankExit]) -> u8 {
    let plays: Vec<_> = endings.iter().map(|ending| Play::Ends(*ending)).collect();
    started(&plays).0.unwrap().wait().unwrap()
}

#[test]
fn the_worst_end_wins() {
    use RankExit::{Code, Lost, Signal};
    assert_eq!(code(&[Code(0), Code(0)]), 0);
    assert_eq!(code(&[Code(0), Code(1), Code(2)]), 2);
    assert_eq!(code(&[Code(143), Code(143)]), 143);
    assert_eq!(code(&[Code(130), Code(0)]), 1);
    // Rank 2 arrived after the signal had already ended rank 0.
    assert_eq!(code(&[Code(130), Code(130), Code(1)]), 130);
    assert_eq!(code(&[Code(1), Code(130)]), 1);
    assert_eq!(code(&[Code(0), Signal(9)]), 1);
    // One rank was interrupted before it caught signals. The other one failed because the first one was missing.
    assert_eq!(code(&[Code(1), Signal(2)]), 130);
    assert_eq!(code(&[Signal(15), Code(1)]), 143);
    // Ranks on a lost host end because of the signal that their agent sends.
    assert_eq!(code(&[Code(143), Lost]), 1);
    assert_eq!(started(&[]).0.unwrap_err().exit_code(), 2);
}

#[test]
fn ranks_that_stay_after_a_failure_are_killed() {
    let (supervisor, done) = started(&[Play::Stuck, Play::Ends(RankExit::Code(1)), Play::Stuck]);
    let begun = Instant::now();
    assert_eq!(supervisor.unwrap().wait().unwrap(), 1);
    assert!(begun.elapsed() >= END_TIMEOUT && begun.elapsed() < 3 * END_TIMEOUT);
    let done = done.lock().unwrap();
    assert_eq!(
        done[3..],
        ["signal 0 19", "signal 2 19", "signal 0 9", "signal 2 9"]
    );
}

#[test]
fn a_rank_that_had_not_joined_does_not_change_the_code_of_an_interruption() {
    let plays = [Play::Stuck, Play::Ends(RankExit::Code(143))];
    assert_eq!(started(&plays).0.unwrap().wait().unwrap(), 143);
}

#[test]
fn a_stopped_rank_is_killed_soon_after_the_end_of_the_run() {
    let (supervisor, done) = started(&[Play::Stopped, Play::Ends(RankExit::Code(1))]);
    let mut supervisor = supervisor.unwrap();
    supervisor.heartbeat_timeout = Duration::from_secs(60);
    let begun = Instant::now();
    assert_eq!(supervisor.wait().unwrap(), 1);
    let took = begun.elapsed();
    assert!(
        took >= STOPPED_END_TIMEOUT && took < END_TIMEOUT,
        "{took:?}"
    );
    assert_eq!(done.lock().unwrap()[2..], ["signal 0 19", "signal 0 9"]);
}

#[test]
fn a_rank_that_stays_stopped_ends_the_run_even_if_no_rank_detects_it() {
    let (supervisor, done) = started(&[Play::Stuck, Play::Stopped]);
    let supervisor = supervisor.unwrap();
    let begun = Instant::now();
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(supervisor.wait().unwrap()));
    assert_eq!(end.recv_timeout(3 * END_TIMEOUT), Ok(1));
    let took = begun.elapsed();
    assert!(
        took >= HEARTBEAT_TIMEOUT + STOPPED_FOUND_TIMEOUT,
        "{took:?}"
    );
    assert_eq!(
        done.lock().unwrap()[2..],
        ["signal 0 19", "signal 1 19", "signal 0 9", "signal 1 9"]
    );
}

#[test]
fn a_rank_that_resumes_in_time_is_left_alone() {
    let (supervisor, done) = started(&[Play::Stopped]);
    let mut supervisor = supervisor.unwrap();
    supervisor.check_stopped();
    assert!(supervisor.all_end_deadline().is_some());
    // While this process itself was stopped, it could not know for how long the rank was stopped.
    supervisor.looked = Instant::now().checked_sub(3 * LOOK).unwrap();
    let long_ago = Instant::now().checked_sub(3 * END_TIMEOUT).unwrap();
    supervisor.ranks[0].stopped = Some(StoppedRank {
        signal: SIGSTOP,
        since: long_ago,
    });
    supervisor.check_stopped();
    supervisor.kill_overdue();
    supervisor.spawn.plays[0] = Play::Stuck;
    supervisor.check_stopped();
    assert!(supervisor.all_end_deadline().is_none());
    assert_eq!(done.lock().unwrap()[1..], [""; 0]);
}

#[test]
fn if_a_rank_cannot_be_started_the_others_are_ended() {
    let (supervisor, done) = started(&[Play::Stuck, Play::Stuck, Play::CannotStart]);
    let error = supervisor.err().unwrap();
    assert!(error.to_string().contains("cannot start rank 2"), "{error}");
    let done = done.lock().unwrap();
    assert_eq!(done[2..], ["end 0", "end 1"]);
}

#[test]
fn signals_go_to_those_that_have_not_ended() {
    let (supervisor, done) = started(&[Play::Stuck, Play::Ends(RankExit::Code(0)), Play::Stuck]);
    let mut supervisor = supervisor.unwrap();
    supervisor.reap().unwrap();
    supervisor.signal_all(SIGINT);
    drop(supervisor);
    let done = done.lock().unwrap();
    assert_eq!(done[3..], ["signal 0 2", "signal 2 2", "end 0", "end 2"]);
}
