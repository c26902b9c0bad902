//! Judging one metric of one point: values of both sides, reasons against a comparison, the verdict.

use serde::Serialize;
use tonnage_record::Outcome;
use tonnage_record::figures::{Better, Row};
use tonnage_units::quantity::human::{duration, percent};

use crate::correction::adjusted;
use crate::criteria::{Criteria, PointVerdict, RUNS_MIN};
use crate::estimate::Estimate;
use crate::keys::{KeyDifference, Keys};
use crate::matching::{Alone, SidePoint, known};
use crate::metric::Metric;
use crate::surroundings::{Allowed, CANARY, Weight, facts_of_hosts};
use crate::values::{SideFigure, SideValues};

/// Canaries further apart, as a part of the faster one, are of machines that differ.
const CANARY_FRACTION_ALIKE: f64 = 0.2;

/// One run in so many may be left out because of its canary: what is left of fewer was chosen by how fast it was.
const LEFT_OUT_PART: usize = 3;

/// Names of the sides.
const LETTERS: [&str; 2] = ["A", "B"];

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
    /// True where trials stand in for runs (`--by-trials`), so that the verdict holds for these runs only.
    pub of_these_runs_only: bool,
    /// Runs that each side would need beyond those it has for another verdict than unclear.
    pub more_runs: Option<usize>,
    /// Reasons for the verdict, and remarks.
    pub why: Vec<String>,
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
    /// True where runs of a side were not measured: what is left of them is no proof that nothing is worse.
    lost: bool,
    estimate: Option<(Estimate, Metric)>,
}

/// Everything about one metric of a pair but the verdict that many points have a say in.
pub(crate) fn judge(
    pair: [&SidePoint<'_>; 2],
    metric: Option<Metric>,
    allowed: &Allowed,
    criteria: &Criteria,
) -> Undecided {
    let keeps_changed = allowed.names.take(CANARY);
    let values = pair.map(|point| match &metric {
        Some(metric) => SideValues::of(&point.rows, metric, keeps_changed),
        None => SideValues::unmeasured(&point.rows),
    });
    let lost = values.iter().any(|side| side.unmeasured > 0);
    let has_runs = values.iter().all(|side| side.runs.len() >= RUNS_MIN);
    let too_few = !has_runs && !criteria.by_trials;
    let by_trials = !has_runs && criteria.by_trials;
    let units = [0, 1].map(|side| match by_trials {
        true => values[side].trials.as_slice(),
        false => values[side].runs.as_slice(),
    });
    // One or two runs tell nothing of how far the next one would be from them.
    let estimate = match too_few {
        true => None,
        false => Estimate::of(units[0], units[1], criteria),
    };
    // The ratio is that of the values beside it.
    let shows_runs = !by_trials || estimate.is_none();
    let mut judged = Judged {
        keys: pair[0].keys.shared_with(&pair[1].keys),
        differing: pair[0].keys.differences(&pair[1].keys),
        metric: metric.map(|metric| metric.name),
        field: metric.map(|metric| metric.figure.field),
        a: values[0].figure(shows_runs),
        b: values[1].figure(shows_runs),
        ratio: None,
        verdict: PointVerdict::Unclear,
        of_these_runs_only: false,
        more_runs: None,
        why: Vec::new(),
    };
    for (letter, side) in LETTERS.into_iter().zip(&values) {
        judged.why.extend(side.remarks(letter));
    }
    if let Some(verdict) = settled(&values, &mut judged) {
        judged.verdict = verdict;
        return Undecided {
            judged,
            lost,
            estimate: None,
        };
    }
    judged.of_these_runs_only = by_trials;
    let reasons = incomparable(pair, &values, metric, allowed);
    let of_zero = of_zero(&values, units);
    match (lost, reasons.is_empty(), &of_zero) {
        (true, true, _) if estimate.is_some() => {}
        (true, _, _) => judged.verdict = PointVerdict::Missing,
        (false, false, _) => judged.verdict = PointVerdict::NotComparable,
        (false, true, Some((verdict, _))) if !too_few => judged.verdict = *verdict,
        (false, true, _) => {}
    }
    judged.why.extend(reasons);
    let fewest = values.iter().map(|side| side.runs.len()).min().unwrap_or(0);
    if too_few {
        judged.more_runs = Some(RUNS_MIN.saturating_sub(fewest));
        judged.why.push(too_few_runs(&values));
    }
    if let Some((_, why)) = of_zero {
        judged.why.extend(why);
    } else if by_trials && estimate.is_none() {
        judged.more_runs = Some(RUNS_MIN.saturating_sub(fewest));
        judged
            .why
            .push("no interval: the metric has too few trials to stand in for runs".to_owned());
    }
    Undecided {
        judged,
        lost,
        estimate: estimate.zip(metric),
    }
}

/// Why there is no verdict on fewer runs than [`RUNS_MIN`] a side, and how to get one.
fn too_few_runs(values: &[SideValues; 2]) -> String {
    let [a, b] = [0, 1].map(|side| values[side].runs.len());
    let runs = match a == b {
        true => format!("{} a side", counted(a, "run")),
        false => format!("{} of A and {b} of B", counted(a, "run")),
    };
    format!("{runs}; use `--times 5`, or --by-trials for a verdict on these runs only")
}

/// The verdict on values of which one is not above 0, so that there is no ratio, and the reason for it.
fn of_zero(values: &[SideValues; 2], units: [&[f64]; 2]) -> Option<(PointVerdict, Option<String>)> {
    let shown = |side: usize| match units[side] {
        [] => values[side].runs.as_slice(),
        units => units,
    };
    if shown(0).iter().chain(shown(1)).all(|value| *value == 0.0) {
        return Some((PointVerdict::Same, None));
    }
    let has_zero = |side: usize| {
        let mut all = shown(side).iter().chain(&values[side].runs);
        all.any(|value| *value <= 0.0)
    };
    let sides: Vec<&str> = (0..2)
        .filter(|&side| has_zero(side))
        .map(|side| LETTERS[side])
        .collect();
    let unit = match values
        .iter()
        .all(|side| side.runs.iter().all(|value| *value > 0.0))
    {
        true => "trials",
        false => "runs",
    };
    let why = format!(
        "{}: {unit} of 0, which no ratio can take",
        sides.join(" and ")
    );
    (!sides.is_empty()).then_some((PointVerdict::Unclear, Some(why)))
}

/// The verdict where a side has nothing that could be compared. No canary hides a failure.
fn settled(values: &[SideValues; 2], judged: &mut Judged) -> Option<PointVerdict> {
    if values
        .iter()
        .all(|side| side.runs.is_empty() && side.changed == 0)
    {
        let lacking = LETTERS.into_iter().zip(values);
        let lacking = lacking.filter(|(_, side)| side.unmeasured == 0);
        let lacking: Vec<&str> = lacking.map(|(letter, _)| letter).collect();
        if !lacking.is_empty() {
            judged.why.push(format!(
                "{} has no value of what is compared",
                lacking.join(", nor ")
            ));
        }
        return Some(PointVerdict::NotMeasured);
    }
    let mut verdict = None;
    for (letter, side) in LETTERS.into_iter().zip(values) {
        if !side.runs.is_empty() {
            continue;
        }
        match (side.unmeasured, side.changed) {
            (1.., _) => verdict = Some(PointVerdict::Missing),
            (0, 1..) => verdict = verdict.or(Some(PointVerdict::NotComparable)),
            (0, 0) => {
                verdict = Some(PointVerdict::Missing);
                judged
                    .why
                    .push(format!("{letter} has no value of this metric"));
            }
        }
    }
    // Nor does a canary of one side hide that runs of the other failed.
    match values.iter().any(|side| side.unmeasured > 0) {
        true => verdict.and(Some(PointVerdict::Missing)),
        false => verdict,
    }
}

/// Reasons why a difference would say nothing about what is compared.
fn incomparable(
    pair: [&SidePoint<'_>; 2],
    values: &[SideValues; 2],
    metric: Option<Metric>,
    allowed: &Allowed,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let [a, b] = pair.map(|point| facts_of_hosts(&point.rows));
    let differences = a.differences(&b, allowed);
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
    if !allowed.names.take(CANARY) {
        for (letter, side) in LETTERS.into_iter().zip(values) {
            let too_many = side.changed * LEFT_OUT_PART > side.changed + side.runs.len();
            if too_many || side.changed > 0 && side.runs.len() < RUNS_MIN {
                reasons.push(format!("{letter}: too few runs are left"));
            }
        }
        // Where sides took turns canaries differ because of what is compared.
        if !allowed.took_turns {
            reasons.extend(other_canary(values));
        }
    }
    reasons
}

/// Says that the canaries of the two sides are those of CPUs at different distances.
fn other_canary(values: &[SideValues; 2]) -> Option<String> {
    let (a, b) = (values[0].canary_ns()?, values[1].canary_ns()?);
    let differ = a.max(b) > a.min(b) * (1.0 + CANARY_FRACTION_ALIKE);
    let (a, b) = (duration(a), duration(b));
    differ.then(|| {
        format!("the canary is {a} on A and {b} on B, so the CPUs are not the same distance apart")
    })
}

/// Verdicts of all points, corrected for their number.
pub(crate) fn decide(pending: &mut [Undecided], criteria: &Criteria) {
    // Points that are not compared have no say in the correction of those that are.
    let is_compared = |judged: &Judged| judged.verdict == PointVerdict::Unclear;
    let compared = pending.iter().filter(|it| is_compared(&it.judged));
    let estimates = compared.filter_map(|it| it.estimate.as_ref());
    let p: Vec<f64> = estimates.map(|(estimate, _)| estimate.p).collect();
    let points = p.len();
    let mut corrected = adjusted(&p).into_iter();
    for Undecided {
        judged,
        lost,
        estimate,
    } in pending
    {
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
        if !is_borne_out(judged, metric.better) {
            judged.why.push(beyond_bounds(judged));
            judged.verdict = match lost {
                true => PointVerdict::Missing,
                false => PointVerdict::Unclear,
            };
            continue;
        }
        if estimate.is_without_spread() {
            judged.why.push(
                "no value varies: the figure is coarser than their spread; p is of a rank test"
                    .to_owned(),
            );
        }
        if *lost && judged.verdict != PointVerdict::Worse {
            judged.verdict = PointVerdict::Missing;
        }
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

/// Returns whether a verdict holds wherever the true values are, if some of the shown ones are lower bounds: a higher one
/// of its side must not change it.
fn is_borne_out(judged: &Judged, better: Better) -> bool {
    let is_bound = |side: &Option<SideFigure>| side.is_some_and(|side| side.is_lower_bound);
    let higher = match (judged.verdict, better) {
        (PointVerdict::Worse, Better::Low) | (PointVerdict::Better, Better::High) => [false, true],
        (PointVerdict::Better, Better::Low) | (PointVerdict::Worse, Better::High) => [true, false],
        (PointVerdict::Same, _) => [false, false],
        // It claims nothing.
        _ => return true,
    };
    let bounds = [is_bound(&judged.a), is_bound(&judged.b)];
    bounds
        .into_iter()
        .zip(higher)
        .all(|(is_bound, may_be_higher)| !is_bound || may_be_higher)
}

/// Reason for no verdict on values that are lower bounds.
fn beyond_bounds(judged: &Judged) -> String {
    let sides = LETTERS.into_iter().zip([&judged.a, &judged.b]);
    let bounds = sides.filter(|(_, side)| side.is_some_and(|side| side.is_lower_bound));
    let letters: Vec<&str> = bounds.map(|(letter, _)| letter).collect();
    format!(
        "{} by what is known, but {} a lower bound (≥): the true value may be higher",
        judged.verdict.name(),
        match letters[..] {
            [one] => format!("that of {one} is"),
            _ => format!("those of {} are each", letters.join(" and ")),
        }
    )
}

/// The judgement of a point without a partner.
pub(crate) fn missing(side: usize, points: &[SidePoint<'_>], alone: &Alone) -> Judged {
    let (letter, point) = (LETTERS[side], &points[alone.at]);
    let nearest = alone.nearest.as_deref().map(|differing| {
        let other = LETTERS[1 - side];
        format!("; the nearest of {other} differs in {}", listed(differing))
    });
    let mut why = vec![format!(
        "only {letter} has it{}",
        nearest.unwrap_or_default()
    )];
    why.extend(SideValues::unmeasured(&point.rows).remarks(letter));
    let is_measured = |row: &Row<'_>| row.record.outcome == Outcome::Measured;
    Judged {
        keys: point.keys.clone(),
        differing: Vec::new(),
        metric: None,
        field: None,
        a: None,
        b: None,
        ratio: None,
        verdict: match point.rows.iter().any(is_measured) {
            true => PointVerdict::Missing,
            false => PointVerdict::NotMeasured,
        },
        of_these_runs_only: false,
        more_runs: None,
        why,
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
