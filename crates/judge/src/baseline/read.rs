//! Reads and writes baseline files. Error messages name file and line; a written file reads back unchanged.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use tonnage_plan::given::GivenPoint;
use tonnage_record::figures::Better;
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

use super::{BASELINE_FORMAT, Baseline, BaselineEntry, HostKind, unit_of};
use crate::metric::Metric;

/// Maximum size of a baseline file.
pub const BASELINE_BYTES_MAX: u64 = 16 << 20;

/// Tolerance for a figure above its bound, because stored figures are rounded.
const BOUND_TOLERANCE: f64 = 1.000_001;

/// Header comment of the file.
const HEADER: &str = "\
# Written by `tonnage baseline`; `tonnage check --baseline` measures its points again. Thresholds (warn, fail) may be
# changed by hand; points may not, and have a checksum.
";

/// A baseline with source positions of its entries.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BaselineText {
    format: Spanned<u32>,
    warn: Spanned<f64>,
    fail: Spanned<f64>,
    #[serde(default, rename = "match")]
    matched: Vec<String>,
    #[serde(rename = "kind")]
    kinds: Vec<Spanned<KindText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KindText {
    hosts: Vec<String>,
    facts: std::collections::BTreeMap<String, String>,
    #[serde(rename = "point")]
    entries: Vec<Spanned<BaselineEntry>>,
}

impl Baseline {
    /// Parses a baseline. `path` is used only in messages.
    ///
    /// # Errors
    /// `Usage`, with path and line: invalid TOML, an unknown or missing key, an invalid number, a threshold on the
    /// wrong side of its median or above the bound, or an edited point.
    pub fn from_toml(text: &str, path: &str) -> Result<Self> {
        let located = |span: Range<usize>, message: &str| {
            let before = text.as_bytes().get(..span.start).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            Error::Usage(format!("{path}:{line}: {}", message.trim_end()))
        };
        let read: BaselineText = toml::from_str(text)
            .map_err(|error| located(error.span().unwrap_or(0..0), error.message()))?;
        if *read.format.get_ref() != BASELINE_FORMAT {
            let message = format!(
                "format {} is not that of this program, which reads {BASELINE_FORMAT}: make the baseline again",
                read.format.get_ref()
            );
            return Err(located(read.format.span(), &message));
        }
        for (name, margin) in [("warn", &read.warn), ("fail", &read.fail)] {
            check_margin(name, *margin.get_ref())
                .map_err(|message| located(margin.span(), &message))?;
        }
        let mut kinds = Vec::with_capacity(read.kinds.len());
        for kind in read.kinds {
            let kind_span = kind.span();
            let kind = kind.into_inner();
            if kind.facts.is_empty() {
                return Err(located(
                    kind_span,
                    "a kind needs facts, such as cpu: `tonnage baseline` writes them",
                ));
            }
            for entry in &kind.entries {
                check(entry.get_ref()).map_err(|message| {
                    let name = quote(&entry.get_ref().name);
                    located(entry.span(), &format!("{name}: {message}"))
                })?;
            }
            kinds.push(HostKind {
                hosts: kind.hosts,
                facts: kind.facts,
                entries: (kind.entries.into_iter())
                    .map(|entry| with_current_keys(entry.into_inner()))
                    .collect(),
            });
        }
        if kinds.iter().all(|kind| kind.entries.is_empty()) {
            return Err(located(0..0, "the baseline has no points"));
        }
        Ok(Self {
            format: BASELINE_FORMAT,
            warn: read.warn.into_inner(),
            fail: read.fail.into_inner(),
            matched: read.matched,
            kinds,
        })
    }

    /// The baseline as TOML. [`Baseline::from_toml`] restores it exactly.
    ///
    /// # Errors
    /// If it cannot be serialized.
    pub fn to_toml(&self) -> Result<String> {
        let text = toml::to_string(self)
            .map_err(|error| Error::Failed(format!("the baseline has no form in TOML: {error}")))?;
        Ok(format!("{HEADER}\n{text}"))
    }
}

/// Checks a margin: a fraction between 0 and 1.
pub(crate) fn check_margin(name: &str, margin: f64) -> std::result::Result<(), String> {
    match margin > 0.0 && margin < 1.0 {
        true => Ok(()),
        false => Err(format!(
            "{name} {margin} is not a fraction of the median: use a value above 0 and below 1, e.g. 0.05"
        )),
    }
}

/// Checks one entry: its metric is known, its numbers are valid, and its thresholds can be reached.
fn check(entry: &BaselineEntry) -> std::result::Result<(), String> {
    let metric: Metric = entry
        .metric
        .parse()
        .map_err(|error: Error| error.to_string())?;
    let unit = unit_of(&metric);
    if entry.unit != unit {
        let given = quote(&entry.unit);
        return Err(format!(
            "unit {given} is not that of {}, which is {}",
            metric.name,
            quote(unit)
        ));
    }
    let numbers = [
        ("median", Some(entry.median)),
        ("warn", Some(entry.warn)),
        ("fail", Some(entry.fail)),
        ("bound", entry.bound),
        ("link-bytes-per-s", entry.link_bytes_per_s),
    ];
    for (name, value) in numbers {
        if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
            return Err(format!("{name} {value} is not a number above 0"));
        }
    }
    for (name, value) in [("mad", entry.mad), ("takes-s", entry.takes_s)] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(format!("{name} {value} is not a number from 0 up"));
        }
    }
    check_thresholds(entry, &metric)?;
    if entry.runs == 0 && entry.source.is_none() {
        return Err(
            "it has no runs and names no source: name the data sheet that has the figure".into(),
        );
    }
    if entry.ranks == 0 || entry.spans == 0 || entry.spans > entry.ranks {
        return Err(format!(
            "{} ranks on {} hosts cannot be measured",
            entry.ranks, entry.spans
        ));
    }
    match entry.given_point().point() {
        Ok(_) if entry.given_point().ranks() == Some(entry.ranks) => Ok(()),
        Ok(_) => Err("ranks are not those of its point".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Rewrites the entry's point with the keys of this version. A check compares points as text, so the point must look
/// like those of new records.
fn with_current_keys(entry: BaselineEntry) -> BaselineEntry {
    let point = entry.given_point().point().ok();
    match point.and_then(|point| serde_json::to_value(point).ok()) {
        Some(serde_json::Value::Object(mut point)) => {
            point.retain(|_, value| !value.is_null());
            let GivenPoint { json, checksum } =
                GivenPoint::new(serde_json::Value::Object(point).to_string());
            BaselineEntry {
                point: json,
                checksum,
                ..entry
            }
        }
        _ => entry,
    }
}

fn check_thresholds(entry: &BaselineEntry, metric: &Metric) -> std::result::Result<(), String> {
    let BaselineEntry {
        median, warn, fail, ..
    } = *entry;
    let (side, is_right) = match metric.better {
        Better::High => ("below", fail <= warn && warn < median),
        Better::Low => ("above", median < warn && warn <= fail),
    };
    if !is_right {
        return Err(format!(
            "warn {warn} and fail {fail} have to lie {side} the median {median}, fail no nearer than warn"
        ));
    }
    match entry.bound {
        Some(bound) if metric.better == Better::High && warn > bound * BOUND_TOLERANCE => Err(
            format!("warn {warn} lies above the bound {bound}, so that nothing could reach it"),
        ),
        _ => Ok(()),
    }
}
