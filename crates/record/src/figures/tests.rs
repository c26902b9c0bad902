//! Rules that the figures of all kinds must follow.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::kinds::transfer::{Summary, Trial};
use crate::spread::spread;

fn every() -> impl Iterator<Item = (&'static str, &'static Figure)> {
    KINDS.iter().flat_map(|(kind, groups)| {
        let figures = groups.iter().copied().flatten();
        figures.map(move |figure| (*kind, figure))
    })
}

fn definition(figure: &Figure) -> (&str, &str, &str, &str, Style, Option<Better>) {
    let Figure {
        name,
        field,
        meaning,
        computed,
        style,
        better,
        ..
    } = figure;
    (name, field, meaning, computed, *style, *better)
}

#[test]
fn a_field_and_a_header_mean_one_thing_in_all_kinds() {
    let mut by_name: HashMap<String, &Figure> = HashMap::new();
    for (kind, figure) in every() {
        for name in [figure.field.to_owned(), figure.name.to_lowercase()] {
            let known = by_name.entry(name.clone()).or_insert(figure);
            assert_eq!(definition(known), definition(figure), "{kind}: {name}");
        }
    }
}

#[test]
fn a_kind_has_a_figure_once() {
    for (kind, groups) in KINDS {
        let mut seen = HashSet::new();
        for figure in groups.iter().copied().flatten() {
            assert!(seen.insert(figure.field), "{kind}: {}", figure.field);
        }
    }
}

#[test]
fn every_kind_has_the_common_figures() {
    for (kind, groups) in KINDS {
        for wanted in [
            "kind", "plan", "engine", "library", "ranks", "trials", "outcome",
        ] {
            let mut figures = groups.iter().copied().flatten();
            assert!(
                figures.any(|figure| figure.field == wanted),
                "{kind}: {wanted}"
            );
        }
    }
}

#[test]
fn definitions_are_sentences() {
    for (kind, figure) in every() {
        for text in [figure.meaning, figure.computed] {
            let place = format!("{kind}, {}: {text:?}", figure.name);
            assert!(text.ends_with('.') && !text.contains("  "), "{place}");
        }
    }
}

/// Units in headers, and the spellings of each in field names.
const UNITS: &[(&str, &[&str])] = &[
    ("B", &["bytes"]),
    ("MB", &["bytes"]),
    ("GB/s", &["bytes_per_s"]),
    ("MiB/s", &["mib_per_s"]),
    ("op/s", &["per_s"]),
    ("conn/s", &["per_s"]),
    ("ns", &["ns"]),
    ("us", &["ns"]),
    ("ms", &["ns"]),
    ("s", &["ns"]),
    ("ns/op", &["ns_per_operation"]),
    ("ns/conn", &["ns_per_connection"]),
    ("s/GiB", &["ns_per_gib"]),
    ("%", &["fraction", "percent", "utilization"]),
];

/// Words that may follow the unit in a field name.
const STATISTICS: &[&str] = &[
    "",
    "mean",
    "min",
    "max",
    "p50",
    "p90",
    "p99",
    "p999",
    "low",
    "high",
    "max_batch",
    "rank_min",
    "rank_mean",
    "rank_max",
];

#[test]
fn fields_end_with_their_unit() {
    for (kind, figure) in every() {
        let Some((_, unit)) = figure.name.split_once(" (") else {
            assert!(
                !matches!(figure.style, Style::Scaled(_)),
                "{kind}: {} has no unit",
                figure.name
            );
            continue;
        };
        let unit = unit.trim_end_matches(')');
        let words = UNITS
            .iter()
            .find(|(known, _)| *known == unit)
            .map(|(_, words)| words);
        let ends = |word: &&str| {
            STATISTICS.iter().any(|statistic| {
                let end = format!("{word}_{statistic}");
                let end = end.trim_end_matches('_');
                figure.field == end || figure.field.ends_with(&format!("_{end}"))
            })
        };
        let words = words.unwrap_or_else(|| panic!("{kind}: {unit} is an unknown unit"));
        assert!(
            words.iter().any(ends),
            "{kind}: {} of {}",
            figure.field,
            figure.name
        );
    }
}

/// A transfer with one trial per entry of `bytes`. Each trial moves these bytes with ten operations in one second.
fn moved_in_trials(bytes: &[u64]) -> crate::Record {
    let mut record = crate::tests::sample(8);
    let Body::Transfer(body) = &mut record.body else {
        unreachable!()
    };
    let trial = |&bytes: &u64| Trial {
        window_ns: 1_000_000_000,
        operations: 10,
        payload_bytes: bytes,
        bandwidth_bytes_per_s: bytes as f64,
        message_rate_per_s: 10.0,
        ..Trial::default()
    };
    body.trials = bytes.iter().map(trial).collect();
    let rates: Vec<f64> = bytes.iter().map(|&bytes| bytes as f64).collect();
    body.summary = Some(Summary {
        operations: 10 * bytes.len() as u64,
        payload_bytes: bytes.iter().sum(),
        bandwidth_bytes_per_s: spread(&rates),
        message_rate_per_s: spread(&vec![10.0; bytes.len()]),
        ..Summary::default()
    });
    record
}

/// If the engine moves no bytes, operations are known, and the bandwidth is unknown rather than 0.
#[test]
fn a_point_that_moved_no_bytes_has_no_bandwidth() {
    let of = |record: &crate::Record, field: &str| {
        let figure = of(&record.body).find(|figure| figure.field == field);
        let (figure, rows) = (figure.unwrap(), Row::all_of_record(record));
        let trials = figure.trials.map(|trials| trials(&rows[0]));
        ((figure.value)(&rows[0]), trials)
    };
    let none = moved_in_trials(&[0, 0]);
    let expected = (Value::Unknown, Some(vec![None, None]));
    assert_eq!(of(&none, "bandwidth_bytes_per_s_mean"), expected);
    for field in [
        "bandwidth_ci95_fraction",
        "bandwidth_bytes_per_s_min",
        "bandwidth_bytes_per_s_max",
    ] {
        assert_eq!(of(&none, field).0, Value::Unknown, "{field}");
    }
    let rates = (Value::Number(10.0), Some(vec![Some(10.0); 2]));
    assert_eq!(of(&none, "message_rate_per_s_mean"), rates);
    // A trial without bytes has a bandwidth of 0 if other trials moved bytes.
    let some = moved_in_trials(&[0, 600]);
    let expected = (Value::Number(300.0), Some(vec![Some(0.0), Some(600.0)]));
    assert_eq!(of(&some, "bandwidth_bytes_per_s_mean"), expected);
    assert_eq!(of(&some, "bandwidth_bytes_per_s_min").0, Value::Number(0.0));
}
