//! Callbacks for the progress and results of a run, on rank 0.

use std::time::Duration;

use tonnage_plan::Point;
use tonnage_plan::files::Phase;
use tonnage_record::Record;
use tonnage_record::transfer::IntervalLatency;
use tonnage_units::Result;

/// Receives the progress and results of a run. Called on rank 0 only.
pub trait Observer: Send {
    /// A point begins: its index, the number of points, and the point.
    fn begin(&mut self, index: usize, of: usize, point: &Point);
    /// Reports the progress of a point, several times a second while the ranks are busy. Kinds with short points do not
    /// call it.
    fn progress(&mut self, progress: &Progress);
    /// Returns a listener for each interval of a trial as it ends, called on another thread; `None` if none is wanted.
    fn intervals(&self) -> Option<IntervalListener> {
        None
    }
    /// Returns a keeper for records of unfinished points, called on another thread; `None` if they are not kept.
    fn checkpoints(&self) -> Option<CheckpointKeeper> {
        None
    }
    /// A trial of collective calls has ended, and each call is to be printed.
    fn print_calls(&mut self, _calls: &TrialCalls<'_>) {}
    /// A point has ended, with any outcome.
    ///
    /// # Errors
    /// An error that ends the run, such as a full disk.
    fn record(&mut self, record: Record) -> Result<()>;
}

/// Receives the intervals one after the other.
pub type IntervalListener = Box<dyn FnMut(&IntervalReport) + Send>;

/// Stores records of the results so far.
pub type CheckpointKeeper = Box<dyn FnMut(&Record) + Send>;

/// Bytes and operations in one interval of a trial, as known to rank 0 at its end.
#[derive(Debug, Clone, PartialEq)]
pub struct IntervalReport {
    /// Number of the trial, from 1.
    pub trial: u64,
    /// End of the interval, from the aligned start of the trial.
    pub end: Duration,
    /// Operations per second over all clients.
    pub operations_per_s: f64,
    /// Payload bytes per second over all clients.
    pub bytes_per_s: f64,
    /// Ranks with their operations per second: all clients or, if there are more than 16, the slowest and the fastest.
    pub clients: Vec<(u32, f64)>,
    /// Total number of clients.
    pub clients_count: u32,
    /// Clients that were not done and moved nothing or sent no report.
    pub silent: Vec<u32>,
    /// Latencies of the interval, if they are recorded and there are any.
    pub latency: Option<IntervalLatency>,
}

/// Times of consecutive calls of a trial on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialCalls<'a> {
    /// Name of the backend, if there are several.
    pub backend: Option<&'a str>,
    /// Bytes of a call; `None` if nothing is moved.
    pub size_bytes: Option<u64>,
    /// Times of the calls, per rank.
    pub took_ns: Vec<Vec<u64>>,
}

/// Progress of a long point.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// Progress of a phase with files.
    Phase(PhaseProgress),
    /// Progress of random transfers.
    Draws {
        /// Transfers so far.
        draws: u64,
        /// Number of those that failed.
        failures: u64,
        /// Remaining time for drawing.
        left: Duration,
    },
    /// Progress of a search for the best options.
    Race(RaceProgress),
}

/// Progress of one race of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct RaceProgress {
    /// Pass over the options, from 1.
    pub pass: u32,
    /// The option whose values compete.
    pub option: String,
    /// Number of the round, from 1.
    pub round: usize,
    /// Number of values that take part in the round.
    pub left: usize,
    /// Number of all values of the option.
    pub of: usize,
}

/// Progress of a phase, as seen from rank 0's own part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseProgress {
    /// The phase.
    pub phase: Phase,
    /// Repetition, from 0.
    pub trial: u32,
    /// Bytes that rank 0 has moved so far.
    pub done_bytes: u64,
    /// Total bytes for rank 0; a stonewall may end the phase earlier.
    pub all_bytes: u64,
    /// Number of ranks, each with about the same amount of work.
    pub ranks: u32,
    /// Time since the phase began.
    pub elapsed: Duration,
    /// Time until a stonewall; `None` without one.
    pub left: Option<Duration>,
}
