//! Reports on connections: a table of setup rates, and a table of the time per setup step.

use tonnage_plan::connect::ConnectPoint;
use tonnage_record::body::Part;
use tonnage_record::figures::Row;
use tonnage_record::{ConnectBody, ConnectRecord};
use tonnage_units::quantity::human::{exact_duration, exact_size};

use crate::layout::{Report, not_measured};
use crate::table::{Line, TableBuilder, TitledTable};
use crate::text::{counted, extend_distinct};
use crate::transfer::notes;
use crate::{engine, place};

/// Report on connections: for each configuration, a table of points and a table of setup steps.
pub struct Connections;

/// Columns of the table of points.
const POINTS: &[&str] = &[
    "threads",
    "register_bytes",
    "connections_at_once",
    "connections_per_s_mean",
    "connections_ci95_fraction",
    "cpu_ns_per_connection",
];

/// Columns of the table of steps.
const STEPS: &[&str] = &[
    "threads",
    "register_bytes",
    "step",
    "latency_samples",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_max",
];

impl Report for Connections {
    type Body = ConnectBody;

    fn same_section(left: ConnectRecord<'_>, right: ConnectRecord<'_>) -> bool {
        left.plan == right.plan
            && place::may_share_table(left.record, right.record)
            && shared(&left.body.point) == shared(&right.body.point)
    }

    fn configuration(first: ConnectRecord<'_>, records: &[ConnectRecord<'_>]) -> Vec<String> {
        let point = &first.body.point;
        let length = exact_duration(point.trial_ns);
        let ends = [
            format!(
                "{} connections",
                engine::name(&point.engine, &point.engine_options)
            ),
            point.roles().title(),
        ];
        let place = place::describe_all(records.iter().map(|record| record.record));
        let parts = [
            format!("{} memory", point.memory),
            format!("{} of at least {length}", counted(point.trials, "trial")),
            "latency of one thread's step".to_owned(),
        ];
        ends.into_iter().chain(place).chain(parts).collect()
    }

    fn tables(records: &[ConnectRecord<'_>]) -> Vec<TitledTable> {
        let drawn = |whole: bool, fields: &[&str]| {
            let rows = records
                .iter()
                .flat_map(|record| Row::all_of_record(record.record));
            let rows = rows.filter(|row| (row.part == Part::Whole) == whole);
            let builder = TableBuilder::new(rows.map(Line::from).collect());
            builder.if_known(fields).table()
        };
        let tables = [drawn(true, POINTS), drawn(false, STEPS)];
        tables.into_iter().flatten().collect()
    }

    fn footers(records: &[ConnectRecord<'_>]) -> Vec<String> {
        let ended = |record: &ConnectRecord<'_>| {
            not_measured(&point_words(record), &record.outcome, record.skip_reason())
        };
        let mut lines: Vec<String> = records.iter().filter_map(ended).collect();
        extend_distinct(&mut lines, records.iter().filter_map(late_start));
        lines
    }
}

/// The point without the values that vary between rows.
fn shared(point: &ConnectPoint) -> ConnectPoint {
    ConnectPoint {
        threads: 0,
        register_bytes: 0,
        ..point.clone()
    }
}

/// Describes a point by the options that vary within its table.
fn point_words(record: &ConnectRecord<'_>) -> String {
    let ConnectPoint {
        threads,
        register_bytes,
        ..
    } = record.body.point;
    let threads = counted(threads, "thread");
    format!("{threads}, register {}", exact_size(register_bytes))
}

fn late_start(record: &ConnectRecord<'_>) -> Option<String> {
    let starts = record.body.trials.iter();
    let late = notes::late_start(starts.map(|trial| (trial.start_skew_ns, trial.window_ns)))?;
    Some(format!("{}: {late}", point_words(record)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tonnage_record::Body;

    #[test]
    fn a_start_late_by_more_than_1_percent_of_a_trial_is_reported() {
        let mut records = samples::connect::connections();
        assert!(Connections::footers(&[records[0].of_kind().unwrap()]).is_empty());
        let Body::Connect(body) = &mut records[0].body else {
            unreachable!("a sample of connections");
        };
        body.trials[0].start_skew_ns = body.trials[0].window_ns / 50;
        let lines = Connections::footers(&[records[0].of_kind().unwrap()]);
        assert!(
            lines[0].contains("began late, by 2 % of a trial"),
            "{lines:?}"
        );
    }

    #[test]
    fn remarks_are_printed_for_every_kind() {
        for mut record in [
            samples::connect::connections(),
            samples::paced(),
            samples::stress::stresses(),
        ]
        .concat()
        {
            record.remarks = vec!["ranks 1 do not read rank 0's clock".to_owned()];
            let text = crate::tests::table_of(&[record]);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(
                text.matches("do not read rank 0's clock").count(),
                1,
                "{text}"
            );
        }
    }
}
