//! Random plans, texts and values. Each must read back the same, or be refused with a usage error. Values are generated
//! from the declarations of options, so that new options are covered automatically.

use clap::{Arg, ArgAction};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

use super::*;
use crate::files::{Phase, Published};
use crate::fixture::LISTS;
use crate::point::BoundChoice;
use crate::published::{PublishedCell, PublishedTable};
use tonnage_units::{BytesPerSecond, Fraction, PerSecond};

/// Generates a text, quoted as TOML.
fn quoted(text: impl Strategy<Value = String> + 'static) -> BoxedStrategy<String> {
    text.prop_map(|text| string_value(&text).to_string())
        .boxed()
}

/// Generates several of these values, joined by commas.
fn joined(one: impl Strategy<Value = String> + 'static) -> BoxedStrategy<String> {
    quoted(vec(one, 1..4).prop_map(|all| all.join(",")))
}

/// Generates published figures, which only plans can give.
fn published(kind: &str) -> BoxedStrategy<String> {
    let figures = (
        select(Phase::ALL.to_vec()),
        option::of(-1.0..1e9),
        option::of(0.0..1e9),
    );
    let others = (
        option::of(any::<u32>()),
        option::of(0.0..200.0),
        "\\PC{0,12}",
    );
    let figure =
        (figures, others).prop_map(|((phase, mib, operations), (ranks, percent, what))| {
            Published {
                phase,
                bandwidth_mib_per_s: mib,
                operations_per_s: operations,
                ranks,
                percent_of_earlier: percent,
                what,
            }
        });
    let cell = prop_oneof![
        (0..i64::MAX as u64).prop_map(PublishedCell::Count),
        (-1e300..1e300).prop_map(PublishedCell::Number),
        "\\PC{0,6}".prop_map(PublishedCell::Text),
    ];
    let rows = vec(vec(cell, 0..3), 0..3);
    let table = ("\\PC{0,6}", vec("\\PC{0,6}", 0..3), rows);
    let table = table.prop_map(|(what, columns, rows)| PublishedTable {
        what,
        columns,
        rows,
    });
    match kind {
        "file" => vec(figure, 0..3)
            .prop_map(|all| Value::try_from(all).unwrap().to_string())
            .boxed(),
        _ => vec(table, 0..3)
            .prop_map(|all| Value::try_from(all).unwrap().to_string())
            .boxed(),
    }
}

/// Generates values of an option, written as in plans.
fn values(key: &str, arg: &Arg) -> BoxedStrategy<String> {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return any::<bool>().prop_map(|is_on| is_on.to_string()).boxed();
    }
    let names: Vec<_> = arg
        .get_possible_values()
        .iter()
        .map(|it| it.get_name().to_owned())
        .collect();
    match arg.get_value_delimiter() {
        Some(_) if !names.is_empty() => return joined(select(names)),
        None if !names.is_empty() => return quoted(select(names)),
        _ => {}
    }
    let counts = || quoted(prop_oneof![0u64..5, any::<u64>()].prop_map(|count| count.to_string()));
    let name = arg.get_value_names().unwrap()[0].as_str();
    match (name, key) {
        ("SWEEP", _) => quoted(prop_oneof![
            "[1-9][0-9]{0,2}\\.\\.[1-9][0-9]{3}[kM]?",
            "[1-9][0-9]{0,5}[kM]?",
            "[1-9],1[0-9],[1-9]k",
            "[1-9]M\\.\\.[1-9]0M\\+1M",
        ]),
        ("TIME", _) => quoted(any::<u64>().prop_map(|ns| format!("{ns}ns"))),
        ("N", "read-shift") => quoted("node|nodes=[1-9]|[0-9]{1,9}"),
        ("N" | "K" | "RANK" | "SEED" | "BYTES", _) => counts(),
        ("N|all", _) => quoted("all|[1-9][0-9]{0,8}"),
        ("NAMES" | "NAME", "memory" | "target-memory") => joined("host|huge"),
        ("NAMES", _) => joined("(native:)?[a-z]{1,6}"),
        ("PATH" | "TEXT" | "FILE", "path" | "label" | "python" | "stonewall-status") => {
            quoted("\\PC{1,20}")
        }
        ("FILE", _) => quoted(crate::transfer::traffic_files().prop_map(|file| file.to_string())),
        ("PERCENT", _) => quoted((0.0..2.0).prop_map(|part| Fraction(part).to_string())),
        ("RATE", _) => quoted(prop_oneof![
            (0.0..1e12).prop_map(|rate| PerSecond(rate).to_string()),
            (0.0..1e12).prop_map(|rate| BytesPerSecond(rate).to_string()),
            "[0-9]{1,4}[kMG]?b/s",
        ]),
        ("RATES", _) => joined("full|[1-9][0-9]{0,3}k?|[1-9][0-9]{0,2}Gb/s"),
        ("BOUND", _) => quoted(prop_oneof![
            select(vec!["auto".to_owned(), "none".to_owned()]),
            (1e-3..1e15).prop_map(|bytes_per_s| BoundChoice::Stated { bytes_per_s }.to_string()),
        ]),
        ("NAME=VALUE", _) => btree_map("[a-z_-]{1,8}", "\\PC{0,8}", 0..3)
            .prop_map(|pairs| Value::try_from(pairs).unwrap().to_string())
            .boxed(),
        ("KEY=VALUE,...", _) => quoted(
            "op=(read|send|fetch-add),size=[1-9][0-9]{0,5}k,depth=[1-9][0-9]?,pair=(same|other),threads=[1-8]",
        ),
        ("GROUPS", _) => quoted("all|(div|mod):[1-9][0-9]{0,8}"),
        ("KIND", _) => quoted("random|compressible=[1-9][0-9]?%"),
        ("PHASES", _) => "true|false|'last'|'write'|'read,mixed'".boxed(),
        ("WHICH", _) => "true|false|'last'|'each'".boxed(),
        ("ON|OFF", _) => "true|false".boxed(),
        other => panic!("no values for {other:?}"),
    }
}

/// Generates a table of a kind. Each option has a value or is left out, unless it is required.
fn table(kind: &'static KindEntry<Experiment>) -> BoxedStrategy<String> {
    let command = (kind.command)();
    let long = |name: &str| {
        command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(name))
    };
    let is_alias = |key: &&str| {
        let mut aliases = command.get_arguments().filter_map(Arg::get_all_aliases);
        aliases.any(|aliases| aliases.contains(key))
    };
    let keys = (kind.keys)().into_iter().filter(|key| !is_alias(key));
    let lines = keys.map(|key| {
        let values = match long(key).or_else(|| long(key.strip_suffix('s')?)) {
            Some(arg) => values(key, arg),
            None => published(kind.key),
        };
        let line = values.prop_map(move |value| format!("{key} = {value}\n"));
        match kind.needs.iter().any(|(needed, _)| *needed == key) {
            true => line.boxed(),
            false => option::of(line).prop_map(Option::unwrap_or_default).boxed(),
        }
    });
    let lines: Vec<_> = lines.collect();
    lines
        .prop_map(|lines| format!("[[{}]]\n{}", kind.key, lines.concat()))
        .boxed()
}

prop_compose! {
    fn plans()(
        name in quoted("\\PC{0,12}"),
        title in option::of(quoted("(?s).{0,40}")),
        ranks in option::of(any::<u32>()),
        tables in vec(Union::new(KINDS.iter().map(table)), 0..5),
    ) -> Plan {
        let title = title.map_or(String::new(), |title| format!("title = {title}\n"));
        let ranks = ranks.map_or(String::new(), |ranks| format!("ranks = {ranks}\n"));
        let none = if tables.is_empty() { "transfer = []\n" } else { "" };
        let text = format!("name = {name}\n{title}{ranks}{none}{}", tables.concat());
        Plan::from_toml(&text, "p").unwrap_or_else(|error| panic!("{error}\n{text}"))
    }
}

const SHIPPED: [&str; 7] = [
    include_str!("../../../../../plans/efa-write.toml"),
    include_str!("../../../../../plans/tour.toml"),
    include_str!("../../../../../plans/mori-io-read.toml"),
    include_str!("../../../../../plans/mori-io-write.toml"),
    include_str!("../../../../../plans/one-sided-read.toml"),
    include_str!("../../../../../plans/cori-lustre-mpiio.toml"),
    include_str!("../../../../../plans/cori-datawarp-1.toml"),
];

proptest! {
    #[test]
    fn what_is_printed_reads_back_as_the_same_plan(plan in plans()) {
        let text = plan.to_toml().unwrap();
        let back = Plan::from_toml(&text, "p").map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(back, plan);
    }

    #[test]
    fn any_plan_expands_or_is_refused_as_usage(
        mut plan in plans(), ranks in 0u32..6, factor in 1e-9..1e5,
    ) {
        plan.scale(factor, ranks).unwrap();
        let mut tunes = plan.clone();
        tunes.experiments.retain(|experiment| matches!(experiment, Experiment::Tune(_)));
        let _none_is_left = tunes.use_engines(&["shm".into()]);
        if let Err(error) = tunes.points(ranks, &LISTS) {
            prop_assert_eq!(error.exit_code(), 2);
        }
        plan.experiments.retain(|experiment| matches!(experiment, Experiment::Transfer(_)));
        let _none_is_left = plan.use_engines(&["shm".into()]);
        match plan.transfer_points(ranks) {
            Ok(points) => {
                let whole = points.iter().all(|point| {
                    point.slots.footprint_bytes >= point.slots.stride_bytes
                        && point.slots.footprint_bytes.is_multiple_of(point.slots.stride_bytes)
                        && point.slots.stride_bytes >= u64::from(point.slots.size_bytes)
                        && point.depth() >= 1
                });
                prop_assert!(whole);
            }
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }

    // Calls the same functions as the fuzz targets, so that each test run includes a small amount of fuzzing.
    #[test]
    fn any_text_is_a_plan_or_refused_as_usage(text in "(?s).{0,200}") {
        if let Err(error) = Plan::from_toml(&text, "p") {
            prop_assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_damaged_plan_is_read_or_refused_as_usage(
        shipped in proptest::sample::select(SHIPPED.to_vec()),
        edits in proptest::collection::vec((any::<usize>(), 0usize..6, "(?s).{0,3}|[0-9.+*\"'=\\[\\]]{1,3}"), 1..4),
    ) {
        // Lines of comments are removed first, so that edits change only lines that matter.
        let lines = shipped.lines().filter(|line| !line.starts_with('#'));
        let mut text: Vec<char> = lines.collect::<Vec<_>>().join("\n").chars().collect();
        for (at, removed, added) in edits {
            let start = at % text.len();
            let end = (start + removed).min(text.len());
            text.splice(start..end, added.chars());
        }
        match Plan::from_toml(&text.iter().collect::<String>(), "p") {
            Ok(plan) => {
                prop_assert_eq!(&Plan::from_toml(&plan.to_toml().unwrap(), "p").unwrap(), &plan);
                let ranks = plan.ranks.unwrap_or(2);
                let points = plan.points(ranks, &LISTS);
                prop_assert!(points.map_or_else(|e| e.exit_code() == 2, |points| !points.is_empty()));
            }
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }

    #[test]
    fn any_value_is_read_or_refused_as_usage(
        key in proptest::sample::select(Transfer::keys()),
        value in "[-+]?[0-9.]{1,8}|'[0-9a-zA-Z.,+*% /-]{0,12}'|\\[[0-9, ']{0,8}\\]|true|false",
    ) {
        let base = ["engine = 'shm'", "op = 'read'", "sizes = 64"];
        let lines: Vec<_> = base.iter().filter(|line| !line.starts_with(key)).copied().collect();
        let text = format!("name = 'p'\n[[transfer]]\n{}\n{key} = {value}\n", lines.join("\n"));
        match Plan::from_toml(&text, "p").and_then(|plan| plan.transfer_points(2)) {
            Ok(points) => prop_assert!(!points.is_empty()),
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }
}
