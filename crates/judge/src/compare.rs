//! Compares the records of two sides and gives a verdict on each point.

use serde::Serialize;
use tonnage_record::Record;
use tonnage_units::{Error, Result};

use crate::criteria::{Criteria, PointVerdict};
use crate::judging::{
    PendingJudgement, PointJudgement, decide, judge, judge_unmatched, list_differences,
};
use crate::keys::{self, KeyNames};
use crate::matching::{Matches, SidePoint, match_points, points};
use crate::metric::{Metric, NAMED};
use crate::sides::Sides;
use crate::surroundings::{
    self, AcceptedDifferences, Difference, SurroundingFacts, facts_of_hosts, same_hosts,
};

/// Options of a comparison.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompareRequest {
    /// Metrics; if empty, each point's default metric.
    pub metrics: Vec<Metric>,
    /// Keys of points that may differ.
    pub ignore: Vec<String>,
    /// Differences in the surroundings that the user accepts.
    pub accept: Vec<String>,
    /// Margin and confidence.
    pub criteria: Criteria,
}

/// Result of comparing two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Margin and confidence.
    pub criteria: Criteria,
    /// Number of runs per side: the largest number of any point. A resumed run does not count twice.
    pub runs: [usize; 2],
    /// Differences in program, effective configuration, machine and variables, over all points that are on both sides.
    pub differences: Vec<Difference>,
    /// Verdicts.
    pub points: Vec<PointJudgement>,
}

impl Comparison {
    /// Returns the number of points with this verdict.
    pub fn count(&self, verdict: PointVerdict) -> usize {
        self.points
            .iter()
            .filter(|point| point.verdict == verdict)
            .count()
    }
}

/// Compares the records of two sides.
///
/// # Errors
/// `Usage` if the sides have no point in common, if a key does not exist, if ignoring keys would merge several points,
/// or if no point has a metric.
pub fn compare(sides: &Sides<'_>, request: &CompareRequest) -> Result<Comparison> {
    let of_sides = points(&sides.records);
    let of_sides = [of_sides[0].as_slice(), of_sides[1].as_slice()];
    let all = of_sides.iter().copied().flatten();
    let known_keys = all.flat_map(|point| point.keys.iter().map(|(key, _)| key));
    let ignored = KeyNames::checked(
        "--ignore",
        &request.ignore,
        known_keys.chain(keys::known_names()),
    )?;
    let accepted = accepted_differences(sides, request)?;
    let found = match_points(of_sides, &ignored)?;
    if found.pairs.is_empty() {
        return Err(nothing_in_common(&found, request));
    }
    let mut pending: Vec<PendingJudgement> = Vec::new();
    for &(a, b) in &found.pairs {
        let pair = [&of_sides[0][a], &of_sides[1][b]];
        pending.extend(judge_pair(pair, &accepted, request));
    }
    let lacks_value = |it: &PendingJudgement| it.judged.verdict == PointVerdict::NotMeasured;
    if pending.iter().all(lacks_value) {
        return Err(lacks_metric(request, &found, of_sides));
    }
    decide(&mut pending, &request.criteria);
    let mut judged: Vec<PointJudgement> = pending.into_iter().map(|it| it.judged).collect();
    for side in [0, 1] {
        let alone = found.alone[side].iter();
        judged.extend(alone.map(|alone| judge_unmatched(side, of_sides[side], alone)));
    }
    Ok(Comparison {
        criteria: request.criteria,
        runs: of_sides.map(|points| points.iter().map(SidePoint::runs).max().unwrap_or(0)),
        differences: differences(of_sides, &found, &accepted),
        points: judged,
    })
}

/// Judges a pair by each metric that has a value on either side. Without any such metric, the pair is judged once
/// without a metric.
fn judge_pair(
    pair: [&SidePoint<'_>; 2],
    accepted: &AcceptedDifferences,
    request: &CompareRequest,
) -> Vec<PendingJudgement> {
    let metrics = metrics(pair, request).into_iter();
    let all = metrics.map(|metric| judge(pair, Some(metric), accepted, &request.criteria));
    let mut all: Vec<PendingJudgement> = all.collect();
    all.retain(|it| it.judged.verdict != PointVerdict::NotMeasured);
    if all.is_empty() {
        all.push(judge(pair, None, accepted, &request.criteria));
    }
    all
}

/// Returns the accepted differences: those that the user accepts, and the settings deliberately changed on side B.
fn accepted_differences(
    sides: &Sides<'_>,
    request: &CompareRequest,
) -> Result<AcceptedDifferences> {
    let records = || sides.records.iter().flatten();
    let mut facts = SurroundingFacts::default();
    let mut seen: Vec<&Record> = Vec::new();
    for record in records() {
        if !seen.iter().any(|known| same_hosts(known, record)) {
            facts.extend(SurroundingFacts::of_hosts(record));
            seen.push(record);
        }
    }
    KeyNames::checked(
        "--accept",
        &request.accept,
        facts.keys().chain(surroundings::always_acceptable()),
    )?;
    let varied = records().filter_map(|record| record.side.as_ref());
    let mut names: Vec<&str> = varied
        .flat_map(|side| side.varied.iter().map(String::as_str))
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(AcceptedDifferences {
        names: request
            .accept
            .iter()
            .map(String::as_str)
            .chain(names)
            .collect(),
        alternated: sides.alternated,
    })
}

fn differences(
    sides: [&[SidePoint<'_>]; 2],
    found: &Matches,
    accepted: &AcceptedDifferences,
) -> Vec<Difference> {
    let mut facts = [SurroundingFacts::default(), SurroundingFacts::default()];
    for &(a, b) in &found.pairs {
        for (side, at) in [a, b].into_iter().enumerate() {
            let point = &sides[side][at];
            facts[side].extend(facts_of_hosts(&point.rows));
            for row in &point.rows {
                facts[side].extend(SurroundingFacts::of_run(row.record));
            }
        }
    }
    facts[0].differences(&facts[1], accepted)
}

/// Returns the requested metrics, or the pair's default metric.
fn metrics(pair: [&SidePoint<'_>; 2], request: &CompareRequest) -> Vec<Metric> {
    let rows: Vec<_> = pair.into_iter().flat_map(|point| &point.rows).collect();
    Metric::requested_or_default(&request.metrics, &rows)
}

fn nothing_in_common(found: &Matches, request: &CompareRequest) -> Error {
    let all = found.alone.iter().flatten();
    let nearest = all.filter_map(|alone| alone.nearest.as_ref());
    let nearest = nearest.min_by_key(|differing| differing.len());
    let Some(differing) = nearest else {
        return Error::Usage(
            "A and B have no points in common, for one of them has none".to_owned(),
        );
    };
    // The suggestion repeats the keys that are already ignored.
    let given = request.ignore.iter().map(String::as_str);
    let keys: Vec<&str> = given
        .chain(differing.iter().map(|it| it.key.as_str()))
        .collect();
    Error::Usage(format!(
        "A and B have no points in common. The nearest differ in {}: use --ignore {} to compare them",
        list_differences(differing),
        keys.join(",")
    ))
}

/// Returns the error for requested metrics that no point has. It lists the available metrics.
fn lacks_metric(request: &CompareRequest, found: &Matches, sides: [&[SidePoint<'_>]; 2]) -> Error {
    let rows: Vec<_> = found
        .pairs
        .iter()
        .flat_map(|&(a, _)| &sides[0][a].rows)
        .collect();
    let named = NAMED.iter();
    let there: Vec<&str> = named
        .filter(|(name, _)| {
            let metric: Result<Metric> = name.parse();
            metric.is_ok_and(|metric| rows.iter().any(|row| metric.value(row).is_some()))
        })
        .map(|(name, _)| *name)
        .collect();
    if request.metrics.is_empty() {
        return Error::Usage(
            "no point can be compared: nothing was measured, or it is a search; measure its winners with `tonnage ab`"
                .to_owned(),
        );
    }
    let asked: Vec<&str> = request.metrics.iter().map(|metric| metric.name).collect();
    Error::Usage(format!(
        "no point has a value of {}: there are {}",
        asked.join(", "),
        match there.is_empty() {
            true => "none at all, because nothing was measured".to_owned(),
            false => there.join(", "),
        }
    ))
}
