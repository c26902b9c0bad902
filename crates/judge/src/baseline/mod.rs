//! A baseline: for each kind of host and each point, the figures that its hosts reached and the thresholds beyond which
//! another host counts as slow.
//!
//! | module | what lives there |
//! | --- | --- |
//! | this | the parts of a baseline, as stored in its file |
//! | [`read`] | the file: parsing with messages that name the line, and writing |
//! | [`build`] | makes a baseline from records; lists slow hosts and omitted points |
//! | `figures` | centre, spread and thresholds of a set of runs |
//! | `groups` | rows grouped by equal hosts |
//! | [`by_hand`] | figures from data sheets |
//! | [`host_kind`] | kinds of hosts |
//! | [`lost`] | hosts that lost hardware |
//! | [`order`] | the order in which a check measures entries |
//! | [`drift`] | differences between two baselines |
//!
//! [`crate::check`] compares hosts with a baseline.

pub mod build;
pub mod by_hand;
pub mod drift;
mod figures;
mod groups;
pub mod host_kind;
pub mod lost;
pub mod order;
pub mod read;
mod robust;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tonnage_plan::given::GivenPoint;
use tonnage_record::figures::Better;
use tonnage_units::{Error, Result};

use crate::criteria::RUNS_MIN;
use crate::metric::Metric;

/// Version of the file format. Readers accept only this version.
pub const BASELINE_FORMAT: u32 = 1;

/// Baseline figures per kind of host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Baseline {
    /// Version of the file format.
    pub format: u32,
    /// Distance of the warning threshold from the median, as a fraction of the median.
    pub warn: f64,
    /// Distance of the failure threshold from the median, as a fraction of the median.
    pub fail: f64,
    /// Host facts, in addition to CPU and GPUs, that define a kind of host, as given to `--match`.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<String>,
    /// Kinds of hosts.
    #[serde(rename = "kind")]
    pub kinds: Vec<HostKind>,
}

/// A kind of host and its figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostKind {
    /// Names of the hosts behind the figures.
    pub hosts: Vec<String>,
    /// Facts shared by these hosts: cpu, gpu, and those selected by `--match`.
    pub facts: BTreeMap<String, String>,
    /// Figures.
    #[serde(rename = "point")]
    pub entries: Vec<BaselineEntry>,
}

/// One metric of one point on one kind of host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BaselineEntry {
    /// Short display name.
    pub name: String,
    /// Metric, in the form that `tonnage compare --metric` accepts.
    pub metric: String,
    /// Unit of the figures.
    pub unit: String,
    /// Number of hosts, or of host groups that measured together.
    pub hosts: u32,
    /// Number of runs on all hosts.
    pub runs: u32,
    /// Median of the runs.
    pub median: f64,
    /// Median absolute deviation of the runs.
    pub mad: f64,
    /// Warning threshold.
    pub warn: f64,
    /// Failure threshold.
    pub fail: f64,
    /// Upper bound that was measured with the point: the median over the runs.
    #[serde(alias = "limit", default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Median as a fraction of the bound.
    #[serde(alias = "of-limit", default, skip_serializing_if = "Option::is_none")]
    pub of_bound: Option<f64>,
    /// Devices that carried the bytes, joined by commas. If hosts name their devices differently, "and" separates the
    /// lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Nominal speed of the links used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_s: Option<f64>,
    /// Data sheet with the figures, if they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Files that the records came from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// UTC date of the first record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// UTC date of the last record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Ranks of the point.
    pub ranks: u32,
    /// Number of hosts that these ranks ran on.
    pub spans: u32,
    /// Longest measuring time, in seconds, including opening.
    pub takes_s: f64,
    /// Keys that distinguish this part of the point from the point's other parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub part: BTreeMap<String, String>,
    /// The point as JSON, as stored in its records. A check measures this point.
    pub point: String,
    /// CRC-32 of the point, as eight hexadecimal digits.
    pub checksum: String,
}

impl HostKind {
    /// The facts as one line.
    pub fn title(&self) -> String {
        let facts: Vec<&str> = self.facts.values().map(String::as_str).collect();
        facts.join(", ")
    }
}

impl Baseline {
    /// Returns the kind with these facts.
    ///
    /// # Errors
    /// `Usage` if the baseline has no such kind; the message lists its kinds.
    pub fn find_kind(&self, facts: &host_kind::KindFacts) -> Result<&HostKind> {
        let found = self.kinds.iter().find(|kind| kind.facts == *facts);
        found.ok_or_else(|| {
            let own: Vec<&str> = facts.values().map(String::as_str).collect();
            let kinds: Vec<String> = self.kinds.iter().map(HostKind::title).collect();
            Error::Usage(format!(
                "the baseline has nothing for this kind of host ({}): it is of {}",
                own.join(", "),
                kinds.join("; ")
            ))
        })
    }
}

impl BaselineEntry {
    /// The point, in the form that plans accept.
    pub fn given_point(&self) -> GivenPoint {
        GivenPoint {
            json: self.point.clone(),
            checksum: self.checksum.clone(),
        }
    }

    /// The metric, or `None` if no figure has this name.
    pub fn metric(&self) -> Option<Metric> {
        self.metric.parse().ok()
    }

    /// Whether a higher value is better.
    pub fn is_high_better(&self) -> bool {
        self.metric()
            .is_none_or(|metric| metric.better == Better::High)
    }

    /// Returns whether the spread behind the thresholds is known. A data sheet states it; fewer than [`RUNS_MIN`] runs
    /// do not show it.
    pub fn has_spread(&self) -> bool {
        self.source.is_some() || self.runs as usize >= RUNS_MIN
    }

    /// Returns whether a value is worse than a threshold.
    pub fn is_beyond(&self, value: f64, threshold: f64) -> bool {
        match self.is_high_better() {
            true => value < threshold,
            false => value > threshold,
        }
    }

    /// Returns the device names of each host. Hosts with equal device lists count once.
    pub fn device_lists(&self) -> impl Iterator<Item = Vec<&str>> {
        let of_hosts = self.device.iter();
        let of_hosts = of_hosts.flat_map(|names| names.split(host_kind::OTHER_HOST));
        of_hosts.map(|names| names.split(',').collect())
    }

    /// Names of the devices of all hosts.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.device_lists().flatten()
    }

    /// Standard deviation estimated from the MAD, as a fraction of the median.
    pub fn relative_spread(&self) -> f64 {
        robust::SIGMAS_OF_MAD * self.mad / self.median
    }
}

/// Derives a figure's unit from its column name.
pub fn unit_of(metric: &Metric) -> &'static str {
    let field = metric.figure.field;
    let has = |part: &str| field.contains(part);
    match () {
        () if has("bytes_per_s") => "bytes/s",
        () if has("per_s") => "1/s",
        () if has("_ns") => "ns",
        () => "",
    }
}
