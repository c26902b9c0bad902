//! Reports on searches: a table of all candidates, the certainty of the result, and the winner with its command line.

use tonnage_plan::tune::Goal;
use tonnage_record::figures::Row;
use tonnage_record::grouping::by_answer;
use tonnage_record::tune::{TuneOutcome, TuneTry, TuneWinner};
use tonnage_record::{Outcome, TransferRecord, TuneBody, TuneRecord};
use tonnage_units::quantity::human::{
    bandwidth, duration, exact_duration, exact_size, percent, rate, seconds,
};

use crate::layout::Report;
use crate::result::{ReportResult, ResultWord, not_done};
use crate::table::{Line, TableBuilder, TitledTable};
use crate::text::distinct;
use crate::{engine, transfer};

/// Report on a search over options.
pub struct TuneReport;

/// Figures that can be the goal. A search has only one of them.
const OF_GOAL: &[&str] = &[
    "tuned_bandwidth_bytes_per_s_mean",
    "tuned_message_rate_per_s_mean",
    "tuned_latency_ns_p50",
];

/// Columns before the goal's figure.
const WHO: &[&str] = &["tune_pass", "tune_option", "tune_value", "tune_rounds"];

/// Columns after the goal's figure.
const END: &[&str] = &[
    "tune_gain_fraction",
    "tune_gain_fraction_low",
    "tune_gain_fraction_high",
    "tune_outcome",
];

/// Factor for the suggested trial time. Longer trials distinguish more candidates.
const LONGER: u64 = 4;

impl Report for TuneReport {
    type Body = TuneBody;

    /// Each search has its own winner.
    fn same_section(_left: TuneRecord<'_>, _right: TuneRecord<'_>) -> bool {
        false
    }

    fn configuration(first: TuneRecord<'_>, _: &[TuneRecord<'_>]) -> Vec<String> {
        let point = &first.body.point;
        let mut parts = vec![
            format!(
                "{} search for {}",
                engine::name(&point.engine, &point.engine_options),
                point.goal
            ),
            format!("{} of {}", point.op, exact_size(point.size_bytes)),
            format!("{} ranks", point.ranks),
        ];
        let fixed = point.other_fixed_arguments();
        if !fixed.is_empty() {
            parts.push(format!("always {}", fixed.join(" ")));
        }
        parts.push(format!("{} memory", point.memory));
        parts.push(format!("trials of {}", exact_duration(point.trial_ns)));
        if point.goal == Goal::Latency {
            parts.extend(last_run(&first).and_then(|run| transfer::latency(&[run])));
        }
        parts
    }

    fn result(records: &[TuneRecord<'_>]) -> Option<ReportResult> {
        records.first().and_then(result)
    }

    fn tables(records: &[TuneRecord<'_>]) -> Vec<TitledTable> {
        let tried = records
            .iter()
            .filter(|record| !record.body.tried.is_empty());
        let rows = tried.flat_map(|record| Row::all_of_record(record.record));
        let builder = TableBuilder::new(rows.map(Line::from).collect());
        builder
            .always(WHO)
            .if_known(OF_GOAL)
            .always(END)
            .table()
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

/// The winner's last run, as a transfer.
fn last_run<'a>(record: &TuneRecord<'a>) -> Option<TransferRecord<'a>> {
    let body = &record.body.winner.as_ref()?.run;
    Some(TransferRecord {
        record: record.record,
        body,
    })
}

/// The outcome of the search, with the winner's figure.
fn result(record: &TuneRecord<'_>) -> Option<ReportResult> {
    let body = record.body;
    match (&record.outcome, &body.winner) {
        (Outcome::Measured, Some(winner)) => Some(ResultWord::Result.with(format!(
            "the best options have {}; searched in {}; the command at the end has them",
            figure(body.point.goal, winner),
            seconds(body.elapsed_ns)
        ))),
        (Outcome::Measured, None) => None,
        (Outcome::Skipped { why }, _) => Some(not_done(record.record, why)),
        (Outcome::Failed { why }, _) => Some(ResultWord::Fail.with(why)),
    }
}

/// Reasons for refusals, doubts, and the winner's last run.
fn below(record: &TuneRecord<'_>) -> Vec<String> {
    let body = record.body;
    let mut lines = Vec::new();
    if !body.is_refused() {
        lines.extend(refusals(body));
        lines.extend(doubts(body));
    }
    lines.extend(last_run(record).into_iter().flat_map(transfer::about));
    lines
}

/// Reasons for refusals, each once.
fn refusals(body: &TuneBody) -> Vec<String> {
    let tried = body.tried.iter();
    let refused = tried.filter_map(|it| Some((it.value.as_str(), it.why.as_ref()?)));
    let said = by_answer(refused).into_iter().map(|(why, values)| {
        let values = distinct(values).join(", ");
        format!("refused: {values}: {why}")
    });
    said.collect()
}

/// Notes on candidates that may be better than the winner of their last race, with the option to find out.
fn doubts(body: &TuneBody) -> Vec<String> {
    let races = body
        .tried
        .chunk_by(|one, other| (one.pass, &one.dimension) == (other.pass, &other.dimension));
    let races: Vec<&[TuneTry]> = races.collect();
    let is_last = |at: usize| {
        let mut later = races[at + 1..].iter();
        later.all(|later| later[0].dimension != races[at][0].dimension)
    };
    let last = (0..races.len()).filter(|&at| is_last(at));
    last.filter_map(|at| doubt(races[at], body.point.trial_ns))
        .collect()
}

fn doubt(race: &[TuneTry], trial_ns: u64) -> Option<String> {
    let winner = race.iter().find(|it| it.outcome == TuneOutcome::Won)?;
    let tied = race.iter().filter(|it| it.outcome == TuneOutcome::Tied);
    let names: Vec<&str> = tied.clone().map(|it| it.value.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    // If a candidate and the winner share too few rounds, the possible gain has no known limit.
    let most = tied.map(|it| it.gain.map_or(f64::INFINITY, |gain| gain.high));
    let most = most.fold(0.0, f64::max);
    let how = match most.is_finite() {
        true => format!("and may be up to {} better", percent(most)),
        false => "by the few trials that they had".to_owned(),
    };
    Some(format!(
        "{}: cannot distinguish {} from {}, {how}; use --trial-time {}",
        winner.dimension,
        names.join(", "),
        winner.value,
        exact_duration(trial_ns.saturating_mul(LONGER)).replace(' ', "")
    ))
}

/// The goal's figure in the winner's last run.
fn figure(goal: Goal, winner: &TuneWinner) -> String {
    let Some(summary) = &winner.run.summary else {
        return "no figure".to_owned();
    };
    let (text, spread) = match goal {
        Goal::Bandwidth => {
            let spread = summary.bandwidth_bytes_per_s;
            (bandwidth(spread.mean), Some(spread))
        }
        Goal::Rate => {
            let spread = summary.message_rate_per_s;
            (rate(spread.mean), Some(spread))
        }
        Goal::Latency => {
            let latency = summary.latency.as_ref();
            let p50 = latency.map_or(f64::NAN, |latency| latency.latency_ns_p50 as f64);
            (format!("p50 {}", duration(p50)), None)
        }
    };
    let ci95 = spread.and_then(|spread| spread.ci95_fraction());
    let ci95 = ci95.map(|ci95| format!(" ± {}", percent(ci95)));
    let trials = summary.trials;
    format!("{text}{} over {trials} trials", ci95.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use crate::samples::tune::{refused, searches};
    use crate::tests::table_of;
    use crate::{Format, render};

    #[test]
    fn tables_look_as_agreed() {
        let records = searches();
        insta::assert_snapshot!("tune", table_of(&records));
        let csv = render(Format::Csv, &records).unwrap();
        insta::assert_snapshot!("csv_tune", csv.replace("\r\n", "\n"));
        insta::assert_snapshot!("refused_tune", table_of(&refused()));
    }

    /// `--require-path` must check the proof of path from the winner's last run.
    #[test]
    fn a_search_has_the_proof_of_its_winner() {
        let mut records = searches();
        records[0].wire_proof = None;
        let why = crate::wire_proof::lacks_proof(&records).unwrap();
        assert!(why.contains("1 of 1 measured points"), "{why}");
        let all = crate::samples::proven_paths().into_iter();
        let proof = all.flat_map(|it| it.wire_proof).find(|it| it.crossed);
        assert!(proof.is_some());
        records[0].wire_proof = proof;
        assert_eq!(crate::wire_proof::lacks_proof(&records), None);
    }
}
