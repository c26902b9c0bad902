//! Columns of the latencies of single transfers.

use super::{FileColumn, InCsv, Style};

const MICROSECONDS: Style = Style::Scaled(1e-3);
const FROM_HISTOGRAM: &str = "From one histogram of all transfers of all repetitions, ranks and threads, with three \
     significant digits; never below the minimum or above the maximum, which are exact.";

/// Columns of latencies of single transfers.
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
        meaning: "Smallest latency of a single transfer. A latency is from a transfer's call (with several in flight: \
             its post) to its end; a sync that --fsync each adds is in Sync (s) and not in it.",
        computed: "Exact.",
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_min),
    },
    FileColumn {
        name: "Avg Lat (us)",
        field: "latency_ns_mean",
        meaning: "Mean latency of a single transfer. A latency is from a transfer's call (with several in flight: its \
             post) to its end; a sync that --fsync each adds is in Sync (s) and not in it.",
        computed: "Sum of all / their number, exact.",
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_mean),
    },
    FileColumn {
        name: "p50 (us)",
        field: "latency_ns_p50",
        meaning: "Median latency of a single transfer. A latency is from a transfer's call (with several in flight: \
             its post) to its end; a sync that --fsync each adds is in Sync (s) and not in it.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_p50),
    },
    FileColumn {
        name: "p90 (us)",
        field: "latency_ns_p90",
        meaning: "Latency that 90 % of the transfers did not exceed. A latency is from a transfer's call (with several \
             in flight: its post) to its end; a sync that --fsync each adds is in Sync (s) and not in it.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_p90),
    },
    FileColumn {
        name: "p99 (us)",
        field: "latency_ns_p99",
        meaning: "Latency that 99 % of the transfers did not exceed. A latency is from a transfer's call (with several \
             in flight: its post) to its end; a sync that --fsync each adds is in Sync (s) and not in it.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_p99),
    },
    FileColumn {
        name: "p99.9 (us)",
        field: "latency_ns_p999",
        meaning: "Latency that 99.9 % of the transfers did not exceed. A latency is from a transfer's call (with \
             several in flight: its post) to its end; a sync that --fsync each adds is in Sync (s) and not in it.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_p999),
    },
    FileColumn {
        name: "Max Lat (us)",
        field: "latency_ns_max",
        meaning: "Largest latency of a single transfer. A latency is from a transfer's call (with several in flight: \
             its post) to its end; a sync that --fsync each adds is in Sync (s) and not in it.",
        computed: "Exact.",
        style: MICROSECONDS,
        in_csv: InCsv::Twice,
        value: |row| row.latency(|latency| latency.latency_ns_max),
    },
];
