//! The table of `tonnage layers`: bandwidth of each layer, and how much it keeps of the one that it stands on.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `stack` | layers from records of transfers and of collectives, and what each is set beside |
//! | this one | their tables |

mod stack;

use std::collections::BTreeSet;

use tonnage_record::Record;
use tonnage_units::quantity::human::{exact_size, number};

use crate::derived::{EACH_SENDS, KEEPS, KEEPS_OF, LAYER, LAYER_OPERATION};
use crate::drawer::Drawer;
use crate::engine;
use crate::table::draw;
use crate::text::{WIDTH, wrap};
use stack::{Floor, Layer, Stack};

/// The name of the plan whose records are drawn this way.
pub const PLAN: &str = "layers";

/// The report of its records, of whatever kind: one table for each size.
pub const LAYERS: Drawer = Drawer {
    takes: |record| record.plan == PLAN && stack::size(record).is_some(),
    draw: tables,
};

fn tables(records: &[Record]) -> String {
    let sizes: BTreeSet<u64> = records.iter().filter_map(stack::size).collect();
    let of_size = |size: u64| {
        let of_size = |record: &&Record| stack::size(record) == Some(size);
        table(size, &Stack::of(records.iter().filter(of_size)))
    };
    let mut parts: Vec<String> = sizes.into_iter().map(of_size).collect();
    let calls = records.iter().filter_map(Record::of_kind);
    let means = calls.flat_map(|record| engine::of_backends(&record));
    let mut below: Vec<String> = Vec::new();
    for line in records.iter().flat_map(stack::ended).chain(means) {
        if !below.contains(&line) {
            below.push(line);
        }
    }
    let below: Vec<_> = below.iter().map(|line| wrap(line, WIDTH, 4)).collect();
    parts.push(below.join("\n"));
    parts.join("\n\n").trim_end().to_owned() + "\n"
}

fn table(size: u64, stack: &Stack) -> String {
    let header = [LAYER, LAYER_OPERATION, EACH_SENDS, KEEPS, KEEPS_OF];
    let header = header.map(|column| column.name.to_owned()).to_vec();
    let lines = stack.layers().iter().map(|layer| cells(layer, stack));
    let title = format!(
        "layers of {}; {}; {} in turn; one operation at a time",
        exact_size(size),
        counted(stack.ranks, "rank"),
        counted(stack.rounds() as u32, "round"),
    );
    let rows = std::iter::once(header).chain(lines).collect();
    format!(
        "{}\n{}{}",
        wrap(&title, WIDTH, 2),
        draw(rows, |at| matches!(at, 2 | 3)),
        limits(stack)
    )
}

fn cells(layer: &Layer, stack: &Stack) -> Vec<String> {
    let below = stack.below(layer);
    let ratios = below.map_or_else(Vec::new, |below| layer.ratios(below));
    vec![
        who(layer),
        layer.operation().to_owned(),
        number(layer.median() / 1e9),
        kept(&ratios),
        below.map_or_else(String::new, name),
    ]
}

/// Median of some ratios, and their range where there are several.
fn kept(ratios: &[f64]) -> String {
    let Some(median) = stack::median(ratios) else {
        return String::new();
    };
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    match ratios.len() {
        1 => number(median),
        _ => format!("{} ({}…{})", number(median), number(least), number(most)),
    }
}

fn who(layer: &Layer) -> String {
    match layer.floor {
        Floor::Limit => format!("limit of {}", layer.engine()),
        _ => layer.who.clone(),
    }
}

fn name(layer: &Layer) -> String {
    let name = format!("{} {}", who(layer), layer.operation());
    name.trim_end().to_owned()
}

/// Lines that say how the limits were found.
fn limits(stack: &Stack) -> String {
    let all = stack.layers().iter();
    let limits = all.filter(|layer| layer.floor == Floor::Limit);
    let lines = limits.map(|layer| format!("\n{}: {}", who(layer), layer.who));
    lines.collect()
}

fn counted(number: u32, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests;
