//! Judges hosts by existing records, without measuring again. Each run of a host counts as one try.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tonnage_record::Record;
use tonnage_units::Result;

use super::entry::EntryVerdict;
use super::reason::reason;
use super::step::{distinct_entries, judge_point};
use super::verdict::CheckVerdict;
use crate::baseline::build::point_json;
use crate::baseline::host_kind::{KindFacts, hosts_of, kind_of_record};
use crate::baseline::order::most_informative_first;
use crate::baseline::{Baseline, HostKind};
use crate::keys::KeyNames;

/// Verdict on an entry from the runs of one group of hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct RunsVerdict {
    /// Description of the kind of host.
    pub kind: String,
    /// Side of a comparison (A or B) to which the runs belong.
    pub side: Option<&'static str>,
    /// The median run, sorted by verdict and figure. With an even number of runs, it is the better one of the middle
    /// two. So a host fails if more than half of its runs fail. `tries` holds the figures of all runs.
    pub entry: EntryVerdict,
}

/// Verdicts on existing records.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordsCheck {
    /// Overall verdict.
    pub verdict: CheckVerdict,
    /// One line, at most 80 bytes.
    pub reason: String,
    /// Verdicts, worst first; ties stay in baseline order.
    pub entries: Vec<RunsVerdict>,
    /// Hosts that failed.
    pub failed_hosts: BTreeSet<String>,
    /// Kinds of hosts that are in the records but not in the baseline, with their hosts.
    pub unknown_kinds: Vec<(String, BTreeSet<String>)>,
    /// Kinds of hosts that are in the baseline but not in the records.
    pub absent_kinds: Vec<String>,
    /// Number of recorded points without a baseline entry, on known kinds of hosts only.
    pub points_without_entry: usize,
}

/// Hosts that measured together, and the side of the comparison.
type HostsAndSide = (String, Option<&'static str>);

/// Records of one kind of host, by point and host group.
#[derive(Default)]
struct KindRecords<'a> {
    points: HashMap<String, BTreeMap<HostsAndSide, Vec<&'a Record>>>,
    hosts: BTreeSet<String>,
}

/// Compares records with a baseline.
///
/// # Errors
/// `Usage` if the baseline has none of the recorded kinds of hosts; the message lists its kinds.
pub fn check_records(baseline: &Baseline, records: &[Record]) -> Result<RecordsCheck> {
    let mut known: BTreeMap<usize, KindRecords<'_>> = BTreeMap::new();
    let mut unknown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut refused = None;
    for (facts, record) in with_facts(baseline, records) {
        match baseline.find_kind(&facts) {
            Ok(kind) => {
                let at = baseline.kinds.iter().position(|it| std::ptr::eq(it, kind));
                known.entry(at.unwrap_or(0)).or_default().add(record);
            }
            Err(error) => {
                let values: Vec<&str> = facts.values().map(String::as_str).collect();
                let hosts = unknown.entry(values.join(", ")).or_default();
                hosts.extend(hosts_of(record).split(',').map(str::to_owned));
                refused.get_or_insert(error);
            }
        }
    }
    if let (true, Some(error)) = (known.is_empty(), refused) {
        return Err(error);
    }
    let mut entries: Vec<RunsVerdict> = Vec::new();
    let mut points_without_entry = 0;
    for (at, kind_records) in &known {
        let kind = &baseline.kinds[*at];
        entries.extend(kind_records.verdicts(kind));
        let has_entry = |point: &String| kind.entries.iter().any(|entry| entry.point == *point);
        let points = kind_records.points.keys();
        points_without_entry += points.filter(|point| !has_entry(point)).count();
    }
    entries.sort_by_key(|it| std::cmp::Reverse(it.entry.verdict.weight()));
    let verdicts: Vec<EntryVerdict> = entries.iter().map(|it| it.entry.clone()).collect();
    let verdict = CheckVerdict::combine(verdicts.iter().map(|entry| entry.verdict));
    let failed = verdicts.iter().flat_map(EntryVerdict::failed_hosts);
    let failed_hosts = failed.cloned().collect();
    let kinds = baseline.kinds.iter().enumerate();
    let absent = kinds.filter(|(at, _)| !known.contains_key(at));
    Ok(RecordsCheck {
        verdict,
        reason: reason(verdict, &verdicts, 0),
        failed_hosts,
        entries,
        unknown_kinds: unknown.into_iter().collect(),
        absent_kinds: absent.map(|(_, kind)| kind.title()).collect(),
        points_without_entry,
    })
}

/// Pairs each record with its host facts. Consecutive records usually share an environment, so the last facts are
/// reused.
fn with_facts<'a>(
    baseline: &Baseline,
    records: &'a [Record],
) -> impl Iterator<Item = (KindFacts, &'a Record)> {
    let matched: KeyNames = baseline.matched.iter().map(String::as_str).collect();
    let mut before: Option<(&Record, KindFacts)> = None;
    records.iter().map(move |record| {
        let known = before
            .take()
            .filter(|(last, _)| last.environment == record.environment);
        let facts = known.map_or_else(|| kind_of_record(record, &matched), |(_, facts)| facts);
        before = Some((record, facts.clone()));
        (facts, record)
    })
}

impl<'a> KindRecords<'a> {
    fn add(&mut self, record: &'a Record) {
        let hosts = hosts_of(record);
        self.hosts.extend(hosts.split(',').map(str::to_owned));
        let side = record.side.as_ref().map(|side| side.name.letter());
        let point = self.points.entry(point_json(record)).or_default();
        point.entry((hosts, side)).or_default().push(record);
    }

    /// Judges every entry of this kind of host; points without records are skipped.
    fn verdicts(&self, kind: &HostKind) -> Vec<RunsVerdict> {
        let mut found = Vec::new();
        for step in most_informative_first(&kind.entries) {
            let verdict = |side, entry| RunsVerdict {
                kind: kind.title(),
                side,
                entry,
            };
            let Some(groups) = self.points.get(step.point) else {
                let skipped = distinct_entries(&step.entries).into_iter().map(|entry| {
                    let entry = EntryVerdict {
                        hosts: self.hosts.iter().cloned().collect(),
                        why: Some("no record of it".to_owned()),
                        ..EntryVerdict::unmeasured(entry)
                    };
                    verdict(None, entry)
                });
                found.extend(skipped);
                continue;
            };
            for ((_, side), records) in groups {
                let mut runs: Vec<Vec<EntryVerdict>> = Vec::new();
                for record in records {
                    let of_run = judge_point(&step.entries, &[record], 1);
                    runs.resize(of_run.len(), Vec::new());
                    let all = runs.iter_mut().zip(of_run);
                    all.for_each(|(all, one)| all.push(one));
                }
                let medians = runs.into_iter().filter_map(median_run);
                found.extend(medians.map(|entry| verdict(*side, entry)));
            }
        }
        found
    }
}

/// Minimum number of runs for a failure. A check repeats a failed measurement too.
const FAILING_RUNS_MIN: usize = 2;

/// Returns the median run among those with a figure, or an error if no run has a figure. If the only run failed, the
/// verdict is a warning.
fn median_run(runs: Vec<EntryVerdict>) -> Option<EntryVerdict> {
    let tries: Vec<f64> = runs.iter().filter_map(|run| run.value).collect();
    let (mut measured, errors): (Vec<_>, Vec<_>) =
        runs.into_iter().partition(|run| run.value.is_some());
    let worst_first = |run: &EntryVerdict| std::cmp::Reverse(run.verdict.weight());
    measured.sort_by(|left, right| {
        let by_verdict = worst_first(left).cmp(&worst_first(right));
        by_verdict.then(left.ratio().total_cmp(&right.ratio()))
    });
    let at = measured.len() / 2;
    let mut found = measured.into_iter().nth(at).or(errors.into_iter().next())?;
    if found.verdict == CheckVerdict::Fail && tries.len() < FAILING_RUNS_MIN {
        found.verdict = CheckVerdict::Warn;
        let why = found.why.take().map_or(String::new(), |why| why + "; ");
        found.why = Some(format!("{why}failed in the only run: measure again"));
    }
    Some(EntryVerdict { tries, ..found })
}
