//! Golden files of every report. The schema of results files is tested in [`schema`].

use std::collections::BTreeSet;
use tonnage_record::collective::CollectiveSummary;

use tonnage_record::figures::{self, Figure, Row, figure_by_field};
use tonnage_record::files::PhaseTrial;
use tonnage_record::read::read_records_of;
use tonnage_record::stress::StressRow;
use tonnage_record::transfer::Trial;
use tonnage_record::{Body, Record};

use super::text::WIDTH;
use super::view::{View, bare_name};
use super::{Format, render, render_for, samples};

mod schema;

/// Checks that no line is wider than [`WIDTH`] or has trailing blanks.
#[track_caller]
pub fn fits(page: &str) {
    fits_in(page, WIDTH);
}

/// Checks that no line is wider than this or has trailing blanks.
#[track_caller]
fn fits_in(page: &str, width: usize) {
    for line in page.lines() {
        // Commands stay on one line so that they can be pasted.
        let is_command = line.starts_with("tonnage ");
        assert!(
            is_command || line.chars().count() <= width,
            "{line:?} is wider than {width}"
        );
        assert_eq!(line.trim_end(), line);
    }
}

pub fn table_of(lines: &[Record]) -> String {
    let text = render(Format::Table, lines).unwrap();
    fits_in(&text, usize::MAX);
    text
}

/// Every example, as printed on a screen of this width.
fn examples(width: usize) -> String {
    let view = View {
        width: Some(width),
        ..View::default()
    };
    let examples = samples::all_tables().into_iter().map(|records| {
        let text = render_for(Format::Table, &records, &view).unwrap();
        fits_in(&text, width);
        text
    });
    examples.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_table_fits_the_screen() {
    for width in [80, 120, 200] {
        insta::assert_snapshot!(format!("every_table_{width}"), examples(width));
    }
    for width in 80..130 {
        examples(width);
    }
}

/// docs/METHODOLOGY.md must list the columns in the order in which narrow screens leave them out.
#[test]
fn the_documented_order_is_that_of_the_figures() {
    let page = include_str!("../../../docs/METHODOLOGY.md");
    let table = page.split("| left out | columns |").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows
        .map(|line| line.split('|').nth(2).unwrap().trim().split(", ").collect())
        .collect();
    let figures = figures::all_figures();
    let is_dropped = |keep: &u8| *keep < 100;
    let levels: BTreeSet<u8> = figures
        .iter()
        .map(|it| it.keep)
        .filter(is_dropped)
        .collect();
    assert_eq!(rows.len(), levels.len());
    for figure in figures
        .iter()
        .filter(|it| is_dropped(&it.keep) && it.keep != Figure::KEEP)
    {
        let at = levels
            .iter()
            .position(|level| *level == figure.keep)
            .unwrap();
        let name = bare_name(figure.name);
        assert!(rows[at].contains(&name), "{name} is not in {:?}", rows[at]);
    }
}

#[test]
fn tables_look_as_agreed() {
    insta::assert_snapshot!("table_batch", table_of(&samples::batches()));
    insta::assert_snapshot!(
        "table_batch_without_max",
        table_of(&samples::batches_without_max())
    );
    insta::assert_snapshot!("table_stream", table_of(&samples::streams()));
    insta::assert_snapshot!("table_ping_pong", table_of(&samples::ping_pongs()));
    insta::assert_snapshot!("table_clients", table_of(&samples::clients()));
    insta::assert_snapshot!("table_atomics", table_of(&samples::atomics()));
    for (at, record) in (0..).zip(samples::intervals()) {
        insta::assert_snapshot!(format!("table_intervals_{at}"), table_of(&[record]));
    }
    insta::assert_snapshot!("table_matrix", table_of(&samples::matrices()));
    insta::assert_snapshot!("table_traffic_file", table_of(&samples::traffic_files()));
    insta::assert_snapshot!("table_paced", table_of(&samples::paced()));
    insta::assert_snapshot!("table_loaded", table_of(&samples::loaded()));
    insta::assert_snapshot!("table_path", table_of(&samples::paths()));
    insta::assert_snapshot!("table_path_proven", table_of(&samples::proven_paths()));
    insta::assert_snapshot!("table_fabric", table_of(&samples::fabric()));
    insta::assert_snapshot!("table_published", table_of(&samples::published()));
    insta::assert_snapshot!("table_verify", table_of(&samples::verifies()));
    insta::assert_snapshot!("table_verify_right", table_of(&samples::verifies()[..8]));
    insta::assert_snapshot!("table_engines", table_of(&samples::engines()));
}

#[test]
fn tables_of_files_look_as_agreed() {
    let one = |record: Record| table_of(&[record]);
    insta::assert_snapshot!("files_buffered", one(samples::files::buffered()));
    insta::assert_snapshot!("files_stonewalled", one(samples::files::stonewalled()));
    insta::assert_snapshot!("files_failed", table_of(&samples::files::failed()));
    insta::assert_snapshot!("files_collective", one(samples::files::collective()));
}

#[test]
fn tables_of_connections_look_as_agreed() {
    let records = samples::connect::connections();
    insta::assert_snapshot!("connect", table_of(&records));
    let csv = render(Format::Csv, &records).unwrap();
    insta::assert_snapshot!("csv_connect", csv.replace("\r\n", "\n"));
}

fn read_back(jsonl: &str) -> Vec<Record> {
    let file = read_records_of(jsonl.as_bytes(), "r.jsonl".as_ref());
    file.unwrap().records
}

#[test]
fn a_results_file_may_hold_all_kinds() {
    let mut both = samples::ping_pongs();
    let transfers_end = both.len();
    both.extend(samples::verifies());
    both.extend(samples::of_other_kinds());
    let text = table_of(&both);
    assert_eq!(text.matches("MsgSize").count(), 2, "{text}");
    assert_eq!(
        text.matches("BW (GB/s)").count(),
        0,
        "headers have two lines: {text}"
    );
    assert_eq!(text.matches("(MiB/s)").count(), 4, "{text}");
    assert_eq!(text.matches("Bytes checked").count(), 1, "{text}");
    let jsonl = render(Format::Jsonl, &both).unwrap();
    assert_eq!(jsonl.lines().count(), both.len());
    assert_eq!(read_back(&jsonl), both);
    let alone = render(Format::Csv, &both[..transfers_end]).unwrap();
    let csv = render(Format::Csv, &both).unwrap();
    let columns = |csv: &str| -> Vec<String> {
        let header = csv.lines().next().unwrap();
        header.split(',').map(str::to_owned).collect()
    };
    assert!(columns(&csv).starts_with(&columns(&alone)));
    let mut unique = columns(&csv);
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), columns(&csv).len(), "a name stands once");
}

#[test]
fn csv_of_files_has_a_row_per_phase_and_per_mixed_part() {
    let text = render(Format::Csv, &samples::files::all()).unwrap();
    insta::assert_snapshot!("csv_files", text.replace("\r\n", "\n"));
    // Rows per record: two phases; one phase with its reads and writes; the phase before the disk was full; a record
    // without phases; two phases. The header is one more row.
    assert_eq!(text.matches("\r\n").count(), 2 + 3 + 1 + 1 + 2 + 1);
}

/// Number of trials and operations, payload and verified bytes of a record, from its measurements.
fn amounts(record: &Record) -> [u64; 4] {
    let all: Vec<[u64; 4]> = match &record.body {
        Body::Transfer(body) => {
            let trials = body.trials.iter();
            let verified = |it: &Trial| it.verified_bytes.unwrap_or(0);
            let of = |it: &Trial| [1, it.operations, it.payload_bytes, verified(it)];
            trials.map(of).collect()
        }
        Body::File(body) => {
            let trials = body.phases.iter().flat_map(|phase| &phase.trials);
            let verified = |it: &PhaseTrial| it.verified_bytes.unwrap_or(0);
            let of = |it: &PhaseTrial| [1, it.operations, it.payload_bytes, verified(it)];
            trials.map(of).collect()
        }
        // The transfers of a stress run do not count as trials.
        Body::Stress(body) => {
            let of = |it: &StressRow| [0, it.operations, it.payload_bytes, it.verified_bytes];
            body.rows.iter().map(of).collect()
        }
        // Connections carry no payload.
        Body::Connect(body) => vec![[body.trials.len() as u64, 0, 0, 0]],
        Body::Tune(_) => Vec::new(),
        // Each backend has a row. Backends count calls, not operations.
        Body::Collective(body) => {
            let summaries = body.backends.iter().filter_map(|it| it.summary.as_ref());
            let of = |it: &CollectiveSummary| [it.trials.into(), 0, 0, it.verified_bytes];
            summaries.map(of).collect()
        }
    };
    std::array::from_fn(|at| all.iter().map(|one| one[at]).sum())
}

#[test]
fn amounts_cover_all_trials_in_every_kind() {
    let fields = ["trials", "operations", "payload_bytes", "verified_bytes"];
    for record in samples::of_all_kinds() {
        let of_rows = fields.map(|field| {
            let rows = Row::all_of_record(&record).into_iter();
            let values = rows.map(|row| (figure_by_field(field).unwrap().value)(&row));
            let counts = values.map(|value| match value {
                figures::Value::Count(count) => count,
                _ => 0,
            });
            counts.sum::<u64>()
        });
        assert_eq!(of_rows, amounts(&record), "{record:?}");
    }
}

#[test]
fn every_kind_has_a_report() {
    let records = samples::of_all_kinds();
    let kind = |record: &Record| serde_json::to_value(record).unwrap()["kind"].clone();
    for (name, _) in figures::KINDS {
        let mut sampled = records.iter().filter(|record| kind(record) == *name);
        let record = sampled
            .next()
            .unwrap_or_else(|| panic!("no sample of {name}"));
        let text = render(Format::Table, std::slice::from_ref(record)).unwrap();
        assert!(
            !text.is_empty(),
            "records of {name} are drawn by none of REPORTS"
        );
    }
}

#[test]
fn values_of_trials_are_those_that_a_mean_is_of() {
    let records = samples::of_all_kinds();
    let mut compared = 0;
    for row in records.iter().flat_map(Row::all_of_record) {
        for figure in figures::of(&row.record.body) {
            let means = figure.field.ends_with("_mean") && !figure.field.starts_with("latency");
            let (Some(trials), true) = (figure.trials, means) else {
                continue;
            };
            let values: Vec<f64> = trials(&row).into_iter().flatten().collect();
            let figures::Value::Number(mean) = (figure.value)(&row) else {
                continue;
            };
            let sum: f64 = values.iter().sum();
            let off = (sum / values.len() as f64 - mean).abs();
            assert!(
                off <= mean.abs() * 1e-9,
                "{}: {values:?} {mean}",
                figure.field
            );
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn tables_of_different_runs_are_apart() {
    let text = table_of(&samples::all());
    let count = |words| text.matches(words).count();
    let [phases, beside] = ["phases of a batch", "without and with the background:"].map(count);
    let tables = count("MsgSize") - phases - beside;
    assert_eq!((tables, phases, beside), (15, 4, 1), "{text}");
    assert_eq!(text.matches("Bytes checked").count(), 1);
    assert_eq!(table_of(&[]), "");
}

#[test]
fn csv_has_every_column_of_every_record() {
    let text = render(Format::Csv, &samples::all()).unwrap();
    insta::assert_snapshot!("csv", text.replace("\r\n", "\n"));
    assert_eq!(text.matches("\r\n").count(), samples::all().len() + 1);
}

#[test]
fn jsonl_reads_back_as_the_same_records() {
    let records = samples::all();
    assert_eq!(
        read_back(&render(Format::Jsonl, &records).unwrap()),
        records
    );
    insta::assert_snapshot!(
        "jsonl_batch",
        render(Format::Jsonl, &samples::batches()[1..2]).unwrap()
    );
}

#[test]
fn the_columns_of_a_batch_agree_with_each_other() {
    for record in samples::batches() {
        let row = Row::all_of_record(&record).swap_remove(0);
        let record = record.as_transfer().unwrap();
        let Some(summary) = &record.body.summary else {
            continue;
        };
        let of = |field: &str| match (figure_by_field(field).unwrap().value)(&row) {
            figures::Value::Number(number) => number,
            figures::Value::Count(count) => count as f64,
            other => panic!("{field}: {other:?}"),
        };
        let total = of("batch_payload_bytes");
        assert_eq!(total, of("batch") * of("size_bytes"));
        let close = |left: f64, right: f64| (left - right).abs() < 1e-9 * right;
        assert!(close(
            of("bandwidth_bytes_per_s_max_batch") * of("latency_ns_min") / 1e9,
            total
        ));
        assert!(close(
            of("utilization") * of("bound_bytes_per_s"),
            of("bandwidth_bytes_per_s_mean")
        ));
        assert!(of("bandwidth_bytes_per_s_mean") < of("bandwidth_bytes_per_s_max_batch"));
        let histogram = record
            .body
            .histogram
            .as_ref()
            .unwrap()
            .to_histogram()
            .unwrap();
        assert_eq!(histogram.count() as f64, of("latency_samples"));
        assert_eq!(
            summary.latency.as_ref().unwrap().samples * of("batch") as u64,
            summary.operations
        );
    }
}
