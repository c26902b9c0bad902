//! Figures from data sheets instead of measurements: point, metric, value and source.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use tonnage_units::{Error, Result};

use crate::keys::{KeyNames, PointKeys, current_value};
use crate::metric::Metric;

/// One figure from a data sheet.
#[derive(Debug, Clone, PartialEq)]
pub struct HandValue {
    /// Keys and values that the point must have.
    pub keys: BTreeMap<String, String>,
    /// The metric.
    pub metric: Metric,
    /// Value, in the unit of the metric's CSV column.
    pub value: f64,
    /// Name of the data sheet.
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HandText {
    value: Vec<Spanned<ValueText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ValueText {
    point: BTreeMap<String, String>,
    metric: String,
    value: f64,
    source: String,
}

impl HandValue {
    /// Parses the figures in a file. `path` is used only in messages.
    ///
    /// # Errors
    /// `Usage`, with path and line.
    pub fn read_all(text: &str, path: &str) -> Result<Vec<Self>> {
        let located = |start: usize, message: &str| {
            let before = text.as_bytes().get(..start).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            Error::Usage(format!("{path}:{line}: {}", message.trim_end()))
        };
        let read: HandText = toml::from_str(text).map_err(|error| {
            located(
                error.span().map_or(0, |span| span.start),
                &format!(
                    "{}; each figure is a table [[value]] with point = {{ KEY = \"VALUE\" }}, metric, value and source",
                    error.message().trim_end()
                ),
            )
        })?;
        let figures = read.value.into_iter().map(|one| {
            let start = one.span().start;
            Self::checked(one.into_inner()).map_err(|message| located(start, &message))
        });
        figures.collect()
    }

    fn checked(text: ValueText) -> std::result::Result<Self, String> {
        let metric = text.metric.parse::<Metric>();
        let metric = metric.map_err(|error| error.to_string())?;
        if !(text.value.is_finite() && text.value > 0.0) {
            return Err(format!("value {} is not a number above 0", text.value));
        }
        if text.source.trim().is_empty() {
            return Err("source is empty: name the data sheet that has the figure".into());
        }
        if text.point.is_empty() {
            return Err(
                "point names no keys: identify the point, e.g. { engine = \"shm\" }".into(),
            );
        }
        Ok(Self {
            keys: text.point,
            metric,
            value: text.value,
            source: text.source,
        })
    }

    /// Returns whether a point has all these keys with these values.
    pub fn matches(&self, keys: &PointKeys) -> bool {
        self.keys.iter().all(|(name, value)| {
            let names: KeyNames = [name.as_str()].into_iter().collect();
            let mut taken = keys.iter().filter(|(key, _)| names.matches(key));
            taken.any(|(key, own)| own == current_value(key, value))
        })
    }

    /// Description for messages.
    pub fn title(&self) -> String {
        let keys: Vec<String> = self
            .keys
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        format!("the figure by hand of {}", keys.join(","))
    }
}
