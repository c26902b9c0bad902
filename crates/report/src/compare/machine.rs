//! Writes a comparison as CSV in base units, or as JSON.

use serde::Serialize;
use tonnage_judge::compare::Comparison;
use tonnage_judge::judging::PointJudgement;
use tonnage_units::{Error, Result};

use crate::csv::{harmless, line};

/// CSV columns.
const COLUMNS: &[&str] = &[
    "point",
    "differing",
    "metric",
    "field",
    "a",
    "b",
    "a_runs",
    "b_runs",
    "a_trials",
    "b_trials",
    "a_lower_bound",
    "b_lower_bound",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p",
    "p_adjusted",
    "verdict",
    "of_these_runs_only",
    "more_runs",
    "why",
];

/// A comparison with the names of its sides.
#[derive(Serialize)]
struct Named<'a> {
    sides: [&'a str; 2],
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// The comparison as one JSON object, with a trailing newline.
///
/// # Errors
/// If serialization fails.
pub fn json(comparison: &Comparison, sides: [&str; 2]) -> Result<String> {
    let text = serde_json::to_string_pretty(&Named { sides, comparison });
    let text =
        text.map_err(|error| Error::Failed(format!("cannot write a comparison as JSON: {error}")))?;
    Ok(text + "\n")
}

/// CSV with a header line and one row per point.
pub fn csv(comparison: &Comparison) -> String {
    let head = line(COLUMNS.iter().map(|&column| column.to_owned()));
    let rows = comparison.points.iter().map(|judged| line(row(judged)));
    std::iter::once(head).chain(rows).collect()
}

fn row(judged: &PointJudgement) -> impl Iterator<Item = String> {
    let point = judged
        .keys
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let differing = judged.differing.iter().map(|it| {
        let [a, b] = [&it.a, &it.b].map(|value| value.as_deref().unwrap_or_default());
        format!("{}={a}→{b}", it.key)
    });
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let count = |value: Option<usize>| value.map_or_else(String::new, |value| value.to_string());
    let yes = |holds: Option<bool>| {
        let word = holds.map_or("", |holds| if holds { "yes" } else { "no" });
        word.to_owned()
    };
    let ratio = judged.ratio;
    [
        harmless(point.collect::<Vec<_>>().join(" ")),
        harmless(differing.collect::<Vec<_>>().join(" ")),
        judged.metric.unwrap_or_default().to_owned(),
        judged.field.unwrap_or_default().to_owned(),
        number(judged.a.map(|side| side.value)),
        number(judged.b.map(|side| side.value)),
        count(judged.a.map(|side| side.runs)),
        count(judged.b.map(|side| side.runs)),
        count(judged.a.map(|side| side.trials)),
        count(judged.b.map(|side| side.trials)),
        yes(judged.a.map(|side| side.is_lower_bound)),
        yes(judged.b.map(|side| side.is_lower_bound)),
        number(ratio.map(|ratio| ratio.value)),
        number(ratio.map(|ratio| ratio.low)),
        number(ratio.map(|ratio| ratio.high)),
        number(ratio.map(|ratio| ratio.p)),
        number(ratio.map(|ratio| ratio.p_adjusted)),
        judged.verdict.name().to_owned(),
        yes(Some(judged.of_these_runs_only)),
        count(judged.more_runs),
        harmless(judged.why.join("; ")),
    ]
    .into_iter()
}
