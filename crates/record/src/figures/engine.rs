//! Figures from the engine's own report. They appear for every engine that reports them.

use tonnage_engine::{EngineReport, Fact, fact_names};

use super::{Figure, Row};
use crate::Record;
use crate::grouping::by_answer;

const OWN_WORD: &str = "Reported by the engine, ranks with the same answer together; absent if the engine reports none.";

/// Figures of the library, provider and device used.
pub const ENGINE: &[Figure] = &[
    Figure {
        name: "Library",
        field: "library",
        meaning: "The library that moved the bytes, with its version and the file that it was loaded from.",
        computed: OWN_WORD,
        value: |row| text_of_row(row, library).into(),
        ..Figure::PLAIN
    },
    Figure {
        name: "Provider",
        field: "provider",
        meaning: "The part of the library that moved the bytes, with its version.",
        computed: OWN_WORD,
        value: |row| text_of_row(row, provider).into(),
        ..Figure::PLAIN
    },
    Figure {
        name: "Device",
        field: "device",
        meaning: "The device, or devices, that the engine used.",
        computed: OWN_WORD,
        value: |row| text_of_row(row, devices).into(),
        ..Figure::PLAIN
    },
];

/// Applies `of` to the reports of the engine that moved a row's bytes, and joins the texts that it returns.
fn text_of_row(row: &Row<'_>, of: impl Fn(&EngineReport) -> Option<String>) -> String {
    let own = |engine: &EngineReport| row.body().is_moved_by(row.part, &engine.name);
    text_by_ranks(row.record, |engine| of(engine).filter(|_| own(engine)))
}

/// Returns library, provider and device of a row in one text; empty if the engine uses no library.
pub fn transport_of_row(row: &Row<'_>) -> String {
    text_of_row(row, describe_transport)
}

/// Returns the versions of a row's library, and of the Python that called it, with the ranks that use each version.
/// `None` if all ranks use the same versions.
pub fn different_versions(row: &Row<'_>) -> Option<String> {
    let own = row.record.effective.iter();
    let own = own.filter(|one| row.body().is_moved_by(row.part, &one.engine.name));
    let answers = own.filter_map(|one| Some((one.ranks.as_str(), versions(&one.engine)?)));
    let texts = by_answer(answers);
    (texts.len() > 1).then(|| with_ranks(&texts))
}

fn versions(engine: &EngineReport) -> Option<String> {
    let library = engine.library.as_ref()?.version.clone();
    let python = engine.facts.get(fact_names::PYTHON).and_then(Fact::text);
    Some(match python {
        Some(python) => format!("{library} in Python {python}"),
        None => library,
    })
}

/// Returns the kind of memory of a row's ranks; `None` if the kind is unknown or not the same for all ranks.
pub fn memory_of<'a>(row: &Row<'a>) -> Option<&'a str> {
    let own = row.record.effective.iter();
    let own = own.filter(|one| row.body().is_moved_by(row.part, &one.engine.name));
    let mut kinds = own.flat_map(|one| one.memory.all()).map(|it| &*it.kind);
    let first = kinds.next()?;
    kinds.all(|kind| kind == first).then_some(first)
}

/// Returns library, provider and device of a record in one text; empty if the engine uses no library.
pub fn transport_of_record(record: &Record) -> String {
    text_by_ranks(record, describe_transport)
}

fn describe_transport(engine: &EngineReport) -> Option<String> {
    let library = library(engine)?;
    let provider_with_version = provider(engine).map(|provider| format!(", provider {provider}"));
    // A provider for shared memory has a single device with the provider's own name, which would be redundant.
    let device = devices(engine).filter(|device| engine.provider.as_ref() != Some(device));
    let device = device.map(|device| format!(", device {device}"));
    Some(library + &provider_with_version.unwrap_or_default() + &device.unwrap_or_default())
}

fn library(engine: &EngineReport) -> Option<String> {
    let library = engine.library.as_ref()?;
    Some(format!("{} ({})", library.version, library.library))
}

fn provider(engine: &EngineReport) -> Option<String> {
    let (provider, version) = (engine.provider.as_ref()?, engine.provider_version.as_ref()?);
    Some(format!("{provider} {version}"))
}

fn devices(engine: &EngineReport) -> Option<String> {
    if engine.devices.is_empty() {
        return engine.device.clone();
    }
    let names = engine.devices.iter();
    let mut names: Vec<&str> = names.filter_map(|one| one.device.as_deref()).collect();
    names.dedup();
    (!names.is_empty()).then(|| names.join(","))
}

/// Joins the texts that `of` returns for the engines of all ranks. If all ranks have the same text, it appears once.
/// Otherwise, each text appears with its ranks. Empty if there are no texts.
pub fn text_by_ranks(record: &Record, of: impl Fn(&EngineReport) -> Option<String>) -> String {
    let effective = record.effective.iter();
    let answers = effective.filter_map(|one| Some((one.ranks.as_str(), of(&one.engine)?)));
    let texts = by_answer(answers);
    match texts.as_slice() {
        [(text, _)] => text.clone(),
        texts => with_ranks(texts),
    }
}

fn with_ranks(texts: &[(String, Vec<&str>)]) -> String {
    let all = texts
        .iter()
        .map(|(text, ranks)| format!("ranks {}: {text}", ranks.join(",")));
    all.collect::<Vec<_>>().join("; ")
}
