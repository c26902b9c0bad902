//! Use of the page cache in each phase, and the verdict of a file experiment. The verdict names phases that measured
//! memory instead of storage.

use tonnage_plan::files::Fsync;
use tonnage_record::files::{CacheState, PhaseRecord, PhaseTrial};
use tonnage_record::{FileRecord, Outcome};
use tonnage_units::quantity::human::{gigabytes_per_s, whole_percent};

use super::footnotes::phase_name;
use crate::result::{ReportResult, ResultWord, not_done};
use crate::text::distinct;

/// Above this fraction of cached bytes, a read phase has no utilization, because it measured memory.
const CACHED: f64 = 0.05;

/// File systems that have no storage below the page cache.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// Table cell on the page cache, for a phase or for one of its trials.
pub fn cell(record: FileRecord<'_>, phase: &PhaseRecord, trial: Option<&PhaseTrial>) -> String {
    let reads = phase.phase.reads().then(|| {
        let trials = phase.trials.iter();
        let own = trials.filter(|it| trial.is_none_or(|trial| trial.trial == it.trial));
        let states: Option<Vec<&CacheState>> = own.map(|it| it.cache.as_ref()).collect();
        match states.as_deref() {
            None | Some([]) => "unknown".to_owned(),
            Some(states) if states.iter().any(|it| it.direct) => "direct".to_owned(),
            Some(states) if !states.iter().all(|it| it.known) => "unknown".to_owned(),
            Some(states) => match cached(states) {
                part if part <= 0.0 => "cold".to_owned(),
                part => format!("warm {}", whole_percent(part)),
            },
        }
    });
    let point = &record.body.point;
    let writes = phase.phase.writes().then_some(match point.fsync {
        _ if point.direct => "direct",
        Fsync::None => "buffered",
        Fsync::End | Fsync::Each => "flushed",
    });
    let words = reads.into_iter().chain(writes.map(str::to_owned));
    distinct(words).join(", ")
}

/// Fraction of the bytes that were in the page cache before they were read.
fn cached(states: &[&CacheState]) -> f64 {
    let resident: u64 = states.iter().map(|it| it.resident_bytes).sum();
    let bytes: u64 = states.iter().map(|it| it.bytes).sum();
    resident as f64 / bytes.max(1) as f64
}

/// A phase that measured memory.
struct OfMemory {
    phase: String,
    /// Whether all data stayed in memory: no byte came from storage or reached it.
    is_whole: bool,
    why: String,
    /// The option that makes the phase measure storage.
    option: &'static str,
}

fn of_memory(record: FileRecord<'_>, phase: &PhaseRecord) -> Option<OfMemory> {
    let point = &record.body.point;
    if phase.phase.writes() && !point.direct && point.fsync == Fsync::None {
        return Some(OfMemory {
            phase: phase_name(record, phase),
            is_whole: true,
            why: "was not flushed".to_owned(),
            option: "--fsync end",
        });
    }
    let states = phase.trials.iter().filter_map(|trial| trial.cache.as_ref());
    let mut known = states.filter(|it| it.known && !it.direct);
    // The worst trial decides, as it does for the utilization.
    let most = known.clone().map(|it| cached(&[it])).fold(0.0, f64::max);
    let was_dropped = known.any(|it| it.dropped);
    (phase.phase.reads() && most > CACHED).then(|| OfMemory {
        phase: phase_name(record, phase),
        is_whole: most >= 1.0,
        why: format!(
            "found {} of its data in the page cache",
            whole_percent(most)
        ),
        // If data stayed in the cache although it was dropped, only direct transfers bypass it.
        option: if was_dropped {
            "--direct"
        } else {
            "--drop-caches"
        },
    })
}

/// Bandwidth of each phase, then the phases that measured memory.
pub fn result(record: FileRecord<'_>) -> ReportResult {
    let kept = match record.body.phases.as_slice() {
        [] => None,
        phases => {
            let names: Vec<String> = phases.iter().map(|it| phase_name(record, it)).collect();
            Some(format!("complete before it: {}", names.join(", ")))
        }
    };
    match &record.outcome {
        Outcome::Measured => measured(record),
        Outcome::Skipped { why } => not_done(record.record, why),
        Outcome::Failed { why } => {
            let result = ResultWord::Fail.with(why);
            kept.into_iter().fold(result, ReportResult::then)
        }
    }
}

fn measured(record: FileRecord<'_>) -> ReportResult {
    let phases = &record.body.phases;
    let figures = phases.iter().map(|phase| {
        let rate = gigabytes_per_s(phase.summary.bandwidth_bytes_per_s.mean);
        let of_bound = phase.summary.utilization;
        let of_bound = of_bound.map(|part| format!(" ({} of the bound)", whole_percent(part)));
        format!(
            "{} {rate}{}",
            phase_name(record, phase),
            of_bound.unwrap_or_default()
        )
    });
    let result = ResultWord::Result.with(figures.collect::<Vec<_>>().join(", "));
    let mut systems = record.body.storage.iter().map(|it| it.file_system.as_str());
    if let Some(system) = systems.find(|system| IN_MEMORY.contains(system)) {
        return result.then(format!(
            "files on {system} are in memory: no phase measured storage"
        ));
    }
    let found: Vec<OfMemory> = phases
        .iter()
        .filter_map(|it| of_memory(record, it))
        .collect();
    if found.is_empty() {
        return result;
    }
    let whys = found.iter().map(|it| format!("{} {}", it.phase, it.why));
    let whys = whys.collect::<Vec<_>>().join(", ");
    let measured = match (
        found.iter().all(|it| it.is_whole),
        found.len(),
        phases.len(),
    ) {
        (true, 2, 2) => "neither phase measured the storage".to_owned(),
        (true, found, all) if found == all => "not the storage's speed, but memory's".to_owned(),
        _ => {
            let phases: Vec<&str> = found.iter().map(|it| it.phase.as_str()).collect();
            format!("{} measured memory, at least in part", phases.join(" and "))
        }
    };
    let options = distinct(found.iter().map(|it| it.option)).join(" ");
    result.then(format!("{measured}: {whys}; use {options}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::files::{body, buffered};

    #[test]
    fn a_phase_that_measured_memory_is_marked_with_the_option_that_measures_storage() {
        let mut record = buffered();
        let mut text = |fsync, resident_part: f64, direct| {
            let body = body(&mut record);
            body.point.fsync = fsync;
            let cache = body.phases[1].trials[0].cache.as_mut().unwrap();
            cache.resident_bytes = (cache.bytes as f64 * resident_part) as u64;
            (cache.known, cache.direct) = (true, direct);
            let record = record.as_file().unwrap();
            let lines = result(record).lines;
            let phases = &record.body.phases;
            let cells = [0, 1].map(|at| cell(record, &phases[at], None));
            (lines.get(1).cloned().unwrap_or_default(), cells)
        };
        let (marked, cells) = text(Fsync::None, 1.0, false);
        assert_eq!(
            marked,
            "neither phase measured the storage: write was not flushed, read found 100 % of its data in the page cache; \
             use --fsync end --drop-caches"
        );
        assert_eq!(cells, ["buffered", "warm 100 %"]);
        let (marked, cells) = text(Fsync::End, 0.5, false);
        assert!(marked.ends_with("; use --drop-caches"), "{marked}");
        assert_eq!(cells, ["flushed", "warm 50 %"]);
        let unmarked = text(Fsync::End, 0.0, false);
        assert_eq!(
            unmarked,
            (String::new(), ["flushed", "cold"].map(String::from))
        );
        let direct = text(Fsync::End, 1.0, true);
        assert_eq!(
            direct,
            (String::new(), ["flushed", "direct"].map(String::from))
        );
    }
}
