//! One figure, its style and its value, and the rows of a record that figures have values for.

use crate::body::{KindBody, Part, PointOptions};
use crate::envelope::Record;

/// Groups of figures, in the order of CSV.
pub type Figures = &'static [&'static [Figure]];

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
    /// Its value in each trial, in their order; `None` for what only all trials together have.
    pub trials: Option<fn(&Row<'_>) -> OfTrials>,
}

impl Figure {
    /// A base for figures that are neither good nor bad, and that all trials together have.
    pub(crate) const PLAIN: Self = Self {
        computed: "",
        ..Self::asked("", "", "", |_| Value::Unknown)
    };

    /// A base for times that tables have in microseconds.
    pub(crate) const TIME_US: Self = Self {
        style: MICROSECONDS,
        better: Some(Better::Low),
        ..Self::PLAIN
    };

    /// A base for times that tables have in seconds.
    pub(crate) const TIME_S: Self = Self {
        style: GIGA,
        ..Self::TIME_US
    };

    /// A base for bytes per second.
    pub(crate) const BANDWIDTH: Self = Self {
        style: GIGA,
        better: Some(Better::High),
        ..Self::PLAIN
    };

    /// A figure that the point decides.
    pub(crate) const fn asked(
        name: &'static str,
        field: &'static str,
        meaning: &'static str,
        value: fn(&Row<'_>) -> Value,
    ) -> Self {
        Self {
            name,
            field,
            meaning,
            computed: "As the plan or the command line asked for it; the record's point repeats it.",
            style: Style::Plain,
            better: None,
            value,
            trials: None,
        }
    }
}

/// Values of a figure in the trials of a part; `None` where one has none.
pub type OfTrials = Vec<Option<f64>>;

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

/// Bytes per second as GB/s, nanoseconds as seconds.
pub(crate) const GIGA: Style = Style::Scaled(1e-9);
/// Nanoseconds as microseconds.
pub(crate) const MICROSECONDS: Style = Style::Scaled(1e-3);
/// Fractions as percents.
pub(crate) const PERCENT: Style = Style::Scaled(100.0);

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
    /// A number that the true one is not below.
    AtLeast(f64),
}

impl Value {
    /// The number that it is, if it is one: of a lower bound the bound.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::Count(count) => Some(count as f64),
            Self::Number(number) | Self::AtLeast(number) => Some(number),
            Self::Unknown | Self::Text(_) => None,
        }
    }

    /// This value, as a lower bound if it is one.
    pub(crate) fn bounded(self, is_bound: bool) -> Self {
        match self.number().filter(|_| is_bound) {
            Some(number) => Self::AtLeast(number),
            None => self,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Words; none are unknown.
impl From<String> for Value {
    fn from(text: String) -> Self {
        match text.is_empty() {
            true => Self::Unknown,
            false => Self::Text(text),
        }
    }
}

impl From<bool> for Value {
    fn from(holds: bool) -> Self {
        if holds { "yes" } else { "no" }.into()
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
    pub part: Part,
}

impl<'a> Row<'a> {
    /// The rows of a record: one for each part.
    pub fn of(record: &'a Record) -> Vec<Self> {
        let parts = record.body.any().parts().into_iter();
        parts.map(|part| Self { record, part }).collect()
    }

    /// The body, as one of any kind.
    pub(crate) fn body(&self) -> &'a dyn KindBody {
        self.record.body.any()
    }

    /// Options of the point.
    pub(crate) fn options(&self) -> PointOptions<'a> {
        self.body().options()
    }
}

/// NAME=VALUE, several with a space between them.
pub(crate) fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let texts = pairs.into_iter();
    let texts: Vec<_> = texts
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    texts.join(" ")
}
