//! Judges one metric of one point: the values of both sides, the reasons against a comparison, and the verdict.

use serde::Serialize;
use tonnage_record::Outcome;
use tonnage_record::figures::{Better, Row};
use tonnage_units::quantity::human::{duration, percent};

use crate::correction::adjust_p_values;
use crate::criteria::{Criteria, PointVerdict, RUNS_MIN};
use crate::estimate::Estimate;
use crate::keys::{KeyDifference, PointKeys};
use crate::matching::{SidePoint, UnmatchedPoint, or_dash};
use crate::metric::Metric;
use crate::surroundings::{AcceptedDifferences, CANARY, DifferenceWeight, facts_of_hosts};
use crate::values::{SideFigure, SideValues};

/// If the canaries differ by more than this fraction of the faster one, the sides ran on different machines.
const CANARY_FRACTION_ALIKE: f64 = 0.2;

/// At most one in this many runs may be left out because of its canary. If more are left out, the rest is a biased
/// selection of fast runs.
const LEFT_OUT_PART: usize = 3;

/// Names of the sides.
const LETTERS: [&str; 2] = ["A", "B"];

/// One metric of one point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointJudgement {
    /// Keys with the same value on both sides, or all keys if only one side has the point.
    pub keys: PointKeys,
    /// Ignored keys with different values.
    pub differing: Vec<KeyDifference>,
    /// Metric, as requested; `None` if neither side has a value.
    pub metric: Option<&'static str>,
    /// CSV column, which determines the unit of the values.
    pub field: Option<&'static str>,
    /// Value of the first side.
    pub a: Option<SideFigure>,
    /// Value of the second side.
    pub b: Option<SideFigure>,
    /// Ratio; `None` if there are too few values.
    pub ratio: Option<SideRatio>,
    /// The verdict.
    pub verdict: PointVerdict,
    /// Whether trials are used instead of runs (`--by-trials`). The verdict then holds only for these runs.
    pub of_these_runs_only: bool,
    /// Number of additional runs per side for a verdict other than unclear.
    pub more_runs: Option<usize>,
    /// Runs of each side that were left out because the canary changed.
    pub left_out: [usize; 2],
    /// Keys of the surroundings that differ and make the point incomparable.
    pub differs_in: Vec<String>,
    /// Reasons for the verdict, and remarks.
    pub why: Vec<String>,
}

impl PointJudgement {
    /// The reasons and remarks that [`left_out`](Self::left_out) and [`differs_in`](Self::differs_in) do not give.
    pub fn further_reasons(&self) -> impl Iterator<Item = &String> {
        let given = LETTERS.into_iter().zip(self.left_out);
        let given = given.map(|(letter, runs)| left_out(letter, runs));
        let given: Vec<String> = given.chain([differs_in(&self.differs_in)]).collect();
        self.why.iter().filter(move |why| !given.contains(why))
    }
}

/// Remark on runs that were left out because of their canary.
fn left_out(letter: &str, runs: usize) -> String {
    format!(
        "{letter}: {} left out because the canary changed",
        counted(runs, "run")
    )
}

/// Reason of a point that is not comparable.
fn differs_in(keys: &[String]) -> String {
    format!("differs in {}", keys.join(", "))
}

/// Second side / first side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SideRatio {
    /// Ratio of the geometric means.
    pub value: f64,
    /// Lower end of its confidence interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Probability of a difference this large between equal sides, for this point alone.
    pub p: f64,
    /// `p`, adjusted for the number of points (Benjamini-Hochberg); 1 if the point is not comparable.
    pub p_adjusted: f64,
}

/// A judgement before the correction for the number of points.
pub(crate) struct PendingJudgement {
    /// The judgement so far.
    pub(crate) judged: PointJudgement,
    /// Whether some runs of a side were not measured. The remaining runs then cannot prove that nothing is worse.
    lost: bool,
    estimate: Option<(Estimate, Metric)>,
}

/// Judges one metric of a pair. Only [`decide`] completes the verdict, because it depends on the number of points.
pub(crate) fn judge(
    pair: [&SidePoint<'_>; 2],
    metric: Option<Metric>,
    accepted: &AcceptedDifferences,
    criteria: &Criteria,
) -> PendingJudgement {
    let keeps_changed = accepted.names.matches(CANARY);
    let values = pair.map(|point| match &metric {
        Some(metric) => SideValues::from_rows(&point.rows, metric, keeps_changed),
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
    // One or two runs do not show how much another run would differ, so there is no estimate.
    let estimate = match too_few {
        true => None,
        false => Estimate::new(units[0], units[1], criteria),
    };
    // The ratio must be computed from the displayed values, be they runs or trials.
    let shows_runs = !by_trials || estimate.is_none();
    let mut judged = PointJudgement {
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
        left_out: [0, 1].map(|side| values[side].changed),
        differs_in: Vec::new(),
        why: Vec::new(),
    };
    for (letter, side) in LETTERS.into_iter().zip(&values) {
        if side.changed > 0 {
            judged.why.push(left_out(letter, side.changed));
        }
        judged.why.extend(side.remark(letter));
    }
    if let Some(verdict) = verdict_without_runs(&values, &mut judged) {
        judged.verdict = verdict;
        return PendingJudgement {
            judged,
            lost,
            estimate: None,
        };
    }
    judged.of_these_runs_only = by_trials;
    judged.differs_in = surroundings_that_count(pair, accepted);
    let reasons = incomparable_reasons(&judged.differs_in, &values, metric, accepted);
    let with_zeros = verdict_with_zeros(&values, units);
    match (lost, reasons.is_empty(), &with_zeros) {
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
    if let Some((_, why)) = with_zeros {
        judged.why.extend(why);
    } else if by_trials && estimate.is_none() {
        judged.more_runs = Some(RUNS_MIN.saturating_sub(fewest));
        judged
            .why
            .push("no interval: the metric has too few trials to stand in for runs".to_owned());
    }
    PendingJudgement {
        judged,
        lost,
        estimate: estimate.zip(metric),
    }
}

/// Explains why fewer than [`RUNS_MIN`] runs per side give no verdict, and how to get one.
fn too_few_runs(values: &[SideValues; 2]) -> String {
    let [a, b] = [0, 1].map(|side| values[side].runs.len());
    let runs = match a == b {
        true => format!("{} a side", counted(a, "run")),
        false => format!("{} of A and {b} of B", counted(a, "run")),
    };
    format!("{runs}; use `--runs 5`, or --by-trials for a verdict on these runs only")
}

/// Returns a verdict and its reason if a value is 0 or less, so that no ratio exists.
fn verdict_with_zeros(
    values: &[SideValues; 2],
    units: [&[f64]; 2],
) -> Option<(PointVerdict, Option<String>)> {
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

/// Returns the verdict if a side has no usable runs. A changed canary never hides a failure.
fn verdict_without_runs(
    values: &[SideValues; 2],
    judged: &mut PointJudgement,
) -> Option<PointVerdict> {
    if values
        .iter()
        .all(|side| side.runs.is_empty() && side.changed == 0)
    {
        let lacking = LETTERS.into_iter().zip(values);
        let lacking = lacking.filter(|(_, side)| side.unmeasured == 0);
        let lacking: Vec<&str> = lacking.map(|(letter, _)| letter).collect();
        if !lacking.is_empty() {
            judged.why.push(format!(
                "{} has no comparable value",
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
    // A canary that changed on one side must not hide failed runs on the other side either.
    match values.iter().any(|side| side.unmeasured > 0) {
        true => verdict.and(Some(PointVerdict::Missing)),
        false => verdict,
    }
}

/// Returns the keys of the surroundings that differ, except accepted ones.
fn surroundings_that_count(
    pair: [&SidePoint<'_>; 2],
    accepted: &AcceptedDifferences,
) -> Vec<String> {
    let [a, b] = pair.map(|point| facts_of_hosts(&point.rows));
    let differences = a.differences(&b, accepted).into_iter();
    let counting = differences.filter(|it| it.weight == DifferenceWeight::Counts);
    counting.map(|it| it.key).collect()
}

/// Returns the reasons why a difference would not reflect the compared change.
fn incomparable_reasons(
    surroundings: &[String],
    values: &[SideValues; 2],
    metric: Option<Metric>,
    accepted: &AcceptedDifferences,
) -> Vec<String> {
    let mut reasons = Vec::new();
    if !surroundings.is_empty() {
        reasons.push(differs_in(surroundings));
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
    if !accepted.names.matches(CANARY) {
        for (letter, side) in LETTERS.into_iter().zip(values) {
            let too_many = side.changed * LEFT_OUT_PART > side.changed + side.runs.len();
            if too_many || side.changed > 0 && side.runs.len() < RUNS_MIN {
                reasons.push(format!("{letter}: too few runs are left"));
            }
        }
        // If the sides alternated on one machine, different canaries are a consequence of the compared change.
        if !accepted.alternated {
            reasons.extend(canary_difference(values));
        }
    }
    reasons
}

/// Returns the reason if the canaries of the two sides indicate different distances between CPUs.
fn canary_difference(values: &[SideValues; 2]) -> Option<String> {
    let (a, b) = (values[0].canary_ns()?, values[1].canary_ns()?);
    let differ = a.max(b) > a.min(b) * (1.0 + CANARY_FRACTION_ALIKE);
    let (a, b) = (duration(a), duration(b));
    differ.then(|| {
        format!("the canary is {a} on A and {b} on B, so the CPUs are not the same distance apart")
    })
}

/// Decides all points, and corrects for their number.
pub(crate) fn decide(pending: &mut [PendingJudgement], criteria: &Criteria) {
    // Points that are not compared do not count as tests.
    let is_compared = |judged: &PointJudgement| judged.verdict == PointVerdict::Unclear;
    let compared = pending.iter().filter(|it| is_compared(&it.judged));
    let estimates = compared.filter_map(|it| it.estimate.as_ref());
    let p: Vec<f64> = estimates.map(|(estimate, _)| estimate.p).collect();
    let points = p.len();
    let mut corrected = adjust_p_values(&p).into_iter();
    for PendingJudgement {
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
        judged.ratio = Some(SideRatio {
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
        if !holds_for_bounds(judged, metric.better) {
            judged.why.push(bound_reason(judged));
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
                "{} on its own, but among {points} points this may be chance",
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
                    "too close to the margin of {margin}: more runs are unlikely to decide it"
                ));
            }
        }
    }
}

/// Returns whether a verdict still holds if values that are lower bounds turn out higher.
fn holds_for_bounds(judged: &PointJudgement, better: Better) -> bool {
    let is_bound = |side: &Option<SideFigure>| side.is_some_and(|side| side.is_lower_bound);
    let higher = match (judged.verdict, better) {
        (PointVerdict::Worse, Better::Low) | (PointVerdict::Better, Better::High) => [false, true],
        (PointVerdict::Better, Better::Low) | (PointVerdict::Worse, Better::High) => [true, false],
        (PointVerdict::Same, _) => [false, false],
        // The other verdicts make no claim that a higher value could refute.
        _ => return true,
    };
    let bounds = [is_bound(&judged.a), is_bound(&judged.b)];
    bounds
        .into_iter()
        .zip(higher)
        .all(|(is_bound, may_be_higher)| !is_bound || may_be_higher)
}

/// Returns the reason for withholding a verdict because values are lower bounds.
fn bound_reason(judged: &PointJudgement) -> String {
    let sides = LETTERS.into_iter().zip([&judged.a, &judged.b]);
    let bounds = sides.filter(|(_, side)| side.is_some_and(|side| side.is_lower_bound));
    let letters: Vec<&str> = bounds.map(|(letter, _)| letter).collect();
    format!(
        "{} by the known values, but {} a lower bound (≥): the true value may be higher",
        judged.verdict.name(),
        match letters[..] {
            [one] => format!("that of {one} is"),
            _ => format!("those of {} are each", letters.join(" and ")),
        }
    )
}

/// Returns the judgement of a point that only one side has.
pub(crate) fn judge_unmatched(
    side: usize,
    points: &[SidePoint<'_>],
    alone: &UnmatchedPoint,
) -> PointJudgement {
    let (letter, point) = (LETTERS[side], &points[alone.at]);
    let nearest = alone.nearest.as_deref().map(|differing| {
        let other = LETTERS[1 - side];
        format!(
            "; the nearest of {other} differs in {}",
            list_differences(differing)
        )
    });
    let mut why = vec![format!(
        "only {letter} has it{}",
        nearest.unwrap_or_default()
    )];
    why.extend(SideValues::unmeasured(&point.rows).remark(letter));
    let is_measured = |row: &Row<'_>| row.record.outcome == Outcome::Measured;
    PointJudgement {
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
        left_out: [0, 0],
        differs_in: Vec::new(),
        why,
    }
}

/// Lists keys with the values of both sides.
pub(crate) fn list_differences(differing: &[KeyDifference]) -> String {
    let one = |it: &KeyDifference| format!("{} ({}, {})", it.key, or_dash(&it.a), or_dash(&it.b));
    let texts: Vec<String> = differing.iter().map(one).collect();
    match texts.is_empty() {
        true => "ignored keys only, and already has a partner".to_owned(),
        false => texts.join(", "),
    }
}

/// Formats a count with a singular or plural noun.
pub fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
