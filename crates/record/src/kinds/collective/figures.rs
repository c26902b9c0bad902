//! Figures of collectives. A record has one row per backend.

use crate::collective::{BackendResult, CollectiveBody, CollectiveSummary, CollectiveTrial};
use crate::figures::common::{ASKED, MEMORY, OPERATION, OUTCOME};
use crate::figures::engine::ENGINE;
use crate::figures::latency::LATENCY;
use crate::figures::moved::{CI95, VERIFIED};
use crate::figures::{Better, Figure, Figures, PERCENT, Row, TrialValues, Value};
use tonnage_collective::Collective;
use tonnage_plan::collective::RankTime;

/// All figures of a record of a collective.
pub const FIGURES: Figures = &[
    ASKED, ENGINE, MEMORY, OPERATION, CALL, TIMES, BANDWIDTH, LATENCY, VERIFIED, OUTCOME, BACKEND,
];

/// Figures that follow from the point alone, even if it was not measured.
pub(crate) const FROM_POINT: Figures = &[CALL];

const BY_BACKEND: &str = "As it was asked for, or as the backend chose it in the warm-up.";
const MEAN: &str = "Mean over iterations and trials.";

const CALL: &[Figure] = &[
    Figure::of_option(
        "Size (B)",
        "call_size_bytes",
        "Bytes of each rank for all-reduce, reduce, broadcast and send-recv-*, of all ranks together for other collectives; \
         whole elements of each rank.",
        |row| {
            let body = body(row).filter(|body| body.point.op != Collective::Barrier);
            body.map(|body| body.point.shape().size_bytes()).into()
        },
    ),
    Figure::of_option(
        "Rank gives (B)",
        "call_input_bytes_max",
        "Bytes that a rank gives to a collective: of the one that gives most.",
        |row| amount(row, |body, rank| body.point.shape().input_bytes(rank)),
    ),
    Figure::of_option(
        "Rank gets (B)",
        "call_output_bytes_max",
        "Bytes that a rank gets from a collective: of the one that gets most.",
        |row| amount(row, |body, rank| body.point.shape().output_bytes(rank)),
    ),
    Figure::of_option(
        "Dtype",
        "dtype",
        "Type of the elements of a collective.",
        |row| {
            let body = body(row).filter(|body| body.point.op != Collective::Barrier);
            body.map(|body| body.point.dtype.name()).into()
        },
    ),
    Figure::of_option(
        "Reduction",
        "reduction",
        "Operation that combines the elements, if the collective reduces.",
        |row| {
            let reduction = body(row).and_then(|body| body.point.reduction);
            reduction.map(|reduction| reduction.name()).into()
        },
    ),
    Figure::of_option(
        "Root",
        "root",
        "Root of a collective that has one.",
        |row| {
            let body = body(row).filter(|body| body.point.op.is_rooted());
            body.map(|body| body.point.root).into()
        },
    ),
    Figure::of_option(
        "Align",
        "align",
        "Alignment of the ranks before each call: by the library's barrier, or none.",
        |row| body(row).map(|body| body.point.align.name()).into(),
    ),
    Figure::of_option(
        "Refill",
        "refill",
        "When inputs are rewritten: before each iteration, or only before each trial.",
        |row| body(row).map(|body| body.point.refill.name()).into(),
    ),
    Figure {
        computed: BY_BACKEND,
        ..Figure::of_option(
            "In place",
            "really_in_place",
            "Results of a collective take the place of its inputs; some libraries always do it.",
            |row| backend(row).map(|it| it.really_in_place).into(),
        )
    },
    Figure {
        computed: BY_BACKEND,
        ..Figure::of_option(
            "Algorithm",
            "chosen_algorithm",
            "Algorithm of a collective; absent if a library does not report it.",
            |row| {
                let algorithm = backend(row).and_then(|it| it.chosen_algorithm);
                algorithm.map(|algorithm| algorithm.name()).into()
            },
        )
    },
    Figure {
        computed: BY_BACKEND,
        ..Figure::of_option(
            "Message (B)",
            "chosen_chunk_bytes",
            "Longest message of a collective; absent if a library does not report it.",
            |row| backend(row).and_then(|it| it.chosen_chunk_bytes).into(),
        )
    },
];

const TIMES: &[Figure] = &[
    Figure {
        name: "Iterations",
        field: "iterations",
        meaning: "Calls of a collective in all trials, each by all ranks.",
        computed: "Counted.",
        value: |row| summary(row, |it| it.iterations),
        ..Figure::PLAIN
    },
    Figure {
        name: "Time (us)",
        field: "call_ns_mean",
        keep: 90,
        meaning: "Time of one call of a collective, on its slowest rank unless --rank-time selects another.",
        computed: "Each rank's own begin to end; combined over ranks for each iteration, then the mean over iterations and \
             trials. Where calls follow each other, all of a trial / their number.",
        value: |row| summary(row, |it| it.call_ns.mean),
        trials: Some(|row| of_trials(row, |_, ns| ns)),
        ..Figure::TIME_US
    },
    Figure {
        name: "Time CI95 (%)",
        field: "call_ci95_fraction",
        keep: 70,
        meaning: "Half width of the 95 % confidence interval of Time, as a part of it. Not available for a single trial.",
        computed: CI95,
        style: PERCENT,
        value: |row| summary(row, |it| it.call_ns.ci95_fraction()),
        ..Figure::PLAIN
    },
    Figure {
        name: "Slowest (us)",
        field: "call_ns_rank_max",
        meaning: "Time of a call on its slowest rank.",
        computed: MEAN,
        value: |row| summary(row, |it| it.call_ns_rank_max),
        ..Figure::TIME_US
    },
    Figure {
        name: "Ranks' mean (us)",
        field: "call_ns_rank_mean",
        meaning: "Time of a call, mean over the ranks.",
        computed: MEAN,
        value: |row| summary(row, |it| it.call_ns_rank_mean),
        ..Figure::TIME_US
    },
    Figure {
        name: "Fastest (us)",
        field: "call_ns_rank_min",
        meaning: "Time of a call on its fastest rank.",
        computed: MEAN,
        value: |row| summary(row, |it| it.call_ns_rank_min),
        ..Figure::TIME_US
    },
];

const BANDWIDTH: &[Figure] = &[
    Figure {
        name: "AlgBW (GB/s)",
        field: "algbw_bytes_per_s_mean",
        keep: 60,
        meaning: "Bandwidth of the algorithm: size / time of a call, GB of 1e9 bytes per second.",
        computed: "Of the mean time over the trials.",
        value: |row| summary(row, |it| Some(it.algbw_bytes_per_s?.mean)),
        ..Figure::BANDWIDTH
    },
    Figure {
        name: "BusBW (GB/s)",
        field: "busbw_bytes_per_s_mean",
        keep: 80,
        meaning: "Bus bandwidth: the minimum that the busiest link must have carried, independent of the algorithm. n/a for one rank.",
        computed: "AlgBW × 2(n-1)/n for all-reduce, (n-1)/n for reduce-scatter, all-gather, all-to-all, gather and scatter, \
             1 for broadcast, reduce and send-recv-*.",
        value: |row| summary(row, |it| Some(it.busbw_bytes_per_s?.mean)),
        ..Figure::BANDWIDTH
    },
    Figure {
        name: "Bus util (%)",
        field: "busbw_bound_fraction",
        keep: 60,
        meaning: "Part of its bound that the bandwidth of the bus reaches.",
        computed: "BusBW / the bandwidth that --bound states, or that was measured: copies of the same memory by all ranks that send at \
             once, per rank; or the speed of the slowest link. Absent for rooted operations, and if nothing was measured.",
        style: PERCENT,
        better: Some(Better::High),
        value: |row| summary(row, |it| it.busbw_bound_fraction),
        ..Figure::PLAIN
    },
];

const BACKEND: &[Figure] = &[
    Figure {
        name: "Backend outcome",
        field: "backend_outcome",
        meaning: "End of a point on one backend: measured, skipped or failed.",
        computed: "Decided when the point ends.",
        value: |row| backend(row).map(|it| it.backend_outcome.status()).into(),
        ..Figure::PLAIN
    },
    Figure {
        name: "Backend why",
        field: "backend_why",
        meaning: "Reason that a point was skipped or failed on one backend, and the next thing to do.",
        computed: "Reported by the part of the program that stopped it.",
        value: |row| backend(row).and_then(|it| it.backend_outcome.why()).into(),
        ..Figure::PLAIN
    },
];

fn body<'a>(row: &Row<'a>) -> Option<&'a CollectiveBody> {
    row.record.collective()
}

fn backend<'a>(row: &Row<'a>) -> Option<&'a BackendResult> {
    body(row)?.backend(row.part)
}

fn summary<T: Into<Value>>(row: &Row<'_>, of: fn(&CollectiveSummary) -> T) -> Value {
    let summary = backend(row).and_then(|backend| backend.summary.as_ref());
    summary.map(of).into()
}

/// Returns the largest number of bytes that any rank gives or gets. It looks only at the first rank, the root and the
/// last rank. All ranks have the same number, except that the root or the second half of the ranks may differ.
fn amount(row: &Row<'_>, of: fn(&CollectiveBody, u32) -> u64) -> Value {
    let body = body(row).filter(|body| body.point.op != Collective::Barrier);
    let most = body.map(|body| {
        let last = body.point.shape().ranks.saturating_sub(1);
        let all = [0, body.point.root, last].map(|rank| of(body, rank));
        all.into_iter().max().unwrap_or(0)
    });
    most.into()
}

/// Returns a value for each trial. `of` gets the trial and its time, combined over ranks by the point's `across`.
fn of_trials(row: &Row<'_>, of: fn(&CollectiveTrial, f64) -> f64) -> TrialValues {
    let across = body(row).map_or(RankTime::Max, |body| body.point.across);
    let trials = backend(row).into_iter().flat_map(|backend| &backend.trials);
    trials
        .map(|trial| Some(of(trial, trial.call_ns(across))))
        .collect()
}

impl CollectiveTrial {
    /// Returns the time of an iteration, combined over the ranks.
    pub fn call_ns(&self, across: RankTime) -> f64 {
        match across {
            RankTime::Max => self.call_ns_rank_max,
            RankTime::Mean => self.call_ns_rank_mean,
            RankTime::Min => self.call_ns_rank_min,
        }
    }
}
