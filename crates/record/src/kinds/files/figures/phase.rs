//! Figures of a phase: its bandwidth in IOR's unit, its times, and its CPU cost.

use crate::figures::{Better, Figure, GIGA, Row, Style, Value};
use crate::files::{PhaseRecord, PhaseTrial};

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;

/// Nanoseconds as seconds.
pub(super) const SECONDS: Style = GIGA;

/// How times that span several ranks are computed.
const BY_RANK_0: &str =
    "Mean over the trials, by rank 0's clock; the offsets of other hosts' clocks are taken away.";

/// Phase of the row, and the direction of its transfers.
pub const PART: &[Figure] = &[
    Figure {
        name: "Phase",
        field: "phase",
        meaning: "Phase of the experiment: write (all transfers are writes), read (all are reads) or mixed (a fixed part \
             are reads).",
        computed: "The record's phases, in their order.",
        value: |row| {
            let phase = row
                .record
                .file()
                .and_then(|body| body.phase_around(row.part));
            phase.map(|phase| phase.phase.name()).into()
        },
        ..Figure::PLAIN
    },
    Figure {
        name: "Transfers",
        field: "transfers",
        meaning: "Transfers of the phase that the latencies are of: writes or reads.",
        computed: "A mixed phase has a row for each.",
        value: |row| {
            let transfers = row.record.file().and_then(|body| body.transfers(row.part));
            transfers
                .map(|transfers| if transfers.write { "writes" } else { "reads" })
                .into()
        },
        ..Figure::PLAIN
    },
];

/// Rates and times.
pub const TIMES: &[Figure] = &[
    Figure {
        name: "Avg BW (MiB/s)",
        field: "bandwidth_mib_per_s_mean",
        meaning: "Avg BW in the unit that IOR prints: MiB of 2^20 bytes per second.",
        computed: "Mean over the trials of payload bytes / 2^20 / Total.",
        better: Some(Better::High),
        value: |row| mean(row, bandwidth_mib_per_s),
        trials: Some(|row| trials(row, bandwidth_mib_per_s)),
        ..Figure::PLAIN
    },
    Figure {
        name: "IOPS (op/s)",
        field: "operations_per_s_mean",
        keep: 60,
        meaning: "Transfers per second over all ranks together as IOR defines it: opening and closing are not inside. k, M \
             and G are 1e3, 1e6 and 1e9.",
        computed: "Mean over the trials of transfers made / Transfer.",
        style: Style::Rate,
        better: Some(Better::High),
        value: |row| mean(row, operations_per_s),
        trials: Some(|row| trials(row, operations_per_s)),
    },
    Figure {
        name: "Open (s)",
        field: "open_ns_mean",
        meaning: "Time of opening, from the first rank's begin to the last rank's end.",
        computed: BY_RANK_0,
        value: |row| mean(row, open_ns),
        trials: Some(|row| trials(row, open_ns)),
        ..Figure::TIME_S
    },
    Figure {
        name: "Transfer (s)",
        field: "transfer_ns_mean",
        meaning: "Time from the first transfer's begin on any rank to the last one's end, its sync included.",
        computed: BY_RANK_0,
        value: |row| mean(row, transfer_ns),
        trials: Some(|row| trials(row, transfer_ns)),
        ..Figure::TIME_S
    },
    Figure {
        name: "Sync (s)",
        field: "sync_ns_mean",
        meaning: "Time that the slowest rank waited for its data to be on stable storage, all its syncs together; part of \
             Transfer. Absent if there were none.",
        computed: "Mean over the trials of the largest of the ranks' sums.",
        value: |row| mean(row, sync_ns),
        trials: Some(|row| trials(row, sync_ns)),
        ..Figure::TIME_S
    },
    Figure {
        name: "Close (s)",
        field: "close_ns_mean",
        meaning: "Time of closing, from the first rank's begin to the last rank's end.",
        computed: BY_RANK_0,
        value: |row| mean(row, close_ns),
        trials: Some(|row| trials(row, close_ns)),
        ..Figure::TIME_S
    },
    Figure {
        name: "Total (s)",
        field: "total_ns_mean",
        meaning: "Time from the first rank's begin of opening to the last rank's end of closing.",
        computed: BY_RANK_0,
        value: |row| mean(row, total_ns),
        trials: Some(|row| trials(row, total_ns)),
        ..Figure::TIME_S
    },
];

/// CPU cost per GiB.
pub const CPU_OF_BYTES: &[Figure] = &[Figure {
    name: "CPU (s/GiB)",
    field: "cpu_ns_per_gib",
    meaning: "CPU time for each GiB of 2^30 bytes, opening and closing included.",
    computed: "CPU time of all threads that made transfers, from open to close / payload bytes x 2^30.",
    value: |row| phase(row).map(|phase| phase.summary.cpu_ns_per_gib).into(),
    trials: Some(|row| trials(row, cpu_ns_per_gib)),
    ..Figure::TIME_S
}];

pub(super) fn phase<'a>(row: &Row<'a>) -> Option<&'a PhaseRecord> {
    row.record.file()?.phase(row.part)
}

/// Returns a figure of each trial of the row's phase.
pub(super) fn trials(row: &Row<'_>, of: fn(&PhaseTrial) -> Option<f64>) -> Vec<Option<f64>> {
    let trials = phase(row).into_iter().flat_map(|phase| &phase.trials);
    trials.map(of).collect()
}

/// Returns the mean over those trials that have the figure.
pub(super) fn mean(row: &Row<'_>, of: fn(&PhaseTrial) -> Option<f64>) -> Value {
    let values: Vec<f64> = trials(row, of).into_iter().flatten().collect();
    let sum: f64 = values.iter().sum();
    (!values.is_empty())
        .then(|| sum / values.len() as f64)
        .into()
}

fn bandwidth_mib_per_s(trial: &PhaseTrial) -> Option<f64> {
    Some(trial.bandwidth_bytes_per_s / MIB)
}

fn operations_per_s(trial: &PhaseTrial) -> Option<f64> {
    Some(trial.operations_per_s)
}

fn open_ns(trial: &PhaseTrial) -> Option<f64> {
    Some(trial.open_ns as f64)
}

fn transfer_ns(trial: &PhaseTrial) -> Option<f64> {
    Some(trial.transfer_ns as f64)
}

fn sync_ns(trial: &PhaseTrial) -> Option<f64> {
    trial.sync_of_rank.map(|times| times.ns_max as f64)
}

fn close_ns(trial: &PhaseTrial) -> Option<f64> {
    Some(trial.close_ns as f64)
}

fn total_ns(trial: &PhaseTrial) -> Option<f64> {
    Some(trial.total_ns as f64)
}

fn cpu_ns_per_gib(trial: &PhaseTrial) -> Option<f64> {
    let gib = trial.payload_bytes as f64 / GIB;
    (gib > 0.0).then(|| trial.cpu_ns as f64 / gib)
}
