//! Judging one metric of one point: values of both sides, reasons against a comparison, the verdict.

use serde::Serialize;
use tonnage_record::figures::Better;
use tonnage_units::quantity::human::{duration, percent};

use crate::correction::adjusted;
use crate::criteria::{Criteria, PointVerdict, RUNS_MIN};
use crate::estimate::Estimate;
use crate::keys::{KeyDifference, KeyNames, Keys};
use crate::matching::{Alone, SidePoint, known};
use crate::metric::Metric;
use crate::surroundings::{CANARY, Weight, facts_of_hosts};
use crate::values::{SideFigure, SideValues};

/// Canaries further apart are of machines that differ.
const CANARY_CRITERIA: Criteria = Criteria {
    margin: 0.2,
    confidence: 0.95,
};

/// One metric of one point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Keys that both sides have alike, or those of the side that has the point.
    pub keys: Keys,
    /// Ignored keys in which the sides differ.
    pub differing: Vec<KeyDifference>,
    /// The metric as it was asked for; absent where neither side has any.
    pub metric: Option<&'static str>,
    /// Column of CSV that says the unit of the values.
    pub field: Option<&'static str>,
    /// Value of the first side.
    pub a: Option<SideFigure>,
    /// Value of the second side.
    pub b: Option<SideFigure>,
    /// The ratio; absent where too few values are known.
    pub ratio: Option<Ratio>,
    /// The verdict.
    pub verdict: PointVerdict,
    /// True where trials stand in for runs, so that the verdict holds for these runs only.
    pub of_these_runs_only: bool,
    /// Runs that each side would need beyond those it has for another verdict than unclear.
    pub more_runs: Option<usize>,
    /// Reasons for the verdict, and remarks.
    pub why: Vec<String>,
}

impl Judged {
    /// Returns whether there were values, all of which were left out.
    pub(crate) fn lost_runs(&self) -> bool {
        self.verdict == PointVerdict::NotComparable
    }
}

/// Second side / first side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Ratio of the geometric means.
    pub value: f64,
    /// Lower end of its confidence interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Probability of such a difference between equal sides, for this point alone.
    pub p: f64,
    /// `p`, adjusted for the number of points by Benjamini and Hochberg; 1 where the point is not comparable.
    pub p_adjusted: f64,
}

/// A judgement before the correction for many points.
pub(crate) struct Undecided {
    /// The judgement so far.
    pub(crate) judged: Judged,
    estimate: Option<(Estimate, Metric)>,
}

/// Everything about one metric of a pair but the verdict that many points have a say in.
pub(crate) fn judge(
    pair: [&SidePoint<'_>; 2],
    metric: Option<Metric>,
    accepted: &KeyNames,
    criteria: &Criteria,
) -> Undecided {
    let keeps_changed = accepted.take(CANARY);
    let values = pair.map(|point| {
        let of = |metric: Metric| SideValues::of(&point.rows, &metric, keeps_changed);
        metric
            .map(of)
            .unwrap_or_else(|| SideValues::unmeasured(&point.rows))
    });
    let mut judged = Judged {
        keys: pair[0].keys.shared_with(&pair[1].keys),
        differing: pair[0].keys.differences(&pair[1].keys),
        metric: metric.map(|metric| metric.name),
        field: metric.map(|metric| metric.figure.field),
        a: values[0].figure(),
        b: values[1].figure(),
        ratio: None,
        verdict: PointVerdict::Unclear,
        of_these_runs_only: false,
        more_runs: None,
        why: Vec::new(),
    };
    for (letter, side) in ["A", "B"].into_iter().zip(&values) {
        if side.changed > 0 {
            judged.why.push(format!(
                "{letter}: {} left out, whose canary changed",
                counted(side.changed, "run")
            ));
        }
    }
    if let Some(verdict) = settled(&values, &mut judged) {
        judged.verdict = verdict;
        return Undecided {
            judged,
            estimate: None,
        };
    }
    let by_runs = values.iter().all(|side| side.runs.len() >= RUNS_MIN);
    judged.of_these_runs_only = !by_runs;
    let unit = |side: &SideValues| {
        if by_runs {
            side.runs.clone()
        } else {
            side.trials.clone()
        }
    };
    let estimate = Estimate::of(&unit(&values[0]), &unit(&values[1]), criteria);
    let reasons = incomparable(pair, &values, metric, accepted);
    if !reasons.is_empty() {
        judged.verdict = PointVerdict::NotComparable;
        judged.why.extend(reasons);
    }
    if estimate.is_none() {
        let fewest = values.iter().map(|side| side.runs.len()).min().unwrap_or(0);
        judged.more_runs = Some(RUNS_MIN.saturating_sub(fewest));
        judged
            .why
            .push("no interval: the metric has too few trials to stand in for runs".to_owned());
    }
    let estimate = estimate.zip(metric);
    Undecided { judged, estimate }
}

/// The verdict where a side has nothing that could be compared.
fn settled(values: &[SideValues; 2], judged: &mut Judged) -> Option<PointVerdict> {
    let mut verdict = None;
    for (letter, side) in ["A", "B"].into_iter().zip(values) {
        if !side.runs.is_empty() {
            continue;
        }
        verdict = verdict.or(Some(PointVerdict::Missing));
        match (&side.not_measured, side.changed) {
            (_, 1..) => verdict = Some(PointVerdict::NotComparable),
            (Some(why), 0) => judged.why.push(format!("{letter} {why}")),
            (None, 0) => judged
                .why
                .push(format!("{letter} has no value of this metric")),
        }
    }
    verdict
}

/// Reasons why a difference would say nothing about what is compared.
fn incomparable(
    pair: [&SidePoint<'_>; 2],
    values: &[SideValues; 2],
    metric: Option<Metric>,
    accepted: &KeyNames,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let [a, b] = pair.map(|point| facts_of_hosts(&point.rows));
    let differences = a.differences(&b, accepted);
    let counting = differences.iter().filter(|it| it.weight == Weight::Counts);
    let counting: Vec<&str> = counting.map(|it| it.key.as_str()).collect();
    if !counting.is_empty() {
        reasons.push(format!("differs in {}: see above", counting.join(", ")));
    }
    if metric.is_some_and(|metric| metric.is_latency()) {
        let [a, b] = [&values[0].sample_kinds, &values[1].sample_kinds];
        if a != b {
            let (a, b) = (a.join(", "), b.join(", "));
            reasons.push(format!(
                "other units: a latency of A is of kind {a}, of B of kind {b}"
            ));
        }
    }
    if !accepted.take(CANARY) {
        for (letter, side) in ["A", "B"].into_iter().zip(values) {
            if side.changed > 0 && side.runs.len() < RUNS_MIN {
                reasons.push(format!("{letter}: too few runs are left"));
            }
        }
        reasons.extend(other_canary(pair, values));
    }
    reasons
}

/// Says that the canaries of the two sides are those of different machines. Where sides took turns the machine was the
/// same for both, so that canaries which differ do so because of what is compared.
fn other_canary(pair: [&SidePoint<'_>; 2], values: &[SideValues; 2]) -> Option<String> {
    let mut rows = pair.into_iter().flat_map(|point| &point.rows);
    if rows.all(|row| row.record.side.is_some()) {
        return None;
    }
    let (a, b) = (values[0].canary_ns()?, values[1].canary_ns()?);
    let [first, second] = [&values[0].canaries_ns, &values[1].canaries_ns];
    let differ = match first.len().min(second.len()) < RUNS_MIN {
        true => a.max(b) > a.min(b) * (1.0 + CANARY_CRITERIA.margin),
        false => Estimate::of(first, second, &CANARY_CRITERIA).is_some_and(|estimate| {
            let verdict = estimate.verdict(estimate.p, Better::Low, &CANARY_CRITERIA);
            matches!(verdict, PointVerdict::Better | PointVerdict::Worse)
        }),
    };
    let (a, b) = (duration(a), duration(b));
    differ.then(|| format!("the canary is {a} on A and {b} on B, so the machine changed"))
}

/// Verdicts of all points, corrected for their number.
pub(crate) fn decide(pending: &mut [Undecided], criteria: &Criteria) {
    // Points that are not compared have no say in the correction of those that are.
    let is_compared = |judged: &Judged| judged.verdict != PointVerdict::NotComparable;
    let compared = pending.iter().filter(|it| is_compared(&it.judged));
    let estimates = compared.filter_map(|it| it.estimate.as_ref());
    let p: Vec<f64> = estimates.map(|(estimate, _)| estimate.p).collect();
    let points = p.len();
    let mut corrected = adjusted(&p).into_iter();
    for Undecided { judged, estimate } in pending {
        let Some((estimate, metric)) = estimate else {
            continue;
        };
        let p_adjusted = match is_compared(judged) {
            true => corrected.next().unwrap_or(1.0),
            false => 1.0,
        };
        let (low, high) = estimate.interval();
        judged.ratio = Some(Ratio {
            value: estimate.ratio(),
            low,
            high,
            p: estimate.p,
            p_adjusted,
        });
        if !is_compared(judged) {
            continue;
        }
        judged.verdict = estimate.verdict(p_adjusted, metric.better, criteria);
        if judged.verdict != PointVerdict::Unclear {
            continue;
        }
        let alone = estimate.verdict(estimate.p, metric.better, criteria);
        if alone != PointVerdict::Unclear {
            judged.why.push(format!(
                "{} by itself, which among {points} points may be chance",
                alone.name()
            ));
        }
        if judged.of_these_runs_only {
            let fewest = judged
                .a
                .into_iter()
                .chain(judged.b)
                .map(|side| side.runs)
                .min();
            judged.more_runs = Some(RUNS_MIN.saturating_sub(fewest.unwrap_or(0)));
        } else {
            judged.more_runs = estimate.more_runs(p_adjusted, criteria);
            if judged.more_runs.is_none() {
                let margin = percent(criteria.margin);
                judged.why.push(format!(
                    "so near the margin of {margin} that more runs would hardly tell"
                ));
            }
        }
    }
}

/// The judgement of a point without a partner.
pub(crate) fn missing(side: usize, points: &[SidePoint<'_>], alone: &Alone) -> Judged {
    let letter = ["A", "B"][side];
    let nearest = alone.nearest.as_deref().map(|differing| {
        let other = ["B", "A"][side];
        format!("; the nearest of {other} differs in {}", listed(differing))
    });
    Judged {
        keys: points[alone.at].keys.clone(),
        differing: Vec::new(),
        metric: None,
        field: None,
        a: None,
        b: None,
        ratio: None,
        verdict: PointVerdict::Missing,
        of_these_runs_only: false,
        more_runs: None,
        why: vec![format!(
            "only {letter} has it{}",
            nearest.unwrap_or_default()
        )],
    }
}

/// Keys with the values of both sides.
pub(crate) fn listed(differing: &[KeyDifference]) -> String {
    let one = |it: &KeyDifference| format!("{} ({}, {})", it.key, known(&it.a), known(&it.b));
    let texts: Vec<String> = differing.iter().map(one).collect();
    match texts.is_empty() {
        true => "nothing that is not ignored, but has a partner already".to_owned(),
        false => texts.join(", "),
    }
}

/// A number of things.
pub fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
