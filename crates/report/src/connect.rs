//! Tables of experiments with connections: how many are set up in a second, and what each step of that takes.

use tonnage_plan::connect::ConnectPoint;
use tonnage_plan::point::Traffic;
use tonnage_record::figures::{Figure, Part, Row, Value, of_connect};
use tonnage_record::{ConnectRecord, Outcome};

use super::table::{draw, shown};
use super::text::{WIDTH, duration, wrap};

/// Figures of the table of points.
const POINTS: &[&str] = &[
    "workers",
    "register_bytes",
    "connections_at_once",
    "connections_per_s_mean",
    "connections_ci95_fraction",
    "cpu_ns_per_connection",
];

/// Figures of the table of steps.
const STEPS: &[&str] = &[
    "workers",
    "register_bytes",
    "step",
    "latency_samples",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_max",
];

/// Tables for all records, in their order, with an empty line between two configurations.
pub fn table(records: &[ConnectRecord<'_>]) -> String {
    let groups = records.chunk_by(|left, right| {
        left.plan == right.plan && shared(&left.body.point) == shared(&right.body.point)
    });
    groups.map(one_table).collect::<Vec<_>>().join("\n")
}

/// The configuration without what varies from row to row.
fn shared(point: &ConnectPoint) -> ConnectPoint {
    ConnectPoint {
        workers: 0,
        register_bytes: 0,
        ..point.clone()
    }
}

fn one_table(records: &[ConnectRecord<'_>]) -> String {
    let rows: Vec<Row<'_>> = records
        .iter()
        .flat_map(|row| Row::of_connect(*row))
        .collect();
    let part = |whole: bool| {
        let rows = rows.iter().copied();
        let wanted = rows.filter(|row| matches!(row.part, Part::Whole) == whole);
        wanted.collect::<Vec<_>>()
    };
    let mut parts: Vec<String> = records.first().map(title).into_iter().collect();
    parts.extend(drawn(POINTS, &part(true)));
    parts.extend(drawn(STEPS, &part(false)).map(|table| format!("\n{table}")));
    parts.extend(records.iter().filter_map(outcome));
    parts.join("\n") + "\n"
}

fn title(record: &ConnectRecord<'_>) -> String {
    let point = &record.body.point;
    let label = point.label.as_ref().map(|label| format!("{label}\n"));
    let options = point.engine_options.iter();
    let options: Vec<_> = options
        .map(|(name, value)| format!(" {name}={value}"))
        .collect();
    let who = match point.traffic {
        Traffic::Pair if point.ranks == 2 => "one pair of ranks".to_owned(),
        Traffic::Pair => format!("{} pairs of ranks at once", point.ranks / 2),
        Traffic::FanOut => format!("rank 0 to {} others", point.ranks.saturating_sub(1)),
        Traffic::FanIn => format!("{} ranks to rank 0", point.ranks.saturating_sub(1)),
        Traffic::AllToAll => format!("all-to-all among {} ranks", point.ranks),
    };
    let plural = if point.trials == 1 { "" } else { "s" };
    let text = format!(
        "{}{} connections; {who}; {} memory; {} trial{plural} of at least {}; latency of one worker's step",
        point.engine,
        options.concat(),
        point.memory,
        point.trials,
        duration(point.trial_ns)
    );
    label.unwrap_or_default() + &wrap(&text, WIDTH, 2)
}

/// A table of those figures of which any row has a value; `None` without rows.
fn drawn(fields: &[&str], rows: &[Row<'_>]) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let known = |figure: &&Figure| rows.iter().any(|row| (figure.value)(row) != Value::Unknown);
    let figures: Vec<&Figure> = fields
        .iter()
        .filter_map(|field| of_connect().find(|figure| figure.field == *field))
        .filter(known)
        .collect();
    let header = figures
        .iter()
        .map(|figure| figure.name.replacen(" (", "\n(", 1));
    let mut cells = vec![header.collect::<Vec<_>>()];
    cells.extend(rows.iter().map(|row| {
        let cells = figures
            .iter()
            .map(|figure| shown((figure.value)(row), figure.style, "-"));
        cells.collect()
    }));
    let words = figures.iter().position(|figure| figure.field == "step");
    Some(draw(cells, |at| Some(at) != words))
}

/// Reason that a point has no figures.
fn outcome(record: &ConnectRecord<'_>) -> Option<String> {
    let text = match &record.outcome {
        Outcome::Measured => return None,
        Outcome::Skipped { why } => format!("skipped: {why}"),
        Outcome::Failed { why } => format!("FAILED: {why}"),
    };
    Some(wrap(&text, WIDTH, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_a_table_exists() {
        for field in POINTS.iter().chain(STEPS) {
            assert!(of_connect().any(|figure| figure.field == *field), "{field}");
        }
    }
}
