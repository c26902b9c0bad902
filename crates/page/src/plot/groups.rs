//! Groups points of one configuration into lines: points that differ only in size belong together.

use std::collections::{HashMap, HashSet};

use tonnage_judge::keys::PointKeys;
use tonnage_record::Record;
use tonnage_record::figures::{Row, figure_by_field};

/// Figures that give the size of a point, in order of preference.
const SIZES: [&str; 2] = ["size_bytes", "transfer_bytes"];

/// Keys that repeat the size or follow from the size.
const OF_SIZE: [&str; 5] = [
    "size",
    "transfer",
    "footprint",
    "block",
    "length.iterations",
];

/// Key that distinguishes runs.
const RUN: &str = "run";

/// Points that differ only in size.
pub(crate) struct PointGroup<'a> {
    /// Keys in which the group differs from the others, with values.
    pub(crate) name: String,
    /// Points with their sizes.
    pub(crate) points: Vec<(f64, Row<'a>)>,
}

/// Groups in the order of their first points. Parts of records without a measured value are left out.
pub(crate) fn groups(records: &[Record]) -> Vec<PointGroup<'_>> {
    let mut all: Vec<(Vec<(String, String)>, PointGroup<'_>)> = Vec::new();
    let mut places: HashMap<Vec<(String, String)>, usize> = HashMap::new();
    let mut runs: HashMap<&str, usize> = HashMap::new();
    for row in records.iter().flat_map(Row::all_of_record) {
        let Some(size) = SIZES.iter().find_map(|field| value(&row, field)) else {
            continue;
        };
        let keys = PointKeys::from_row(&row);
        // Drops keys that follow from the size, and values equal to the size, such as the default stride.
        let in_words = keys.get("size").or_else(|| keys.get("transfer"));
        let follows = |key: &str, value: &str| OF_SIZE.contains(&key) || Some(value) == in_words;
        let own = keys.iter().filter(|(key, value)| !follows(key, value));
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut own: Vec<(String, String)> = own.collect();
        if let Some(side) = &row.record.side {
            own.push(("side".to_owned(), side.name.letter().to_owned()));
        }
        own.push((RUN.to_owned(), run(row.record, &mut runs)));
        let at = *places.entry(own.clone()).or_insert_with(|| {
            let group = PointGroup {
                name: String::new(),
                points: Vec::new(),
            };
            all.push((own, group));
            all.len() - 1
        });
        all[at].1.points.push((size, row));
    }
    let names = names(
        &all.iter()
            .map(|(own, _)| own.as_slice())
            .collect::<Vec<_>>(),
    );
    let named = all.into_iter().zip(names);
    let groups = named.map(|((_, mut group), name)| {
        group.name = name;
        group
            .points
            .sort_by(|(one, _), (other, _)| one.total_cmp(other));
        group
    });
    groups.collect()
}

/// Number of a record's run, in order of appearance.
fn run<'a>(record: &'a Record, runs: &mut HashMap<&'a str, usize>) -> String {
    let next = runs.len() + 1;
    runs.entry(&record.run_id).or_insert(next).to_string()
}

/// Names each list by the keys that not all lists share. The run is included only if names would be equal otherwise.
fn names(all: &[&[(String, String)]]) -> Vec<String> {
    let mut counts: HashMap<&(String, String), usize> = HashMap::new();
    let pairs = all.iter().copied().flatten();
    pairs.for_each(|pair| *counts.entry(pair).or_default() += 1);
    let name = |own: &[(String, String)], with_run: bool| {
        let telling = own.iter().filter(|pair| counts[pair] < all.len());
        let telling = telling.filter(|(key, _)| with_run || key != RUN);
        let telling: Vec<String> = telling
            .map(|(key, value)| format!("{key} {value}"))
            .collect();
        match telling.is_empty() {
            true => "all points".to_owned(),
            false => telling.join(", "),
        }
    };
    let plain: Vec<String> = all.iter().map(|own| name(own, false)).collect();
    match plain.iter().collect::<HashSet<_>>().len() == all.len() {
        true => plain,
        false => all.iter().map(|own| name(own, true)).collect(),
    }
}

/// Value of a figure in a row, in the CSV unit.
pub(crate) fn value(row: &Row<'_>, field: &str) -> Option<f64> {
    let figure = figure_by_field(field)?;
    let mut own = tonnage_record::figures::of(&row.record.body);
    if !own.any(|it| it.field == field) {
        return None;
    }
    let number = (figure.value)(row).number();
    number.filter(|number| number.is_finite())
}
