//! Shortens the names of cases: a line above the table shows the keys, metric and unit that all rows share.

use tonnage_judge::check::reason::with_unit;
use tonnage_units::quantity::human::number;

use crate::text::{WIDTH, distinct, wrap};

/// Unit of bandwidths.
const BYTES_PER_S: &str = "bytes/s";

/// Prefix of the size, which stays in each name even if all rows have the same size.
const SIZE: &str = "size=";

/// Name, metric and unit of a row.
pub type Case<'a> = (&'a str, &'a str, &'a str);

/// Keys, metric and unit that all rows of a table share.
pub struct Cases {
    pairs: Vec<String>,
    metric: Option<String>,
    is_in_gigabytes: bool,
}

impl Cases {
    /// Finds the keys, metric and unit that these rows share. Names without `key=value` pairs are names of devices; the
    /// search for shared keys skips them.
    pub fn new<'a>(cases: impl Iterator<Item = Case<'a>> + Clone) -> Self {
        let mut of_points = cases.clone().map(|(name, ..)| pairs(name).1);
        let mut shared = of_points
            .find(|pairs| !pairs.is_empty())
            .unwrap_or_default();
        for own in of_points.filter(|pairs| !pairs.is_empty()) {
            shared.retain(|pair| own.contains(pair));
        }
        shared.retain(|pair| !pair.starts_with(SIZE));
        let metrics = distinct(cases.clone().map(|(_, metric, _)| metric));
        let mut units = cases.map(|(.., unit)| unit);
        Self {
            pairs: shared.into_iter().map(str::to_owned).collect(),
            metric: match metrics.as_slice() {
                [metric] => Some((*metric).to_owned()),
                _ => None,
            },
            is_in_gigabytes: units.all(|unit| unit == BYTES_PER_S),
        }
    }

    /// The line above the table.
    pub fn line(&self) -> String {
        let metric = match (&self.metric, self.is_in_gigabytes) {
            (Some(metric), true) => Some(format!("{metric} in GB/s")),
            (None, true) => Some("GB/s".to_owned()),
            (metric, false) => metric.clone(),
        };
        let parts: Vec<String> = metric.into_iter().chain(self.pairs.clone()).collect();
        match parts.is_empty() {
            true => String::new(),
            false => wrap(&format!("all cases: {}", parts.join(", ")), WIDTH, 4) + "\n",
        }
    }

    /// Name of a row without the shared pairs.
    pub fn name(&self, name: &str) -> String {
        let (before, pairs) = pairs(name);
        let own = pairs
            .into_iter()
            .filter(|pair| !self.pairs.iter().any(|it| it == pair));
        let own = own.collect::<Vec<_>>().join(",");
        format!("{before} {own}").trim().to_owned()
    }

    /// Metric of a row; empty if all share it.
    pub fn metric(&self, metric: &str) -> String {
        match self.metric {
            Some(_) => String::new(),
            None => metric.to_owned(),
        }
    }

    /// A figure, with its unit unless all rows share it.
    pub fn figure(&self, unit: &str, value: f64) -> String {
        match self.is_in_gigabytes {
            true => number(value * 1e-9),
            false => with_unit(unit, value),
        }
    }
}

/// Splits a name into its words and the `key=value` pairs after them.
fn pairs(name: &str) -> (&str, Vec<&str>) {
    match name.rsplit_once(' ') {
        Some((before, pairs)) if pairs.contains('=') => (before, pairs.split(',').collect()),
        _ => (name, Vec::new()),
    }
}
