//! Figures of operations that change words.

use crate::figures::{Better, Figure, PERCENT, Row};

/// Figures of atomic operations.
pub(super) const ATOMICS: &[Figure] = &[Figure {
    name: "Swapped (%)",
    field: "swapped_fraction",
    meaning: "Part of the compare-swaps that found what they expected, and so put their own number there. Each expects \
             the number of operations that its own flow sent to the word before, so that several initiators of one word \
             share the successes. Known where trials are verified.",
    computed: "Sum of the words after each trial, which began with 0 / operations of all trials.",
    style: PERCENT,
    better: Some(Better::High),
    value: |row| swapped(row).into(),
    ..Figure::PLAIN
}];

fn swapped(row: &Row<'_>) -> Option<f64> {
    let body = row.record.transfer()?;
    body.summary.as_ref()?.swapped_fraction
}
