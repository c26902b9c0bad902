//! Draws baselines: a new baseline, the differences between two, and hosts compared with one.

mod checked;
mod each_host;
mod of_records;
#[cfg(test)]
mod tests;

use tonnage_judge::baseline::build::{BuiltBaseline, SlowHost};
use tonnage_judge::baseline::drift::{Drift, DriftedEntry};
use tonnage_judge::baseline::{Baseline, BaselineEntry, unit_of};
use tonnage_judge::check::reason::with_unit;
use tonnage_judge::keys::PointKeys;
use tonnage_judge::matching::points;
use tonnage_judge::metric::Metric;
use tonnage_record::Record;
use tonnage_units::quantity::human::{number, percent};

pub use checked::page as checked;
pub use each_host::page as checked_each;
pub use of_records::{RecordsCheckTables, of_records};

use crate::derived::{
    BASE_DRIFT, BASE_FAIL, BASE_HOST, BASE_HOSTS, BASE_MEDIAN, BASE_METRIC, BASE_NEW, BASE_OLD,
    BASE_POINT, BASE_RATIO, BASE_RUNS, BASE_SPREAD, BASE_WARN, DerivedColumn, OF_BOUND,
};
use crate::export::naming::PointNames;
use crate::table::draw;
use crate::text::{WIDTH, wrap};

/// Maximum width of a point name within its cell.
const NAME_COLUMNS_MAX: usize = 26;

/// Maximum number of slow hosts to list.
const SLOW_SHOWN_MAX: usize = 50;

/// Returns a function that gives each point of these records a distinct short name.
pub fn point_namer(records: &[&Record]) -> impl Fn(&PointKeys) -> String {
    let [points, _] = points(&[records.to_vec(), Vec::new()]);
    let names = PointNames::new(points.iter().map(|point| &point.keys));
    move |keys| names.full(keys)
}

/// Draws a new baseline: its entries, slow hosts, and points left out.
pub fn built(built: &BuiltBaseline, file: &str) -> String {
    let mut parts = vec![entries(&built.baseline, file)];
    if !built.slow.is_empty() {
        parts.push(slow(&built.slow));
    }
    let left_out = built.left_out.iter().map(|point| {
        wrap(
            &format!("left out: {}: {}", point.name, point.why),
            WIDTH,
            4,
        ) + "\n"
    });
    let left_out: String = left_out.collect();
    if !left_out.is_empty() {
        parts.push(left_out);
    }
    parts.join("\n")
}

fn entries(baseline: &Baseline, file: &str) -> String {
    let mut text = format!(
        "{file}: warns {} from the median, fails at {}, neither within 4 MAD of it\n",
        percent(baseline.warn),
        percent(baseline.fail)
    );
    for kind in &baseline.kinds {
        text += &format!("\n{}\non {}\n", kind.title(), hosts(&kind.hosts));
        let mut rows = vec![header(&[
            BASE_POINT,
            BASE_METRIC,
            BASE_MEDIAN,
            BASE_SPREAD,
            BASE_WARN,
            BASE_FAIL,
            OF_BOUND,
            BASE_HOSTS,
            BASE_RUNS,
        ])];
        rows.extend(kind.entries.iter().map(entry));
        text += &drawn(
            rows,
            &[
                BASE_MEDIAN,
                BASE_SPREAD,
                BASE_WARN,
                BASE_FAIL,
                OF_BOUND,
                BASE_HOSTS,
                BASE_RUNS,
            ],
        );
    }
    text
}

fn hosts(names: &[String]) -> String {
    tonnage_judge::check::nodelist::fold_names(names.iter().map(String::as_str))
}

fn entry(entry: &BaselineEntry) -> Vec<String> {
    let figure = |value| with_unit(&entry.unit, value);
    vec![
        wrap(&entry.name, NAME_COLUMNS_MAX, 0),
        entry.metric.clone(),
        figure(entry.median),
        match entry.source {
            Some(_) => "by hand".to_owned(),
            None => percent(entry.mad / entry.median),
        },
        figure(entry.warn),
        figure(entry.fail),
        entry.of_bound.map(percent).unwrap_or_default(),
        entry.hosts.to_string(),
        entry.runs.to_string(),
    ]
}

fn slow(all: &[SlowHost]) -> String {
    let mut sorted: Vec<&SlowHost> = all.iter().collect();
    let distance = |one: &SlowHost| {
        let ratio = one.value / one.median;
        if ratio > 1.0 { 1.0 / ratio } else { ratio }
    };
    sorted.sort_by(|left, right| distance(left).total_cmp(&distance(right)));
    let mut rows = vec![header(&[
        BASE_HOST,
        BASE_POINT,
        BASE_METRIC,
        BASE_NEW,
        BASE_MEDIAN,
        BASE_RATIO,
    ])];
    rows.extend(sorted.iter().take(SLOW_SHOWN_MAX).map(|one| {
        let metric = one.metric.parse::<Metric>();
        let unit = metric.as_ref().map_or("", unit_of);
        vec![
            one.host.clone(),
            wrap(&one.name, NAME_COLUMNS_MAX, 0),
            one.metric.to_owned(),
            with_unit(unit, one.value),
            with_unit(unit, one.median),
            number(one.value / one.median),
        ]
    }));
    let fate = match all.iter().all(|one| one.is_left_out) {
        true => "left out",
        false => "in the baseline unless --leave-out or --leave-out=HOSTS is given",
    };
    let more = match all.len().saturating_sub(SLOW_SHOWN_MAX) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    };
    format!(
        "slow hosts, {fate}:\n{}{more}",
        drawn(rows, &[BASE_NEW, BASE_MEDIAN, BASE_RATIO])
    )
}

/// Draws the differences between two baselines.
pub fn drifted(entries: &[DriftedEntry], [old, new]: [&str; 2]) -> String {
    let mut text = format!("old: {old}\nnew: {new}\n");
    let mut last: Option<&str> = None;
    let mut kinds: Vec<(&str, Vec<&DriftedEntry>)> = Vec::new();
    for entry in entries {
        if last != Some(&entry.kind) {
            kinds.push((&entry.kind, Vec::new()));
        }
        last = Some(&entry.kind);
        kinds
            .iter_mut()
            .rev()
            .take(1)
            .for_each(|(_, all)| all.push(entry));
    }
    for (kind, all) in kinds {
        let mut rows = vec![header(&[
            BASE_POINT,
            BASE_METRIC,
            BASE_OLD,
            BASE_NEW,
            BASE_RATIO,
            BASE_DRIFT,
        ])];
        rows.extend(all.into_iter().map(|entry| {
            let figure = |value: Option<f64>| value.map(|value| with_unit(&entry.unit, value));
            let ratio = entry.old.zip(entry.new).map(|(old, new)| number(new / old));
            vec![
                wrap(&entry.name, NAME_COLUMNS_MAX, 0),
                entry.metric.clone(),
                figure(entry.old).unwrap_or_else(|| "-".to_owned()),
                figure(entry.new).unwrap_or_else(|| "-".to_owned()),
                ratio.unwrap_or_default(),
                entry.drift.name().to_owned(),
            ]
        }));
        text += &format!(
            "\n{kind}\n{}",
            drawn(rows, &[BASE_OLD, BASE_NEW, BASE_RATIO])
        );
    }
    let totals = Drift::ALL.into_iter().filter_map(|drift| {
        let count = entries.iter().filter(|entry| entry.drift == drift).count();
        (count > 0).then(|| format!("{count} {drift}"))
    });
    format!("{text}\n{}\n", totals.collect::<Vec<_>>().join(", "))
}

fn header(columns: &[DerivedColumn]) -> Vec<String> {
    columns
        .iter()
        .map(|column| column.name.to_owned())
        .collect()
}

/// Draws rows as a table without empty columns.
fn drawn(rows: Vec<Vec<String>>, right: &[DerivedColumn]) -> String {
    let rows = without_empty(rows);
    let header = rows.first().cloned().unwrap_or_default();
    draw(rows, |at| {
        right.iter().any(|column| column.name == header[at])
    }) + "\n"
}

/// Removes columns that have text only in the header.
fn without_empty(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let columns = rows.first().map_or(0, Vec::len);
    for at in (0..columns).rev() {
        if rows[1..].iter().all(|row| row[at].is_empty()) {
            rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    }
    rows
}
