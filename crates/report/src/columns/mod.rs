//! The one list of columns: what each is called, in which unit, what it means, how it is computed, and its value.
//!
//! Tables, CSV and `tonnage explain` all read [`all`], so that a figure and its definition cannot drift apart. What only
//! one report shows, and no record holds as it stands, is in [`DERIVED`].

mod asked;
mod derived;
mod figures;
mod values;

use tonnage_plan::transfer::{Addresses, Pacing};
use tonnage_record::TransferRecord;

pub use derived::{DERIVED, Derived};
pub use values::{cpu_share, lanes};

/// One figure of a record.
pub struct Column {
    /// The header of tables, with its unit.
    pub name: &'static str,
    /// The name in CSV, with the unit in which CSV gives it.
    pub field: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// How it is computed from what was measured.
    pub computed: &'static str,
    /// How tables print it.
    pub style: Style,
    /// Its value, in the unit of `field`.
    pub value: fn(TransferRecord<'_>) -> Value,
}

/// How tables print a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Style {
    /// As it is.
    Plain,
    /// Multiplied by this, with three significant digits.
    Scaled(f64),
    /// With a prefix k, M or G.
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

/// The name of a way to issue operations, as the command line has it.
pub fn pacing_name(pacing: Pacing) -> &'static str {
    match pacing {
        Pacing::PingPong => "ping-pong",
        Pacing::Stream { .. } => "stream",
        Pacing::Batch { .. } => "batch",
        Pacing::Paced { .. } => "paced",
    }
}

/// The name of an order of addresses, as the command line has it.
pub fn addresses_name(addresses: Addresses) -> &'static str {
    match addresses {
        Addresses::Sequential => "sequential",
        Addresses::Random => "random",
        Addresses::Fixed => "fixed",
    }
}

/// All columns, in the order of CSV.
pub fn all() -> impl Iterator<Item = &'static Column> + Clone {
    asked::ASKED.iter().chain(figures::FIGURES)
}

/// The column with this CSV name.
pub fn by_field(field: &str) -> Option<&'static Column> {
    all().find(|column| column.field == field)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_definitions_are_sentences() {
        let derived = DERIVED.iter().map(|column| column.name);
        let names = all().map(|column| column.name).chain(derived);
        let different: HashSet<_> = names.clone().map(str::to_lowercase).collect();
        let fields: HashSet<_> = all().map(|column| column.field).collect();
        let count = all().count();
        assert_eq!(different.len(), count + DERIVED.len());
        assert_eq!(fields.len(), count);
        let texts = all().map(|column| [column.meaning, column.computed]);
        let derived = DERIVED.iter().map(|column| [column.place, column.meaning]);
        for (name, texts) in names.zip(texts.chain(derived)) {
            for text in texts {
                assert!(
                    text.ends_with('.') && !text.contains("  "),
                    "{name}: {text:?}"
                );
            }
        }
    }
}
