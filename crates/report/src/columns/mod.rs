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
pub use tonnage_record::figures::{Style, Value};
pub use values::{cpu_share, lanes};

/// One figure of a record.
pub struct Column {
    /// The header of tables, with its unit.
    pub name: &'static str,
    /// The name in CSV, with the unit in which CSV gives it.
    pub field: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// Computation from measured values.
    pub computed: &'static str,
    /// Style of its values in tables.
    pub style: Style,
    /// Its value, in the unit of `field`.
    pub value: fn(TransferRecord<'_>) -> Value,
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
