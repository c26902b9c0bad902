//! Figures: what a record can be read for, each declared once with its names, meaning, style and value.
//!
//! A figure belongs to a record or to a part of one: a step, a phase, a direction. Tables, CSV and `tonnage explain` read
//! the lists here and add nothing to them. A figure of one field means the same wherever it is.

mod common;
mod connect;
mod latency;

use crate::connect::StepRecord;
use crate::{ConnectRecord, Record};

/// Figures of experiments with connections, in the order of CSV.
pub fn of_connect() -> impl Iterator<Item = &'static Figure> + Clone {
    let measured = connect::CONNECT.iter().chain(latency::LATENCY);
    common::ASKED.iter().chain(measured).chain(common::OUTCOME)
}

/// One figure.
pub struct Figure {
    /// The header of tables, with its unit.
    pub name: &'static str,
    /// The name in CSV, with the unit in which CSV gives it.
    pub field: &'static str,
    /// Definition.
    pub meaning: &'static str,
    /// Computation from measured values.
    pub computed: &'static str,
    /// Style of its values in tables.
    pub style: Style,
    /// Direction in which it gets better; `None` for what was asked for, and for what is neither good nor bad.
    pub better: Option<Better>,
    /// Its value, in the unit of `field`.
    pub value: fn(&Row<'_>) -> Value,
    /// Its value in each trial; `None` for what only all trials together have.
    pub trials: Option<fn(&Row<'_>) -> Vec<f64>>,
}

/// Direction in which a figure gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better, as of bandwidth.
    High,
    /// Less is better, as of latency.
    Low,
}

/// Style of a value in tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Style {
    /// A value as it is.
    Plain,
    /// A number multiplied by this, with three significant digits.
    Scaled(f64),
    /// A number with a prefix k, M or G.
    Rate,
}

/// A value as CSV gives it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The record does not have it.
    Unknown,
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// Any other number.
    Number(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

/// A record, or a part of one, that figures have values for.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The record.
    pub record: &'a Record,
    /// The part of it.
    pub part: Part<'a>,
}

/// A part of a record.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// All of it.
    Whole,
    /// One step of setting up connections.
    Step(&'a StepRecord),
}

impl<'a> Row<'a> {
    /// The rows of a record of connections: the whole, and each of its steps.
    pub fn of_connect(record: ConnectRecord<'a>) -> Vec<Self> {
        let of = |part| Self {
            record: record.record,
            part,
        };
        let steps = record.body.steps.iter().map(|step| of(Part::Step(step)));
        std::iter::once(of(Part::Whole)).chain(steps).collect()
    }
}
