//! Figures: all values that can be read from a record. Each is declared once with its names, meaning, style and value.
//!
//! A figure belongs to a record or to a part of a record: a step, a phase, or the reads of a phase. Tables, CSV and
//! `tonnage explain` show exactly the figures listed here. Figures with the same field have the same meaning in every
//! kind.
//!
//! | module | figures |
//! | --- | --- |
//! | `figure` | the types for figures and rows |
//! | `common` | every kind: names, ranks, engine, outcome |
//! | [`engine`] | the engine's report: library, provider, device |
//! | `moved` | kinds that move bytes: bandwidth, bound, amounts |
//! | `latency` | kinds with latencies |
//! | `proof` | observations around a point: canary, devices |
//! | [`units`] | units of headers |
//!
//! [`crate::kinds`] has the figures of individual kinds, and for each kind the list of all figures that it uses.

pub(crate) mod common;
pub mod engine;
mod figure;
pub(crate) mod latency;
pub(crate) mod moved;
pub(crate) mod proof;
pub mod units;

use crate::kinds::{Body, with_kinds};

pub use figure::{Better, Figure, Figures, Row, Style, TrialValues, Value};
pub(crate) use figure::{GIGA, MICROSECONDS, PERCENT, format_pairs};

macro_rules! figures {
    ($($(#[doc = $about:literal])+ $Kind:ident = $name:literal: $module:ident::$Body:ident { $body:ident, $record:ident };)+) => {
        /// Name and figures of each kind.
        pub const KINDS: &[(&str, Figures)] = &[$(($name, $crate::kinds::$module::figures::FIGURES)),+];

        /// Figures of the body's kind, in the order of CSV.
        pub fn of(body: &Body) -> impl Iterator<Item = &'static Figure> + Clone {
            let groups = match body {
                $(Body::$Kind(_) => $crate::kinds::$module::figures::FIGURES),+
            };
            groups.iter().copied().flatten()
        }
    };
}

with_kinds!(figures);

/// Figures of all kinds in the order of CSV. A figure of several kinds appears once.
pub fn all_figures() -> Vec<&'static Figure> {
    distinct_figures(
        KINDS
            .iter()
            .flat_map(|(_, groups)| groups.iter().copied().flatten()),
    )
}

/// Keeps only the first one of figures that have the same field.
pub fn distinct_figures(figures: impl Iterator<Item = &'static Figure>) -> Vec<&'static Figure> {
    let mut kept: Vec<&Figure> = Vec::new();
    for figure in figures {
        if !kept.iter().any(|known| known.field == figure.field) {
            kept.push(figure);
        }
    }
    kept
}

/// Returns the figure with this name in CSV.
pub fn figure_by_field(field: &str) -> Option<&'static Figure> {
    let mut all = KINDS
        .iter()
        .flat_map(|(_, groups)| groups.iter().copied().flatten());
    all.find(|figure| figure.field == field)
}

#[cfg(test)]
mod tests;
