//! The body of a connection set-up: the connections set up per second, and the cost of each step.
//!
//! Every thread sets up a connection to each of its peers, closes all of them, and starts over, until the trial ends.
//! The latencies are those of a thread's whole set-up and of its steps. The steps are parts of the record.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_plan::connect::ConnectPoint;

use crate::body::{CommonOptions, KindBody, Part};
use crate::histogram::{HistogramData, Latency};
use crate::spread::Spread;

/// A connection set-up: the point and its results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectBody {
    /// The requested point.
    pub point: ConnectPoint,
    /// One entry per timed repetition.
    pub trials: Vec<ConnectTrial>,
    /// Summary of the trials; absent unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ConnectSummary>,
    /// The steps of a set-up, in the order of [`Step::ALL`]; empty unless measured.
    pub steps: Vec<StepRecord>,
}

impl ConnectBody {
    /// Creates the body of a point before it is measured.
    pub fn new(point: ConnectPoint) -> Self {
        Self {
            point,
            trials: Vec::new(),
            summary: None,
            steps: Vec::new(),
        }
    }
}

/// The parts of a record are the whole record and each of its steps.
impl KindBody for ConnectBody {
    fn options(&self) -> CommonOptions<'_> {
        let point = &self.point;
        CommonOptions {
            threads: Some(point.threads),
            traffic: Some(point.traffic),
            place: point.place,
            memory: Some(&point.memory),
            ..CommonOptions::new(
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
    /// Returns the step of a part.
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
    /// Measured interval: from the aligned start to the last close on any rank.
    pub window_ns: u64,
    /// Connections that were set up and closed again. A connection counts once, not once per end.
    pub connections: u64,
    /// `connections` / measured interval.
    pub connections_per_s: f64,
    /// CPU time of all threads inside the measured interval.
    pub cpu_ns: u64,
    /// Delay from the aligned start to the last rank's actual start.
    pub start_skew_ns: u64,
}

/// Summary of a point's trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectSummary {
    /// Number of trials.
    pub trials: u32,
    /// Connections of all trials.
    pub connections: u64,
    /// Connections per second over the trials.
    pub connections_per_s: Spread,
    /// CPU time of all threads per connection.
    pub cpu_ns_per_connection: f64,
}

/// Times of one step of setting up connections, over all threads, ranks and trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepRecord {
    /// The step.
    pub step: Step,
    /// Latency figures.
    pub latency: Latency,
    /// All samples.
    pub histogram: HistogramData,
}

/// A step in setting up a thread's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Opening the thread's endpoint.
    Open,
    /// Registering the worker's memory with the device.
    Register,
    /// Exchanging endpoint addresses through the control channel, and waiting for the slowest rank between steps.
    Exchange,
    /// Connecting to the peers in the engine.
    Connect,
    /// Waiting until the first byte has arrived in each direction.
    FirstByte,
    /// Closing the connections again. Not part of the total.
    Close,
    /// The whole set-up, from opening to the first byte.
    Total,
}

impl Step {
    /// All steps, in the order of records.
    pub const ALL: [Self; 7] = [
        Self::Open,
        Self::Register,
        Self::Exchange,
        Self::Connect,
        Self::FirstByte,
        Self::Close,
        Self::Total,
    ];

    /// Returns the name in records and tables.
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
