//! Draws baselines: a new baseline, the differences between two baselines, and hosts compared with a baseline.

mod cases;
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
    BASE_DEVICE, BASE_DRIFT, BASE_FAIL, BASE_HOST, BASE_HOSTS, BASE_MEDIAN, BASE_NEW, BASE_OLD,
    BASE_POINT, BASE_RATIO, BASE_SPREAD, BASE_WARN, CHECK_MEASURED, DerivedColumn, METRIC,
    OF_BOUND, OF_MEDIAN, RUNS,
};
use crate::export::naming::PointNames;
use crate::result::{ReportResult, ResultWord};
use crate::table::draw;
use crate::text::{WIDTH, counted, wrap};
use cases::Cases;

/// Maximum width of a point name within its cell.
const NAME_COLUMNS_MAX: usize = 40;

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
        let cases = kind.entries.iter();
        let cases =
            Cases::new(cases.map(|it| (it.name.as_str(), it.metric.as_str(), it.unit.as_str())));
        text += &format!("\n{}\non {}\n", kind.title(), hosts(&kind.hosts));
        text += &cases.line();
        let mut rows = vec![header(&[
            BASE_POINT,
            BASE_DEVICE,
            METRIC,
            BASE_MEDIAN,
            BASE_SPREAD,
            BASE_WARN,
            BASE_FAIL,
            OF_BOUND,
            BASE_HOSTS,
            RUNS,
        ])];
        rows.extend(kind.entries.iter().map(|one| entry(one, &cases)));
        text += &drawn(
            rows,
            &[
                BASE_MEDIAN,
                BASE_SPREAD,
                BASE_WARN,
                BASE_FAIL,
                OF_BOUND,
                BASE_HOSTS,
                RUNS,
            ],
        );
    }
    text
}

fn hosts(names: &[String]) -> String {
    tonnage_judge::check::nodelist::fold_names(names.iter().map(String::as_str))
}

fn entry(entry: &BaselineEntry, cases: &Cases) -> Vec<String> {
    let figure = |value| cases.figure(&entry.unit, value);
    vec![
        wrap(&cases.name(&entry.name), NAME_COLUMNS_MAX, 0),
        entry.device.clone().unwrap_or_default(),
        cases.metric(&entry.metric),
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

/// Unit of a slow host's figures.
fn unit(one: &SlowHost) -> &'static str {
    let metric = one.metric.parse::<Metric>();
    metric.as_ref().map_or("", unit_of)
}

fn slow(all: &[SlowHost]) -> String {
    let mut sorted: Vec<&SlowHost> = all.iter().collect();
    let distance = |one: &SlowHost| {
        let ratio = one.value / one.median;
        if ratio > 1.0 { 1.0 / ratio } else { ratio }
    };
    sorted.sort_by(|left, right| distance(left).total_cmp(&distance(right)));
    let units: Vec<&str> = sorted.iter().map(|one| unit(one)).collect();
    let cases = sorted.iter().zip(&units);
    let cases = Cases::new(cases.map(|(one, unit)| (one.name.as_str(), one.metric, *unit)));
    let mut rows = vec![header(&[
        BASE_HOST,
        BASE_POINT,
        METRIC,
        CHECK_MEASURED,
        BASE_MEDIAN,
        OF_MEDIAN,
    ])];
    rows.extend(sorted.iter().take(SLOW_SHOWN_MAX).map(|one| {
        let figure = |value| cases.figure(unit(one), value);
        vec![
            one.host.clone(),
            wrap(&cases.name(&one.name), NAME_COLUMNS_MAX, 0),
            cases.metric(one.metric),
            figure(one.value),
            figure(one.median),
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
        "slow hosts, {fate}:\n{}{}{more}",
        cases.line(),
        drawn(rows, &[CHECK_MEASURED, BASE_MEDIAN, OF_MEDIAN])
    )
}

/// Draws the differences between two baselines.
pub fn drifted(entries: &[DriftedEntry], [old, new]: [&str; 2]) -> String {
    let mut text = format!("{}\nold: {old}\nnew: {new}\n", result(entries).plain(WIDTH));
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
        let cases = all.iter();
        let cases =
            Cases::new(cases.map(|it| (it.name.as_str(), it.metric.as_str(), it.unit.as_str())));
        let mut rows = vec![header(&[
            BASE_POINT, METRIC, BASE_OLD, BASE_NEW, BASE_RATIO, BASE_DRIFT,
        ])];
        rows.extend(all.into_iter().map(|entry| {
            let figure = |value: Option<f64>| value.map(|value| cases.figure(&entry.unit, value));
            let ratio = entry.old.zip(entry.new).map(|(old, new)| number(new / old));
            vec![
                wrap(&cases.name(&entry.name), NAME_COLUMNS_MAX, 0),
                cases.metric(&entry.metric),
                figure(entry.old).unwrap_or_else(|| "-".to_owned()),
                figure(entry.new).unwrap_or_else(|| "-".to_owned()),
                ratio.unwrap_or_default(),
                entry.drift.name().to_owned(),
            ]
        }));
        text += &format!(
            "\n{kind}\n{}{}",
            cases.line(),
            drawn(rows, &[BASE_OLD, BASE_NEW, BASE_RATIO])
        );
    }
    text
}

/// Number of entries per kind of drift, and the entry that got worse by the largest ratio.
fn result(entries: &[DriftedEntry]) -> ReportResult {
    let totals = Drift::ALL.into_iter().filter_map(|drift| {
        let count = entries.iter().filter(|entry| entry.drift == drift).count();
        (count > 0).then(|| format!("{count} {drift}"))
    });
    let totals = totals.collect::<Vec<_>>().join(", ");
    let total = format!("{}: {totals}", counted(entries.len() as u64, "figure"));
    let drifted = entries.iter().filter(|entry| entry.drift.is_worse());
    let each = drifted.filter_map(|entry| Some((entry, entry.old?, entry.new?)));
    let distance = |(_, old, new): &(&DriftedEntry, f64, f64)| (new / old).ln().abs();
    match each.max_by(|left, right| distance(left).total_cmp(&distance(right))) {
        None => ResultWord::Pass.with(total),
        Some((entry, old, new)) => ResultWord::Fail
            .with(format!(
                "{}: {} {} is {} of the old {}",
                entry.drift,
                entry.name,
                with_unit(&entry.unit, new),
                percent(new / old),
                with_unit(&entry.unit, old)
            ))
            .then(total),
    }
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
