//! The budget of a check, the step that is waited for, and a watchdog that ends everything before the budget is over.

use std::collections::BTreeMap;
use std::process::exit;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use tonnage_judge::check::reason::cut;
use tonnage_judge::check::{CheckVerdict, ExitStyle};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// The shortest budget: less would end before ranks have met.
const BUDGET_MIN: Duration = Duration::from_secs(3);

/// Time before the end at which the ranks are asked to end.
const ASK_BEFORE: Duration = Duration::from_millis(1900);

/// Time before the end at which they are killed.
const KILL_BEFORE: Duration = Duration::from_millis(1300);

/// Time before the end at which this process ends, wherever it is.
const END_BEFORE: Duration = Duration::from_secs(1);

/// Time that processes of a launcher take to look at their host and the baseline.
const START_RESERVE: Duration = Duration::from_millis(500);

/// A step, and since when it is taken.
type Since = (String, Instant);

#[derive(Debug, Default)]
struct State {
    own: Option<Since>,
    of_ranks: BTreeMap<u32, Since>,
    child: Option<u32>,
    /// Code of the verdict that is being told.
    code: Option<u8>,
    is_over: bool,
}

/// The time of a check.
#[derive(Debug, Clone)]
pub struct BudgetClock {
    start: Instant,
    budget: Duration,
    state: Arc<Mutex<State>>,
}

impl BudgetClock {
    /// Starts the clock, and the watchdog that ends this process with the code of an error.
    ///
    /// # Errors
    /// `Usage` for a budget in which nothing can be measured.
    pub fn start(budget_ns: u64, style: ExitStyle) -> Result<Self> {
        let budget = Duration::from_nanos(budget_ns);
        if budget < BUDGET_MIN {
            return Err(Error::Usage(format!(
                "--budget {budget:?} is too short: ranks need {BUDGET_MIN:?} to meet and to end"
            )));
        }
        let clock = Self {
            start: Instant::now(),
            budget,
            state: Arc::default(),
        };
        let watched = clock.clone();
        let started = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || watched.watch(style));
        started.map_err(|error| Error::not_started("the watchdog", &error))?;
        Ok(clock)
    }

    fn watch(&self, style: ExitStyle) {
        let end = self.start + self.budget.saturating_sub(END_BEFORE);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            std::thread::sleep(left);
        }
        let told = {
            let state = lock(&self.state);
            if state.is_over {
                return;
            }
            state.code
        };
        self.kill(Signal::KILL);
        // Whoever does not take the last words gets their code.
        let code = told.unwrap_or_else(|| {
            print_if_room(&format!(
                "{}\n",
                cut(&format!("error: {}", self.waited_for()))
            ));
            style.code(CheckVerdict::Error)
        });
        exit(code.into());
    }

    /// A clock with less time, beside the same watchdog: for work that something else has to follow.
    pub fn shortened(&self, by: Duration) -> Self {
        Self {
            budget: self.budget.saturating_sub(by),
            ..self.clone()
        }
    }

    /// Takes note of the code with which the check ends once its last words are told.
    pub fn telling(&self, code: u8) {
        lock(&self.state).code = Some(code);
    }

    /// Lets the watchdog be: the last words are said.
    pub fn disarm(&self) {
        lock(&self.state).is_over = true;
    }

    /// Says what this process does.
    pub fn step(&self, text: &str) {
        lock(&self.state).own = Some((text.to_owned(), Instant::now()));
    }

    /// Says what a rank does.
    pub fn step_of(&self, rank: u32, text: &str) {
        let since = (text.to_owned(), Instant::now());
        lock(&self.state).of_ranks.insert(rank, since);
    }

    /// Takes note of the process that the ranks end with.
    pub fn child(&self, pid: Option<u32>) {
        let mut state = lock(&self.state);
        state.child = pid;
        if pid.is_none() {
            state.of_ranks.clear();
        }
    }

    /// Sends a signal to the process that the ranks end with.
    pub fn kill(&self, signal: Signal) {
        let pid = lock(&self.state).child;
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
            log::debug!("cannot send {signal:?} to the run: {error}");
        }
    }

    /// Words for the step that has been waited for longest: "opening fabric:efa for 14 s".
    pub fn waited_for(&self) -> String {
        let state = lock(&self.state);
        let of_ranks = state.of_ranks.iter().min_by_key(|(_, (_, since))| *since);
        let several = state
            .of_ranks
            .values()
            .any(|(text, _)| of_ranks.is_some_and(|(_, (first, _))| first != text));
        let (who, since) = match of_ranks {
            Some((rank, since)) if several => (format!("rank {rank} "), Some(since)),
            Some((_, since)) => (String::new(), Some(since)),
            None => (String::new(), state.own.as_ref()),
        };
        match since {
            Some((text, since)) => format!("{who}{text} for {} s", since.elapsed().as_secs()),
            None => "nothing was begun".to_owned(),
        }
    }

    /// Time until the ranks are asked to end.
    pub fn left(&self) -> Duration {
        let end = self.budget.saturating_sub(ASK_BEFORE);
        end.saturating_sub(self.start.elapsed())
    }

    /// Time that all ranks of a launcher reckon with, whenever each of them was started.
    pub fn common(&self) -> Duration {
        self.budget.saturating_sub(ASK_BEFORE + START_RESERVE)
    }

    /// Time until they are killed.
    pub fn left_to_end(&self) -> Duration {
        let end = self.budget.saturating_sub(KILL_BEFORE);
        end.saturating_sub(self.start.elapsed())
    }

    /// The budget, in seconds.
    pub fn budget_s(&self) -> f64 {
        self.budget.as_secs_f64()
    }

    /// Time since the start, in seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Time at the end in which nothing is measured any more.
    pub fn reserved_s() -> f64 {
        ASK_BEFORE.as_secs_f64()
    }
}

/// Writes a short line to standard output where there is room for it. The lock of standard output is not taken, which
/// whoever waits for a reader holds.
fn print_if_room(line: &str) {
    let out = std::io::stdout();
    let mut asked = [PollFd::new(&out, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // Where nobody reads it the code still says that it was no failure.
    if let Ok(1..) = poll(&mut asked, Some(&now)) {
        let _ = rustix::io::write(&out, line.as_bytes());
    }
}

/// Nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_that_was_begun_first_is_told() {
        let clock = BudgetClock::start(60_000_000_000, ExitStyle::Plain).unwrap();
        clock.disarm();
        assert_eq!(clock.waited_for(), "nothing was begun");
        clock.step("reading the baseline");
        assert_eq!(clock.waited_for(), "reading the baseline for 0 s");
        clock.step_of(1, "opening fabric:tcp");
        assert_eq!(clock.waited_for(), "opening fabric:tcp for 0 s");
        clock.step_of(0, "connecting fabric:tcp");
        assert_eq!(clock.waited_for(), "rank 1 opening fabric:tcp for 0 s");
        clock.child(None);
        assert_eq!(clock.waited_for(), "reading the baseline for 0 s");
        assert!(
            clock.left() < clock.left_to_end() && clock.left_to_end() < Duration::from_secs(59)
        );
        let short = BudgetClock::start(2_000_000_000, ExitStyle::Plain).unwrap_err();
        assert!(short.to_string().contains("too short"), "{short}");
    }
}
