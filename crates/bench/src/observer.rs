//! The one who is told how a run goes, on rank 0.

use std::time::Duration;

use tonnage_plan::Point;
use tonnage_plan::files::Phase;
use tonnage_record::Record;
use tonnage_record::transfer::IntervalLatency;
use tonnage_units::Result;

/// Told how a run goes. Called on rank 0 only.
pub trait Observer: Send {
    /// A point begins: its index, how many there are, and what it is.
    fn begin(&mut self, index: usize, of: usize, point: &Point);
    /// Shows the progress of a point; several times a second, while the ranks are at work. Kinds whose points are short
    /// tell nothing.
    fn progress(&mut self, progress: &Progress);
    /// Someone who is told of each interval of a trial as it ends, by another thread; `None` where nobody wants to
    /// know.
    fn intervals(&self) -> Option<IntervalListener> {
        None
    }
    /// Someone who keeps records of points that have not ended, by another thread; `None` where they are not kept.
    fn checkpoints(&self) -> Option<CheckpointKeeper> {
        None
    }
    /// A trial of calls that all ranks make together has ended, where each of them is to be told.
    fn calls(&mut self, _calls: &TrialCalls<'_>) {}
    /// A point ended, one way or another.
    ///
    /// # Errors
    /// An error that ends the run, such as a full disk.
    fn record(&mut self, record: Record) -> Result<()>;
}

/// Told of intervals, one after the other.
pub type IntervalListener = Box<dyn FnMut(&IntervalReport) + Send>;

/// Keeps records of what was measured so far.
pub type CheckpointKeeper = Box<dyn FnMut(&Record) + Send>;

/// Movement in one interval of a trial, as rank 0 knows it when it ends.
#[derive(Debug, Clone, PartialEq)]
pub struct IntervalReport {
    /// Number of the trial, from 1.
    pub trial: u64,
    /// End of the interval, from the aligned start of the trial.
    pub end: Duration,
    /// Operations per second, of all clients.
    pub operations_per_s: f64,
    /// Their payload.
    pub bytes_per_s: f64,
    /// Ranks and their operations per second: all clients, or where they are more than 16 the slowest and the fastest.
    pub clients: Vec<(u32, f64)>,
    /// Number of all clients.
    pub clients_count: u32,
    /// Clients that moved nothing, or were not heard of, and were not done.
    pub silent: Vec<u32>,
    /// Latencies of the interval, where they are recorded and there are some.
    pub latency: Option<IntervalLatency>,
}

/// Times of the calls of a trial, all ranks' of some that follow each other.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialCalls<'a> {
    /// Name of the backend, where there are several.
    pub backend: Option<&'a str>,
    /// Bytes of a call; `None` where nothing is moved.
    pub size_bytes: Option<u64>,
    /// Time of each call, for each rank.
    pub took_ns: Vec<Vec<u64>>,
}

/// Progress of a point that takes long.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// Of a phase with files.
    Phase(PhaseProgress),
    /// Of transfers that are drawn.
    Draws {
        /// Transfers so far.
        draws: u64,
        /// Transfers of these that failed.
        failures: u64,
        /// Time in which others are drawn.
        left: Duration,
    },
    /// Of a search.
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
    /// Values that take part in it.
    pub left: usize,
    /// All values of the option.
    pub of: usize,
}

/// Progress of a phase, as rank 0 sees it from its own part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseProgress {
    /// The phase.
    pub phase: Phase,
    /// Repetition, from 0.
    pub trial: u32,
    /// Bytes that rank 0 has moved so far.
    pub done_bytes: u64,
    /// Bytes that it is to move; a stonewall may end the phase before.
    pub all_bytes: u64,
    /// Number of ranks, each of which has about as much to do.
    pub ranks: u32,
    /// Time since the phase began.
    pub elapsed: Duration,
    /// Time until a stonewall; absent without one.
    pub left: Option<Duration>,
}
