//! Columns of what was measured, and of what became of the experiment.

use tonnage_record::files::StonewallFigures;

use super::super::row::Row;
use super::super::words::MIB;
use super::{FileColumn, InCsv, Style, Value};

const GIB: f64 = 1024.0 * MIB;
/// Bytes per second as GB/s, nanoseconds as seconds.
const GIGA_OR_SECONDS: Style = Style::Scaled(1e-9);
const PERCENT: Style = Style::Scaled(100.0);
const BY_RANK_0: &str =
    "Over the ranks by rank 0's clock, the offsets of other hosts' clocks taken away.";

/// Columns of measured figures.
pub const FIGURES: &[FileColumn] = &[
    FileColumn {
        name: "Phase",
        field: "phase",
        meaning: "write: all transfers are writes. read: all are reads. mixed: a fixed part are reads.",
        computed: "The record's phases, in their order.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.phase.map(|phase| phase.phase.name()).into(),
    },
    FileColumn {
        name: "Trial",
        field: "trial",
        meaning: "The repetition, counted from 0; mean in the row of all of them together.",
        computed: "The record's trials, in their order.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| match (row.trial, row.phase) {
            (Some(trial), _) => trial.trial.into(),
            (None, Some(_)) => "mean".into(),
            (None, None) => Value::Unknown,
        },
    },
    FileColumn {
        name: "BW (GB/s)",
        field: "bandwidth_bytes_per_s",
        meaning: "Bandwidth over all ranks together as IOR defines it: opening, syncing and closing are inside. GB of \
             1e9 bytes per second.",
        computed: "Bytes moved / Total.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.figure(|trial| trial.bandwidth_bytes_per_s),
    },
    FileColumn {
        name: "BW (MiB/s)",
        field: "bandwidth_mib_per_s",
        meaning: "The same bandwidth in the unit that IOR prints: MiB of 2^20 bytes per second.",
        computed: "Bytes moved / 2^20 / Total.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.figure(|trial| trial.bandwidth_bytes_per_s / MIB),
    },
    FileColumn {
        name: "IOPS (op/s)",
        field: "operations_per_s",
        meaning: "Transfers per second over all ranks together as IOR defines it: opening and closing are not inside. \
             k, M and G are 1e3, 1e6 and 1e9.",
        computed: "Transfers made / Transfer.",
        style: Style::Rate,
        in_csv: InCsv::Once,
        value: |row| row.figure(|trial| trial.operations_per_s),
    },
    FileColumn {
        name: "Open (s)",
        field: "open_ns",
        meaning: "How long opening took: from the first rank's begin to the last rank's end.",
        computed: BY_RANK_0,
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.figure(|trial| trial.open_ns as f64),
    },
    FileColumn {
        name: "Transfer (s)",
        field: "transfer_ns",
        meaning: "From the first transfer's begin on any rank to the last one's end, its sync included.",
        computed: BY_RANK_0,
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.figure(|trial| trial.transfer_ns as f64),
    },
    FileColumn {
        name: "Sync (s)",
        field: "sync_ns",
        meaning: "How long the slowest rank waited for its data to be on stable storage, all its syncs together; part \
             of Transfer. Absent where none was made.",
        computed: "Largest of the ranks' sums.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.known(|trial| trial.sync_of_rank.map(|times| times.ns_max as f64)),
    },
    FileColumn {
        name: "Close (s)",
        field: "close_ns",
        meaning: "How long closing took: from the first rank's begin to the last rank's end.",
        computed: BY_RANK_0,
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.figure(|trial| trial.close_ns as f64),
    },
    FileColumn {
        name: "Total (s)",
        field: "total_ns",
        meaning: "From the first rank's begin of opening to the last rank's end of closing.",
        computed: BY_RANK_0,
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.figure(|trial| trial.total_ns as f64),
    },
    FileColumn {
        name: "CPU (ns/op)",
        field: "cpu_ns_per_operation",
        meaning: "CPU time of one transfer, its share of the syncs included, opening and closing not. It is that of \
             the ranks' own threads: what the kernel does by threads of its own is not in it.",
        computed: "CPU time of all threads that made transfers, while they did / transfers.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| cpu_per_operation(row),
    },
    FileColumn {
        name: "CPU (s/GiB)",
        field: "cpu_ns_per_gib",
        meaning: "CPU time for each GiB of 2^30 bytes, opening and closing included.",
        computed: "CPU time of all threads that made transfers, from open to close / bytes moved x 2^30.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| cpu_per_gib(row),
    },
    FileColumn {
        name: "Util (%)",
        field: "utilization",
        meaning: "How much of its limit the bandwidth reaches.",
        computed: "BW / Limit.",
        style: PERCENT,
        in_csv: InCsv::Once,
        value: |row| row.utilization().into(),
    },
    FileColumn {
        name: "Limit (GB/s)",
        field: "limit_bytes_per_s",
        meaning: "What the bandwidth is set beside, GB of 1e9 bytes per second.",
        computed: "See Limit what.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.summary(|summary| summary.limit.as_ref().map(|limit| limit.bytes_per_s)),
    },
    FileColumn {
        name: "Limit what",
        field: "limit_what",
        meaning: "What the limit is, in words, such as one sequential direct stream of the storage.",
        computed: "The record says how it was found.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| {
            row.summary(|summary| {
                summary
                    .limit
                    .as_ref()
                    .map(|limit| limit.what.as_str().into())
                    .unwrap_or(Value::Unknown)
            })
        },
    },
    FileColumn {
        name: "Avg BW (GB/s)",
        field: "bandwidth_bytes_per_s_mean",
        meaning: "Bandwidth of all repetitions of the phase, the same in each of their rows.",
        computed: "Mean over the repetitions of BW.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.summary(|summary| summary.bandwidth_bytes_per_s.mean),
    },
    FileColumn {
        name: "CI95 (%)",
        field: "bandwidth_ci95_fraction",
        meaning: "Half width of the 95 % confidence interval of Avg BW, as a part of it. Not available for a single \
             repetition.",
        computed: "Student's t with (trials - 1) degrees of freedom x sample standard deviation across trials / square \
             root of the trials / mean.",
        style: PERCENT,
        in_csv: InCsv::Once,
        value: |row| {
            row.summary(|summary| {
                let spread = summary.bandwidth_bytes_per_s;
                spread
                    .ci95
                    .filter(|_| spread.mean > 0.0)
                    .map(|ci95| ci95 / spread.mean)
            })
        },
    },
    FileColumn {
        name: "Operations",
        field: "operations",
        meaning: "Transfers that were made.",
        computed: "Counted.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.operations),
    },
    FileColumn {
        name: "Reads",
        field: "reads",
        meaning: "Of these, reads.",
        computed: "Counted.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.reads),
    },
    FileColumn {
        name: "Payload (B)",
        field: "payload_bytes",
        meaning: "Bytes that were moved.",
        computed: "Counted.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.payload_bytes),
    },
    FileColumn {
        name: "Open slowest (s)",
        field: "open_ns_rank_max",
        meaning: "How long the slowest rank took to open its files.",
        computed: "Largest over the ranks.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.open_of_rank.ns_max),
    },
    FileColumn {
        name: "Transfer fastest (s)",
        field: "transfer_ns_rank_min",
        meaning: "How long the fastest rank took for its transfers, sync included.",
        computed: "Smallest over the ranks.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.transfer_of_rank.ns_min),
    },
    FileColumn {
        name: "Transfer mean (s)",
        field: "transfer_ns_rank_mean",
        meaning: "How long a rank took for its transfers, sync included.",
        computed: "Mean over the ranks.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.transfer_of_rank.ns_mean),
    },
    FileColumn {
        name: "Transfer slowest (s)",
        field: "transfer_ns_rank_max",
        meaning: "How long the slowest rank took for its transfers, sync included.",
        computed: "Largest over the ranks.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.transfer_of_rank.ns_max),
    },
    FileColumn {
        name: "Slowest rank",
        field: "slowest_rank",
        meaning: "The rank that took longest for its transfers.",
        computed: "Its number.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.transfer_of_rank.slowest),
    },
    FileColumn {
        name: "Outliers",
        field: "outliers",
        meaning: "How many ranks took much longer than the mean for their transfers; at most 8 are named.",
        computed: "Counted among those that the record names.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.outliers.len() as u64),
    },
    FileColumn {
        name: "First done (s)",
        field: "first_done_ns",
        meaning: "When the first rank had made all its transfers.",
        computed: BY_RANK_0,
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.first_done_ns),
    },
    FileColumn {
        name: "First done (B)",
        field: "first_done_bytes",
        meaning: "Bytes that all ranks together had moved by then.",
        computed: "From the ranks' timelines, exact to one interval of the series.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.first_done_bytes),
    },
    FileColumn {
        name: "Last done (s)",
        field: "last_done_ns",
        meaning: "When the last rank had made all its transfers.",
        computed: BY_RANK_0,
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.last_done_ns),
    },
    FileColumn {
        name: "Stonewall (B)",
        field: "stonewall_payload_bytes",
        meaning: "Bytes of all ranks when the stonewall came.",
        computed: "Transfers that had ended by then, exactly.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| stonewall(row, |figures| figures.payload_bytes as f64),
    },
    FileColumn {
        name: "Stonewall BW (GB/s)",
        field: "stonewall_bandwidth_bytes_per_s",
        meaning: "Bandwidth up to the stonewall, when all ranks were still at work; opening and closing are not \
             inside.",
        computed: "Bytes of all ranks when the stonewall came / time from the first transfer's begin to it.",
        style: GIGA_OR_SECONDS,
        in_csv: InCsv::Once,
        value: |row| stonewall(row, |figures| figures.bandwidth_bytes_per_s),
    },
    FileColumn {
        name: "Cache resident (B)",
        field: "cache_resident_bytes",
        meaning: "How much of what the phase read lay in the page caches of the ranks' hosts before it began. Absent \
             for writes, and where it could not be found out.",
        computed: "By cachestat or mincore; the record says which.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| {
            row.single(|trial| {
                trial
                    .cache
                    .as_ref()
                    .filter(|cache| cache.known)
                    .map(|cache| cache.resident_bytes)
            })
        },
    },
    FileColumn {
        name: "Cache asked (B)",
        field: "cache_bytes",
        meaning: "Bytes that the phase was to read, beside which Cache resident stands.",
        computed: "From the layout.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.cache.as_ref().map(|cache| cache.bytes)),
    },
    FileColumn {
        name: "Verified (B)",
        field: "verified_bytes",
        meaning: "Bytes that were compared after the phase and right; absent where none were compared.",
        computed: "Counted; a wrong byte fails the experiment.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.verified_bytes),
    },
    FileColumn {
        name: "Data seed",
        field: "data_seed",
        meaning: "What the written data can be made again from.",
        computed: "The plan's, or a random one that stands in the files.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.single(|trial| trial.data_seed),
    },
    FileColumn {
        name: "Outcome",
        field: "outcome",
        meaning: "measured, skipped or failed, of the whole experiment: a phase that had ended before another one \
             failed is a row all the same.",
        computed: "The record's outcome.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.outcome().0.into(),
    },
    FileColumn {
        name: "Why",
        field: "outcome_why",
        meaning: "Why the experiment was skipped, or how it failed.",
        computed: "The record's outcome.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.outcome().1.into(),
    },
];

fn cpu_per_operation(row: &Row<'_>) -> Value {
    let Some(trial) = row.trial else {
        return row.summary(|summary| summary.cpu_ns_per_operation);
    };
    let operations = Some(trial.operations).filter(|operations| *operations > 0);
    operations
        .map(|operations| trial.transfer_cpu_ns as f64 / operations as f64)
        .into()
}

fn cpu_per_gib(row: &Row<'_>) -> Value {
    let Some(trial) = row.trial else {
        return row.summary(|summary| summary.cpu_ns_per_gib);
    };
    let bytes = Some(trial.payload_bytes).filter(|bytes| *bytes > 0);
    bytes
        .map(|bytes| trial.cpu_ns as f64 / (bytes as f64 / GIB))
        .into()
}

fn stonewall(row: &Row<'_>, of: fn(&StonewallFigures) -> f64) -> Value {
    row.known(|trial| trial.stonewall.as_ref().map(of))
}
