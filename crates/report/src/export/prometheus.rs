//! Writes the Prometheus text exposition format, version 0.0.4, for node_exporter's textfile collector.
//!
//! All series are gauges in base units: seconds, bytes, or either per second. For each point, host and device, only the
//! newest record counts. Pairs of a matrix are not exported; they are in the record.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tonnage_judge::keys::PointKeys;
use tonnage_judge::metric::{Metric, NAMED};
use tonnage_record::figures::{Row, Value, figure_by_field};
use tonnage_record::{Outcome, Record};
use tonnage_units::{Error, Result};

use super::available;
use super::naming::{PointNames, shortened};

/// Maximum number of series per file. Prometheus keeps each for its whole retention time.
const SERIES_MAX: usize = 500;

/// Maps a unit in figure names to the base unit of a series.
#[derive(Debug)]
struct BaseUnit {
    field: &'static str,
    series: &'static str,
    divisor: f64,
}

const fn unit(field: &'static str, series: &'static str, divisor: f64) -> BaseUnit {
    BaseUnit {
        field,
        series,
        divisor,
    }
}

/// Units in order of precedence: the first one that occurs in a figure's name counts.
const UNITS: &[BaseUnit] = &[
    unit("mib_per_s", "bytes_per_second", 1.0 / 1_048_576.0),
    unit("bytes_per_s", "bytes_per_second", 1.0),
    unit("per_s", "per_second", 1.0),
    unit("ns_per_operation", "seconds_per_operation", 1e9),
    unit("ns_per_connection", "seconds_per_connection", 1e9),
    unit("ns_per_gib", "seconds_per_byte", 1e9 * 1_073_741_824.0),
    unit("ns", "seconds", 1e9),
    unit("bytes", "bytes", 1.0),
    unit("fraction", "ratio", 1.0),
    unit("utilization", "utilization_ratio", 1.0),
];

/// Labels of a point's series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PointLabels {
    host: String,
    device: String,
    point: String,
    engine: String,
    op: String,
}

/// Newest row of a point on one host and device.
struct Newest<'a> {
    keys: PointKeys,
    row: Row<'a>,
}

/// Writes the series of these metrics, or of all metrics with a short name if none are given.
///
/// # Errors
/// `Usage` for too many series, and for metrics without a value.
pub fn prometheus(records: &[Record], metrics: &[Metric]) -> Result<String> {
    let asked: Vec<&str> = metrics.iter().map(|metric| metric.name).collect();
    let metrics = match metrics {
        [] => named_metrics(),
        some => some.to_vec(),
    };
    let points = newest(records);
    let names = PointNames::new(points.values().map(|point| &point.keys));
    let labelled: BTreeMap<PointLabels, Row<'_>> = points
        .into_iter()
        .map(|((host, device, _), Newest { keys, row })| {
            let label = |key| shortened(keys.get(key).unwrap_or_default());
            let labels = PointLabels {
                host,
                device,
                point: names.name(&keys).to_owned(),
                engine: label("engine"),
                op: label("op"),
            };
            (labels, row)
        })
        .collect();
    let families: Vec<Family<'_>> = metrics
        .iter()
        .map(|metric| Family::new(metric, &labelled))
        .filter(|family| !family.samples.is_empty())
        .collect();
    let any_measured = labelled.values().any(is_measured);
    if families.is_empty() && any_measured && !asked.is_empty() {
        return Err(Error::Usage(format!(
            "no measured point has a value for --metric {}: {}",
            asked.join(","),
            available(labelled.values().copied())
        )));
    }
    let times = newest_times(records);
    let series = labelled.len() + times.len() + total(&families);
    if series > SERIES_MAX {
        return Err(too_many(series, &families, labelled.len() + times.len()));
    }
    let mut text: String = families.iter().map(Family::text).collect();
    text += &outcomes(&labelled);
    text += &ends(&times);
    Ok(text)
}

fn named_metrics() -> Vec<Metric> {
    let mut seen = BTreeSet::new();
    let named = NAMED.iter().filter(|(_, field)| seen.insert(*field));
    named.filter_map(|(name, _)| name.parse().ok()).collect()
}

fn is_measured(row: &Row<'_>) -> bool {
    *outcome(row) == Outcome::Measured
}

/// Outcome of a row: its own, or that of its record.
fn outcome<'a>(row: &Row<'a>) -> &'a Outcome {
    let own = row.record.body.any().outcome(row.part);
    own.unwrap_or(&row.record.outcome)
}

/// Newest rows by host, device and point. If an unmeasured row has no device, takes the device from another row of the
/// same point and host.
fn newest(records: &[Record]) -> BTreeMap<(String, String, usize), Newest<'_>> {
    let mut places: HashMap<PointKeys, usize> = HashMap::new();
    let mut rows: Vec<(u64, String, String, usize, Newest<'_>)> = Vec::new();
    for record in records {
        let host = host(record);
        for (keys, row) in PointKeys::for_parts(&Row::all_of_record(record)) {
            let next = places.len();
            let place = *places.entry(keys.clone()).or_insert(next);
            let device = device(&row);
            let time = record.time_unix_ns;
            rows.push((time, host.clone(), device, place, Newest { keys, row }));
        }
    }
    rows.sort_by_key(|(time, ..)| *time);
    let known: HashMap<(String, usize), String> = rows
        .iter()
        .filter(|(_, _, device, ..)| !device.is_empty())
        .map(|(_, host, device, place, _)| ((host.clone(), *place), device.clone()))
        .collect();
    let mut points = BTreeMap::new();
    for (_, host, device, place, row) in rows {
        let other = known.get(&(host.clone(), place));
        let device = match (device.is_empty() && !is_measured(&row.row), other) {
            (true, Some(other)) => other.clone(),
            _ => device,
        };
        points.insert((host, device, place), row);
    }
    points
}

fn device(row: &Row<'_>) -> String {
    match figure_by_field("device").map(|figure| (figure.value)(row)) {
        Some(Value::Text(device)) => shortened(&device),
        _ => String::new(),
    }
}

/// Host names, joined by commas.
fn host(record: &Record) -> String {
    let hosts = record.environment.iter().flat_map(|group| &group.hosts);
    let names: Vec<&str> = hosts.map(|host| host.name.as_str()).collect();
    shortened(&names.join(","))
}

/// End time of the newest record per host, in nanoseconds since 1970.
fn newest_times(records: &[Record]) -> BTreeMap<String, u64> {
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    for record in records {
        let time = times.entry(host(record)).or_default();
        *time = record.time_unix_ns.max(*time);
    }
    times
}

/// Series of one metric.
struct Family<'a> {
    metric: Metric,
    name: String,
    unit: Option<&'static BaseUnit>,
    samples: Vec<(&'a PointLabels, f64)>,
}

impl<'a> Family<'a> {
    fn new(metric: &Metric, points: &'a BTreeMap<PointLabels, Row<'_>>) -> Self {
        let (name, unit) = series_name(metric.figure.field);
        let divisor = unit.map_or(1.0, |unit| unit.divisor);
        let samples = points.iter().filter_map(|(labels, row)| {
            let value = (metric.figure.value)(row).number()?;
            value.is_finite().then_some((labels, value / divisor))
        });
        Self {
            metric: *metric,
            name,
            unit,
            samples: samples.collect(),
        }
    }

    fn text(&self) -> String {
        let samples = self.samples.iter();
        let samples = samples.map(|(labels, value)| sample(&self.name, labels, *value));
        // The meaning describes the table column, whose unit may differ, so the unit of the series is added.
        let unit = self.unit.map(|unit| {
            let words = unit.series.replace('_', " ");
            format!(" This series: {words}.")
        });
        let help = self.metric.figure.meaning.to_owned() + &unit.unwrap_or_default();
        head(&self.name, &help) + &samples.collect::<String>()
    }
}

fn total(families: &[Family<'_>]) -> usize {
    families.iter().map(|family| family.samples.len()).sum()
}

/// Series name of a figure, and its unit, if any.
fn series_name(field: &str) -> (String, Option<&'static BaseUnit>) {
    let tokens: Vec<&str> = field.split('_').filter(|token| *token != "mean").collect();
    for unit in UNITS {
        let of_unit: Vec<&str> = unit.field.split('_').collect();
        let at = tokens
            .windows(of_unit.len())
            .position(|window| window == of_unit);
        if let Some(at) = at {
            let (before, after) = (&tokens[..at], &tokens[at + of_unit.len()..]);
            let name = [&["tonnage"], before, after, &[unit.series]].concat();
            return (name.join("_"), Some(unit));
        }
    }
    ([&["tonnage"], &tokens[..]].concat().join("_"), None)
}

/// HELP and TYPE lines of a series.
fn head(name: &str, meaning: &str) -> String {
    let help = meaning.replace('\\', r"\\").replace('\n', r"\n");
    format!("# HELP {name} {help}\n# TYPE {name} gauge\n")
}

fn sample(name: &str, labels: &PointLabels, value: f64) -> String {
    let pairs = [
        ("host", &labels.host),
        ("device", &labels.device),
        ("point", &labels.point),
        ("engine", &labels.engine),
        ("op", &labels.op),
    ];
    format!("{name}{{{}}} {value}\n", label_pairs(&pairs))
}

/// Formats labels. Prometheus treats an empty value like a missing label.
fn label_pairs(pairs: &[(&str, &String)]) -> String {
    let some = pairs.iter().filter(|(_, value)| !value.is_empty());
    let texts = some.map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
    texts.collect::<Vec<_>>().join(",")
}

/// Escapes a label value.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', r"\\");
    value.replace('"', "\\\"").replace('\n', r"\n")
}

fn outcomes(points: &BTreeMap<PointLabels, Row<'_>>) -> String {
    const NAME: &str = "tonnage_measured";
    let meaning =
        "1 where the newest record of the point was measured, 0 where it was skipped or failed.";
    let samples = points.iter();
    let samples = samples.map(|(labels, row)| {
        let value = f64::from(u8::from(is_measured(row)));
        sample(NAME, labels, value)
    });
    head(NAME, meaning) + &samples.collect::<String>()
}

fn ends(times: &BTreeMap<String, u64>) -> String {
    const NAME: &str = "tonnage_last_record_time_seconds";
    let meaning = "Time at which the newest record ended, seconds since 1970.";
    let samples = times.iter().map(|(host, ns)| {
        let seconds = *ns as f64 * 1e-9;
        let labels = label_pairs(&[("host", host)]);
        match labels.is_empty() {
            true => format!("{NAME} {seconds:.3}\n"),
            false => format!("{NAME}{{{labels}}} {seconds:.3}\n"),
        }
    });
    head(NAME, meaning) + &samples.collect::<String>()
}

fn too_many(series: usize, families: &[Family<'_>], others: usize) -> Error {
    let least = families.iter().min_by_key(|family| family.samples.len());
    let least =
        least.filter(|family| families.len() > 1 && family.samples.len() + others <= SERIES_MAX);
    let metrics: Vec<String> = families
        .iter()
        .map(|family| format!("{} {}", family.metric.name, family.samples.len()))
        .collect();
    let hint = match least {
        Some(_) => {
            let fitting = families
                .iter()
                .find(|family| family.samples.len() + others <= SERIES_MAX);
            let fitting = fitting.map_or("", |family| family.metric.name);
            format!("leave out metrics, such as all but one with --metric {fitting}, or points")
        }
        None => "leave out points: name fewer files, or those of a shorter plan".to_owned(),
    };
    Error::Usage(format!(
        "{series} series are more than the {SERIES_MAX} that a file for node_exporter should have ({}, and {others} of \
         outcomes and times): {hint}",
        metrics.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tonnage_record::figures::all_figures;

    use super::*;

    #[test]
    fn names_of_series_are_names_with_base_units_at_the_end() {
        for (field, expected, divisor) in [
            (
                "bandwidth_bytes_per_s_mean",
                "tonnage_bandwidth_bytes_per_second",
                1.0,
            ),
            (
                "bandwidth_bytes_per_s_max_batch",
                "tonnage_bandwidth_max_batch_bytes_per_second",
                1.0,
            ),
            ("latency_ns_p50", "tonnage_latency_p50_seconds", 1e9),
            (
                "message_rate_per_s_mean",
                "tonnage_message_rate_per_second",
                1.0,
            ),
            (
                "cpu_ns_per_operation",
                "tonnage_cpu_seconds_per_operation",
                1e9,
            ),
            ("utilization", "tonnage_utilization_ratio", 1.0),
            ("outliers", "tonnage_outliers", 1.0),
        ] {
            let (name, unit) = series_name(field);
            assert_eq!(name, expected);
            assert_eq!(unit.map_or(1.0, |unit| unit.divisor), divisor, "{field}");
        }
        let mut names = BTreeSet::new();
        for figure in all_figures()
            .into_iter()
            .filter(|figure| figure.better.is_some())
        {
            let (name, _) = series_name(figure.field);
            let mut characters = name.chars();
            assert!(
                characters.all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
            );
            assert!(!name.contains("_ns") && !name.ends_with("_s"), "{name}");
            // Bandwidth in MiB/s maps to the same series as bandwidth in bytes.
            assert!(
                names.insert(name.clone()) || figure.field.contains("mib"),
                "{name}"
            );
        }
    }

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), r#"a\\b\"c\nd"#);
        assert_eq!(
            head("x", "a\\b\nc"),
            "# HELP x a\\\\b\\nc\n# TYPE x gauge\n"
        );
    }
}
