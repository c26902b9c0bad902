//! Figures of kinds that move bytes: bandwidth, its upper bound, and amounts.

use super::{Better, Figure, GIGA, PERCENT, Row, Style, Value};
use crate::body::{Moved, MovedInTrial};
use crate::bound::Bound;
use crate::spread::Spread;

/// Bandwidth over the trials.
pub const BANDWIDTH: &[Figure] = &[
    Figure {
        name: "Avg BW (GB/s)",
        field: "bandwidth_bytes_per_s_mean",
        keep: 90,
        meaning: "Bandwidth over all ranks together, GB of 1e9 bytes per second. A trial of a transfer counts from its \
             aligned start to the last completion or arrival on any rank, the closing flush included, so it is what the \
             path keeps up, pauses between batches included. A trial of files counts as IOR does: opening, syncing and \
             closing are inside. A row of a stress is one trial: the measured intervals of all its transfers together.",
        computed: "Mean over the trials of payload bytes / measured interval.",
        value: |row| bandwidth(row, |spread| Some(spread.mean)),
        trials: Some(bandwidths),
        ..Figure::BANDWIDTH
    },
    Figure {
        name: "CI95 (%)",
        field: "bandwidth_ci95_fraction",
        keep: 70,
        meaning: "Half width of the 95 % confidence interval of Avg BW, as a part of it: the mean of many such runs lies \
             within this distance 19 times out of 20. Not available for a single trial.",
        computed: CI95,
        style: PERCENT,
        value: |row| bandwidth(row, Spread::ci95_fraction),
        ..Figure::PLAIN
    },
    Figure {
        name: "Min trial BW (GB/s)",
        field: "bandwidth_bytes_per_s_min",
        keep: 10,
        meaning: "Bandwidth of the slowest trial, GB of 1e9 bytes per second.",
        computed: "Smallest payload bytes / measured interval of the trials.",
        value: |row| bandwidth(row, |spread| Some(spread.min)),
        ..Figure::BANDWIDTH
    },
    Figure {
        name: "Max trial BW (GB/s)",
        field: "bandwidth_bytes_per_s_max",
        keep: 10,
        meaning: "Bandwidth of the fastest trial, GB of 1e9 bytes per second.",
        computed: "Largest payload bytes / measured interval of the trials.",
        value: |row| bandwidth(row, |spread| Some(spread.max)),
        ..Figure::BANDWIDTH
    },
];

pub(crate) const CI95: &str = "Student's t with (trials - 1) degrees of freedom x sample standard deviation across trials / \
     square root of the trials / mean.";

/// Operations per second over the trials.
pub const MESSAGE_RATE: &[Figure] = &[Figure {
    name: "Msg rate (op/s)",
    field: "message_rate_per_s_mean",
    keep: 40,
    meaning: "Operations per second over all ranks together; k, M and G are 1e3, 1e6 and 1e9. A round trip of a \
         ping-pong is two operations.",
    computed: "Mean over the trials of operations / measured interval.",
    style: Style::Rate,
    better: Some(Better::High),
    value: |row| moved(row, |moved| moved.message_rate_per_s),
    trials: Some(message_rates),
}];

/// Upper bound, and how close the bandwidth comes to it.
pub const BOUND: &[Figure] = &[
    Figure {
        name: "Util (%)",
        field: "utilization",
        keep: 80,
        meaning: "Part of its bound that the bandwidth reaches; the line under the table names the bound.",
        computed: "Avg BW / Bound.",
        style: PERCENT,
        better: Some(Better::High),
        value: |row| moved(row, |moved| moved.utilization),
        trials: Some(utilizations),
    },
    Figure {
        name: "Bound (GB/s)",
        field: "bound_bytes_per_s",
        keep: 60,
        meaning: "Upper bound that the bandwidth is compared with, GB of 1e9 bytes per second.",
        computed: "Measured around the point, read from the device, or stated by the user; `bound_what` describes it.",
        style: GIGA,
        value: |row| bound(row).map(|bound| bound.bytes_per_s).into(),
        ..Figure::PLAIN
    },
    Figure {
        name: "Bound what",
        field: "bound_what",
        meaning: "The bound in words, such as one sequential direct stream of the storage.",
        computed: "Provided together with the bound.",
        value: |row| bound(row).map(|bound| bound.what.as_str()).into(),
        ..Figure::PLAIN
    },
];

/// CPU cost of an operation.
pub const CPU: &[Figure] = &[Figure {
    name: "CPU (ns/op)",
    field: "cpu_ns_per_operation",
    keep: 20,
    meaning: "CPU time that the threads which issue operations spend on one: the initiators' threads, or a rank's own \
         threads with files (their share of the syncs included, opening and closing not). Threads that spin use all of \
         their CPU's time, so this is the price of polling too; the kernel's own threads are not in it.",
    computed: "CPU time of these threads while they issue operations / operations.",
    style: Style::Scaled(1.0),
    better: Some(Better::Low),
    value: |row| moved(row, |moved| moved.cpu_ns_per_operation),
    trials: Some(cpu_times),
}];

const VERIFIED_OF: Figure = Figure {
    name: "Verified (B)",
    field: "verified_bytes",
    meaning: "Bytes of all trials that were verified; absent if none were checked. \
             Of a transfer those of the last visit of each slot, or with verify=each of every operation. Relative to \
             Payload they are the coverage.",
    computed: "Sum over the trials; a wrong byte fails the point.",
    value: |row| row.body().verified_bytes(row.part).into(),
    ..Figure::PLAIN
};

/// Verified bytes, for kinds that don't count operations.
pub const VERIFIED: &[Figure] = &[VERIFIED_OF];

/// Amounts of all trials.
pub const AMOUNTS: &[Figure] = &[
    Figure {
        name: "Operations",
        field: "operations",
        meaning: "Operations of all trials; of files, reads and writes.",
        computed: "Counted; a round trip of a ping-pong is two.",
        value: |row| moved(row, |moved| moved.operations),
        ..Figure::PLAIN
    },
    Figure {
        name: "Payload (B)",
        field: "payload_bytes",
        meaning: "Payload bytes of all trials.",
        computed: "Sum over the operations.",
        value: |row| moved(row, |moved| moved.payload_bytes),
        ..Figure::PLAIN
    },
    Figure {
        name: "In flight",
        field: "in_flight_max",
        meaning: "Maximum number of operations that one thread actually had in flight, over all its lanes; the depth is \
             the maximum allowed.",
        computed: "Largest over the threads, ranks and trials of operations posted and not yet seen to end.",
        value: |row| {
            trials(row)
                .filter_map(|trial| trial.in_flight_max)
                .max()
                .into()
        },
        ..Figure::PLAIN
    },
    VERIFIED_OF,
];

fn moved<T: Into<Value>>(row: &Row<'_>, of: fn(&Moved<'_>) -> T) -> Value {
    row.body().moved(row.part).as_ref().map(of).into()
}

/// Returns a figure of the bandwidth; unknown if the engine moves no bytes.
fn bandwidth(row: &Row<'_>, of: fn(&Spread) -> Option<f64>) -> Value {
    let moved = row.body().moved(row.part);
    let moved = moved.filter(|moved| moved.payload_bytes > 0);
    let value = moved.and_then(|moved| of(&moved.bandwidth_bytes_per_s));
    value.into()
}

fn bound<'a>(row: &Row<'a>) -> Option<&'a Bound> {
    let own = row.body().moved(row.part).and_then(|moved| moved.bound);
    own.or(row.record.bound.as_ref())
}

fn trials(row: &Row<'_>) -> impl Iterator<Item = MovedInTrial> {
    let moved = row.body().moved(row.part);
    moved.into_iter().flat_map(|moved| moved.trials)
}

fn bandwidths(row: &Row<'_>) -> Vec<Option<f64>> {
    // A trial without bytes has a bandwidth of 0 if other trials moved bytes. If no trial did, the bandwidth is
    // unknown.
    let moved = row.body().moved(row.part);
    let moves_bytes = moved.is_some_and(|moved| moved.payload_bytes > 0);
    trials(row)
        .map(|trial| moves_bytes.then_some(trial.bandwidth_bytes_per_s))
        .collect()
}

fn message_rates(row: &Row<'_>) -> Vec<Option<f64>> {
    trials(row).map(|trial| trial.message_rate_per_s).collect()
}

fn cpu_times(row: &Row<'_>) -> Vec<Option<f64>> {
    trials(row)
        .map(|trial| trial.cpu_ns_per_operation)
        .collect()
}

/// Returns the utilization of each trial; unknown if the record has none, for example for reads from the page cache.
fn utilizations(row: &Row<'_>) -> Vec<Option<f64>> {
    let said = row
        .body()
        .moved(row.part)
        .and_then(|moved| moved.utilization);
    let bound = bound(row).filter(|bound| bound.bytes_per_s > 0.0 && said.is_some());
    let of = |bandwidth: f64| bound.map(|bound| bandwidth / bound.bytes_per_s);
    trials(row)
        .map(|trial| of(trial.bandwidth_bytes_per_s))
        .collect()
}
