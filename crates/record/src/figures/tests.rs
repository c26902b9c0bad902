//! Rules that hold for the figures of all kinds.

use std::collections::{HashMap, HashSet};

use super::*;

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
fn every_kind_has_what_all_have() {
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
fn definitions_are_sentences_that_say_the_thing() {
    for (kind, figure) in every() {
        for text in [figure.meaning, figure.computed] {
            let place = format!("{kind}, {}: {text:?}", figure.name);
            assert!(text.ends_with('.') && !text.contains("  "), "{place}");
            let first = text.split(' ').next().unwrap_or_default();
            let riddles = [
                "What", "Who", "Whose", "How", "Where", "Whether", "Which", "When", "That", "Why",
            ];
            assert!(!riddles.contains(&first), "{place}");
        }
    }
}

/// Units of headers, each with what a field of that unit has in its name.
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

/// Words that may follow the unit.
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
