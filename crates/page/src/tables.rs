//! Draws report tables as HTML. Formatting uses attributes, because some viewers forbid styles.

use std::collections::BTreeSet;

use maud::{Markup, PreEscaped, html};
use tonnage_report::table::TitledTable;

use crate::bidi::without_direction_marks;

/// Draws a table with the text above and below it, and adds its headers to `columns`.
pub(crate) fn titled(table: &TitledTable, columns: &mut BTreeSet<String>) -> Markup {
    let lines = table.rows();
    let header = lines.first().map_or(&[][..], Vec::as_slice);
    columns.extend(header.iter().map(|head| head.replace('\n', " ")));
    html! {
        @if !table.above().is_empty() { p { (without_direction_marks(table.above())) } }
        (rows(&lines, |at| table.is_right(at)))
        @for line in table.below() { p { small { (without_direction_marks(line)) } } }
    }
}

/// Draws rows, starting with the header. `right` selects right-aligned columns.
pub(crate) fn rows(rows: &[Vec<String>], right: impl Fn(usize) -> bool) -> Markup {
    match rows.split_first() {
        Some((header, lines)) => lined(header, lines.iter().map(|line| line.iter()), right),
        None => html! {},
    }
}

/// Draws lines below a header. It streams: only one line is needed in memory at a time.
pub(crate) fn lined<Line>(
    header: &[String],
    lines: impl Iterator<Item = Line>,
    right: impl Fn(usize) -> bool,
) -> Markup
where
    Line: Iterator,
    Line::Item: AsRef<str>,
{
    html! {
        div class="wide" {
            table border="1" cellspacing="0" cellpadding="3" {
                thead {
                    tr {
                        @for (at, head) in header.iter().enumerate() {
                            th scope="col" align=[(!right(at)).then_some("left")] { (head) }
                        }
                    }
                }
                tbody align="right" {
                    // HTML allows omitting the end tags of rows and cells, which makes a page with many rows much
                    // shorter.
                    @for line in lines {
                        (PreEscaped("<tr>"))
                        @for (at, cell) in line.enumerate() {
                            @if right(at) { (PreEscaped("<td>")) } @else { (PreEscaped("<td align=left dir=auto>")) }
                            (cell.as_ref())
                        }
                    }
                }
            }
        }
    }
}

/// Draws names and values, one pair per row.
pub(crate) fn facts(facts: &[(String, String)]) -> Markup {
    html! {
        div class="wide" {
            table border="1" cellspacing="0" cellpadding="3" {
                tbody {
                    @for (name, value) in facts {
                        tr { th scope="row" align="left" { (name) } td dir="auto" align="left" { (value) } }
                    }
                }
            }
        }
    }
}
