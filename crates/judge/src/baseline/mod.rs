//! A baseline: for each kind of host and each point the figures that its hosts have had, and the thresholds beyond
//! which another host is slow.
//!
//! | module | what lives there |
//! | --- | --- |
//! | this | the parts of a baseline, as its file has them |
//! | [`read`] | the file: read with messages that name the line, and written |
//! | [`build`] | from records to a baseline, with what was left out and who is slow |
//! | `figures` | centre, spread and thresholds of some runs |
//! | `groups` | rows of hosts that are alike |
//! | [`by_hand`] | figures of a data sheet in place of measured ones |
//! | [`host_kind`] | hosts that are alike |
//! | [`lost`] | hardware that a host of no kind has lost |
//! | [`order`] | entries in the order in which a check measures them |
//! | [`drift`] | differences of two baselines |
//!
//! Verdicts on hosts beside a baseline are in [`crate::check`].

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

/// Version of the file. A reader takes this one and no other.
pub const BASELINE_FORMAT: u32 = 1;

/// Figures of kinds of hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Baseline {
    /// Version of the file.
    pub format: u32,
    /// Distance of the warning from the median, as a part of it.
    pub warn: f64,
    /// Distance of the failure from the median, as a part of it.
    pub fail: f64,
    /// Facts beside CPU and GPUs by which kinds of hosts are told apart, as `--match` named them.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<String>,
    /// Kinds of hosts.
    #[serde(rename = "kind")]
    pub kinds: Vec<HostKind>,
}

/// Hosts that are alike, and their figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostKind {
    /// Names of the hosts that the figures are of.
    pub hosts: Vec<String>,
    /// Facts that all of them have: cpu, gpu, and what `--match` named.
    pub facts: BTreeMap<String, String>,
    /// Figures.
    #[serde(rename = "point")]
    pub entries: Vec<BaselineEntry>,
}

/// One metric of one point on one kind of host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BaselineEntry {
    /// Short name for people.
    pub name: String,
    /// Metric, as `tonnage compare --metric` takes it.
    pub metric: String,
    /// Unit of the figures.
    pub unit: String,
    /// Hosts, or groups of hosts that measured together.
    pub hosts: u32,
    /// Runs of all of them.
    pub runs: u32,
    /// Median of the runs.
    pub median: f64,
    /// Median of the runs' distances from the median.
    pub mad: f64,
    /// Figure beyond which a host is warned of.
    pub warn: f64,
    /// Figure beyond which a host has failed.
    pub fail: f64,
    /// Limit that was measured beside the point: the median of the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The median as a part of the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_limit: Option<f64>,
    /// Devices that carried the bytes, joined by commas; of hosts that name them differently, joined by "and".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Nominal speed of the links that were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_s: Option<f64>,
    /// Data sheet of figures that nobody measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Files of the records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Day of the first record, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// Day of the last record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Ranks of the point.
    pub ranks: u32,
    /// Hosts that these ranks were on.
    pub spans: u32,
    /// Longest time that measuring it took, in seconds, with what had to be opened.
    pub takes_s: f64,
    /// Keys that tell this part of the point from others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub part: BTreeMap<String, String>,
    /// The point as its records have it, in JSON: what a check measures.
    pub point: String,
    /// CRC-32 of the point in eight hexadecimal digits.
    pub checksum: String,
}

impl HostKind {
    /// The facts in words.
    pub fn title(&self) -> String {
        let facts: Vec<&str> = self.facts.values().map(String::as_str).collect();
        facts.join(", ")
    }
}

impl Baseline {
    /// The kind of a host with these facts.
    ///
    /// # Errors
    /// `Usage` where the baseline has none, with those that there are.
    pub fn kind_of(&self, facts: &host_kind::KindFacts) -> Result<&HostKind> {
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
    /// The point, as plans take it.
    pub fn given(&self) -> GivenPoint {
        GivenPoint {
            json: self.point.clone(),
            checksum: self.checksum.clone(),
        }
    }

    /// The metric; `None` for a name that no figure has.
    pub fn metric(&self) -> Option<Metric> {
        self.metric.parse().ok()
    }

    /// Returns whether more is better.
    pub fn is_high_better(&self) -> bool {
        self.metric()
            .is_none_or(|metric| metric.better == Better::High)
    }

    /// Returns whether the spread behind the thresholds is known: of a data sheet it is stated, of fewer than
    /// [`RUNS_MIN`] runs it is not.
    pub fn has_spread(&self) -> bool {
        self.source.is_some() || self.runs as usize >= RUNS_MIN
    }

    /// Returns whether a value lies beyond a threshold.
    pub fn is_beyond(&self, value: f64, threshold: f64) -> bool {
        match self.is_high_better() {
            true => value < threshold,
            false => value > threshold,
        }
    }

    /// Names of the devices of each host; of hosts that have the same ones, once.
    pub fn ways(&self) -> impl Iterator<Item = Vec<&str>> {
        let of_hosts = self.device.iter();
        let of_hosts = of_hosts.flat_map(|names| names.split(host_kind::OTHER_HOST));
        of_hosts.map(|names| names.split(',').collect())
    }

    /// Names of the devices of all hosts.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.ways().flatten()
    }

    /// Standard deviation that a normal spread with this MAD would have, as a part of the median.
    pub fn spread(&self) -> f64 {
        robust::SIGMAS_OF_MAD * self.mad / self.median
    }
}

/// Unit of a figure, from the name of its column.
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
