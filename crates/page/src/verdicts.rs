//! Verdicts at the top of a page: a comparison of two sides.
//!
//! Those of a baseline belong here too, in a function beside [`verdicts`] that [`crate::page`] calls in the same place.

use std::collections::BTreeSet;

use maud::{Markup, html};
use tonnage_judge::compare::Comparison;
use tonnage_report::compare::parts;

use crate::plot::{Numbers, ratios};
use crate::tables;

/// A comparison: number of points with each verdict, ratios as a plot, the table, and what differs between the sides.
pub(crate) fn verdicts(
    comparison: &Comparison,
    names: &[String; 2],
    numbers: &mut Numbers,
    columns: &mut BTreeSet<String>,
) -> Markup {
    let parts = parts(comparison, [&names[0], &names[1]]);
    html! {
        p { strong { (parts.totals) } }
        ul { @for line in &parts.head { li { (line) } } }
        @for plot in ratios::ratios(comparison, &parts.points, numbers) { (plot) }
        (tables::titled(&parts.verdicts, columns))
        @for note in &parts.notes { p { small { (note) } } }
        h3 { "What differs between the sides" }
        @if let Some(table) = &parts.differences { (tables::titled(table, columns)) }
        @for line in &parts.about { p { (line) } }
    }
}
