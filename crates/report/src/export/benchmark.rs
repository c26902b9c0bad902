//! Writes the JSON array that github-action-benchmark accepts for `customBiggerIsBetter` and `customSmallerIsBetter`.
//!
//! The action accepts one direction per file, higher or lower is better, so all metrics in an array must share it.
//! `extra` names the direction.

use serde::Serialize;
use tonnage_judge::judging::counted;
use tonnage_judge::matching::points;
use tonnage_judge::metric::Metric;
use tonnage_judge::values::SideValues;
use tonnage_record::Record;
use tonnage_record::figures::{Better, Row};
use tonnage_record::spread::spread;
use tonnage_units::quantity::human::number;
use tonnage_units::{Error, Result};

use super::naming::PointNames;
use super::{Exported, available};

/// Default metric.
const DEFAULT_METRIC: &str = "bandwidth";

/// Entry of the array.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    unit: String,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    extra: String,
}

/// Writes an entry for each point with a value.
///
/// # Errors
/// `Usage` if metrics have both directions, or if no point has a value.
pub fn benchmark(records: &[Record], metrics: &[Metric]) -> Result<Exported> {
    let metrics = match metrics {
        [] => vec![DEFAULT_METRIC.parse::<Metric>()?],
        some => some.to_vec(),
    };
    let tool = tool(&metrics)?;
    let all: Vec<&Record> = records.iter().collect();
    let [points, _] = points(&[all, Vec::new()]);
    let names = PointNames::new(points.iter().map(|point| &point.keys));
    let mut entries: Vec<Entry> = Vec::new();
    let mut without = 0;
    for point in &points {
        let before = entries.len();
        for metric in &metrics {
            let name = format!("{}: {}", names.full(&point.keys), metric.name);
            entries.extend(entry(name, &point.rows, metric, tool));
        }
        without += usize::from(entries.len() == before);
    }
    let asked: Vec<&str> = metrics.iter().map(|metric| metric.name).collect();
    let asked = asked.join(",");
    if entries.is_empty() {
        let rows = points.iter().flat_map(|point| point.rows.iter().copied());
        return Err(Error::Usage(format!(
            "no measured point has a value for --metric {asked}: {}",
            available(rows)
        )));
    }
    let text = serde_json::to_string_pretty(&entries);
    let text =
        text.map_err(|error| Error::Failed(format!("cannot write figures as JSON: {error}")))?;
    let left_out = (without > 0).then(|| {
        format!(
            "{} of {} left out, which have no value for --metric {asked}",
            without,
            counted(points.len(), "point")
        )
    });
    Ok(Exported {
        text: text + "\n",
        left_out,
    })
}

/// The action's name for the direction shared by all metrics.
fn tool(metrics: &[Metric]) -> Result<&'static str> {
    let name = |metric: &Metric| match metric.better {
        Better::High => "customBiggerIsBetter",
        Better::Low => "customSmallerIsBetter",
    };
    let first = metrics.first().map_or("", name);
    match metrics.iter().find(|metric| name(metric) != first) {
        None => Ok(first),
        Some(other) => Err(Error::Usage(format!(
            "{} gets better the other way than {}, and an array for github-action-benchmark has one direction: export \
             each direction to a file of its own",
            other.name, metrics[0].name
        ))),
    }
}

fn entry(name: String, rows: &[Row<'_>], metric: &Metric, tool: &str) -> Option<Entry> {
    let values = SideValues::from_rows(rows, metric, true);
    let figure = values.figure(true)?;
    let scale = metric.figure.style.scale();
    let unit = metric.figure.name.split_once('(');
    let unit = unit.and_then(|(_, rest)| rest.strip_suffix(')'));
    // With a single run, its trials show the spread.
    let spreading = match values.runs.len() {
        1 => &values.trials,
        _ => &values.runs,
    };
    let range = spread(spreading).ci95;
    let program = rows.last().map(|row| &row.record.tonnage)?;
    Some(Entry {
        name,
        unit: unit.unwrap_or_default().to_owned(),
        value: figure.value * scale,
        range: range.map(|half| format!("± {}", number(half * scale))),
        extra: format!(
            "{tool}; {}, {}; tonnage {} ({})",
            counted(figure.runs, "run"),
            counted(figure.trials, "trial"),
            program.version,
            program.git_revision
        ),
    })
}
