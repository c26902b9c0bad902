//! Metrics: figures for which higher or lower is better, and their short names.

use std::str::FromStr;

use tonnage_plan::transfer::PacingAim;
use tonnage_record::figures::{Better, Figure, Row, Value, all_figures, figure_by_field};
use tonnage_units::names::{nearest, quote};
use tonnage_units::{Error, Result};

/// Short names, and the CSV fields that they stand for.
pub const NAMED: &[(&str, &str)] = &[
    ("bandwidth", "bandwidth_bytes_per_s_mean"),
    ("message-rate", "message_rate_per_s_mean"),
    ("latency-p50", "latency_ns_p50"),
    ("latency-p99", "latency_ns_p99"),
    ("latency-p999", "latency_ns_p999"),
    ("cpu-per-op", "cpu_ns_per_operation"),
    ("time", "call_ns_mean"),
    ("time-p50", "latency_ns_p50"),
    ("busbw", "busbw_bytes_per_s_mean"),
    ("algbw", "algbw_bytes_per_s_mean"),
    ("iops", "operations_per_s_mean"),
    ("open", "open_ns_mean"),
    ("transfer", "transfer_ns_mean"),
    ("sync", "sync_ns_mean"),
    ("close", "close_ns_mean"),
    ("total", "total_ns_mean"),
    ("connections", "connections_per_s_mean"),
];

/// Default metrics. The first one with a value is used.
const DEFAULT_METRICS: &[&str] = &["bandwidth", "time", "connections", "latency-p50"];

/// Default metrics of a transfer, by the purpose of its pacing.
fn defaults_of(aim: PacingAim) -> &'static [&'static str] {
    match aim {
        PacingAim::Bandwidth => DEFAULT_METRICS,
        PacingAim::Latency => &["latency-p50", "bandwidth"],
        PacingAim::LatencyAtRate => &["latency-p99", "bandwidth"],
    }
}

/// A figure for which either higher or lower values are better.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Requested name.
    pub name: &'static str,
    /// The figure.
    pub figure: &'static Figure,
    /// Whether higher or lower is better.
    pub better: Better,
}

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = NAMED.iter().find(|(name, _)| *name == text);
        let found = match named {
            Some((name, field)) => Self::from_figure(name, figure_by_field(field)),
            None => figure_by_field(text)
                .and_then(|figure| Self::from_figure(figure.field, Some(figure))),
        };
        found.ok_or_else(|| {
            let named = NAMED.iter().map(|(name, _)| *name);
            let fields = all_figures()
                .into_iter()
                .filter(|figure| figure.better.is_some());
            let names: Vec<&str> = named
                .clone()
                .chain(fields.map(|figure| figure.field))
                .collect();
            let hint = match nearest(text, &names) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!(
                    "there are {}, and every column of CSV that has a better direction",
                    named.collect::<Vec<_>>().join(", ")
                ),
            };
            Error::Usage(format!("{} is not a metric: {hint}", quote(text)))
        })
    }
}

impl Metric {
    fn from_figure(name: &'static str, figure: Option<&'static Figure>) -> Option<Self> {
        let figure = figure?;
        Some(Self {
            name,
            figure,
            better: figure.better?,
        })
    }

    /// Returns the requested metrics, or the default metric for these rows.
    pub fn requested_or_default(requested: &[Self], rows: &[&Row<'_>]) -> Vec<Self> {
        if requested.is_empty() {
            return Self::default_for(rows).into_iter().collect();
        }
        requested.to_vec()
    }

    /// Returns the default metric: the first one with a value above 0 in any row, or else the first one with any value.
    pub fn default_for(rows: &[&Row<'_>]) -> Option<Self> {
        let mut transfers = rows.iter().filter_map(|row| row.record.transfer());
        let first = transfers.next();
        let names = first.map_or(DEFAULT_METRICS, |body| defaults_of(body.point.pacing.aim()));
        let all = names.iter().filter_map(|name| name.parse::<Self>().ok());
        let all: Vec<Self> = all.collect();
        let has = |least: f64| {
            let in_any = |metric: &&Self| {
                let mut values = rows.iter().filter_map(|row| metric.value(row));
                values.any(|value| value > least)
            };
            all.iter().find(in_any).copied()
        };
        has(0.0).or_else(|| has(f64::NEG_INFINITY))
    }

    /// Returns the metric's value in a row, if it is finite. Zero counts as a value, although no ratio to it exists.
    pub fn value(&self, row: &Row<'_>) -> Option<f64> {
        let value = (self.figure.value)(row).number();
        value.filter(|value| value.is_finite())
    }

    /// Returns whether the value in a row is a lower bound: the true value may be higher.
    pub fn is_lower_bound(&self, row: &Row<'_>) -> bool {
        matches!((self.figure.value)(row), Value::AtLeast(_))
    }

    /// Returns the values per trial of a row; empty if the figure exists only over all trials.
    pub fn trials(&self, row: &Row<'_>) -> Vec<f64> {
        let values = self.figure.trials.map(|trials| trials(row));
        let values = values.into_iter().flatten().flatten();
        values.filter(|value| value.is_finite()).collect()
    }

    /// Returns whether this is a latency metric. Its samples can be of several kinds.
    pub fn is_latency(&self) -> bool {
        self.figure.field.starts_with("latency_ns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_figure_with_a_direction() {
        for (name, field) in NAMED {
            let metric: Metric = name.parse().unwrap();
            assert_eq!(metric.figure.field, *field);
        }
        for usual in [
            DEFAULT_METRICS,
            defaults_of(PacingAim::Latency),
            defaults_of(PacingAim::LatencyAtRate),
        ] {
            for name in usual {
                assert!(NAMED.iter().any(|(known, _)| known == name), "{name}");
            }
        }
        let metric: Metric = "latency_ns_max".parse().unwrap();
        assert_eq!(
            (metric.name, metric.better),
            ("latency_ns_max", Better::Low)
        );
        assert!(metric.is_latency());
    }

    #[test]
    fn other_names_are_refused() {
        for (name, part) in [
            ("bandwith", "did you mean \"bandwidth\"?"),
            // Neither higher nor lower is better for this figure.
            ("size_bytes", "not a metric"),
            ("", "there are bandwidth"),
        ] {
            let error = name.parse::<Metric>().unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
