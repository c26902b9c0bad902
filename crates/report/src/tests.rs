//! Golden files of every report, and the schema of what a results file holds.

use serde_json::{Value, json};
use tonnage_plan::files::{DataKind, Phase, ReadFrom};
use tonnage_record::Record;
use tonnage_record::figures::{self, Row, by_field};
use tonnage_record::histogram::LatencyHistogram;
use tonnage_record::read::read_records;

use super::text::WIDTH;
use super::{Format, render, samples};

fn table(records: &[Record]) -> String {
    table_of(records)
}

pub fn table_of(lines: &[Record]) -> String {
    let text = render(Format::Table, lines).unwrap();
    for line in text.lines() {
        // A shell takes it as it stands.
        let is_command = line.starts_with("tonnage ");
        assert!(
            is_command || line.chars().count() <= WIDTH,
            "{line:?} is wider than {WIDTH}"
        );
        assert_eq!(line.trim_end(), line);
    }
    text
}

#[test]
fn tables_look_as_agreed() {
    insta::assert_snapshot!("table_batch", table(&samples::batches()));
    insta::assert_snapshot!(
        "table_batch_without_max",
        table(&samples::batches_without_max())
    );
    insta::assert_snapshot!("table_stream", table(&samples::streams()));
    insta::assert_snapshot!("table_ping_pong", table(&samples::ping_pongs()));
    insta::assert_snapshot!("table_clients", table(&samples::clients()));
    for (at, record) in (0..).zip(samples::intervals()) {
        insta::assert_snapshot!(format!("table_intervals_{at}"), table(&[record]));
    }
    insta::assert_snapshot!("table_matrix", table(&samples::matrices()));
    insta::assert_snapshot!("table_traffic_file", table(&samples::traffic_files()));
    insta::assert_snapshot!("table_paced", table(&samples::paced()));
    insta::assert_snapshot!("table_loaded", table(&samples::loaded()));
    insta::assert_snapshot!("table_path", table(&samples::paths()));
    insta::assert_snapshot!("table_path_proven", table(&samples::proven_paths()));
    insta::assert_snapshot!("table_fabric", table(&samples::fabric()));
    insta::assert_snapshot!("table_published", table(&samples::published()));
    insta::assert_snapshot!("table_verify", table(&samples::verifies()));
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

#[test]
fn a_results_file_may_hold_all_kinds() {
    let mut both = samples::ping_pongs();
    let transfers_end = both.len();
    both.extend(samples::files::all());
    both.extend(samples::verifies());
    both.extend(samples::connect::connections());
    both.extend(samples::stress::stresses());
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
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("both.jsonl");
    std::fs::write(&path, jsonl).unwrap();
    assert_eq!(read_records(&path).unwrap().records, both);
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
fn csv_of_files_has_a_row_for_each_phase_and_for_what_it_mixes() {
    let text = render(Format::Csv, &samples::files::all()).unwrap();
    insta::assert_snapshot!("csv_files", text.replace("\r\n", "\n"));
    // Two phases; one with its reads and its writes; one before the disk was full; none; two phases of three trials;
    // and the header.
    assert_eq!(text.matches("\r\n").count(), 2 + 3 + 1 + 1 + 2 + 1);
}

#[test]
fn amounts_mean_all_trials_in_every_kind_and_stand_in_one_row() {
    let mut records = samples::all();
    records.extend(samples::files::all());
    records.extend(samples::connect::connections());
    records.extend(samples::stress::stresses());
    for field in ["operations", "payload_bytes", "verified_bytes", "trials"] {
        let figure = by_field(field).unwrap();
        for record in &records {
            let of_rows = Row::of(record).into_iter();
            let of_rows = of_rows.map(|row| match (figure.value)(&row) {
                figures::Value::Count(count) => count,
                _ => 0,
            });
            let of_trials: u64 = match (record.transfer(), record.file()) {
                (Some(body), _) => body
                    .trials
                    .iter()
                    .map(|trial| {
                        let verified = trial.verified_bytes;
                        amount(field, trial.operations, trial.payload_bytes, verified)
                    })
                    .sum(),
                (_, Some(body)) => {
                    let trials = body.phases.iter().flat_map(|phase| &phase.trials);
                    trials
                        .map(|trial| {
                            let verified = trial.verified_bytes;
                            amount(field, trial.operations, trial.payload_bytes, verified)
                        })
                        .sum()
                }
                _ => match (record.stress(), record.connect()) {
                    // Its transfers are no trials.
                    (Some(_), _) if field == "trials" => 0,
                    (Some(body), _) => body.sum(match field {
                        "operations" => |row| row.operations,
                        "payload_bytes" => |row| row.payload_bytes,
                        _ => |row| row.verified_bytes,
                    }),
                    // Connections carry nothing.
                    (_, Some(body)) if field == "trials" => body.trials.len() as u64,
                    _ => 0,
                },
            };
            assert_eq!(of_rows.sum::<u64>(), of_trials, "{field} of {record:?}");
        }
    }
}

#[test]
fn every_kind_has_a_report() {
    let mut records = samples::all();
    records.extend(samples::files::all());
    records.extend(samples::connect::connections());
    records.extend(samples::stress::stresses());
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

fn amount(field: &str, operations: u64, payload_bytes: u64, verified_bytes: Option<u64>) -> u64 {
    match field {
        "operations" => operations,
        "payload_bytes" => payload_bytes,
        "verified_bytes" => verified_bytes.unwrap_or(0),
        _ => 1,
    }
}

#[test]
fn values_of_trials_are_those_that_a_mean_is_of() {
    let mut records = samples::all();
    records.extend(samples::files::all());
    records.extend(samples::connect::connections());
    records.extend(samples::stress::stresses());
    let mut compared = 0;
    for row in records.iter().flat_map(Row::of) {
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
fn a_verify_run_that_is_all_right_says_so() {
    insta::assert_snapshot!("table_verify_right", table(&samples::verifies()[..8]));
}

#[test]
fn tables_of_different_runs_are_apart() {
    let text = table(&samples::all());
    let count = |words| text.matches(words).count();
    let [phases, beside] = ["phases of a batch", "and beside it:"].map(count);
    let tables = count("MsgSize") - phases - beside;
    assert_eq!((tables, phases, beside), (15, 4, 1), "{text}");
    assert_eq!(text.matches("Bytes checked").count(), 1);
    assert_eq!(table(&[]), "");
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
    let text = render(Format::Jsonl, &records).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.jsonl");
    std::fs::write(&path, text).unwrap();
    let back = tonnage_record::read::read_records(&path).unwrap().records;
    assert_eq!(back, records);
    insta::assert_snapshot!(
        "jsonl_batch",
        render(Format::Jsonl, &samples::batches()[1..2]).unwrap()
    );
}

#[test]
fn the_columns_of_a_batch_agree_with_each_other() {
    for record in samples::batches() {
        let row = Row::of(&record).swap_remove(0);
        let record = record.as_transfer().unwrap();
        let Some(summary) = &record.body.summary else {
            continue;
        };
        let of = |field: &str| match (by_field(field).unwrap().value)(&row) {
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
            of("utilization") * of("limit_bytes_per_s"),
            of("bandwidth_bytes_per_s_mean")
        ));
        assert!(of("bandwidth_bytes_per_s_mean") < of("bandwidth_bytes_per_s_max_batch"));
        let histogram =
            LatencyHistogram::from_data(record.body.histogram.as_ref().unwrap()).unwrap();
        assert_eq!(histogram.count() as f64, of("latency_samples"));
        assert_eq!(
            summary.latency.as_ref().unwrap().samples * of("batch") as u64,
            summary.operations
        );
    }
}

fn schema() -> jsonschema::Validator {
    let schema: Value =
        serde_json::from_str(include_str!("../../../docs/record.schema.json")).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

fn values() -> Vec<Value> {
    let machine = json!({
        "os": "Debian", "kernel": "6.1", "architecture": "x86_64", "virtualised": true, "clock_source": "tsc",
        "cpu": {
            "model": "X", "online": "0-7", "allowed": "0-3,6", "quota_millicpus": 1500, "sockets": 1, "cores": 4,
            "threads_per_core": 2, "l2_bytes": 1, "l3_bytes": 2, "governor": "performance",
            "frequency_khz_max": 3_500_000,
        },
        "memory": {
            "total_bytes": 1, "numa_nodes": "0", "huge_pools": [{"page_bytes": 2_097_152, "total": 4, "free": 3}],
            "transparent": {"enabled": "madvise", "shmem_enabled": "never"},
        },
        "libraries": {"libc": "glibc 2.36"}, "variables": {"FI_PROVIDER": "tcp"},
    });
    let host = json!({
        "name": "node7", "ranks": "0-1", "clock_offset_ns": -12, "clock_uncertainty_ns": 40, "memory_total_bytes": 2,
        "huge_pages_free": [3],
    });
    let environment = json!([{"hosts": [host], "ranks": "0-1", "launcher": "tonnage --ranks", "machine": machine}]);
    let mut values: Vec<_> = samples::all()
        .iter()
        .map(|record| serde_json::to_value(record).unwrap())
        .collect();
    values[0]["environment"] = environment;
    let beside = samples::published();
    values.extend(
        beside
            .iter()
            .map(|record| serde_json::to_value(record).unwrap()),
    );
    values.extend(files_values());
    let others = [samples::connect::connections(), samples::stress::stresses()];
    let each = others.iter().flatten();
    values.extend(each.map(|record| serde_json::to_value(record).unwrap()));
    values
}

/// The samples of file experiments, the last of them with every field that a record can have.
fn files_values() -> Vec<Value> {
    let mut full = samples::files::collective();
    let body = |record: Record| record.file().unwrap().clone();
    let (buffered, stonewalled) = (samples::files::buffered(), samples::files::stonewalled());
    let remarks = buffered.remarks.clone();
    let (buffered, stonewalled) = (body(buffered), body(stonewalled));
    let of_full = samples::files::body(&mut full);
    let mut point = stonewalled.point;
    point.hints = of_full.point.hints.clone();
    point.striping = of_full.point.striping;
    point
        .engine_options
        .insert("submit-batch".to_owned(), "8".to_owned());
    (point.directory_per_rank, point.file_per_trial) = (true, true);
    (point.status_file, point.data_seed) = (Some("status".to_owned()), Some(7));
    (point.delay_ns, point.max_duration_ns) = (1, Some(1));
    point.verify_after = vec![Phase::Read];
    point.read_from = ReadFrom::Shuffled { seed: 3 };
    point.data = DataKind::Compressible { percent: 30 };
    if let Some(stonewall) = &mut point.stonewall {
        stonewall.transfers_min = 9;
    }
    (of_full.point, of_full.outlier_ns) = (point, Some(1));
    of_full.phases.extend(stonewalled.phases);
    of_full.storage.extend(buffered.storage);
    of_full.phases.extend(buffered.phases);
    full.remarks = remarks;
    samples::files::all()
        .iter()
        .chain([&full])
        .map(|record| serde_json::to_value(record).unwrap())
        .collect()
}

#[test]
fn the_schema_accepts_every_kind_of_record() {
    let schema = schema();
    for value in values() {
        let errors: Vec<_> = schema
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
    }
}

/// Every object of a value, as JSON pointers.
fn objects(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter()
                .for_each(|(key, inner)| objects(inner, format!("{at}/{key}"), found));
            found.push(at);
        }
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(index, inner)| objects(inner, format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

#[test]
fn the_schema_refuses_renamed_fields_everywhere() {
    let schema = schema();
    let free = [
        "/engine",
        "/effective/0/memory",
        "/libraries",
        "/engine_options",
        "/variables",
        "/counters",
        "/hints",
    ];
    for value in values() {
        let mut pointers = Vec::new();
        objects(&value, String::new(), &mut pointers);
        for pointer in pointers
            .iter()
            .filter(|pointer| !free.iter().any(|end| pointer.ends_with(end)))
            .filter(|pointer| !pointer.contains("/engine/"))
        {
            let keys: Vec<String> = value
                .pointer(pointer)
                .and_then(Value::as_object)
                .unwrap()
                .keys()
                .cloned()
                .collect();
            for key in keys {
                let mut renamed = value.clone();
                let object = renamed
                    .pointer_mut(pointer)
                    .and_then(Value::as_object_mut)
                    .unwrap();
                let inner = object.remove(&key).unwrap();
                object.insert(format!("{key}_x"), inner);
                assert!(
                    !schema.is_valid(&renamed),
                    "{pointer}/{key} was renamed and nobody noticed"
                );
            }
        }
    }
}

/// Checks that each field of the schema is in some record; else one could be in none.
#[test]
fn every_property_of_files_is_in_some_record() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../docs/record.schema.json")).unwrap();
    let text = serde_json::to_string(&files_values()).unwrap();
    for of in [
        "FileBody",
        "FilePoint",
        "PhaseRecord",
        "PhaseTrial",
        "PhaseSummary",
        "Published",
    ] {
        let properties = schema["$defs"][of]["properties"].as_object().unwrap();
        for name in properties.keys() {
            assert!(text.contains(&format!("\"{name}\":")), "{of}: {name}");
        }
    }
}

#[test]
fn the_schema_describes_every_property() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../docs/record.schema.json")).unwrap();
    let mut pointers = Vec::new();
    objects(&schema, String::new(), &mut pointers);
    let properties = pointers
        .iter()
        .filter(|pointer| pointer.ends_with("/properties"));
    for pointer in properties {
        let object = schema.pointer(pointer.trim_end_matches("/properties"));
        let all = schema.pointer(pointer).and_then(Value::as_object).unwrap();
        for (name, property) in all {
            let is_told = |value: &Value| {
                let text = value["description"].as_str();
                text.is_some_and(|text| text.len() > 5)
            };
            // A choice that is its only property is described as one.
            let told = is_told(property) || (all.len() == 1 && object.is_some_and(is_told));
            assert!(
                told || property.get("const").is_some(),
                "{pointer}/{name} has no description"
            );
        }
    }
}
