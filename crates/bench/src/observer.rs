//! Callbacks for the progress and results of a run, on rank 0.

use std::time::Duration;

use tonnage_plan::Point;
use tonnage_plan::files::Phase;
use tonnage_record::Record;
use tonnage_record::transfer::IntervalLatency;
use tonnage_units::Result;

/// Receives the progress and results of a run. Called on rank 0 only.
pub trait Observer: Send {
    /// A point begins. `index` is its index, and `of` is the number of points.
    fn begin(&mut self, index: usize, of: usize, point: &Point);
    /// Reports the progress of a point several times per second, while the ranks are busy. Kinds with short points
    /// don't report progress.
    fn progress(&mut self, progress: &Progress);
    /// Returns a listener for the intervals of trials. Another thread calls it when an interval ends. `None` if
    /// intervals are not needed.
    fn intervals(&self) -> Option<IntervalListener> {
        None
    }
    /// Returns a keeper for records of points in progress. Another thread calls it. `None` if they are not kept.
    fn checkpoints(&self) -> Option<CheckpointKeeper> {
        None
    }
    /// A trial of a collective has ended, and the time of each call is to be printed.
    fn print_calls(&mut self, _calls: &TrialCalls<'_>) {}
    /// A point has ended, with any outcome.
    ///
    /// # Errors
    /// An error that ends the run, such as a full disk.
    fn record(&mut self, record: Record) -> Result<()>;
}

/// Receives intervals in order.
pub type IntervalListener = Box<dyn FnMut(&IntervalReport) + Send>;

/// Stores records of points in progress.
pub type CheckpointKeeper = Box<dyn FnMut(&Record) + Send>;

/// Bytes and operations in one interval of a trial, as far as rank 0 knows them when the interval ends.
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
    /// Ranks with their operations per second. Lists all clients if there are at most 16, otherwise only the slowest
    /// and the fastest one.
    pub clients: Vec<(u32, f64)>,
    /// Total number of clients.
    pub clients_count: u32,
    /// Clients that were not done, and either moved nothing or sent no report.
    pub silent: Vec<u32>,
    /// Latencies of the interval; `None` if there are none.
    pub latency: Option<IntervalLatency>,
}

/// Times of consecutive calls in a trial, on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialCalls<'a> {
    /// Name of the backend; `None` if there is only one.
    pub backend: Option<&'a str>,
    /// Number of bytes per call; `None` if calls move no bytes.
    pub size_bytes: Option<u64>,
    /// Times of the calls, for each rank.
    pub took_ns: Vec<Vec<u64>>,
}

/// Progress of a long point.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// Progress of a phase of a file experiment.
    Phase(PhaseProgress),
    /// Progress of a stress run.
    Draws {
        /// Number of transfers so far.
        draws: u64,
        /// Number of these transfers that failed.
        failures: u64,
        /// Time left for transfers.
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
    /// The option with the competing values.
    pub option: String,
    /// Number of the current round, from 1.
    pub round: usize,
    /// Number of values that take part in the round.
    pub left: usize,
    /// Number of values of the option.
    pub of: usize,
}

/// Progress of a phase. It is estimated from rank 0's own part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseProgress {
    /// The phase.
    pub phase: Phase,
    /// Number of the repetition, from 0.
    pub trial: u32,
    /// Number of bytes that rank 0 has moved so far.
    pub done_bytes: u64,
    /// Number of bytes that rank 0 will move, unless a stonewall ends the phase earlier.
    pub all_bytes: u64,
    /// Number of ranks. Each has about as much to move.
    pub ranks: u32,
    /// Time since the phase began.
    pub elapsed: Duration,
    /// Time until a stonewall; `None` without one.
    pub left: Option<Duration>,
}
