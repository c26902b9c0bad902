//! Figures: what a record can be read for, each declared once with its names, meaning, style and value.
//!
//! A figure belongs to a record or to a part of one: a step, a phase, its reads. Tables, CSV and `tonnage explain` read
//! the lists here and add nothing to them. A figure of one field means the same wherever it is.
//!
//! | module | figures |
//! | --- | --- |
//! | `figure` | no figures: what one is, and the rows that it has values for |
//! | `common` | of every kind: names, ranks, engine, outcome |
//! | [`engine`] | of the engine's account: library, provider, device |
//! | `moved` | of kinds that move bytes: bandwidth, limit, amounts |
//! | `latency` | of whatever has latencies |
//! | `proof` | of what was watched beside a point: canary, devices |
//!
//! Figures of one kind, and the list of all that it has, are with the kind, in [`crate::kinds`].

pub(crate) mod common;
pub mod engine;
mod figure;
pub(crate) mod latency;
pub(crate) mod moved;
pub(crate) mod proof;

use crate::kinds::{Body, with_kinds};

pub use figure::{Better, Figure, Figures, OfTrials, Row, Style, Value};
pub(crate) use figure::{GIGA, MICROSECONDS, PERCENT, pairs};

macro_rules! figures {
    ($($(#[doc = $about:literal])+ $Kind:ident = $name:literal: $module:ident::$Body:ident { $body:ident, $record:ident };)+) => {
        /// Name and figures of every kind.
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

/// Figures of all kinds, each once, in the order of CSV.
pub fn all() -> Vec<&'static Figure> {
    union(
        KINDS
            .iter()
            .flat_map(|(_, groups)| groups.iter().copied().flatten()),
    )
}

/// These figures, each once.
pub fn union(figures: impl Iterator<Item = &'static Figure>) -> Vec<&'static Figure> {
    let mut kept: Vec<&Figure> = Vec::new();
    for figure in figures {
        if !kept.iter().any(|known| known.field == figure.field) {
            kept.push(figure);
        }
    }
    kept
}

/// The figure with this name in CSV.
pub fn by_field(field: &str) -> Option<&'static Figure> {
    let mut all = KINDS
        .iter()
        .flat_map(|(_, groups)| groups.iter().copied().flatten());
    all.find(|figure| figure.field == field)
}

#[cfg(test)]
mod tests;
