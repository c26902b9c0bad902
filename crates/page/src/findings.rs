//! Findings to read before the figures: failures, skips, and doubts.

use maud::{Markup, html};
use tonnage_record::{Outcome, Record};
use tonnage_report::cpu_loss;
use tonnage_report::transfer::canary_doubt;

use crate::bidi::{isolated, listed};

/// Maximum number of points to name for one remark. For more points, only their number is shown.
const NAMED_MAX: usize = 4;

/// Remarks of one kind: each text once, with its points.
struct Remarks(Vec<(String, Vec<String>)>);

impl Remarks {
    fn collect(records: &[Record], texts: impl Fn(&Record) -> Vec<String>) -> Self {
        let mut all: Vec<(String, Vec<String>)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for record in records {
            for text in texts(record) {
                let at = *places.entry(text.clone()).or_insert_with(|| {
                    all.push((text, Vec::new()));
                    all.len() - 1
                });
                all[at].1.push(name(record));
            }
        }
        Self(all)
    }

    fn list(&self, head: &str) -> Markup {
        html! {
            @if !self.0.is_empty() {
                h3 { (head) }
                ul { @for (text, points) in &self.0 { li { (isolated(text)) " " small { "— " (named(points)) } } } }
            }
        }
    }
}

/// Short name of a point.
pub(crate) fn name(record: &Record) -> String {
    let body = record.body.any();
    let point = body.options();
    let op = body.parts().first().and_then(|part| body.operation(*part));
    let size = size(record).map(tonnage_units::quantity::human::exact_size);
    let words = [
        point.label.map(str::to_owned),
        Some(point.engine.to_owned()),
        op.map(str::to_owned),
        size,
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Size of one operation, if the point has a single size.
pub(crate) fn size(record: &Record) -> Option<u64> {
    let transfer = record
        .transfer()
        .map(|body| u64::from(body.point.slots.size_bytes));
    transfer.or_else(|| record.collective().map(|body| body.point.size_bytes))
}

fn named(points: &[String]) -> Markup {
    let mut distinct: Vec<&str> = Vec::new();
    for point in points {
        if !distinct.contains(&point.as_str()) && distinct.len() <= NAMED_MAX {
            distinct.push(point);
        }
    }
    let more = distinct.len() > NAMED_MAX;
    let before = match (points.len(), more) {
        (1, _) => String::new(),
        (count, false) => format!("{count} points: "),
        (count, true) => format!("{count} points, such as "),
    };
    html! { (before) (listed(distinct.into_iter().take(NAMED_MAX))) }
}

/// Number of measured, skipped and failed points.
pub(crate) fn counts(records: &[Record]) -> String {
    let of = |is: fn(&Outcome) -> bool| records.iter().filter(|it| is(&it.outcome)).count();
    let all = [
        (of(|it| matches!(it, Outcome::Measured)), "measured"),
        (of(|it| matches!(it, Outcome::Skipped { .. })), "skipped"),
        (of(|it| matches!(it, Outcome::Failed { .. })), "failed"),
    ];
    let some = all.iter().filter(|(count, _)| *count > 0);
    let some: Vec<String> = some
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    match some.is_empty() {
        true => "no points".to_owned(),
        false => format!("points: {}", some.join(", ")),
    }
}

/// Unreadable lines of files, then failures, skips and remarks. Each distinct text appears once.
pub(crate) fn findings(records: &[Record], left_out: &[String]) -> Markup {
    let failed = Remarks::collect(records, |record| match &record.outcome {
        Outcome::Failed { why } => vec![why.clone()],
        _ => Vec::new(),
    });
    let skipped = Remarks::collect(records, |record| match &record.outcome {
        Outcome::Skipped { why } => vec![format!("{}: {why}", record.skip_reason())],
        _ => Vec::new(),
    });
    let remarks = Remarks::collect(records, doubts);
    let nothing = [&failed, &skipped, &remarks]
        .iter()
        .all(|it| it.0.is_empty());
    html! {
        @if !left_out.is_empty() {
            h3 { "Not on this page" }
            ul { @for words in left_out { li { (isolated(words)) } } }
        }
        @if nothing { p { "Nothing failed, nothing was skipped, and no record has a remark." } }
        (failed.list("Failed"))
        (skipped.list("Skipped"))
        (remarks.list("Remarks"))
    }
}

/// Doubts about a record: a disturbed canary, lost CPU time, an unproven path, and the record's remarks.
fn doubts(record: &Record) -> Vec<String> {
    let mut all = record.remarks.clone();
    all.extend(record.canary_doubt().map(|doubt| canary_doubt(&doubt)));
    all.extend(cpu_loss::lines(std::iter::once(record)));
    if let Some(proof) = record.wire_proof.as_ref().filter(|proof| !proof.crossed) {
        all.push(format!("off path: {}", proof.why.join("; ")));
    }
    all
}
