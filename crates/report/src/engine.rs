//! Reports about an engine: its own options, and the library, provider and device that it used.
//!
//! Each engine states its choices in a record by fields of its own; those that are read here mean the same wherever
//! they are. An engine that has none of them, such as `shm`, has no line.

use serde_json::Value;
use tonnage_plan::transfer::TransferPoint;
use tonnage_record::{Record, TransferRecord};

/// Options of the engine's own that differ from their defaults, as "NAME=VALUE NAME=VALUE"; empty when none do.
pub fn options(point: &TransferPoint) -> String {
    let options = point.engine_options.iter();
    let options: Vec<_> = options
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    options.join(" ")
}

/// The engine's name, and its options if any differ from their defaults.
pub fn name(point: &TransferPoint) -> String {
    format!("{} {}", point.engine, options(point))
        .trim_end()
        .to_owned()
}

/// The library that was used: release and file; empty when there is none.
pub fn library(record: &Record) -> String {
    by_ranks(record, library_of)
}

/// The library's provider and its version; empty when there is none.
pub fn provider(record: TransferRecord<'_>) -> String {
    by_ranks(record.record, provider_of)
}

/// The devices of the engine; empty when it has none.
pub fn device(record: TransferRecord<'_>) -> String {
    by_ranks(record.record, devices_of)
}

/// Library, provider and device in one text; empty where there is no library.
pub fn means(record: TransferRecord<'_>) -> String {
    by_ranks(record.record, |engine| {
        let library = library_of(engine)?;
        let provider = provider_of(engine).map(|provider| format!(", provider {provider}"));
        // A provider for memory calls its one device as it is called itself.
        let device = devices_of(engine).filter(|device| engine["provider"] != **device);
        let device = device.map(|device| format!(", device {device}"));
        Some(library + &provider.unwrap_or_default() + &device.unwrap_or_default())
    })
}

/// Below a table: what all of these moved the bytes by, each once.
pub fn lines<'a>(records: impl Iterator<Item = TransferRecord<'a>>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for text in records.map(means).filter(|text| !text.is_empty()) {
        let line = format!("engine: {text}");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn library_of(engine: &Value) -> Option<String> {
    let version = engine["version"].as_str()?;
    let file = engine["library"].as_str()?;
    Some(format!("{version} ({file})"))
}

fn provider_of(engine: &Value) -> Option<String> {
    let provider = engine["provider"].as_str()?;
    let version = engine["provider_version"].as_str()?;
    Some(format!("{provider} {version}"))
}

fn devices_of(engine: &Value) -> Option<String> {
    let one = |engine: &Value| Some(engine["device"].as_str()?.to_owned());
    let Some(several) = engine["devices"].as_array() else {
        return one(engine);
    };
    let mut names: Vec<String> = several.iter().filter_map(one).collect();
    names.dedup();
    (!names.is_empty()).then(|| names.join(","))
}

/// Joins the ranks' answers: once where all say the same, else with the ranks before it.
fn by_ranks(record: &Record, of: impl Fn(&Value) -> Option<String>) -> String {
    let mut texts: Vec<(String, Vec<&str>)> = Vec::new();
    for effective in &record.effective {
        let Some(text) = of(&effective.engine) else {
            continue;
        };
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(&effective.ranks),
            None => texts.push((text, vec![&effective.ranks])),
        }
    }
    match texts.as_slice() {
        [(text, _)] => text.clone(),
        texts => {
            let all = texts
                .iter()
                .map(|(text, ranks)| format!("ranks {}: {text}", ranks.join(",")));
            all.collect::<Vec<_>>().join("; ")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tonnage_plan::transfer::Pacing;

    use super::super::samples::{fabric, sample};
    use super::*;

    #[test]
    fn an_engine_without_a_library_has_no_line() {
        let record = sample(Pacing::PingPong, 8).record();
        let of = record.as_transfer().unwrap();
        assert_eq!(library(&record) + &provider(of) + &device(of), "");
        assert!(lines([of].into_iter()).is_empty());
        assert_eq!(name(&of.body.point), "shm");
    }

    #[test]
    fn any_library_is_told() {
        let record = super::super::samples::files::collective();
        let expected = "Open MPI v4.1.4 (/usr/lib/libmpi.so.40)";
        assert_eq!(library(&record), expected);
    }

    #[test]
    fn ranks_that_differ_are_told_apart() {
        let mut record = fabric().swap_remove(0);
        let mut other = record.effective[0].clone();
        record.effective[0].ranks = "0".to_owned();
        other.ranks = "1".to_owned();
        record.effective.push(other);
        assert_eq!(device(record.as_transfer().unwrap()), "eth0");
        record.effective[1].engine["device"] = json!("eth1");
        assert_eq!(
            device(record.as_transfer().unwrap()),
            "ranks 0: eth0; ranks 1: eth1"
        );
        record.effective.remove(0);
        let all = json!([{"device": "eth0"}, {"device": "eth1"}]);
        record.effective[0].engine["devices"] = all;
        assert_eq!(device(record.as_transfer().unwrap()), "eth0,eth1");
    }
}
