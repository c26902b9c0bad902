//! The table of `tonnage layers`: the bandwidth of each layer, and its fraction of the bandwidth of the layer below.
//!
//! | file | content |
//! | --- | --- |
//! | `stack` | layers built from records of transfers and collectives, with their reference layers |
//! | this | the tables |

mod stack;

use std::collections::BTreeSet;

use tonnage_record::Record;
use tonnage_units::quantity::human::{exact_size, number};

use crate::column::{Column, NO_VALUE};
use crate::derived::{EACH_SENDS, KEEPS, KEEPS_OF, LAYER, LAYER_OPERATION};
use crate::engine;
use crate::layout::{ReportEntry, Section, draw_markdown, draw_plain};
use crate::remarks::TableRemarks;
use crate::table::{Markup, TitledTable};
use crate::text::{counted, distinct, extremes};
use stack::{Layer, Level, Stack};

/// Name of the plan that uses this report.
pub const PLAN: &str = "layers";

/// Report for records of the plan [`PLAN`]: one table per size, with transfers and collectives together.
pub const LAYERS: ReportEntry = ReportEntry {
    handles: |record| record.plan == PLAN && stack::size(record).is_some(),
    draw: tables,
    sections: |records| stack::runs(records).into_iter().map(section).collect(),
};

/// Tables of each run; a file may hold several runs.
fn tables(records: &[Record], markup: Markup<'_>) -> String {
    let runs = stack::runs(records).into_iter();
    let runs = runs.map(|records| of_run(records, markup));
    runs.collect::<Vec<_>>().join("\n")
}

fn of_run(records: &[Record], markup: Markup<'_>) -> String {
    let section = section(records);
    match markup {
        Markup::Plain(view) => draw_plain(&section, view),
        Markup::Markdown => draw_markdown(&section),
    }
}

/// One table per size, then reasons for missing layers.
fn section(records: &[Record]) -> Section {
    let sizes: BTreeSet<u64> = records.iter().filter_map(stack::size).collect();
    let of_size = |size: u64| {
        let of_size = |record: &&Record| stack::size(record) == Some(size);
        let stack = Stack::new(records.iter().filter(of_size));
        (!stack.layers().is_empty()).then(|| table(size, &stack))
    };
    let calls = records.iter().filter_map(Record::of_kind);
    let means = calls.flat_map(|record| engine::of_backends(&record));
    Section {
        records: records.len(),
        label: None,
        result: None,
        configuration: Vec::new(),
        tables: sizes.into_iter().filter_map(of_size).collect(),
        remarks: TableRemarks::default(),
        footers: distinct(records.iter().flat_map(stack::unmeasured).chain(means)),
        commands: Vec::new(),
    }
}

fn table(size: u64, stack: &Stack) -> TitledTable {
    let layers = stack.layers();
    let compared = layers.iter().map(|layer| (layer, stack.below(layer)));
    let kept = compared.clone().map(|(layer, below)| {
        below.map_or_else(|| NO_VALUE.to_owned(), |below| kept_fraction(layer, below))
    });
    let of = compared.map(|(_, below)| below.map_or_else(|| NO_VALUE.to_owned(), name));
    let operations = layers.iter().map(|layer| layer.operation().to_owned());
    let columns = vec![
        Column::words(LAYER.name, layers.iter().map(who).collect(), false),
        Column::words(LAYER_OPERATION.name, operations.collect(), false),
        Column::numbers(EACH_SENDS.name, 1e-9, layers.iter().map(Layer::median)),
        Column::words(KEEPS.name, kept.collect(), true),
        Column::words(KEEPS_OF.name, of.collect(), false),
    ];
    let title = format!(
        "layers of {}; {}; {} in turn; one operation at a time",
        exact_size(size),
        counted(stack.ranks, "rank"),
        counted(stack.rounds() as u32, "round"),
    );
    TitledTable::of_columns(columns)
        .with_title(title)
        .with_lines_below(below_table(stack))
}

/// Bandwidth of a layer divided by that of the layer below. With several rounds, also the range of the rounds' ratios.
fn kept_fraction(layer: &Layer, below: &Layer) -> String {
    let ratio = number(layer.median() / below.median());
    let ratios = layer.ratios(below);
    let (least, most) = extremes(ratios.iter().copied());
    match ratios.len() {
        0 | 1 => ratio,
        _ => format!("{ratio} ({}…{})", number(least), number(most)),
    }
}

fn who(layer: &Layer) -> String {
    match layer.level {
        Level::Bound => format!("bound of {}", layer.engine()),
        _ => layer.who.clone(),
    }
}

fn name(layer: &Layer) -> String {
    let name = format!("{} {}", who(layer), layer.operation());
    name.trim_end().to_owned()
}

/// Lines on how bounds were measured, and on the algorithms of native collectives.
fn below_table(stack: &Stack) -> Vec<String> {
    let line = |layer: &Layer| match (layer.level, layer.algorithms.as_slice()) {
        (Level::Bound, _) => Some(format!("{}: {}", who(layer), layer.who)),
        (_, []) => None,
        (_, algorithms) => Some(format!("{} by {}", name(layer), algorithms.join(", or "))),
    };
    stack.layers().iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests;
