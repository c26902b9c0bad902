//! Slow hosts and pairs in a matrix. The record's verdict on the matrix calls them slow, and they are further below the
//! median pair than the baseline allows.
//!
//! If one host of many is slow, the bandwidth of the whole matrix hardly changes, but the host's row and column do.

use std::collections::{BTreeMap, BTreeSet};

use tonnage_record::Record;
use tonnage_record::transfer::SlowRank;
use tonnage_units::number_list;

/// Maximum number of hosts and pairs to name.
const NAMED_MAX: usize = 3;

/// A slow path, as sender and receiver. One of them is `None` if a host is slow with all others.
type SlowPath = (Option<String>, Option<String>);

/// Slow hosts and pairs, each with its rate as a fraction of the median pair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlowPaths(BTreeMap<SlowPath, f64>);

impl SlowPaths {
    /// Returns the hosts and pairs that the verdict on a record's matrix calls slow and that reach less than `least` of
    /// the median. Empty if the record has no matrix.
    pub fn from_record(record: &Record, least: f64) -> Self {
        let summary = record.transfer().and_then(|body| body.summary.as_ref());
        let Some(verdict) = summary.and_then(|summary| summary.matrix.as_ref()) else {
            return Self::default();
        };
        let host_of = hosts_of_ranks(record);
        let host = |rank: u32| {
            let known = host_of.get(&rank).cloned();
            known.unwrap_or_else(|| format!("rank {rank}"))
        };
        let within = |slow: &SlowRank| slow.within_host.then(|| host(slow.rank));
        let senders = verdict.slow_senders.iter();
        let senders = senders.map(|it| ((Some(host(it.rank)), within(it)), it.of_median));
        let receivers = verdict.slow_receivers.iter();
        let receivers = receivers.map(|it| ((within(it), Some(host(it.rank))), it.of_median));
        let pairs = verdict.slow_pairs.iter().map(|it| {
            let ends = (Some(host(it.sender)), Some(host(it.receiver)));
            (ends, it.of_median)
        });
        let mut blame = Self::default();
        for (path, part) in senders.chain(receivers).chain(pairs) {
            if part < least {
                let known = blame.0.entry(path).or_insert(part);
                *known = known.min(part);
            }
        }
        blame
    }

    /// Returns whether no host or pair is slow.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the hosts and pairs that are slow in all measurements, each with its best rate.
    pub fn intersection<'a>(mut all: impl Iterator<Item = &'a Self>) -> Self {
        let mut common = all.next().cloned().unwrap_or_default();
        for other in all {
            common.0.retain(|path, part| {
                let again = other.0.get(path);
                *part = again.map_or(*part, |again| part.max(*again));
                again.is_some()
            });
        }
        common
    }

    /// Describes the hosts and pairs that are slow in more than half of the runs; `None` if there are none.
    pub(crate) fn in_most_runs<'a>(
        records: impl Iterator<Item = &'a Record>,
        least: f64,
    ) -> Option<String> {
        let all: Vec<Self> = records
            .map(|record| Self::from_record(record, least))
            .collect();
        let runs_of = |path: &SlowPath| all.iter().filter(|one| one.0.contains_key(path)).count();
        let mut most = Self::default();
        for (path, part) in all.iter().flat_map(|one| &one.0) {
            if 2 * runs_of(path) > all.len() {
                most.0.insert(path.clone(), *part);
            }
        }
        (!most.is_empty()).then(|| most.describe())
    }

    /// Slow hosts, including both hosts of a slow pair.
    pub fn hosts(&self) -> Vec<String> {
        let paths = self.0.keys();
        let hosts: BTreeSet<&String> = paths.flat_map(|(from, to)| from.iter().chain(to)).collect();
        hosts.into_iter().cloned().collect()
    }

    /// Describes the hosts and pairs, slowest first, as in "h3 sends at 50 % of the median".
    pub fn describe(&self) -> String {
        let mut paths: Vec<(&SlowPath, &f64)> = self.0.iter().collect();
        paths.sort_by(|left, right| left.1.total_cmp(right.1));
        let descriptions = paths.iter().take(NAMED_MAX).map(|((from, to), part)| {
            let part = format!("{:.0} %", 100.0 * **part);
            match (from, to) {
                (Some(from), Some(to)) if from == to => format!("within {from} at {part}"),
                (Some(from), Some(to)) => format!("{from} to {to} at {part}"),
                (Some(from), None) => format!("{from} sends at {part}"),
                (None, to) => format!("{} receives at {part}", to.as_deref().unwrap_or("?")),
            }
        });
        let descriptions: Vec<String> = descriptions.collect();
        let more = match paths.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        format!("{} of the median{more}", descriptions.join(", "))
    }
}

/// Maps each rank to its host name.
fn hosts_of_ranks(record: &Record) -> BTreeMap<u32, String> {
    let hosts = record.environment.iter().flat_map(|group| &group.hosts);
    let of_host = hosts.flat_map(|host| {
        let ranks = number_list::parse(&host.ranks).unwrap_or_default();
        ranks.into_iter().map(|rank| (rank, host.name.clone()))
    });
    of_host.collect()
}
