//! Orders and reports of a worker: its place in the run, each trial before it, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_plan::transfer::TrialLength;
use tonnage_ranks::Sleepers;

use super::stalled::FlowNames;
use crate::drive::batch::SharedBatches;
use crate::drive::pulse::Pulse;

/// The number of a warm-up, which is no trial: engines may try things out in it.
pub const WARM_UP: u64 = 0;

/// The place of a worker in the run.
#[derive(Debug, Clone)]
pub struct Station {
    /// The rank.
    pub rank: u32,
    /// Index of the worker in the rank.
    pub worker: u32,
    /// Names of its flows' ends.
    pub names: FlowNames,
    /// True for one that shares its CPU.
    pub yielding: bool,
    /// Time without progress of its operations that is forgiven.
    pub patience: Duration,
    /// Those of this rank that may sleep.
    pub sleepers: Arc<Sleepers>,
    /// Batches that this rank's workers share, where they do.
    pub shared: Option<Arc<SharedBatches>>,
    /// Pulse that it keeps, where somebody feels it.
    pub pulse: Option<Arc<Pulse>>,
}

/// Start and length of a trial.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// The aligned start on this host's clock.
    pub start_ns: u64,
    /// Time or iterations.
    pub length: TrialLength,
    /// The number that keys the trial's data; 0 is the warm-up.
    pub number: u64,
    /// The round of the traffic.
    pub round: u32,
    /// True for a turn beside those of the trials, whose latencies do not count.
    pub again: bool,
}

/// A worker's report about its own flows after driving them, for the targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Issued {
    /// For each rank of `SliceLayout::out`: first and one past the last operation of this trial.
    pub ranges: Vec<(u64, u64)>,
}
