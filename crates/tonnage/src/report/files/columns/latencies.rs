//! Columns of the latencies of single transfers.

use super::{FileColumn, InCsv, Style, Value};

const MICROSECONDS: Style = Style::Scaled(1e-3);
const FROM_HISTOGRAM: &str = "From one histogram of all transfers of all repetitions, ranks and threads, with three \
     significant digits; never below the minimum or above the maximum, which are exact.";

/// What single transfers took.
pub const LATENCIES: &[FileColumn] = &[
    FileColumn {
        name: "Transfers",
        field: "transfers",
        meaning: "Which transfers of the phase the latencies are of: writes or reads.",
        computed: "A mixed phase has both.",
        style: Style::Plain,
        in_csv: InCsv::Not,
        value: |row| {
            row.write
                .map(|write| if write { "writes" } else { "reads" })
                .into()
        },
    },
    FileColumn {
        name: "Samples",
        field: "latency_samples",
        meaning: "Number of transfers whose latency was recorded, all repetitions together.",
        computed: "Counted.",
        style: Style::Plain,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.samples),
    },
    FileColumn {
        name: "Min Lat (us)",
        field: "latency_ns_min",
        meaning: "Latency of a single transfer, from its call (with several in flight: its post) to its end, the sync \
             that --fsync each adds left out. The smallest.",
        computed: "Exact.",
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_min),
    },
    FileColumn {
        name: "Avg Lat (us)",
        field: "latency_ns_mean",
        meaning: "Latency of a single transfer, from its call (with several in flight: its post) to its end, the sync \
             that --fsync each adds left out. The mean.",
        computed: "Sum of all / their number, exact.",
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_mean),
    },
    FileColumn {
        name: "p50 (us)",
        field: "latency_ns_p50",
        meaning: "Latency of a single transfer, from its call (with several in flight: its post) to its end, the sync \
             that --fsync each adds left out. Half of the transfers took no longer.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_p50),
    },
    FileColumn {
        name: "p90 (us)",
        field: "latency_ns_p90",
        meaning: "Latency of a single transfer, from its call (with several in flight: its post) to its end, the sync \
             that --fsync each adds left out. 90 % of the transfers took no longer.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_p90),
    },
    FileColumn {
        name: "p99 (us)",
        field: "latency_ns_p99",
        meaning: "Latency of a single transfer, from its call (with several in flight: its post) to its end, the sync \
             that --fsync each adds left out. 99 % of the transfers took no longer.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_p99),
    },
    FileColumn {
        name: "p99.9 (us)",
        field: "latency_ns_p999",
        meaning: "Latency of a single transfer, from its call (with several in flight: its post) to its end, the sync \
             that --fsync each adds left out. 99.9 % of the transfers took no longer.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_p999),
    },
    FileColumn {
        name: "Max Lat (us)",
        field: "latency_ns_max",
        meaning: "Latency of a single transfer, from its call (with several in flight: its post) to its end, the sync \
             that --fsync each adds left out. The largest.",
        computed: "Exact.",
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_max),
    },
];
