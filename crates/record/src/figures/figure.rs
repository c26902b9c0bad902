//! A figure with its style and value, and the rows of a record that figures are computed for.

use crate::body::{CommonOptions, KindBody, Part};
use crate::envelope::Record;

/// Groups of figures, in the order of CSV.
pub type Figures = &'static [&'static [Figure]];

/// One figure.
pub struct Figure {
    /// The header, with its unit. Tables for people may print another unit of the same quantity.
    pub name: &'static str,
    /// Name in CSV, including the unit of the CSV values.
    pub field: &'static str,
    /// Definition of the figure for users.
    pub meaning: &'static str,
    /// How the figure is computed from measured values.
    pub computed: &'static str,
    /// Style of the value in tables.
    pub style: Style,
    /// Priority of the column when a table is too wide. Columns with the lowest priority are dropped first. Among
    /// columns with equal priority, the last one is dropped first.
    pub keep: u8,
    /// Direction of improvement; `None` for options, and for figures that are neither good nor bad.
    pub better: Option<Better>,
    /// Computes the figure's value, in the unit of `field`.
    pub value: fn(&Row<'_>) -> Value,
    /// Computes the figure's value in each trial, in order; `None` for a figure that has no value per trial.
    pub trials: Option<fn(&Row<'_>) -> TrialValues>,
}

impl Figure {
    /// [`Self::keep`] of most figures.
    pub const KEEP: u8 = 50;

    /// A base for figures without a direction of improvement and without values per trial.
    pub(crate) const PLAIN: Self = Self {
        computed: "",
        ..Self::of_option("", "", "", |_| Value::Unknown)
    };

    /// A base for times that tables show in microseconds.
    pub(crate) const TIME_US: Self = Self {
        style: MICROSECONDS,
        better: Some(Better::Low),
        ..Self::PLAIN
    };

    /// A base for times that tables show in seconds.
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

    /// A figure that is an option of the point.
    pub(crate) const fn of_option(
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
            keep: Self::KEEP,
            better: None,
            value,
            trials: None,
        }
    }
}

/// Values of a figure, one per trial of a part; `None` for trials without the figure.
pub type TrialValues = Vec<Option<f64>>;

/// Direction in which a figure improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better, for example bandwidth.
    High,
    /// Less is better, for example latency.
    Low,
}

/// Style of a value in tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Style {
    /// The value unchanged.
    Plain,
    /// A number that is multiplied by this factor and shown with three significant digits.
    Scaled(f64),
    /// A number with prefix k, M or G.
    Rate,
}

impl Style {
    /// Factor from the unit of CSV to that of the header.
    pub const fn scale(self) -> f64 {
        match self {
            Self::Scaled(scale) => scale,
            Self::Plain | Self::Rate => 1.0,
        }
    }
}

/// Bytes per second as GB/s, nanoseconds as seconds.
pub(crate) const GIGA: Style = Style::Scaled(1e-9);
/// Nanoseconds as microseconds.
pub(crate) const MICROSECONDS: Style = Style::Scaled(1e-3);
/// Fractions as percentages.
pub(crate) const PERCENT: Style = Style::Scaled(100.0);

/// Value of a figure, in the unit of CSV.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Not in the record.
    Unknown,
    /// A text.
    Text(String),
    /// A whole number.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// A lower bound: the actual number is at least this.
    AtLeast(f64),
}

impl Value {
    /// Returns the number; for a lower bound, the bound.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::Count(count) => Some(count as f64),
            Self::Number(number) | Self::AtLeast(number) => Some(number),
            Self::Unknown | Self::Text(_) => None,
        }
    }

    /// Marks this value as a lower bound if `is_bound`.
    pub(crate) fn lower_bound_if(self, is_bound: bool) -> Self {
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

/// An empty text becomes an unknown value.
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

/// A record, or a part of a record, for which figures are computed.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The record.
    pub record: &'a Record,
    /// The part of the record that this row covers.
    pub part: Part,
}

impl<'a> Row<'a> {
    /// Returns the rows of a record: one per part.
    pub fn all_of_record(record: &'a Record) -> Vec<Self> {
        let parts = record.body.any().parts().into_iter();
        parts.map(|part| Self { record, part }).collect()
    }

    /// Returns the body through its common interface.
    pub(crate) fn body(&self) -> &'a dyn KindBody {
        self.record.body.any()
    }

    /// Returns the options of the point.
    pub(crate) fn options(&self) -> CommonOptions<'a> {
        self.body().options()
    }
}

/// Joins NAME=VALUE pairs with spaces.
pub(crate) fn format_pairs<'a>(
    pairs: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> String {
    let texts = pairs.into_iter();
    let texts: Vec<_> = texts
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    texts.join(" ")
}
