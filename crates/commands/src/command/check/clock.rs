//! The time budget of a check, its current step, and a watchdog that ends everything before the budget is used up.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::IsTerminal;
use std::process::exit;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use tonnage_judge::check::reason::truncate;
use tonnage_judge::check::{CheckVerdict, ExitStyle};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

use crate::command::screen;

/// Shortest accepted budget. With less, the check would end before the ranks have met.
const BUDGET_MIN: Duration = Duration::from_secs(3);

/// Time before the end of the budget at which the ranks are asked to end.
const ASK_BEFORE: Duration = Duration::from_millis(1900);

/// Time before the end of the budget at which the ranks are killed.
const KILL_BEFORE: Duration = Duration::from_millis(1300);

/// Time before the end of the budget at which this process exits, even if it has not finished.
const END_BEFORE: Duration = Duration::from_secs(1);

/// Interval at which the progress line shows the time left.
const TICK: Duration = Duration::from_secs(1);

/// Time that a launcher's processes need to inspect their host and the baseline.
const START_RESERVE: Duration = Duration::from_millis(500);

/// A step, and when it started.
type Since = (String, Instant);

#[derive(Debug, Default)]
struct State {
    own: Option<Since>,
    of_ranks: BTreeMap<u32, Since>,
    child: Option<u32>,
    /// Exit code of the verdict that is about to be printed.
    code: Option<u8>,
    is_over: bool,
}

/// The time budget of a check.
#[derive(Debug, Clone)]
pub struct BudgetClock {
    start: Instant,
    /// Budget of this process.
    budget: Duration,
    /// Requested budget. Other processes may already have used part of it.
    asked: Duration,
    state: Arc<Mutex<State>>,
    /// The step and the time left, on a terminal.
    progress: ProgressBar,
}

impl BudgetClock {
    /// Starts the clock, and the watchdog that ends this process with the exit code of an error.
    pub fn start(budget_ns: u64, style: ExitStyle) -> Result<Self> {
        Self::start_rest(budget_ns, budget_ns, style)
    }

    /// Starts the clock when part of the requested budget is already used.
    pub fn start_rest(asked_ns: u64, budget_ns: u64, style: ExitStyle) -> Result<Self> {
        let [asked, budget] = [asked_ns, budget_ns].map(Duration::from_nanos);
        if budget < BUDGET_MIN {
            let taken = asked.saturating_sub(budget);
            let part = if taken.is_zero() {
                String::new()
            } else {
                format!(", as {taken:.1?} of it went by before")
            };
            let least_s = (BUDGET_MIN + taken).as_secs_f64().ceil();
            return Err(Error::Usage(format!(
                "--time-limit {} s is too short{part}: ranks need {BUDGET_MIN:?} to meet and to end: give it {least_s} s",
                asked.as_secs_f64()
            )));
        }
        let clock = Self {
            start: Instant::now(),
            budget,
            asked,
            state: Arc::default(),
            progress: progress_line(Instant::now() + budget),
        };
        let watched = clock.clone();
        let started = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || watched.watch(style));
        started.map_err(|error| Error::start_error("the watchdog", &error))?;
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
        // The verdict's last line may be blocked because no process reads it. The exit code is then still that of the
        // verdict.
        let code = told.unwrap_or_else(|| {
            print_if_room(&format!(
                "{}\n",
                truncate(&format!("error: {}", self.waited_for()))
            ));
            style.code(CheckVerdict::Error)
        });
        exit(code.into());
    }

    /// Returns a clock with less time but the same watchdog. Used for work after which other work still needs time.
    fn shortened(&self, by: Duration) -> Self {
        Self {
            budget: self.budget.saturating_sub(by),
            ..self.clone()
        }
    }

    /// Stores the exit code of the verdict that is about to be printed.
    pub fn set_exit_code(&self, code: u8) {
        screen::set_bar(None);
        self.progress.finish_and_clear();
        lock(&self.state).code = Some(code);
    }

    /// Disables the watchdog, after the last line was printed.
    pub fn disarm(&self) {
        lock(&self.state).is_over = true;
    }

    /// Sets this process's current step.
    pub fn step(&self, text: &str) {
        self.progress.set_message(text.to_owned());
        lock(&self.state).own = Some((text.to_owned(), Instant::now()));
    }

    /// Sets a rank's current step.
    pub fn step_of(&self, rank: u32, text: &str) {
        if rank == 0 {
            self.progress.set_message(text.to_owned());
        }
        let since = (text.to_owned(), Instant::now());
        lock(&self.state).of_ranks.insert(rank, since);
    }

    /// Sets the supervisor process of the ranks. The ranks end when it ends.
    pub fn child(&self, pid: Option<u32>) {
        let mut state = lock(&self.state);
        state.child = pid;
        if pid.is_none() {
            state.of_ranks.clear();
        }
    }

    /// Sends a signal to the supervisor process.
    pub fn kill(&self, signal: Signal) {
        let pid = lock(&self.state).child;
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
            log::debug!("cannot send {signal:?} to the run: {error}");
        }
    }

    /// Describes the step that has run the longest: "opening fabric:efa for 14 s".
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

    /// Returns the time that is left until the ranks are asked to end.
    pub fn left(&self) -> Duration {
        let end = self.budget.saturating_sub(ASK_BEFORE);
        end.saturating_sub(self.start.elapsed())
    }

    /// Returns the time for which all ranks of a launcher plan. It is equal on all ranks, even if some started later.
    pub fn common(&self) -> Duration {
        self.budget.saturating_sub(ASK_BEFORE + START_RESERVE)
    }

    /// Returns the time that is left until the ranks are killed.
    pub fn left_to_end(&self) -> Duration {
        let end = self.budget.saturating_sub(KILL_BEFORE);
        end.saturating_sub(self.start.elapsed())
    }

    /// Returns the requested budget in seconds.
    pub fn budget_s(&self) -> f64 {
        self.asked.as_secs_f64()
    }

    /// Returns how much of the budget other processes have used, in seconds.
    pub fn taken_s(&self) -> f64 {
        self.asked.saturating_sub(self.budget).as_secs_f64()
    }

    /// Returns the time within which other hosts must answer: half of the time left. The last host to answer must still
    /// have enough time for its check.
    pub fn connect_time(&self) -> Result<Duration> {
        let least = 2 * BUDGET_MIN + ASK_BEFORE;
        if self.asked < least {
            return Err(Error::Usage(format!(
                "--time-limit {} s is too short for --each-host with --hosts: half of it is for reaching them, and their \
                 ranks need {BUDGET_MIN:?} to meet and to end: give it {} s",
                self.budget_s(),
                least.as_secs_f64().ceil()
            )));
        }
        let left = self.left();
        Ok((left / 2).min(left.saturating_sub(BUDGET_MIN)))
    }

    /// Returns a clock for work that other processes wait for. The work must end earlier than the first of these
    /// processes, which ends in `least_left`. `by` is the time between both ends.
    pub fn ending_before(&self, least_left: Duration, by: Duration) -> Self {
        self.shortened(self.left_to_end().saturating_sub(least_left) + by)
    }

    /// Returns the time since the start, in seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Returns the time at the end of the budget in which nothing is measured, in seconds.
    pub fn reserved_s() -> f64 {
        ASK_BEFORE.as_secs_f64()
    }
}

/// Prints a short line if this does not block. Does not use the lock of standard output, because a blocked writer may
/// hold it.
fn print_if_room(line: &str) {
    let out = std::io::stdout();
    let mut asked = [PollFd::new(&out, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // If the line cannot be printed, the exit code still shows that the check did not fail.
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

/// Creates a line on the terminal with the time left until the end of the budget. Hidden elsewhere.
fn progress_line(end: Instant) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    let left = move |_: &ProgressState, text: &mut dyn Write| {
        let left = end.saturating_duration_since(Instant::now());
        // The bar ignores errors of its own text.
        let _ = write!(text, "at most {} s left", left.as_secs_f64().ceil());
    };
    // The template is fixed. If it could not be parsed, the line would only look different.
    if let Ok(style) = ProgressStyle::with_template("check, {left}: {wide_msg}") {
        bar.set_style(style.with_key("left", left));
    }
    bar.enable_steady_tick(TICK);
    screen::set_bar(Some(bar.clone()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_running_step_is_named() {
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

    /// The process that started first must end first. All measurements must be over before that.
    #[test]
    fn processes_that_started_at_other_times_end_together() {
        let late = BudgetClock::start(20_000_000_000, ExitStyle::Plain).unwrap();
        late.disarm();
        let gathering = Duration::from_secs(2);
        let of_first = late.left_to_end() - Duration::from_secs(3);
        let shortened = late.ending_before(of_first, gathering);
        let left = shortened.left_to_end();
        assert!(left <= of_first - gathering, "{left:?}");
        assert!(
            left > of_first - gathering - Duration::from_secs(1),
            "{left:?}"
        );
        assert!((4.9..5.1).contains(&shortened.taken_s()));
        assert_eq!(shortened.budget_s(), 20.0);
        // The first process only has to wait for the verdicts.
        let left = late
            .ending_before(late.left_to_end(), gathering)
            .left_to_end();
        assert!(left > late.left_to_end() - gathering - Duration::from_secs(1));
    }

    /// A message that refuses a budget must recommend a budget that works, in terms of the user's option.
    #[test]
    fn advice_on_a_budget_can_be_followed() {
        let s = |seconds: u64| seconds * 1_000_000_000;
        let rest = BudgetClock::start_rest(s(7), s(2), ExitStyle::Plain).unwrap_err();
        assert!(
            rest.to_string()
                .contains("--time-limit 7 s is too short, as 5.0s of it went by")
                && rest.to_string().ends_with("give it 8 s"),
            "{rest}"
        );
        let short = BudgetClock::start(s(7), ExitStyle::Plain).unwrap();
        short.disarm();
        let error = short.connect_time().unwrap_err().to_string();
        assert!(
            error.contains("--time-limit 7 s") && error.ends_with("give it 8 s"),
            "{error}"
        );
        let enough = BudgetClock::start(s(8), ExitStyle::Plain).unwrap();
        enough.disarm();
        let reaching = enough.connect_time().unwrap();
        assert!(reaching > Duration::from_secs(2) && enough.left() - reaching >= BUDGET_MIN);
    }
}
