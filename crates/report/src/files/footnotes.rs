//! Lines below the table of a file experiment: storage, upper bounds, and events during the run.

use tonnage_engine::fact_names::{CLOCK, HINTS_NOT_TAKEN, HINTS_NOT_TAKEN_EFFECT};
use tonnage_engine::{EngineReport, Fact};
use tonnage_record::FileRecord;
use tonnage_record::files::{CacheState, PhaseRecord, PhaseTrial, StonewallFigures, Storage};
use tonnage_record::grouping::by_answer;
use tonnage_units::quantity::human::{duration, gigabytes_per_s, number, seconds, size};

use super::words::{SKIPPED, detailed_trials};
use super::{published, series};

/// Maximum number of items from an engine's report to print. A library may report thirty hints alone.
const ENGINE_ITEMS_MAX: usize = 12;

/// Facts reported elsewhere, or irrelevant for files.
const REPORTED_ELSEWHERE: [&str; 3] = [CLOCK, HINTS_NOT_TAKEN, HINTS_NOT_TAKEN_EFFECT];

/// If the slowest rank takes longer than the fastest one by more than this factor, a line reports both.
const APART: f64 = 1.1;

/// All lines, in order.
pub fn lines(record: FileRecord<'_>) -> Vec<String> {
    let mut lines: Vec<String> = record
        .body
        .storage
        .iter()
        .map(|storage| storage_line(record, storage))
        .collect();
    lines.extend(engine(record));
    lines.extend(hints_not_taken(record));
    lines.extend(bounds(record));
    for phase in &record.body.phases {
        let phase_name = phase_name(record, phase);
        lines.extend(spread(&phase_name, phase));
        for (words, trial) in detailed_trials(&phase_name, &phase.trials) {
            let unknown = trial.cache.as_ref().and_then(unknown_cache);
            let stonewall = trial
                .stonewall
                .as_ref()
                .map(|figures| stonewall(record, trial, figures));
            let parts = [
                unknown,
                stonewall,
                first_and_last_rank(record, trial),
                outliers(trial),
            ];
            let parts = parts.into_iter().flatten();
            lines.extend(parts.map(|part| format!("{words}: {part}")));
            let over_time = series::line(&trial.series, trial.operations);
            lines.extend(over_time.map(|line| format!("{words} over time: {line}")));
        }
    }
    lines.extend(verified(record));
    lines.extend(published::lines(record));
    lines.extend(record.remarks.iter().cloned());
    lines
}

/// Name of the phase, numbered if the experiment has several of this kind.
pub fn phase_name(record: FileRecord<'_>, phase: &PhaseRecord) -> String {
    let same: Vec<_> = record
        .body
        .phases
        .iter()
        .filter(|other| other.phase == phase.phase)
        .collect();
    let at = same.iter().position(|other| std::ptr::eq(*other, phase));
    match (same.len(), at) {
        (2.., Some(at)) => format!("{} {}", phase.phase.name(), at + 1),
        _ => phase.phase.name().to_owned(),
    }
}

/// Prefix such as `ranks 0-3: `; empty if all ranks agree.
fn of_ranks(ranks: &str, alike: bool) -> String {
    match alike {
        true => String::new(),
        false => format!("ranks {ranks}: "),
    }
}

fn storage_line(record: FileRecord<'_>, storage: &Storage) -> String {
    let ranks = of_ranks(&storage.ranks, record.body.storage.len() == 1);
    let direct = storage.direct_alignment.map(|alignment| {
        format!(
            ", direct transfers aligned to {} B (memory {} B)",
            alignment.offset_bytes, alignment.memory_bytes
        )
    });
    // If striping was skipped, the reason is printed in the title instead.
    let striping = storage
        .striping
        .as_ref()
        .filter(|striping| !striping.starts_with(SKIPPED))
        .map(|striping| format!(", {striping}"));
    format!(
        "storage: {ranks}{} on {} ({}), {} free{}{}",
        storage.directory,
        storage.file_system,
        storage.source,
        size(storage.free_bytes),
        direct.unwrap_or_default(),
        striping.unwrap_or_default()
    )
}

/// Describes the engines by the facts in their reports.
fn engine(record: FileRecord<'_>) -> Vec<String> {
    let text = |engine: &EngineReport| {
        let items = items(engine);
        let left = items.len().saturating_sub(ENGINE_ITEMS_MAX);
        let mut text = items[..items.len() - left].join("; ");
        if left > 0 {
            text += &format!("; and {left} more, listed in the record");
        }
        text
    };
    let effective = record.effective.iter();
    let descriptions = by_answer(effective.map(|one| (one.ranks.as_str(), text(&one.engine))));
    let alike = descriptions.len() == 1;
    let lines = descriptions.iter().filter(|(text, _)| !text.is_empty());
    let lines =
        lines.map(|(text, ranks)| format!("engine: {}{text}", of_ranks(&ranks.join(","), alike)));
    lines.collect()
}

/// Returns the items of an engine's report: library, provider and device first, then its facts by name.
fn items(engine: &EngineReport) -> Vec<String> {
    let library = engine.library.as_ref();
    let told = [
        ("library", library.map(|library| &library.library)),
        ("version", library.map(|library| &library.version)),
        ("provider", engine.provider.as_ref()),
        ("provider version", engine.provider_version.as_ref()),
        ("device", engine.device.as_ref()),
    ];
    let told = told.into_iter();
    let told = told.filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let facts = engine.facts.0.iter();
    let facts = facts
        .filter(|(name, fact)| !REPORTED_ELSEWHERE.contains(&name.as_str()) && has_content(fact));
    let facts = facts.map(|(name, fact)| format!("{} {}", name.replace('_', " "), words(fact)));
    told.chain(facts).collect()
}

/// Whether the fact has anything to print.
fn has_content(fact: &Fact) -> bool {
    match fact {
        Fact::Unknown => false,
        Fact::Text(text) => !text.is_empty(),
        Fact::Group(facts) => !facts.0.is_empty(),
        _ => true,
    }
}

/// Describes hints that the engine's library did not accept, with its reasons and the effect.
fn hints_not_taken(record: FileRecord<'_>) -> Option<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    let mut effect = None;
    for group in &record.effective {
        let facts = &group.engine.facts;
        effect = effect.or_else(|| facts.get(HINTS_NOT_TAKEN_EFFECT)?.text());
        let Some(Fact::Group(told)) = facts.get(HINTS_NOT_TAKEN) else {
            continue;
        };
        for (name, why) in &told.0 {
            let why = words(why);
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) if names.contains(&name.as_str()) => (),
                Some((_, names)) => names.push(name),
                None => reasons.push((why, vec![name])),
            }
        }
    }
    let texts = reasons
        .iter()
        .map(|(why, names)| format!("{} ({why})", names.join(", ")));
    let texts: Vec<_> = texts.collect();
    let effect = effect.map(|effect| format!("; {effect}"));
    (!texts.is_empty()).then(|| {
        let texts = texts.join("; ");
        format!("HINTS NOT TAKEN: {texts}{}", effect.unwrap_or_default())
    })
}

fn words(fact: &Fact) -> String {
    match fact {
        Fact::Unknown => "none".to_owned(),
        Fact::Flag(true) => "yes".to_owned(),
        Fact::Flag(false) => "no".to_owned(),
        Fact::Count(count) => count.to_string(),
        Fact::Number(number) => number.to_string(),
        Fact::Text(text) => text.clone(),
        Fact::List(list) if list.is_empty() => "none".to_owned(),
        Fact::List(list) => list.iter().map(words).collect::<Vec<_>>().join(", "),
        Fact::Group(facts) => {
            let pairs = facts.0.iter();
            let pairs = pairs.map(|(name, fact)| format!("{name}={}", words(fact)));
            pairs.collect::<Vec<_>>().join(" ")
        }
    }
}

/// Lists the upper bound of each phase's bandwidth. Phases with the same bound share an entry.
fn bounds(record: FileRecord<'_>) -> Option<String> {
    let bounds = record.body.phases.iter().filter_map(|phase| {
        let bound = phase.summary.bound.as_ref()?;
        let text = format!("{} ({})", gigabytes_per_s(bound.bytes_per_s), bound.what);
        Some((phase.phase.name(), text))
    });
    let texts = by_answer(bounds);
    let texts = texts
        .iter()
        .map(|(text, phases)| format!("{} {text}", phases.join(" and ")));
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| format!("bound: {}", texts.join("; ")))
}

/// Describes the spread over trials.
fn spread(phase_name: &str, phase: &PhaseRecord) -> Option<String> {
    let spread = phase.summary.bandwidth_bytes_per_s;
    let part = spread.ci95.filter(|_| spread.mean > 0.0)? / spread.mean;
    Some(format!(
        "{phase_name}: mean of {} trials ± {} % (95 %), from {} to {}",
        phase.summary.trials,
        number(part * 100.0),
        gigabytes_per_s(spread.min),
        gigabytes_per_s(spread.max)
    ))
}

/// Explains why the run could not find out whether bytes came from the page cache.
fn unknown_cache(cache: &CacheState) -> Option<String> {
    let why = cache.how.trim_start_matches("not known: ");
    (!cache.known).then(|| format!("cold or warm is not known: {why}"))
}

fn stonewall(record: FileRecord<'_>, trial: &PhaseTrial, figures: &StonewallFigures) -> String {
    if figures.operations == trial.operations && trial.last_done_ns < figures.after_ns {
        return format!(
            "everything had been moved before the stonewall at {}",
            seconds(figures.after_ns)
        );
    }
    let each = if record.body.point.ranks > 1 {
        let (least, most) = (size(figures.rank_bytes_min), size(figures.rank_bytes_max));
        format!(", {least} to {most} a rank")
    } else {
        String::new()
    };
    let on = figures
        .worn_out_transfers
        .map(|transfers| format!("; then each rank went on to {transfers} transfers"));
    format!(
        "at the stonewall, {} after the start, {} had been moved in {} transfers ({}){each}{}",
        seconds(figures.after_ns),
        size(figures.payload_bytes),
        figures.operations,
        gigabytes_per_s(figures.bandwidth_bytes_per_s),
        on.unwrap_or_default()
    )
}

/// Describes when the first and the last rank finished, if the times differ by more than the factor [`APART`].
fn first_and_last_rank(record: FileRecord<'_>, trial: &PhaseTrial) -> Option<String> {
    let apart = trial.last_done_ns as f64 > trial.first_done_ns as f64 * APART;
    (record.body.point.ranks > 1 && apart).then(|| {
        format!(
            "the first rank finished after {}, with {} of {} moved; the last after {}",
            duration(trial.first_done_ns as f64),
            size(trial.first_done_bytes),
            size(trial.payload_bytes),
            duration(trial.last_done_ns as f64)
        )
    })
}

fn outliers(trial: &PhaseTrial) -> Option<String> {
    let slow = trial.outliers.iter();
    let slow = slow.map(|one| format!("rank {} on {} {}", one.rank, one.host, seconds(one.ns)));
    let slow: Vec<_> = slow.collect();
    (!slow.is_empty()).then(|| {
        format!(
            "slow ranks: {} (mean of all {})",
            slow.join(", "),
            seconds(trial.transfer_of_rank.ns_mean as u64)
        )
    })
}

/// Describes the amount of verified data, and the seeds from which data can be regenerated.
fn verified(record: FileRecord<'_>) -> Vec<String> {
    let trials = || record.body.phases.iter().flat_map(|phase| &phase.trials);
    let checked = trials()
        .filter_map(|trial| trial.verified_bytes)
        .reduce(u64::saturating_add);
    let mut seeds: Vec<u64> = trials().filter_map(|trial| trial.data_seed).collect();
    seeds.dedup();
    let checked = checked.map(|bytes| {
        format!(
            "verified: {} read back after the phase; all correct",
            size(bytes)
        )
    });
    let seeds: Vec<_> = seeds.iter().map(u64::to_string).collect();
    let seeds = (!seeds.is_empty()).then(|| format!("data seed: {}", seeds.join(", ")));
    checked.into_iter().chain(seeds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(value: serde_json::Value) -> EngineReport {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_engine_may_report_any_fact() {
        let items = items(&engine(serde_json::json!({
            "name": "x", "direct": false, "flags": ["a", "b"], "hints": {"cb": "disable"}, "none": null, "depth": 4,
        })));
        assert_eq!(
            items,
            ["depth 4", "direct no", "flags a, b", "hints cb=disable"]
        );
        let items = super::items(&engine(serde_json::json!({
            "calls": "independent", "version": "4.1.4", "library": "libmpi.so.40", "hints": {}, "hints_are": "",
            "hints_not_taken": {"romio_cb_read": "x"}, "hints_not_taken_effect": "x", "dialect": "Open MPI",
        })));
        let expected = [
            "library libmpi.so.40",
            "version 4.1.4",
            "calls independent",
            "dialect Open MPI",
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn hints_without_effect_are_named() {
        let mut record = super::super::super::samples::files::collective();
        assert_eq!(hints_not_taken(record.as_file().unwrap()), None);
        let why = "OMPIO does not know it";
        record.effective[0].engine = engine(serde_json::json!({
            "hints_not_taken": {"romio_cb_read": why, "romio_cb_write": why},
            "hints_not_taken_effect": "collective buffering is not off",
        }));
        let text = "HINTS NOT TAKEN: romio_cb_read, romio_cb_write (OMPIO does not know it); collective buffering is not \
                    off";
        assert_eq!(
            hints_not_taken(record.as_file().unwrap()).as_deref(),
            Some(text)
        );
        record.effective[0].engine = engine(serde_json::json!({
            "hints_not_taken": {"cb_nodes": "MPI uses 2 instead of 4"},
        }));
        let text = "HINTS NOT TAKEN: cb_nodes (MPI uses 2 instead of 4)";
        assert_eq!(
            hints_not_taken(record.as_file().unwrap()).as_deref(),
            Some(text)
        );
    }
}
