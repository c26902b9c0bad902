//! The title of a file experiment: its complete configuration.

use tonnage_plan::files::{
    DataKind, FileLayout, FileOrder, FilePoint, Fsync, Phase, ReadFrom, Striping,
};
use tonnage_record::FileRecord;
use tonnage_units::quantity::human::{exact_duration, exact_size, size};

use super::words::SKIPPED;
use crate::engine;
use crate::text::counted;

/// The configuration, as parts of a sentence.
pub fn configuration(record: FileRecord<'_>) -> Vec<String> {
    let point = &record.body.point;
    let parts = [
        engine_and_files(point),
        data_and_order(point),
        calls_and_timing(point),
        other_steps(record),
    ];
    parts.into_iter().flatten().collect()
}

fn if_so(holds: bool, words: &str) -> Option<String> {
    holds.then(|| words.to_owned())
}

/// Engine, phases, ranks and files.
fn engine_and_files(point: &FilePoint) -> Vec<String> {
    let phases: Vec<_> = point
        .phases
        .iter()
        .map(|phase| phase_words(point, *phase))
        .collect();
    let layout = match point.layout {
        FileLayout::Shared => "one shared file",
        FileLayout::PerProcess => "a file for each rank",
    };
    let directories = if_so(point.directory_per_rank, " in a directory of its own");
    let per_trial = if_so(point.file_per_trial, ", new ones for each trial");
    vec![
        format!(
            "{} {}",
            engine::name(&point.engine, &point.engine_options),
            phases.join(", ")
        ),
        format!(
            "{}, {} each",
            counted(point.ranks, "rank"),
            counted(point.threads, "thread")
        ),
        format!(
            "{layout}{}{} ({})",
            directories.unwrap_or_default(),
            per_trial.unwrap_or_default(),
            point.paths.join(", ")
        ),
    ]
}

fn phase_words(point: &FilePoint, phase: Phase) -> String {
    match (phase, point.read_percent) {
        (Phase::Mixed, Some(percent)) => format!("mixed ({percent} % reads)"),
        _ => phase.name().to_owned(),
    }
}

/// Describes the amount and order of data.
fn data_and_order(point: &FilePoint) -> Vec<String> {
    let all = point.bytes_of_rank().saturating_mul(point.ranks.into());
    let sizes = format!(
        "block {}, transfer {}, {}: {} in all",
        exact_size(point.block_bytes),
        exact_size(point.transfer_bytes),
        counted(point.segments, "segment"),
        size(all)
    );
    let order = match point.order {
        FileOrder::Sequential => "sequential".to_owned(),
        FileOrder::Shuffled => format!("shuffled (seed {})", point.seed),
    };
    let reads = point.phases.iter().any(|phase| phase.reads());
    let from = match point.read_from {
        ReadFrom::Own => None,
        ReadFrom::Shift { ranks } => Some(format!("reads shifted by {}", counted(ranks, "rank"))),
        ReadFrom::Shuffled { seed } => Some(format!("reads what another rank wrote (seed {seed})")),
    };
    let data = match point.data {
        DataKind::Random => "random data".to_owned(),
        DataKind::Compressible { percent } => format!("data with {percent} % zeros"),
    };
    let writes = point.phases.iter().any(|phase| phase.writes());
    [
        Some(sizes),
        Some(order),
        from.filter(|_| reads),
        if_so(writes || point.prefill, &data),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Describes the calls, and which of them are timed.
fn calls_and_timing(point: &FilePoint) -> Vec<String> {
    let writes = point.phases.iter().any(|phase| phase.writes());
    let fsync = match point.fsync {
        Fsync::End => "fsync at the end of a phase",
        Fsync::Each => "fsync after each write",
        Fsync::None => "no fsync",
    };
    let cache = if point.direct { "direct" } else { "buffered" };
    let hints = point.hints.iter();
    let hints: Vec<_> = hints
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let stonewall = point.stonewall.map(|stonewall| {
        let on = match (stonewall.wear_out, stonewall.transfers_min) {
            (false, _) => String::new(),
            (true, 0) => ", then on until all ranks are even".to_owned(),
            (true, least) => {
                format!(", then on until all ranks are even at {least} transfers or more")
            }
        };
        format!("stonewall after {}{on}", exact_duration(stonewall.after_ns))
    });
    [
        Some(cache.to_owned()),
        (point.depth > 1).then(|| format!("{} in flight for each thread", point.depth)),
        if_so(writes, fsync),
        if_so(point.collective, "collective"),
        if_so(point.file_view, "file views"),
        if_so(point.barriers, "barriers between open, transfers and close"),
        (!hints.is_empty()).then(|| format!("hints {}", hints.join(" "))),
        stonewall,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Describes steps before, between and after the phases.
fn other_steps(record: FileRecord<'_>) -> Vec<String> {
    let point = &record.body.point;
    let verified: Vec<_> = point
        .verify_after
        .iter()
        .map(|phase| phase.name())
        .collect();
    let trials = (point.trials > 1).then(|| format!("{} trials", point.trials));
    let bound = point
        .max_duration_ns
        .map(|bound_ns| format!("none begun after {}", exact_duration(bound_ns)));
    let verified = (!verified.is_empty())
        .then(|| format!("file contents verified after {}", verified.join(" and ")));
    [
        point.striping.map(|asked| striping(record, asked)),
        if_so(point.prefill, "files filled before"),
        if_so(point.existing, "existing files written over"),
        if_so(point.drop_caches, "caches dropped before reading"),
        verified,
        trials,
        bound,
        (point.delay_ns > 0).then(|| format!("{} between phases", exact_duration(point.delay_ns))),
        if_so(point.keep, "files kept"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Describes the requested striping, and the result if the storage reports it.
fn striping(record: FileRecord<'_>, striping: Striping) -> String {
    let said = record
        .body
        .storage
        .iter()
        .filter_map(|storage| storage.striping.as_deref());
    let skipped = |text: &str| text.strip_prefix(SKIPPED).map(str::to_owned);
    let skips: Vec<Option<String>> = said.map(skipped).collect();
    let targets = targets(striping);
    match skips.as_slice() {
        [] => format!("striping over {targets} asked for"),
        [Some(why), ..] if skips.iter().all(Option::is_some) => {
            format!("striping over {targets} asked for, skipped: {why}")
        }
        _ => format!("striped over {targets}"),
    }
}

fn targets(striping: Striping) -> String {
    let count = match striping.count {
        None => "all targets".to_owned(),
        Some(0) => "as many targets as the file system chooses".to_owned(),
        Some(count) => counted(count, "target"),
    };
    let size = striping
        .size_bytes
        .map(|size| format!(", {} each", exact_size(size)));
    format!("{count}{}", size.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::super::samples::files::{body, collective};
    use super::*;
    use tonnage_record::Record;

    #[test]
    fn files_without_stripes_are_not_called_striped() {
        let mut record = collective();
        let said = |record: &Record| configuration(record.as_file().unwrap()).join("; ");
        let all = "striped over all targets, 8 MiB each";
        assert!(said(&record).contains(all), "{}", said(&record));
        body(&mut record).storage[0].striping =
            Some("skip: /t is on ext4, which has no stripes to set".to_owned());
        let skipped = "striping over all targets, 8 MiB each asked for, skipped: /t is on ext4, which has no stripes";
        assert!(said(&record).contains(skipped), "{}", said(&record));
        assert!(!said(&record).contains(all));
        body(&mut record).storage.clear();
        let asked = "striping over all targets, 8 MiB each asked for;";
        assert!(said(&record).contains(asked), "{}", said(&record));
    }
}
