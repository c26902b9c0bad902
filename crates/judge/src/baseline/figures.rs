//! Statistics of runs: values, median, spread and thresholds, and the hosts beyond the thresholds.

use std::collections::{BTreeMap, BTreeSet};

use tonnage_record::figures::{Better, Row};

use super::build::BaselineRequest;
use super::by_hand::HandValue;
use super::host_kind::hosts_of;
use super::robust::{median, median_absolute_deviation};
use crate::metric::Metric;

/// Minimum distance between the median and a threshold, in MADs: 4 are about 2.7 standard deviations.
const MADS_MIN: f64 = 4.0;

/// Value of one run on one host.
pub(super) struct RunValue {
    pub host: String,
    pub value: f64,
}

/// Returns the value of each run, which is the mean over its records. Zeros are left out, because nothing moved in
/// these runs. Lower bounds are left out, because the true values are unknown.
pub(super) fn run_values(rows: &[Row<'_>], metric: &Metric) -> Vec<RunValue> {
    let mut runs: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !metric.is_lower_bound(row)) {
        if let Some(value) = metric.value(row).filter(|value| *value > 0.0) {
            let run = (hosts_of(row.record), row.record.run_id.as_str());
            runs.entry(run).or_default().push(value);
        }
    }
    let run_values = runs.into_iter().map(|((host, _), values)| RunValue {
        host,
        value: values.iter().sum::<f64>() / values.len() as f64,
    });
    run_values.collect()
}

/// Median per host.
pub(super) fn host_medians(run_values: &[RunValue]) -> Vec<(String, f64)> {
    let mut of_hosts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for run in run_values {
        of_hosts.entry(&run.host).or_default().push(run.value);
    }
    let medians = of_hosts
        .into_iter()
        .filter_map(|(host, values)| Some((host.to_owned(), median(&values)?)));
    medians.collect()
}

/// Returns the hosts with medians beyond the failure threshold, and these medians.
pub(super) fn slow_hosts(
    run_values: &[RunValue],
    figures: &RunFigures,
    metric: Metric,
) -> Vec<(String, f64)> {
    let is_beyond = |value: f64| match metric.better {
        Better::High => value < figures.fail,
        Better::Low => value > figures.fail,
    };
    let mut medians = host_medians(run_values);
    medians.retain(|(_, value)| is_beyond(*value));
    medians
}

/// Returns the median of the upper bounds in the rows. `None` if the metric is not a bandwidth, because only bandwidth
/// has a bound.
pub(super) fn bound(rows: &[Row<'_>], metric: &Metric) -> Option<f64> {
    if metric.figure.field != "bandwidth_bytes_per_s_mean" {
        return None;
    }
    let bounds = rows.iter().filter_map(|row| {
        let own = row.record.body.any().moved(row.part)?;
        let bound = own.bound.or(row.record.bound.as_ref())?;
        Some(bound.bytes_per_s).filter(|bound| bound.is_finite() && *bound > 0.0)
    });
    median(&bounds.collect::<Vec<_>>())
}

/// Median, spread and thresholds of a set of runs.
pub(super) struct RunFigures {
    pub hosts: usize,
    pub runs: usize,
    pub median: f64,
    pub mad: f64,
    pub warn: f64,
    pub fail: f64,
}

impl RunFigures {
    pub(super) fn new(
        run_values: &[RunValue],
        request: &BaselineRequest,
        metric: Metric,
        hand: Option<&HandValue>,
    ) -> Self {
        let values: Vec<f64> = run_values.iter().map(|run| run.value).collect();
        let hosts: BTreeSet<&str> = run_values.iter().map(|run| run.host.as_str()).collect();
        let (centre, spread) = match hand {
            Some(hand) => (hand.value, 0.0),
            None => (
                median(&values).unwrap_or(0.0),
                median_absolute_deviation(&values),
            ),
        };
        let threshold = |margin: f64| {
            let distance = (margin * centre).max(MADS_MIN * spread);
            match metric.better {
                Better::High => centre - distance,
                Better::Low => centre + distance,
            }
        };
        Self {
            hosts: hosts.len(),
            runs: run_values.len(),
            median: centre,
            mad: spread,
            warn: threshold(request.warn),
            fail: threshold(request.fail),
        }
    }

    /// Checks whether these figures can form an entry. If not, the error gives the reason.
    pub(super) fn check(
        &self,
        request: &BaselineRequest,
        bound: Option<f64>,
        hand: Option<&HandValue>,
    ) -> std::result::Result<(), String> {
        let is_measured = hand.is_none();
        if is_measured && self.runs < request.runs_min {
            return Err(format!(
                "{} of the {} runs that it needs: measure more with --runs, or ask for fewer with --min-runs",
                self.runs, request.runs_min
            ));
        }
        if is_measured && self.hosts < request.hosts_min {
            return Err(format!(
                "{} of the {} hosts that it needs: measure on more, or ask for fewer with --min-hosts",
                self.hosts, request.hosts_min
            ));
        }
        if self.mad >= request.fail * self.median {
            return Err(format!(
                "its runs spread by {:.1} %, as wide as --fail {:.1} %: measure longer or on an idle host",
                100.0 * self.mad / self.median,
                100.0 * request.fail
            ));
        }
        if self.warn.min(self.fail) <= 0.0 {
            return Err(
                "its runs spread so widely that 4 MAD reach below 0: measure longer or on an idle host".into(),
            );
        }
        let Some(bound) = bound.filter(|bound| self.warn > *bound) else {
            return Ok(());
        };
        Err(format!(
            "{}: its threshold {} lies above the bound of {bound} measured with the point: \
             measure again on an idle host, or with --bound none",
            hand.map_or("its runs are faster than that".to_owned(), HandValue::title),
            self.warn
        ))
    }
}
