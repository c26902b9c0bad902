//! The result of a comparison: the most important verdict with its row or cause, then the number of points with each
//! other verdict.

use tonnage_judge::compare::Comparison;
use tonnage_judge::criteria::{FailOn, PointVerdict};
use tonnage_judge::judging::PointJudgement;
use tonnage_units::quantity::human::{number, percent};

use super::labels::Labels;
use super::{interval, metric, value};
use crate::result::{ReportResult, ResultWord};
use crate::text::distinct;

/// Maximum number of keys to name in full. If more keys differ, only their first parts are named.
const DIFFERENCES_MAX: usize = 3;

/// The result. `fail_on` are the verdicts that make the comparison fail.
pub fn of(comparison: &Comparison, labels: &Labels, fail_on: &[FailOn]) -> ReportResult {
    let fails = |verdict: PointVerdict| fail_on.iter().any(|on| on.includes(verdict));
    let found = PointVerdict::ALL.into_iter();
    let found: Vec<PointVerdict> = found.filter(|it| comparison.count(*it) > 0).collect();
    let is_good = |it: &PointVerdict| matches!(it, PointVerdict::Same | PointVerdict::Better);
    let failing = found.iter().find(|it| fails(**it));
    let word = match failing {
        Some(_) => ResultWord::Fail,
        None if found.iter().all(is_good) => ResultWord::Pass,
        None => ResultWord::Result,
    };
    let worse = found.iter().find(|it| **it == PointVerdict::Worse);
    // If several verdicts have the same number of points, the first in the list is the most important.
    let most = found.iter().rev().max_by_key(|it| comparison.count(**it));
    let lead = failing.or(worse).or(most).copied();
    let lead = lead.unwrap_or(PointVerdict::NotMeasured);
    let mut result = word.with(line(comparison, labels, lead));
    let others: Vec<PointVerdict> = found.into_iter().filter(|it| *it != lead).collect();
    // The cause of `NotComparable` may invalidate most of the table, so it gets a line of its own.
    let (causes, others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|it| *it == PointVerdict::NotComparable);
    for verdict in causes {
        result = result.then(line(comparison, labels, verdict));
    }
    let others = others
        .into_iter()
        .map(|verdict| format!("{} {}", comparison.count(verdict), name(verdict)));
    let others = others.collect::<Vec<_>>().join(", ");
    match others.is_empty() {
        true => result,
        false => result.then(others),
    }
}

/// The verdict as words.
pub fn name(verdict: PointVerdict) -> String {
    verdict.name().replace('-', " ")
}

/// The number of points with this verdict, and the row or cause that explains it.
fn line(comparison: &Comparison, labels: &Labels, verdict: PointVerdict) -> String {
    let points = comparison.points.iter().zip(&labels.points);
    let own: Vec<(&PointJudgement, &String)> =
        points.filter(|(it, _)| it.verdict == verdict).collect();
    let count = format!(
        "{} of {} points {}",
        own.len(),
        comparison.points.len(),
        name(verdict)
    );
    let margin = percent(comparison.criteria.margin);
    let reason = match verdict {
        PointVerdict::Worse | PointVerdict::Better => {
            furthest(&own).map(|point| format!("{point}, margin {margin}"))
        }
        PointVerdict::Same => Some(format!("each interval lies within the margin of {margin}")),
        _ => cause(&own),
    };
    match reason {
        Some(reason) => format!("{count}: {reason}"),
        None => count,
    }
}

/// The point whose values are furthest apart.
fn furthest(own: &[(&PointJudgement, &String)]) -> Option<String> {
    let distance = |judged: &PointJudgement| judged.ratio.map_or(0.0, |it| it.value.ln().abs());
    let (judged, label) = own
        .iter()
        .max_by(|left, right| distance(left.0).total_cmp(&distance(right.0)))?;
    let label = match label.is_empty() {
        true => String::new(),
        false => format!("{label}, "),
    };
    let ratio = judged.ratio?;
    let most = if own.len() > 1 { "furthest: " } else { "" };
    Some(format!(
        "{most}{label}{} {} → {}, B / A {} ({})",
        metric(judged),
        value(judged, judged.a),
        value(judged, judged.b),
        number(ratio.value),
        interval(ratio)
    ))
}

/// The cause that most of these points share, with the option that accepts it.
fn cause(own: &[(&PointJudgement, &String)]) -> Option<String> {
    let of_point = |judged: &PointJudgement| match judged.differs_in.as_slice() {
        [] => judged.why.last().cloned(),
        keys => Some(accepting(keys)),
    };
    let causes: Vec<String> = own.iter().filter_map(|(it, _)| of_point(it)).collect();
    let count = |cause: &String| causes.iter().filter(|it| *it == cause).count();
    let most = distinct(causes.iter())
        .into_iter()
        .rev()
        .max_by_key(|it| count(it))?;
    Some(match count(most) < own.len() {
        true => format!("{most} ({} of them)", count(most)),
        false => most.clone(),
    })
}

/// Names the differing keys, and the option that compares in spite of them.
fn accepting(keys: &[String]) -> String {
    let names = match keys.len() > DIFFERENCES_MAX {
        true => distinct(
            keys.iter()
                .map(|key| key.split('.').next().unwrap_or(key).to_owned()),
        ),
        false => keys.to_vec(),
    };
    let differ = if names.len() == 1 {
        "differs"
    } else {
        "differ"
    };
    format!(
        "{} {differ}; --accept {} compares them anyway",
        names.join(", "),
        names.join(",")
    )
}
