//! The body of an experiment with connections: how many can be set up in a second, and what each step of that costs.
//!
//! Every worker sets up a connection to each of its peers, takes it down, and begins again, until the trial is over.
//! Latencies are of one set-up by one worker and of its steps, which are the record's parts.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_plan::connect::ConnectPoint;

use crate::body::{KindBody, Part, PointOptions};
use crate::histogram::{HistogramData, Latency};
use crate::spread::Spread;

/// An experiment with connections as it was asked for, and what came out of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectBody {
    /// The point that was asked for.
    pub point: ConnectPoint,
    /// One entry for each timed repetition.
    pub trials: Vec<ConnectTrial>,
    /// The trials taken together; absent unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ConnectSummary>,
    /// The steps of a set-up in the order of [`Step::ALL`]; empty unless measured.
    pub steps: Vec<StepRecord>,
}

impl ConnectBody {
    /// A point before anything was measured.
    pub fn new(point: ConnectPoint) -> Self {
        Self {
            point,
            trials: Vec::new(),
            summary: None,
            steps: Vec::new(),
        }
    }
}

/// The parts of a record are the whole, and each of its steps.
impl KindBody for ConnectBody {
    fn options(&self) -> PointOptions<'_> {
        let point = &self.point;
        PointOptions {
            workers: Some(point.workers),
            traffic: Some(point.traffic),
            place: point.place,
            memory: Some(&point.memory),
            ..PointOptions::new(
                &point.label,
                &point.engine,
                &point.engine_options,
                point.ranks,
            )
        }
    }

    fn parts(&self) -> Vec<Part> {
        let steps = (0..self.steps.len()).map(Part::Nth);
        std::iter::once(Part::Whole).chain(steps).collect()
    }

    fn measured_ns(&self, _: Part) -> u64 {
        self.trials.iter().map(|trial| trial.window_ns).sum()
    }

    fn trials(&self, part: Part) -> Option<u32> {
        let whole = matches!(part, Part::Whole);
        let summary = self.summary.as_ref().filter(|_| whole);
        summary.map(|summary| summary.trials)
    }

    fn latency(&self, part: Part) -> Option<&Latency> {
        self.step(part).map(|step| &step.latency)
    }

    fn histogram(&self, part: Part) -> Option<&HistogramData> {
        self.step(part).map(|step| &step.histogram)
    }
}

impl ConnectBody {
    /// The step that a part is.
    pub fn step(&self, part: Part) -> Option<&StepRecord> {
        match part {
            Part::Nth(at) => self.steps.get(at),
            Part::Whole | Part::Inside(..) => None,
        }
    }
}

/// One timed repetition over all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectTrial {
    /// From the aligned start to the last take-down on any rank.
    pub window_ns: u64,
    /// Connections that were set up and taken down again, each counted once for its two ends.
    pub connections: u64,
    /// `connections` / window.
    pub connections_per_s: f64,
    /// CPU time of all workers inside the window.
    pub cpu_ns: u64,
    /// Delay of the last rank's real start after the aligned start.
    pub start_skew_ns: u64,
}

/// The trials of a point taken together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectSummary {
    /// Number of trials.
    pub trials: u32,
    /// Connections of all trials.
    pub connections: u64,
    /// Connections per second over the trials.
    pub connections_per_s: Spread,
    /// CPU time of all workers per connection.
    pub cpu_ns_per_connection: f64,
}

/// Time of one step of setting up connections, over all workers, ranks and trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepRecord {
    /// The step.
    pub step: Step,
    /// The figures.
    pub latency: Latency,
    /// All samples.
    pub histogram: HistogramData,
}

/// A step of setting up a worker's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Opening the worker's endpoint.
    Open,
    /// Registering its memory with the device.
    Register,
    /// The control channel's part: sending cards to the peers, and waiting for the slowest rank between steps.
    Exchange,
    /// Connecting it to its peers, the engine's part alone.
    Connect,
    /// Waiting until the first byte has gone each way.
    FirstByte,
    /// Taking everything down again, which is no part of the whole.
    Close,
    /// The whole of a set-up, from opening to the first byte.
    Total,
}

impl Step {
    /// All steps, in the order in which records have them.
    pub const ALL: [Self; 7] = [
        Self::Open,
        Self::Register,
        Self::Exchange,
        Self::Connect,
        Self::FirstByte,
        Self::Close,
        Self::Total,
    ];

    /// The name in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Register => "register",
            Self::Exchange => "exchange",
            Self::Connect => "connect",
            Self::FirstByte => "first_byte",
            Self::Close => "close",
            Self::Total => "total",
        }
    }
}
