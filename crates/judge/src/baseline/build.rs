//! Makes a baseline from records: medians and thresholds, slow hosts, and points left out with the reason.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tonnage_plan::given;
use tonnage_record::Record;
use tonnage_record::figures::Row;
use tonnage_units::{Error, Result};

use super::by_hand::HandValue;
use super::figures::{RunFigures, bound, host_medians, run_values, slow_hosts};
use super::groups::{RowGroup, find_faster_links, groups};
use super::host_kind::{KindFacts, hosts_of, matched_keys};
use super::read::check_margin;
use super::{BASELINE_FORMAT, Baseline, BaselineEntry, HostKind, unit_of};
use crate::check::blame::SlowPaths;
use crate::keys::KeyNames;
use crate::matching::{SidePoint, points};
use crate::metric::Metric;

/// Assumed time to open an engine if no record shows it.
const OPENING_S: f64 = 1.0;

/// Stands for all slow hosts in a list of host names.
pub const SLOW: &str = "slow";

/// What to include in a baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct BaselineRequest {
    /// Metrics; if empty, each point's default metric.
    pub metrics: Vec<Metric>,
    /// Host facts, in addition to CPU and GPUs, that define a kind of host.
    pub matched: Vec<String>,
    /// Distance of the warning threshold from the median, as a fraction of the median.
    pub warn: f64,
    /// Distance of the failure threshold from the median, as a fraction of the median.
    pub fail: f64,
    /// Minimum number of runs per entry.
    pub runs_min: usize,
    /// Minimum number of hosts per entry.
    pub hosts_min: usize,
    /// Hosts to leave out, by name; [`SLOW`] leaves out all slow hosts.
    pub leave_out: Vec<String>,
    /// Figures from data sheets.
    pub by_hand: Vec<HandValue>,
}

impl BaselineRequest {
    /// Checks the margins.
    ///
    /// # Errors
    /// `Usage` for a margin out of range, or a failure threshold closer to the median than the warning threshold.
    pub fn check(&self) -> Result<()> {
        for (name, margin) in [("--warn", self.warn), ("--fail", self.fail)] {
            check_margin(name, margin).map_err(Error::Usage)?;
        }
        if self.fail < self.warn {
            return Err(Error::Usage(format!(
                "--fail {} is closer to the median than --warn {}: a host would fail before it gets a warning",
                self.fail, self.warn
            )));
        }
        Ok(())
    }
}

/// A baseline and findings about its records.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltBaseline {
    /// The baseline.
    pub baseline: Baseline,
    /// Hosts beyond the failure threshold, judged separately for each point.
    pub slow: Vec<SlowHost>,
    /// Points without an entry, with reasons.
    pub left_out: Vec<LeftOutPoint>,
}

/// A host with a median beyond the failure threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowHost {
    /// Name of the host, or names of hosts that measured together.
    pub host: String,
    /// Name of the point.
    pub name: String,
    /// Name of the metric.
    pub metric: &'static str,
    /// Median of this host.
    pub value: f64,
    /// Median of all hosts.
    pub median: f64,
    /// True if the host is excluded from the entry.
    pub is_left_out: bool,
}

/// A point without an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOutPoint {
    /// Name of the point.
    pub name: String,
    /// Reason, with advice.
    pub why: String,
}

/// A function that makes a short point name from the point's keys. The caller passes it in, because it lives in another
/// crate.
pub type NameOf<'a> = &'a dyn Fn(&crate::keys::PointKeys) -> String;

/// Makes a baseline from the records of one or more files.
///
/// # Errors
/// `Usage` for an invalid request, or if every point was left out. The message then gives the reason for the first
/// point.
pub fn baseline(
    files: &[(String, Vec<Record>)],
    request: &BaselineRequest,
    name_of: NameOf<'_>,
) -> Result<BuiltBaseline> {
    request.check()?;
    let records: Vec<&Record> = files.iter().flat_map(|(_, records)| records).collect();
    let matched = matched_keys(&request.matched, &records)?;
    check_hosts(&request.leave_out, &records)?;
    let sources = Sources::new(files);
    let [points, _] = points(&[records, Vec::new()]);
    let mut builder = Builder {
        request,
        sources,
        kinds: BTreeMap::new(),
        slow: Vec::new(),
        left_out: Vec::new(),
        used: vec![false; request.by_hand.len()],
    };
    for point in &points {
        builder.add_point(point, &matched, &name_of(&point.keys));
    }
    if let Some(at) = builder.used.iter().position(|used| !used) {
        return Err(Error::Usage(format!(
            "{}: no record matches these keys: name keys as `tonnage compare --format json` shows them",
            request.by_hand[at].title()
        )));
    }
    let kinds = builder
        .kinds
        .into_iter()
        .map(|(facts, (hosts, entries))| HostKind {
            hosts: hosts.into_iter().collect(),
            facts,
            entries,
        });
    let kinds: Vec<HostKind> = kinds.collect();
    if kinds.is_empty() {
        return Err(Error::Usage(match builder.left_out.first() {
            Some(first) => format!(
                "no point is left for a baseline: {}: {}",
                first.name, first.why
            ),
            None => "the records hold nothing that a baseline could be made of".to_owned(),
        }));
    }
    Ok(BuiltBaseline {
        baseline: Baseline {
            format: BASELINE_FORMAT,
            warn: request.warn,
            fail: request.fail,
            matched: request.matched.clone(),
            kinds,
        },
        slow: builder.slow,
        left_out: builder.left_out,
    })
}

fn check_hosts(named: &[String], records: &[&Record]) -> Result<()> {
    let hosts: BTreeSet<String> = records.iter().map(|record| hosts_of(record)).collect();
    let unknown = named
        .iter()
        .find(|name| *name != SLOW && !hosts.contains(*name));
    unknown.map_or(Ok(()), |name| {
        let hosts: Vec<String> = hosts.iter().cloned().collect();
        Err(Error::Usage(format!(
            "--leave-out {name}: not a host of these records, which are from {}",
            hosts.join(", ")
        )))
    })
}

/// Where each record came from: its file, and the seconds that it took. A record took the time since the previous
/// record of the same run.
struct Sources<'a> {
    files: HashMap<*const Record, &'a str>,
    took_s: HashMap<*const Record, f64>,
}

impl<'a> Sources<'a> {
    fn new(files: &'a [(String, Vec<Record>)]) -> Self {
        let mut sources = Self {
            files: HashMap::new(),
            took_s: HashMap::new(),
        };
        for (name, records) in files {
            let mut ends: HashMap<&str, u64> = HashMap::new();
            for record in records {
                sources.files.insert(std::ptr::from_ref(record), name);
                let end = record.time_unix_ns;
                if let Some(before) = ends.insert(&record.run_id, end) {
                    let took = end.saturating_sub(before) as f64 / 1e9;
                    sources.took_s.insert(std::ptr::from_ref(record), took);
                }
            }
        }
        sources
    }

    /// Returns the time that measuring a row's record took. If it is unknown, it is estimated from the measured
    /// intervals and [`OPENING_S`].
    fn took_s(&self, row: &Row<'_>) -> f64 {
        let parts = Row::all_of_record(row.record).into_iter();
        let body = row.record.body.any();
        let measured_ns: u64 = parts.map(|row| body.measured_ns(row.part)).sum();
        let known = self.took_s.get(&std::ptr::from_ref(row.record));
        known
            .copied()
            .unwrap_or_else(|| OPENING_S + measured_ns as f64 / 1e9)
    }
}

struct Builder<'a> {
    request: &'a BaselineRequest,
    sources: Sources<'a>,
    kinds: BTreeMap<KindFacts, (BTreeSet<String>, Vec<BaselineEntry>)>,
    slow: Vec<SlowHost>,
    left_out: Vec<LeftOutPoint>,
    used: Vec<bool>,
}

impl Builder<'_> {
    fn add_point(&mut self, point: &SidePoint<'_>, matched: &KeyNames, name: &str) {
        let (groups, off_path_reason) = groups(point, matched);
        match (off_path_reason, groups.is_empty()) {
            (Some(why), _) => self.leave_out(name, why),
            (None, true) => self.leave_out(name, "no run has measured it".to_owned()),
            _ => {}
        }
        for group in &groups {
            let rows: Vec<&Row<'_>> = group.rows.iter().collect();
            let metrics = Metric::requested_or_default(&self.request.metrics, &rows);
            let before = self.left_out.len();
            let mut any = false;
            for metric in metrics {
                let hand = self.find_hand_value(point, &metric);
                any |= self.add_entry(
                    point,
                    (group, find_faster_links(&groups, group)),
                    metric,
                    name,
                    hand,
                );
            }
            if !any && self.left_out.len() == before {
                self.leave_out(name, "it has none of these metrics".to_owned());
            }
        }
    }

    /// Returns the data-sheet figure for a metric of a point.
    fn find_hand_value(&mut self, point: &SidePoint<'_>, metric: &Metric) -> Option<HandValue> {
        let all = &self.request.by_hand;
        let is_own = |hand: &HandValue| hand.metric == *metric && hand.matches(&point.keys);
        let at = all.iter().position(is_own)?;
        self.used[at] = true;
        Some(all[at].clone())
    }

    fn leave_out(&mut self, name: &str, why: String) {
        self.left_out.push(LeftOutPoint {
            name: name.to_owned(),
            why,
        });
    }

    /// Adds an entry for one metric of a group. Returns false if the group has no value of the metric.
    fn add_entry(
        &mut self,
        point: &SidePoint<'_>,
        (group, faster): (&RowGroup<'_>, Option<&RowGroup<'_>>),
        metric: Metric,
        name: &str,
        hand: Option<HandValue>,
    ) -> bool {
        let mut run_values = run_values(&group.rows, &metric);
        if run_values.is_empty() {
            return false;
        }
        let request = self.request;
        let named = &request.leave_out;
        run_values.retain(|run| !named.contains(&run.host));
        let all = RunFigures::new(&run_values, request, metric, hand.as_ref());
        let leaves_out = named.iter().any(|word| word == SLOW);
        // If hosts of the same kind have faster links, every host of this group counts as slow.
        let (slow, median) = match faster.and_then(|it| self.median_of(it, metric)) {
            Some(median) => (host_medians(&run_values), median),
            None => (slow_hosts(&run_values, &all, metric), all.median),
        };
        self.list_slow(&slow, name, metric, median);
        if leaves_out {
            run_values.retain(|run| !slow.iter().any(|(host, _)| *host == run.host));
        }
        if run_values.is_empty() {
            self.leave_out(name, "all of its hosts are left out".to_owned());
            return true;
        }
        // Slow hosts that were left out contribute nothing to the entry, neither sources nor bound.
        let kept = group.of_hosts(&run_values);
        let figures = RunFigures::new(&run_values, request, metric, hand.as_ref());
        let bound = bound(&kept.rows, &metric);
        if let Err(why) = figures.check(request, bound, hand.as_ref()) {
            self.leave_out(name, why);
            return true;
        }
        let records = kept.rows.iter().map(|row| row.record);
        if let Some(words) = SlowPaths::in_most_runs(records, 1.0 - self.request.fail) {
            let why = format!(
                "in most of its runs {words}: every check would fail; mend that, or measure without these hosts"
            );
            self.leave_out(name, why);
            return true;
        }
        let entry = self.build_entry(point, &kept, metric, name, &figures, (bound, hand));
        let hosts = run_values.into_iter().map(|run| run.host);
        let kind = self.kinds.entry(group.facts.clone()).or_default();
        kind.0.extend(hosts);
        kind.1.push(entry);
        true
    }

    /// Returns the median over the hosts of a group, without the hosts that the request leaves out.
    fn median_of(&self, group: &RowGroup<'_>, metric: Metric) -> Option<f64> {
        let mut run_values = run_values(&group.rows, &metric);
        run_values.retain(|run| !self.request.leave_out.contains(&run.host));
        let is_any = !run_values.is_empty();
        is_any.then(|| RunFigures::new(&run_values, self.request, metric, None).median)
    }

    fn list_slow(&mut self, slow: &[(String, f64)], name: &str, metric: Metric, median: f64) {
        let is_left_out = self.request.leave_out.iter().any(|word| word == SLOW);
        self.slow.extend(slow.iter().map(|(host, value)| SlowHost {
            host: host.clone(),
            name: name.to_owned(),
            metric: metric.name,
            value: *value,
            median,
            is_left_out,
        }));
    }

    fn build_entry(
        &self,
        point: &SidePoint<'_>,
        group: &RowGroup<'_>,
        metric: Metric,
        name: &str,
        figures: &RunFigures,
        (bound, hand): (Option<f64>, Option<HandValue>),
    ) -> BaselineEntry {
        let record = group.rows[0].record;
        let json = point_json(record);
        let files: BTreeSet<&str> = group
            .rows
            .iter()
            .filter_map(|row| self.sources.files.get(&std::ptr::from_ref(row.record)))
            .copied()
            .collect();
        let times = || group.rows.iter().map(|row| row.record.time_unix_ns);
        let takes = group.rows.iter().map(|row| self.sources.took_s(row));
        BaselineEntry {
            name: name.to_owned(),
            metric: metric.name.to_owned(),
            unit: unit_of(&metric).to_owned(),
            hosts: figures.hosts as u32,
            runs: figures.runs as u32,
            median: figures.median,
            mad: figures.mad,
            warn: figures.warn,
            fail: figures.fail,
            bound,
            of_bound: bound.map(|bound| figures.median / bound),
            device: group.device.clone(),
            link_bytes_per_s: group.link_bytes_per_s,
            source: hand.map(|hand| hand.source),
            files: files.into_iter().map(str::to_owned).collect(),
            first: times().min().and_then(day),
            last: times().max().and_then(day),
            ranks: record.body.any().options().ranks,
            spans: count_hosts(record),
            takes_s: (takes.fold(0.0, f64::max) * 1e3).ceil() / 1e3,
            part: point
                .keys
                .part_keys()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            checksum: given::checksum(&json),
            point: json,
        }
    }
}

/// Returns a record's point as JSON, with its kind, in the form that plans accept.
pub fn point_json(record: &Record) -> String {
    let mut point = record.body.point_json();
    if let Some(object) = point.as_object_mut() {
        // A key with a null means the same as an absent key.
        object.retain(|_, value| !value.is_null());
        object.insert("kind".to_owned(), record.body.kind().into());
    }
    point.to_string()
}

fn count_hosts(record: &Record) -> u32 {
    let hosts: usize = record
        .environment
        .iter()
        .map(|group| group.hosts.len())
        .sum();
    u32::try_from(hosts.max(1)).unwrap_or(u32::MAX)
}

/// Formats a time as a UTC date.
pub(crate) fn day(unix_ns: u64) -> Option<String> {
    let time = jiff::Timestamp::from_nanosecond(i128::from(unix_ns)).ok()?;
    Some(time.strftime("%Y-%m-%d").to_string())
}
