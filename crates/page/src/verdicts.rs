//! Verdicts at the top of a page: a comparison of two sides, and hosts compared with a baseline.

use std::collections::BTreeSet;

use maud::{Markup, html};
use tonnage_judge::check::of_records::RecordsCheck;
use tonnage_judge::compare::Comparison;
use tonnage_report::baseline::of_records;
use tonnage_report::compare::parts;

use crate::bidi::{isolated, without_direction_marks};
use crate::plot::{Numbers, ratios};
use crate::results::result;
use crate::tables;

/// A comparison: the result, a plot of ratios, the table, and differences between the sides.
pub(crate) fn compared(
    comparison: &Comparison,
    names: &[String; 2],
    numbers: &mut Numbers,
    columns: &mut BTreeSet<String>,
) -> Markup {
    // The list of verdicts that count as failures is empty, because a page has no exit code.
    let parts = parts(comparison, [&names[0], &names[1]], &[]);
    html! {
        (result(&parts.result))
        ul { @for line in &parts.head { li { (without_direction_marks(line)) } } }
        @for plot in ratios::ratios(comparison, &parts.points, numbers) { (plot) }
        (tables::titled(&parts.verdicts, columns))
        @for note in &parts.notes { p { small { (without_direction_marks(note)) } } }
        h3 { "What differs between the sides" }
        @if let Some(table) = &parts.differences { (tables::titled(table, columns)) }
        @for line in &parts.about { p { (without_direction_marks(line)) } }
    }
}

/// Hosts compared with the baseline in this file: the reason for the verdict, and a row per figure.
pub(crate) fn against_baseline(
    check: &RecordsCheck,
    file: &str,
    columns: &mut BTreeSet<String>,
) -> Markup {
    let parts = of_records(check);
    html! {
        h3 { "Hosts compared with the baseline " (isolated(file)) }
        p { strong { (without_direction_marks(&parts.reason)) } }
        p { (without_direction_marks(&parts.totals)) }
        @for table in &parts.kinds { (tables::titled(table, columns)) }
        @for note in &parts.notes { p { small { (without_direction_marks(note)) } } }
    }
}
