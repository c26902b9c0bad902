//! Validates the schema of results files against samples of every kind of record.

use serde_json::{Value, json};
use tonnage_plan::files::{DataKind, Phase, ReadFrom};
use tonnage_record::Record;

use crate::samples;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../docs/record.schema.json")).unwrap()
}

fn validator() -> jsonschema::Validator {
    let schema = schema();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

fn value(record: &Record) -> Value {
    serde_json::to_value(record).unwrap()
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
    let records = [samples::of_all_kinds(), samples::published()].concat();
    let mut values: Vec<_> = records.iter().map(value).collect();
    values[0]["environment"] = environment;
    values.extend(files_values());
    values
}

/// Samples of file experiments. The last one has every field that a record can have.
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
        .map(value)
        .collect()
}

#[test]
fn the_schema_accepts_every_kind_of_record() {
    let schema = validator();
    for value in values() {
        let errors: Vec<_> = schema
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
    }
}

/// Adds to `found` the JSON pointers of all objects in a value.
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
    let schema = validator();
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
                    "{pointer}/{key} was renamed unnoticed"
                );
            }
        }
    }
}

/// Each field of the schema must occur in some record. Without this check, a field that no record has would go
/// unnoticed.
#[test]
fn every_property_of_files_is_in_some_record() {
    let schema = schema();
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
    let schema = schema();
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
            // If an object has a single property, the object's description is sufficient.
            let told = is_told(property) || (all.len() == 1 && object.is_some_and(is_told));
            assert!(
                told || property.get("const").is_some(),
                "{pointer}/{name} has no description"
            );
        }
    }
}
