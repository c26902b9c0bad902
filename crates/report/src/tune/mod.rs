//! Report of a search: a table of all candidates, and the winner's command line.

use tonnage_record::figures::Row;
use tonnage_record::{Outcome, TuneBody, TuneRecord};
use tonnage_units::quantity::human::{exact_duration, exact_size, seconds};

use crate::drawer::Report;
use crate::engine;
use crate::table::{Line, Sheet};

/// Options that competed.
pub struct TuneReport;

/// Figures of the goal, of which a search has one.
const OF_GOAL: &[&str] = &[
    "tuned_bandwidth_bytes_per_s_mean",
    "tuned_message_rate_per_s_mean",
    "tuned_latency_ns_p50",
];

/// Figures before the goal's.
const WHO: &[&str] = &["tune_pass", "tune_option", "tune_value", "tune_rounds"];

/// Figures after the goal's.
const END: &[&str] = &["tuned_ci95_fraction", "tune_outcome"];

impl Report for TuneReport {
    type Body = TuneBody;

    /// Each has a winner of its own.
    fn together(_left: TuneRecord<'_>, _right: TuneRecord<'_>) -> bool {
        false
    }

    fn configuration(records: &[TuneRecord<'_>]) -> Vec<String> {
        let Some(first) = records.first() else {
            return Vec::new();
        };
        let point = &first.body.point;
        vec![
            format!("{} search for {}", engine::name(point), point.goal),
            format!("{} of {}", point.op, exact_size(point.size_bytes)),
            format!("{} ranks", point.ranks),
            format!("{} memory", point.memory),
            format!("trials of {}", exact_duration(point.trial_ns)),
        ]
    }

    fn tables(records: &[TuneRecord<'_>]) -> Vec<String> {
        let tried = records
            .iter()
            .filter(|record| !record.body.tried.is_empty());
        let rows = tried.flat_map(|record| Row::of(record.record));
        let sheet = Sheet::new(rows.map(Line::from).collect(), "-");
        sheet
            .always(WHO)
            .known(OF_GOAL)
            .always(END)
            .draw()
            .into_iter()
            .collect()
    }

    fn footers(records: &[TuneRecord<'_>]) -> Vec<String> {
        records.iter().flat_map(below).collect()
    }

    fn commands(records: &[TuneRecord<'_>]) -> Vec<String> {
        let winners = records.iter().filter_map(|it| it.body.winner.as_ref());
        winners.map(|winner| winner.command.clone()).collect()
    }
}

/// Reasons of refusals, and the end of the search.
fn below(record: &TuneRecord<'_>) -> Vec<String> {
    let refused = record.body.tried.iter().filter_map(|it| {
        let why = it.why.as_ref()?;
        Some(format!("refused: {}: {why}", it.value))
    });
    let mut lines: Vec<String> = refused.collect();
    lines.push(match &record.outcome {
        Outcome::Measured => format!(
            "searched in {}; the winner is repeated by:",
            seconds(record.body.elapsed_ns)
        ),
        Outcome::Skipped { why } => format!("{}: {why}", record.skipped()),
        Outcome::Failed { why } => format!("FAILED: {why}"),
    });
    lines
}

#[cfg(test)]
mod tests {
    use crate::samples::tune::searches;
    use crate::tests::table_of;
    use crate::{Format, render};

    #[test]
    fn tables_look_as_agreed() {
        let records = searches();
        insta::assert_snapshot!("tune", table_of(&records));
        let csv = render(Format::Csv, &records).unwrap();
        insta::assert_snapshot!("csv_tune", csv.replace("\r\n", "\n"));
    }
}
