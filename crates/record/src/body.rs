//! Questions to a body of any kind: its point, its parts, and figures that several kinds have.
//!
//! The bodies answer (each in a module of its own, such as [`transfer`](crate::transfer)), and the figures that several
//! kinds share ask. Which kinds there are is in [`kinds`](crate::kinds).

use std::fmt::Debug;

use tonnage_engine::{EngineOptions, Verb};
use tonnage_plan::point::Traffic;
use tonnage_units::PairPlace;

use crate::histogram::{HistogramData, Latency};
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::spread::Spread;

/// A part of a record: each is a row of CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// One of its steps or phases, by its place among them.
    Nth(usize),
    /// A part of one of these, such as the reads of a phase, by both places.
    Inside(usize, usize),
}

/// Options that points of several kinds have.
#[derive(Debug, Clone, Copy)]
pub struct PointOptions<'a> {
    /// Heading under which the plan puts the point.
    pub label: Option<&'a str>,
    /// Name of the engine.
    pub engine: &'a str,
    /// Options of the engine's own that differ from their defaults.
    pub engine_options: &'a EngineOptions,
    /// Processes that take part.
    pub ranks: u32,
    /// Threads of each rank, where each has an engine of its own.
    pub workers: Option<u32>,
    /// Pattern between the ranks, where they exchange anything.
    pub traffic: Option<Traffic>,
    /// Sockets that were asked for of workers that exchange bytes.
    pub place: Option<PairPlace>,
    /// Name of the memory, where it can be chosen.
    pub memory: Option<&'a str>,
    /// Operations in flight at a time, where there is a window.
    pub window: Option<u32>,
}

impl<'a> PointOptions<'a> {
    /// Those that every point has.
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
            workers: None,
            traffic: None,
            place: None,
            memory: None,
            window: None,
        }
    }
}

/// Body of any kind: its options, its parts, and figures that several kinds have. Parts that have no such figures answer
/// `None`.
pub trait KindBody: Debug {
    /// Its options.
    fn options(&self) -> PointOptions<'_>;

    /// Name of the engine of a part, with what follows the colon.
    fn engine(&self, _: Part) -> &str {
        self.options().engine
    }

    /// Returns whether a part's bytes were moved by the engine of this name, where a record has several.
    fn is_moved_by(&self, _: Part, _engine: &str) -> bool {
        true
    }

    /// Operation of a part, where it has one.
    fn verb(&self, _: Part) -> Option<Verb> {
        None
    }

    /// Name of the operation of a part, where it has one.
    fn operation(&self, part: Part) -> Option<&'static str> {
        self.verb(part).map(Verb::name)
    }

    /// Parts that have figures of their own: each is a row of CSV.
    fn parts(&self) -> Vec<Part> {
        vec![Part::Whole]
    }

    /// Timed repetitions of a part.
    fn trials(&self, part: Part) -> Option<u32>;

    /// Latencies of a part.
    fn latency(&self, part: Part) -> Option<&Latency>;

    /// Histogram of the latencies of a part, where the record keeps one.
    fn histogram(&self, _: Part) -> Option<&HistogramData> {
        None
    }

    /// Bytes that a part moved.
    fn moved(&self, _: Part) -> Option<Moved<'_>> {
        None
    }

    /// Bytes of a part that were checked and right; `None` where none were checked.
    fn verified_bytes(&self, _: Part) -> Option<u64> {
        None
    }

    /// Time that a part was measured for, its trials together, without opening and warming up; of the whole, that of
    /// all parts.
    fn measured_ns(&self, part: Part) -> u64;

    /// End of a part that ends by itself, whatever became of the others.
    fn outcome(&self, _: Part) -> Option<&Outcome> {
        None
    }

    /// Returns whether a part was skipped while others were measured, so that something is missing.
    fn lacks_a_part(&self) -> bool {
        false
    }
}

/// Bytes that a part of a record moved, its trials taken together.
#[derive(Debug, Clone)]
pub struct Moved<'a> {
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Mean operations per second over the trials; `None` for a kind that has a rate of its own.
    pub message_rate_per_s: Option<f64>,
    /// Operations of all trials.
    pub operations: u64,
    /// Payload of all trials.
    pub payload_bytes: u64,
    /// CPU time of one operation, of the threads that issue them.
    pub cpu_ns_per_operation: f64,
    /// Upper bound that belongs to this part alone; others have that of the record.
    pub limit: Option<&'a Limit>,
    /// Mean bandwidth / limit.
    pub utilization: Option<f64>,
    /// Each trial.
    pub trials: Vec<MovedInTrial>,
}

/// Bytes that one trial moved.
#[derive(Debug, Clone, Copy)]
pub struct MovedInTrial {
    /// Payload / window.
    pub bandwidth_bytes_per_s: f64,
    /// Operations / window; `None` for a kind that has a rate of its own.
    pub message_rate_per_s: Option<f64>,
    /// CPU time of one operation; `None` where there was none.
    pub cpu_ns_per_operation: Option<f64>,
    /// The most operations that a thread had in flight; `None` in records that do not say it.
    pub in_flight_max: Option<u64>,
}
