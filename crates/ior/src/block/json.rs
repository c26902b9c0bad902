//! The result block for `-O summaryFormat=JSON`, and the parts that it shares with the text format. The keys are IOR's.

use serde_json::{Map, Value, json};
use tonnage_engine::{Fact, Facts};
use tonnage_record::FileRecord;
use tonnage_units::quantity::human::size_to;

use super::RunFacts;
use super::date::date;
use super::figures::{BlockFigures, MB, MIB, Pass, SummaryRow};
use crate::options::IorOptions;

/// The IOR release that this result block imitates.
pub const VERSION: &str = "4.1.0";

/// Text in every block that distinguishes it from a block of IOR itself.
pub(super) const MEASURED_BY: &str = "measured by tonnage";

/// Returns the block as one JSON object.
pub fn render(
    options: &IorOptions,
    run: &RunFacts,
    record: FileRecord<'_>,
    figures: &BlockFigures,
) -> String {
    let passes = figures.passes.iter().map(|each| pass(record, each));
    let summaries = figures.summaries.iter();
    let summaries = summaries.map(|each| summary(options, record, figures, each));
    let asked: Map<String, Value> = asked(options, record, figures)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let mut test = json!({
        "TestID": 0,
        "StartTime": date(run.began_unix_ns),
        "Path": options.paths().first(),
        "Parameters": parameters(options, record, figures),
        "Options": asked,
        "Results": passes.collect::<Vec<_>>(),
        "max": most(figures),
    });
    if let (true, Some(test)) = (options.show_hints, test.as_object_mut()) {
        let taken = hints_taken(record).cloned().unwrap_or_default();
        test.insert(
            "Hints".to_owned(),
            json!({"passed": record.body.point.hints, "returned": taken}),
        );
    }
    let whole = json!({
        "Version": format!("{VERSION} ({MEASURED_BY} {})", run.version),
        "Began": date(run.began_unix_ns),
        "Command line": run.command.join(" "),
        "Machine": machine(record),
        "tests": [test],
        "summary": summaries.collect::<Vec<_>>(),
        "Finished": date(record.time_unix_ns),
    });
    format!("{whole:#}\n")
}

/// Returns the hints that MPI-IO used for the opened file. IOR prints the hints of rank 0, so these are the hints of
/// the first group of ranks.
pub fn hints_taken<'a>(record: FileRecord<'a>) -> Option<&'a Facts> {
    let first = record.record.effective.first()?;
    match first.engine.facts.get("hints")? {
        Fact::Group(hints) => Some(hints),
        _ => None,
    }
}

/// Returns the operating system and the name of the first host.
pub fn machine(record: FileRecord<'_>) -> String {
    let first = record.environment.first();
    let host = first.and_then(|group| group.hosts.first());
    format!("Linux {}", host.map_or("", |host| &host.name))
}

/// Returns the section "Options", in IOR's order.
pub fn asked(
    options: &IorOptions,
    record: FileRecord<'_>,
    figures: &BlockFigures,
) -> Vec<(&'static str, Value)> {
    let point = &record.body.point;
    let pick = |when: bool, yes: &str, no: &str| Value::from(if when { yes } else { no });
    let per_process = pick(
        options.file_per_process,
        "file-per-process",
        "single-shared-file",
    );
    let kind = pick(options.collective, "collective", "independent");
    let order = pick(options.shuffled > 0, "random", "sequential");
    let mut all = vec![
        ("api", Value::from(options.api.name())),
        ("apiVersion", Value::from("")),
        ("test filename", Value::from(options.path.as_str())),
        ("access", per_process),
        ("type", kind),
        ("segments", point.segments.into()),
        ("ordering in a file", order),
    ];
    match (options.reorder, options.reorder_random > 0) {
        (true, _) => all.extend([
            ("ordering inter file", "constant task offset".into()),
            ("task offset", options.nodes_behind().into()),
        ]),
        (false, true) => all.extend([
            ("ordering inter file", "random task offset".into()),
            ("task offset", options.nodes_behind().into()),
            ("reorder random seed", options.reorder_seed.into()),
        ]),
        (false, false) => all.push(("ordering inter file", "no tasks offsets".into())),
    }
    all.extend([
        ("nodes", figures.nodes.into()),
        ("tasks", point.ranks.into()),
        ("clients per node", figures.tasks_on_node_0.into()),
        ("memoryBuffer", "CPU".into()),
        ("dataAccess", "CPU".into()),
        ("GPUDirect", "0".into()),
        ("repetitions", point.trials.into()),
        ("xfersize", size(point.transfer_bytes).into()),
        ("blocksize", size(point.block_bytes).into()),
        ("aggregate filesize", size(aggregate_bytes(record)).into()),
    ]);
    if options.verbose > 0 {
        all.push(("verbose", options.verbose.into()));
    }
    if options.stonewall_s > 0 {
        all.push(("stonewallingTime", options.stonewall_s.into()));
        all.push(("stoneWallingWearOut", u8::from(options.wear_out).into()));
    }
    all
}

fn aggregate_bytes(record: FileRecord<'_>) -> u64 {
    let point = &record.body.point;
    point.bytes_of_rank().saturating_mul(point.ranks.into())
}

/// Formats a size as IOR does.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        _ => size_to(bytes, 2),
    }
}

fn pass(record: FileRecord<'_>, pass: &Pass) -> Value {
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    json!({
        "access": pass.access,
        "bwMiB": pass.bandwidth_mib_per_s,
        "blockKiB": kib(record.body.point.block_bytes),
        "xferKiB": kib(record.body.point.transfer_bytes),
        "iops": pass.operations_per_s,
        "latency": pass.latency_s,
        "openTime": pass.open_s,
        "wrRdTime": pass.transfer_s,
        "closeTime": pass.close_s,
        "totalTime": pass.total_s,
    })
}

fn most(figures: &BlockFigures) -> Value {
    let mut most = Map::new();
    for summary in &figures.summaries {
        let best = summary.bandwidth.max;
        most.insert(format!("{}MiB", summary.access), json!(best / MIB));
        most.insert(format!("{}MB", summary.access), json!(best / MB));
    }
    most.into()
}

fn summary(
    options: &IorOptions,
    record: FileRecord<'_>,
    figures: &BlockFigures,
    summary: &SummaryRow,
) -> Value {
    let (bandwidth, operations) = (&summary.bandwidth, &summary.operations);
    let mut value = json!({
        "operation": summary.access,
        "API": options.api.name(),
        "TestID": 0,
        "ReferenceNumber": 0,
        "segmentCount": record.body.point.segments,
        "blockSize": record.body.point.block_bytes,
        "transferSize": record.body.point.transfer_bytes,
        "numTasks": record.body.point.ranks,
        "tasksPerNode": figures.tasks_on_node_0,
        "repetitions": options.repetitions,
        "filePerProc": u8::from(options.file_per_process),
        "reorderTasks": u8::from(options.reorder),
        "taskPerNodeOffset": options.nodes_behind(),
        "reorderTasksRandom": options.reorder_random,
        "reorderTasksRandomSeed": options.reorder_seed,
        "bwMaxMIB": bandwidth.max / MIB,
        "bwMinMIB": bandwidth.min / MIB,
        "bwMeanMIB": bandwidth.mean / MIB,
        "bwStdMIB": bandwidth.stddev / MIB,
        "OPsMax": operations.max,
        "OPsMin": operations.min,
        "OPsMean": operations.mean,
        "OPsSD": operations.stddev,
        "MeanTime": summary.total_s_mean,
        "xsizeMiB": summary.bytes as f64 / MIB,
    });
    if let (Some((after_s, bandwidth)), Some(map)) = (summary.stonewall, value.as_object_mut()) {
        map.insert("StoneWallTime".to_owned(), json!(after_s));
        map.insert("StoneWallbwMeanMIB".to_owned(), json!(bandwidth / MIB));
    }
    value
}

fn parameters(options: &IorOptions, record: FileRecord<'_>, figures: &BlockFigures) -> Value {
    json!({
        "testID": 0,
        "refnum": 0,
        "api": options.api.name(),
        "platform": machine(record),
        "testFileName": options.path,
        "deadlineForStonewall": options.stonewall_s,
        "stoneWallingWearOut": u8::from(options.wear_out),
        "maxTimeDuration": options.duration_minutes_max,
        "outlierThreshold": options.outlier_s,
        "dryRun": u8::from(options.dry_run),
        "nodes": figures.nodes,
        // The next fields are 0 because their options are refused. tonnage never hogs memory, always continues short
        // transfers, and never keeps files with wrong data.
        "memoryPerTask": 0,
        "memoryPerNode": 0,
        "tasksPerNode": figures.tasks_on_node_0,
        "repetitions": options.repetitions,
        "multiFile": u8::from(options.file_per_repetition),
        "interTestDelay": options.delay_s,
        "fsync": u8::from(options.fsync),
        "fsyncperwrite": u8::from(options.fsync_each),
        "useExistingTestFile": u8::from(options.existing),
        "uniqueDir": u8::from(options.directory_per_rank),
        "singleXferAttempt": 0,
        "readFile": u8::from(options.reads()),
        "writeFile": u8::from(options.writes()),
        "filePerProc": u8::from(options.file_per_process),
        "reorderTasks": u8::from(options.reorder),
        "reorderTasksRandom": options.reorder_random,
        "reorderTasksRandomSeed": options.reorder_seed,
        "randomOffset": options.shuffled,
        "checkWrite": u8::from(options.check_write),
        "checkRead": u8::from(options.check_read),
        "keepFile": u8::from(options.keep),
        "keepFileWithError": 0,
        "warningAsErrors": 0,
        "verbose": options.verbose,
        "setTimeStampSignature/incompressibleSeed": options.signature.unwrap_or(0),
        "collective": u8::from(options.collective),
        "segmentCount": record.body.point.segments,
        "transferSize": record.body.point.transfer_bytes,
        "blockSize": record.body.point.block_bytes,
    })
}
