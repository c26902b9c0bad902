//! Figures of individual ranks in a phase, and of events during the phase.

use super::phase::{SECONDS, mean, phase, trials};
use crate::figures::{Better, Figure, Row, Value};
use crate::files::{PhaseTrial, StonewallFigures};

const BY_RANK_0: &str =
    "Mean over the trials, by rank 0's clock; the offsets of other hosts' clocks are taken away.";

/// Times of individual ranks.
pub const RANKS: &[Figure] = &[
    Figure {
        name: "Open slowest (s)",
        field: "open_ns_rank_max",
        meaning: "Time that the slowest rank took to open its files.",
        computed: "Largest over the ranks and trials.",
        value: |row| most(row, |trial| Some(trial.open_of_rank.ns_max)),
        trials: Some(|row| trials(row, |trial| Some(trial.open_of_rank.ns_max as f64))),
        ..Figure::TIME_S
    },
    Figure {
        name: "Transfer fastest (s)",
        field: "transfer_ns_rank_min",
        meaning: "Time that the fastest rank took for its transfers, sync included.",
        computed: "Smallest over the ranks and trials.",
        value: |row| {
            let times = of_trials(row).map(|trial| trial.transfer_of_rank.ns_min);
            times.min().into()
        },
        trials: Some(|row| trials(row, |trial| Some(trial.transfer_of_rank.ns_min as f64))),
        ..Figure::TIME_S
    },
    Figure {
        name: "Transfer mean (s)",
        field: "transfer_ns_rank_mean",
        meaning: "Time that a rank took for its transfers, sync included.",
        computed: "Mean over the ranks and trials.",
        value: |row| mean(row, |trial| Some(trial.transfer_of_rank.ns_mean)),
        trials: Some(|row| trials(row, |trial| Some(trial.transfer_of_rank.ns_mean))),
        ..Figure::TIME_S
    },
    Figure {
        name: "Transfer slowest (s)",
        field: "transfer_ns_rank_max",
        meaning: "Time that the slowest rank took for its transfers, sync included.",
        computed: "Largest over the ranks and trials.",
        value: |row| most(row, |trial| Some(trial.transfer_of_rank.ns_max)),
        trials: Some(|row| trials(row, |trial| Some(trial.transfer_of_rank.ns_max as f64))),
        ..Figure::TIME_S
    },
    Figure {
        name: "Slowest rank",
        field: "slowest_rank",
        meaning: "The rank that took Transfer slowest.",
        computed: "Its number.",
        value: |row| {
            let slowest = of_trials(row).max_by_key(|trial| trial.transfer_of_rank.ns_max);
            slowest.map(|trial| trial.transfer_of_rank.slowest).into()
        },
        ..Figure::PLAIN
    },
    Figure {
        name: "Outliers",
        field: "outliers",
        meaning: "Ranks that took much longer than the mean for their transfers; at most 8 are named.",
        computed: "Most of any trial, counted among those that the record names.",
        better: Some(Better::Low),
        value: |row| most(row, |trial| Some(trial.outliers.len() as u64)),
        ..Figure::PLAIN
    },
    Figure {
        name: "First done (s)",
        field: "first_done_ns_mean",
        meaning: "Time at which the first rank had made all its transfers.",
        computed: BY_RANK_0,
        style: SECONDS,
        value: |row| mean(row, |trial| Some(trial.first_done_ns as f64)),
        trials: Some(|row| trials(row, |trial| Some(trial.first_done_ns as f64))),
        ..Figure::PLAIN
    },
    Figure {
        name: "First done (B)",
        field: "first_done_bytes_mean",
        meaning: "Bytes that all ranks together had moved when the first was done.",
        computed: "Mean over the trials, from the ranks' timelines, exact to one interval of the series.",
        value: |row| mean(row, |trial| Some(trial.first_done_bytes as f64)),
        trials: Some(|row| trials(row, |trial| Some(trial.first_done_bytes as f64))),
        ..Figure::PLAIN
    },
    Figure {
        name: "Last done (s)",
        field: "last_done_ns_mean",
        meaning: "Time at which the last rank had made all its transfers.",
        computed: BY_RANK_0,
        value: |row| mean(row, |trial| Some(trial.last_done_ns as f64)),
        trials: Some(|row| trials(row, |trial| Some(trial.last_done_ns as f64))),
        ..Figure::TIME_S
    },
];

/// Number of reads, stonewall, page cache, and data seed.
pub const EVENTS: &[Figure] = &[
    Figure {
        name: "Reads",
        field: "reads",
        meaning: "Reads among the operations of all trials.",
        computed: "Counted.",
        value: |row| {
            let reads = of_trials(row).map(|trial| trial.reads);
            reads.reduce(u64::saturating_add).into()
        },
        ..Figure::PLAIN
    },
    Figure {
        name: "Stonewall (B)",
        field: "stonewall_payload_bytes_mean",
        meaning: "Bytes of all ranks when the stonewall came.",
        computed: "Mean over the trials of the transfers that had ended by then, exactly.",
        better: Some(Better::High),
        value: |row| mean(row, stonewall_bytes),
        trials: Some(|row| trials(row, stonewall_bytes)),
        ..Figure::PLAIN
    },
    Figure {
        name: "Stonewall BW (GB/s)",
        field: "stonewall_bandwidth_bytes_per_s_mean",
        meaning: "Bandwidth up to the stonewall, when all ranks were still at work; opening and closing are not inside.",
        computed: "Mean over the trials of the bytes of all ranks when the stonewall came / time from the first transfer's \
             begin to it.",
        value: |row| mean(row, stonewall_bandwidth),
        trials: Some(|row| trials(row, stonewall_bandwidth)),
        ..Figure::BANDWIDTH
    },
    Figure {
        name: "Cache resident (B)",
        field: "cache_resident_bytes_max",
        meaning: "Bytes of those to be read that lay in the page caches of the ranks' hosts before the phase began. Absent \
             for writes, and if it could not be determined.",
        computed: "Most of any trial, by cachestat or mincore; the record says which.",
        value: |row| most(row, resident_bytes),
        trials: Some(|row| trials(row, |trial| resident_bytes(trial).map(|bytes| bytes as f64))),
        ..Figure::PLAIN
    },
    Figure {
        name: "Cache asked (B)",
        field: "cache_asked_bytes",
        meaning: "Bytes that the phase was going to read in a trial, for comparison with Cache resident.",
        computed: "From the layout.",
        value: |row| most(row, |trial| trial.cache.as_ref().map(|cache| cache.bytes)),
        ..Figure::PLAIN
    },
    Figure {
        name: "Data seed",
        field: "data_seed",
        meaning: "Seed from which the data can be generated again; absent if the trials have several.",
        computed: "The plan's, or a random one that is stored in the files.",
        value: |row| {
            let mut seeds: Vec<u64> = of_trials(row).filter_map(|trial| trial.data_seed).collect();
            seeds.dedup();
            (seeds.len() == 1).then(|| seeds[0]).into()
        },
        ..Figure::PLAIN
    },
];

fn of_trials<'a>(row: &Row<'a>) -> impl Iterator<Item = &'a PhaseTrial> {
    phase(row).into_iter().flat_map(|phase| &phase.trials)
}

fn most(row: &Row<'_>, of: fn(&PhaseTrial) -> Option<u64>) -> Value {
    of_trials(row).filter_map(of).max().into()
}

fn stonewall(trial: &PhaseTrial, of: fn(&StonewallFigures) -> f64) -> Option<f64> {
    trial.stonewall.as_ref().map(of)
}

fn stonewall_bytes(trial: &PhaseTrial) -> Option<f64> {
    stonewall(trial, |figures| figures.payload_bytes as f64)
}

fn stonewall_bandwidth(trial: &PhaseTrial) -> Option<f64> {
    stonewall(trial, |figures| figures.bandwidth_bytes_per_s)
}

fn resident_bytes(trial: &PhaseTrial) -> Option<u64> {
    let cache = trial.cache.as_ref().filter(|cache| cache.known)?;
    Some(cache.resident_bytes)
}
