//! Access to a body of any kind: its point, its parts, and figures that several kinds share.
//!
//! Each kind's body implements [`KindBody`] in a module of its own, such as [`transfer`](crate::transfer). Figures
//! shared by several kinds read bodies through this trait. [`kinds`](crate::kinds) lists the kinds.

use std::fmt::Debug;

use tonnage_engine::{EngineOptions, Verb};
use tonnage_plan::point::Traffic;
use tonnage_units::PairPlace;

use crate::bound::Bound;
use crate::histogram::{HistogramData, Latency};
use crate::outcome::Outcome;
use crate::spread::Spread;

/// A part of a record. CSV has one row per part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The whole record.
    Whole,
    /// A step or phase of the record, by index.
    Nth(usize),
    /// A part of a step or phase, such as the reads of a phase. The first index is that of the step or phase, the
    /// second one that of the part within it.
    Inside(usize, usize),
}

/// Options that points of several kinds have.
#[derive(Debug, Clone, Copy)]
pub struct CommonOptions<'a> {
    /// Heading that the plan gives the point.
    pub label: Option<&'a str>,
    /// Name of the engine.
    pub engine: &'a str,
    /// Engine-specific options that differ from their defaults.
    pub engine_options: &'a EngineOptions,
    /// Number of ranks that take part.
    pub ranks: u32,
    /// Threads per rank, for kinds with one engine per thread.
    pub threads: Option<u32>,
    /// Traffic pattern between the ranks, if they exchange anything.
    pub traffic: Option<Traffic>,
    /// Requested sockets of the threads that exchange bytes with each other.
    pub place: Option<PairPlace>,
    /// Name of the memory, if it can be chosen.
    pub memory: Option<&'a str>,
    /// Operations in flight, if the kind has a depth.
    pub depth: Option<u32>,
}

impl<'a> CommonOptions<'a> {
    /// Creates the options that every point has.
    pub(crate) fn new(
        label: &'a Option<String>,
        engine: &'a str,
        engine_options: &'a EngineOptions,
        ranks: u32,
    ) -> Self {
        Self {
            label: label.as_deref(),
            engine,
            engine_options,
            ranks,
            threads: None,
            traffic: None,
            place: None,
            memory: None,
            depth: None,
        }
    }
}

/// Common interface of all bodies: options, parts, and figures that several kinds share. If a part lacks a figure, the
/// figure's method returns `None`.
pub trait KindBody: Debug {
    /// Returns the options of the point.
    fn options(&self) -> CommonOptions<'_>;

    /// Returns the full name of a part's engine, such as `fabric:tcp`.
    fn engine(&self, _: Part) -> &str {
        self.options().engine
    }

    /// Returns whether the engine with this name moved a part's bytes. Only records with several engines compare the
    /// names.
    fn is_moved_by(&self, _: Part, _engine: &str) -> bool {
        true
    }

    /// Returns the verb of a part, if it has one.
    fn verb(&self, _: Part) -> Option<Verb> {
        None
    }

    /// Returns the name of a part's operation, if it has one.
    fn operation(&self, part: Part) -> Option<&'static str> {
        self.verb(part).map(Verb::name)
    }

    /// Returns the parts that have figures of their own. CSV has one row per part.
    fn parts(&self) -> Vec<Part> {
        vec![Part::Whole]
    }

    /// Returns the number of timed repetitions of a part.
    fn trials(&self, part: Part) -> Option<u32>;

    /// Returns the latencies of a part.
    fn latency(&self, part: Part) -> Option<&Latency>;

    /// Returns the latency histogram of a part, if the record has one.
    fn histogram(&self, _: Part) -> Option<&HistogramData> {
        None
    }

    /// Returns the bytes that a part moved.
    fn moved(&self, _: Part) -> Option<Moved<'_>> {
        None
    }

    /// Returns the number of bytes of a part that were verified; `None` if none were checked.
    fn verified_bytes(&self, _: Part) -> Option<u64> {
        None
    }

    /// Returns the time for which a part was measured, summed over its trials. Opening and warm-up don't count. For the
    /// whole record, the time covers all parts.
    fn measured_ns(&self, part: Part) -> u64;

    /// Returns the outcome of a part that can fail or be skipped independently, such as one backend. `None` for a part
    /// that cannot.
    fn outcome(&self, _: Part) -> Option<&Outcome> {
        None
    }

    /// Returns whether at least one part was skipped while others were measured.
    fn lacks_a_part(&self) -> bool {
        false
    }
}

/// Bytes that a part of a record moved, over all its trials.
#[derive(Debug, Clone)]
pub struct Moved<'a> {
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Mean operations per second over the trials; `None` for kinds that define a rate of their own.
    pub message_rate_per_s: Option<f64>,
    /// Operations of all trials.
    pub operations: u64,
    /// Payload of all trials.
    pub payload_bytes: u64,
    /// CPU time that issuing threads spent per operation.
    pub cpu_ns_per_operation: f64,
    /// Upper bound of this part; `None` if the record's bound applies.
    pub bound: Option<&'a Bound>,
    /// Mean bandwidth / bound.
    pub utilization: Option<f64>,
    /// Bytes that each trial moved.
    pub trials: Vec<MovedInTrial>,
}

/// Bytes that one trial moved.
#[derive(Debug, Clone, Copy)]
pub struct MovedInTrial {
    /// Payload / measured interval.
    pub bandwidth_bytes_per_s: f64,
    /// Operations / measured interval; `None` for kinds that define a rate of their own.
    pub message_rate_per_s: Option<f64>,
    /// CPU time per operation; `None` if there were no operations.
    pub cpu_ns_per_operation: Option<f64>,
    /// Maximum number of operations that a thread had in flight; `None` in records without this figure.
    pub in_flight_max: Option<u64>,
}
