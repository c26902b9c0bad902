//! History of each point's metric over runs, with the runs at which it changed.
//!
//! The search splits the runs where Welch's t on logarithms is most significant, then searches each part again. Runs
//! with a changed canary are shown but not judged, because the machine changed. A change must be larger than a margin.
//!
//! A change's p value is multiplied by the number of split positions examined. The significance level is adjusted for
//! the number of points and hosts: Benjamini-Hochberg selects the series with a change. Within a selected series, the
//! level is reduced by the fraction of selected series, as Benjamini and Bogomolov do for families of tests.

use std::collections::BTreeMap;

use serde::Serialize;
use tonnage_record::figures::Row;
use tonnage_record::{Canary, Outcome, Record};
use tonnage_units::{Error, Result};

use crate::baseline::host_kind::hosts_of;
use crate::correction::adjust_p_values;
use crate::keys::PointKeys;
use crate::matching::points;
use crate::metric::Metric;
use crate::surroundings::{AcceptedDifferences, Difference, SurroundingFacts};
use crate::welch::{LogSummary, Welch};

/// Minimum number of runs on each side of a change.
const RUNS_MIN: usize = 3;

/// Fraction of reported changes that may be false.
const P_MAX: f64 = 0.01;

/// Options of a history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HistoryRequest {
    /// Metrics; if empty, each point's default metric.
    pub metrics: Vec<Metric>,
    /// Largest change that does not matter, as a fraction.
    pub margin: f64,
}

/// Runs of one metric of one point on one set of hosts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointHistory {
    /// Keys of the point.
    pub keys: PointKeys,
    /// Hosts, joined by commas.
    pub hosts: String,
    /// Name of the metric.
    pub metric: &'static str,
    /// CSV column, which determines the unit of the values.
    pub field: &'static str,
    /// Runs, oldest first.
    pub runs: Vec<HistoryRun>,
    /// Changes, oldest first.
    pub changes: Vec<HistoryChange>,
}

/// One run of a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryRun {
    /// Run ID of its records.
    pub run_id: String,
    /// End of its last record, nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Mean of its records.
    pub value: f64,
    /// Whether the canary changed during the run. If so, the run is not evidence for or against a change.
    pub canary_changed: bool,
    /// Whether the value is a lower bound: the true value may be higher.
    pub is_lower_bound: bool,
}

/// A change of a metric between two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryChange {
    /// Index of the first run after the change.
    pub at: usize,
    /// Ratio of the geometric means, after / before.
    pub ratio: f64,
    /// P value of the difference, corrected for the number of split positions, points and hosts; at most 0.01.
    pub p: f64,
    /// Differences in the surroundings between the last run before the change and the first run after it.
    pub differences: Vec<Difference>,
}

/// A run, its index among all runs, and its rows.
struct MeasuredRun<'a> {
    at: usize,
    run: HistoryRun,
    rows: Vec<Row<'a>>,
}

/// Returns the histories of all points in the records.
///
/// # Errors
/// `Usage` if no record has a value of these metrics, or if the margin is not a fraction.
pub fn history(records: &[Record], request: &HistoryRequest) -> Result<Vec<PointHistory>> {
    if !(0.0..1.0).contains(&request.margin) {
        return Err(Error::Usage(format!(
            "--margin {} must be a percentage from 0 % to below 100 %, e.g. 5 %",
            request.margin
        )));
    }
    let [points, _] = points(&[records.iter().collect(), Vec::new()]);
    let mut series = Vec::new();
    for point in &points {
        let mut of_hosts: BTreeMap<String, Vec<Row<'_>>> = BTreeMap::new();
        let measured = |row: &&Row<'_>| row.record.outcome == Outcome::Measured;
        for row in point.rows.iter().filter(measured) {
            of_hosts.entry(hosts_of(row.record)).or_default().push(*row);
        }
        for (hosts, rows) in of_hosts {
            let all: Vec<&Row<'_>> = rows.iter().collect();
            for metric in Metric::requested_or_default(&request.metrics, &all) {
                let runs = measured_runs(&rows, &metric);
                if !runs.is_empty() {
                    series.push(RunSeries {
                        keys: point.keys.clone(),
                        hosts: hosts.clone(),
                        metric,
                        runs,
                    });
                }
            }
        }
    }
    if series.is_empty() {
        return Err(Error::Usage(
            "no record has a value of these metrics: `tonnage show FILE --format csv` lists the available ones".to_owned(),
        ));
    }
    Ok(with_changes(series, request.margin))
}

/// Runs of one metric of one point on one set of hosts.
struct RunSeries<'a> {
    keys: PointKeys,
    hosts: String,
    metric: Metric,
    runs: Vec<MeasuredRun<'a>>,
}

fn with_changes(series: Vec<RunSeries<'_>>, margin: f64) -> Vec<PointHistory> {
    // Series with too few runs cannot be split, so they do not count as tests.
    let each = series.iter().map(|it| undisturbed_runs(&it.runs));
    let tested = each.filter(|runs| runs.len() >= 2 * RUNS_MIN);
    let p = tested.map(|runs| {
        let found = most_significant_split(&values(&runs), margin);
        found.map_or(1.0, |found| found.p)
    });
    let correction = PCorrection::from_p_values(&p.collect::<Vec<_>>());
    let history = |it: RunSeries<'_>| {
        let mut changes = Vec::new();
        find_changes(
            &undisturbed_runs(&it.runs),
            (margin, correction),
            &mut changes,
        );
        changes.sort_by_key(|change| change.at);
        PointHistory {
            keys: it.keys,
            hosts: it.hosts,
            metric: it.metric.name,
            field: it.metric.figure.field,
            runs: it.runs.into_iter().map(|measured| measured.run).collect(),
            changes,
        }
    };
    series.into_iter().map(history).collect()
}

/// Factor that multiplies p values to correct for the number of tests.
#[derive(Debug, Clone, Copy)]
struct PCorrection {
    factor: f64,
}

impl PCorrection {
    /// Derives the factor from the p values of all tests, so that at most [`P_MAX`] of the reported changes are false.
    fn from_p_values(p: &[f64]) -> Self {
        let found = adjust_p_values(p)
            .into_iter()
            .filter(|p| *p <= P_MAX)
            .count();
        Self {
            factor: p.len().max(1) as f64 / found.max(1) as f64,
        }
    }

    /// Returns the corrected p value, or `None` if it exceeds [`P_MAX`].
    fn apply(self, p: f64) -> Option<f64> {
        Some(p * self.factor).filter(|p| *p <= P_MAX)
    }
}

/// Returns the runs that the search for changes uses: those with an unchanged canary.
fn undisturbed_runs<'a, 'b>(runs: &'b [MeasuredRun<'a>]) -> Vec<&'b MeasuredRun<'a>> {
    let judged = runs.iter().filter(|measured| !measured.run.canary_changed);
    judged.collect()
}

fn values(runs: &[&MeasuredRun<'_>]) -> Vec<f64> {
    runs.iter().map(|measured| measured.run.value).collect()
}

fn measured_runs<'a>(rows: &[Row<'a>], metric: &Metric) -> Vec<MeasuredRun<'a>> {
    let mut runs: Vec<(MeasuredRun<'a>, Vec<f64>)> = Vec::new();
    for row in rows {
        let Some(value) = metric.value(row).filter(|value| *value > 0.0) else {
            continue;
        };
        let record = row.record;
        let changed = matches!(&record.canary, Some(Canary::Measured { changed: true, .. }));
        let is_lower_bound = metric.is_lower_bound(row);
        let known = runs
            .iter_mut()
            .find(|(known, _)| known.run.run_id == record.run_id);
        match known {
            Some((known, values)) => {
                known.run.time_unix_ns = known.run.time_unix_ns.max(record.time_unix_ns);
                known.run.canary_changed |= changed;
                known.run.is_lower_bound |= is_lower_bound;
                known.rows.push(*row);
                values.push(value);
            }
            None => {
                let run = HistoryRun {
                    run_id: record.run_id.clone(),
                    time_unix_ns: record.time_unix_ns,
                    value,
                    canary_changed: changed,
                    is_lower_bound,
                };
                let rows = vec![*row];
                runs.push((MeasuredRun { at: 0, run, rows }, vec![value]));
            }
        }
    }
    let mut runs: Vec<MeasuredRun<'a>> = runs
        .into_iter()
        .map(|(mut measured, values)| {
            measured.run.value = values.iter().sum::<f64>() / values.len() as f64;
            measured
        })
        .collect();
    runs.sort_by_key(|measured| measured.run.time_unix_ns);
    let places = runs.iter_mut().enumerate();
    places.for_each(|(at, measured)| measured.at = at);
    runs
}

/// Adds the changes within a sequence of runs to `into`.
fn find_changes(
    runs: &[&MeasuredRun<'_>],
    (margin, correction): (f64, PCorrection),
    into: &mut Vec<HistoryChange>,
) {
    let Some(Split { at, ratio, p }) = most_significant_split(&values(runs), margin) else {
        return;
    };
    let Some(p) = correction.apply(p) else {
        return;
    };
    let around = [at - 1, at].map(|at| {
        let mut facts = SurroundingFacts::default();
        for row in &runs[at].rows {
            facts.extend(SurroundingFacts::of_hosts(row.record));
            facts.extend(SurroundingFacts::of_run(row.record));
        }
        facts
    });
    // If the lower side contains lower bounds, its true values may be higher, so the change is not proven.
    let lower = if ratio < 1.0 {
        &runs[at..]
    } else {
        &runs[..at]
    };
    if !lower.iter().any(|measured| measured.run.is_lower_bound) {
        into.push(HistoryChange {
            at: runs[at].at,
            ratio,
            p,
            differences: around[0].differences(&around[1], &AcceptedDifferences::default()),
        });
    }
    find_changes(&runs[..at], (margin, correction), into);
    find_changes(&runs[at..], (margin, correction), into);
}

/// A split position, with the ratio of its two parts.
struct Split {
    at: usize,
    ratio: f64,
    /// P value, multiplied by the number of split positions.
    p: f64,
}

/// Returns the most significant split among those with a change larger than the margin.
fn most_significant_split(values: &[f64], margin: f64) -> Option<Split> {
    let places = RUNS_MIN..(values.len() + 1).saturating_sub(RUNS_MIN);
    let number = places.len() as f64;
    let at_place = |at: usize| {
        let (before, after) = values.split_at(at);
        let welch = Welch::new(
            &LogSummary::from_values(before)?,
            &LogSummary::from_values(after)?,
        );
        let found = Split {
            at,
            ratio: welch.difference.exp(),
            p: (welch.p() * number).min(1.0),
        };
        Some((found, welch.error))
    };
    // Prefer a split if neither of its sides varies, because it is exactly at the step. Its p value comes from a rank
    // test and may be larger than the neighbouring splits'.
    let found = places
        .filter_map(at_place)
        .filter(|(found, _)| found.ratio.ln().abs() > -(1.0 - margin).ln())
        .min_by(|left, right| {
            let spread = (left.1 > 0.0).cmp(&(right.1 > 0.0));
            spread.then(left.0.p.total_cmp(&right.0.p))
        })?;
    Some(found.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::known_answers::NormalSource;
    use crate::tests::{read, record};

    fn over(bandwidths: &[f64]) -> Vec<Value> {
        let each = bandwidths.iter().enumerate();
        each.map(|(at, bandwidth)| {
            let mut value = record(&format!("r{at}"), 1 << 20, &[bandwidth * 1e9]);
            value["time_unix_ns"] = json!(1_000 + at);
            value
        })
        .collect()
    }

    fn history_of(records: &[Value]) -> PointHistory {
        let request = HistoryRequest {
            metrics: Vec::new(),
            margin: 0.05,
        };
        history(&read(records), &request).unwrap().remove(0)
    }

    const STEADY: [f64; 6] = [10.0, 10.1, 9.9, 10.05, 9.95, 10.0];

    #[test]
    fn a_step_is_found_with_the_facts_that_changed() {
        let mut values = STEADY.to_vec();
        values.extend(STEADY.map(|value| value * 0.8));
        let mut records = over(&values);
        for record in &mut records[6..] {
            record["environment"][0]["machine"]["kernel"] = "6.2".into();
        }
        // The order of records and files must not matter.
        records.reverse();
        let found = history_of(&records);
        assert_eq!(found.runs.len(), 12);
        assert_eq!(found.changes.len(), 1);
        let change = &found.changes[0];
        assert_eq!(change.at, 6);
        assert!((change.ratio - 0.8).abs() < 0.01 && change.p < 1e-6);
        let keys: Vec<&str> = change
            .differences
            .iter()
            .map(|one| one.key.as_str())
            .collect();
        assert_eq!(keys, ["kernel"]);
    }

    #[test]
    fn two_steps_are_two_changes_and_noise_is_not_a_change() {
        let mut values = STEADY.to_vec();
        values.extend(STEADY.map(|value| value * 0.8));
        values.extend(STEADY.map(|value| value * 1.2));
        let found = history_of(&over(&values));
        assert_eq!(
            found
                .changes
                .iter()
                .map(|change| change.at)
                .collect::<Vec<_>>(),
            [6, 12]
        );
        assert!(history_of(&over(&STEADY.repeat(4))).changes.is_empty());
        // 3 % is within the margin. In the second case, two runs after the step are too few for a change.
        let mut small = STEADY.to_vec();
        small.extend(STEADY.map(|value| value * 0.97));
        assert!(history_of(&over(&small)).changes.is_empty());
        assert!(
            history_of(&over(&[10.0, 10.0, 10.0, 10.0, 5.0, 5.0]))
                .changes
                .is_empty()
        );
    }

    /// If a figure is coarser than its spread, such as a p50 in whole nanoseconds, only the order of the runs is
    /// evidence.
    #[test]
    fn without_any_spread_a_change_takes_more_runs() {
        let step = |runs: usize| [vec![197.0; runs], vec![208.0; runs]].concat();
        for few in [3, 4, 5] {
            assert!(history_of(&over(&step(few))).changes.is_empty(), "{few}");
        }
        let found = history_of(&over(&step(8))).changes;
        let places: Vec<usize> = found.iter().map(|change| change.at).collect();
        assert_eq!(places, [8]);
        assert!(found[0].p > 0.0, "{found:?}");
    }

    /// A virtual machine that moved to another host is not a change in the measured software.
    #[test]
    fn runs_whose_canary_changed_are_shown_and_not_judged() {
        let mut values = STEADY.to_vec();
        values.extend(STEADY.map(|value| value * 0.8));
        let disturbed = |places: std::ops::Range<usize>| {
            let mut records = over(&values);
            for record in &mut records[places] {
                record["canary"]["changed"] = true.into();
            }
            history_of(&records)
        };
        let moved = disturbed(6..12);
        assert_eq!((moved.runs.len(), moved.changes.len()), (12, 0));
        assert!(moved.runs[6..].iter().all(|run| run.canary_changed));
        // The index of a change also counts the runs that are shown but not judged.
        let found = disturbed(4..7);
        let places: Vec<usize> = found.changes.iter().map(|change| change.at).collect();
        assert_eq!(places, [7]);
    }

    /// Returns `count` series of ten runs each, without changes and with a spread of 10 %.
    fn noise(count: usize) -> Vec<RunSeries<'static>> {
        let mut source = NormalSource(18);
        let run = |value| MeasuredRun {
            at: 0,
            run: HistoryRun {
                run_id: String::new(),
                time_unix_ns: 0,
                value,
                canary_changed: false,
                is_lower_bound: false,
            },
            rows: Vec::new(),
        };
        let each = (0..count).map(|_| RunSeries {
            keys: PointKeys::default(),
            hosts: String::new(),
            metric: "bandwidth".parse().unwrap(),
            runs: source.runs(10, 1e10, 0.1).into_iter().map(run).collect(),
        });
        each.collect()
    }

    fn marked(histories: &[PointHistory]) -> Vec<usize> {
        let marked = histories.iter().enumerate();
        let marked = marked.filter(|(_, history)| !history.changes.is_empty());
        marked.map(|(at, _)| at).collect()
    }

    #[test]
    fn many_points_are_corrected_for() {
        let alone = |one| marked(&with_changes(vec![one], 0.05)).len();
        let by_chance: usize = noise(1000).into_iter().map(alone).sum();
        assert!((1..=20).contains(&by_chance), "{by_chance}");
        let together = marked(&with_changes(noise(1000), 0.05));
        assert!(together.len() <= 1, "{together:?}");
        // Real changes are found among many points that did not change.
        let mut all = noise(1000);
        for one in &mut all[100..150] {
            let after = one.runs[5..].iter_mut();
            after.for_each(|measured| measured.run.value *= 0.4);
        }
        let found = marked(&with_changes(all, 0.05));
        let right = found.iter().filter(|at| (100..150).contains(*at)).count();
        assert!(right >= 45 && found.len() - right <= 2, "{found:?}");
        // Series with too few runs are not tests and do not change the correction of other series.
        let p = [1e-9, 1e-3, 0.5, 1.0];
        assert_eq!(PCorrection::from_p_values(&p).apply(1e-3), Some(2e-3));
        assert_eq!(PCorrection::from_p_values(&p).apply(0.006), None);
        assert_eq!(PCorrection::from_p_values(&[]).apply(0.01), Some(0.01));
    }

    #[test]
    fn nothing_to_show_is_refused() {
        let request = HistoryRequest {
            metrics: vec!["time".parse().unwrap()],
            margin: 0.05,
        };
        assert_eq!(
            history(&read(&over(&STEADY)), &request)
                .unwrap_err()
                .exit_code(),
            2
        );
        let request = HistoryRequest {
            metrics: Vec::new(),
            margin: 1.0,
        };
        assert!(history(&read(&over(&STEADY)), &request).is_err());
    }
}
